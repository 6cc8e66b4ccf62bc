"""Ancestral sampling: each token is drawn from the combined scores, renormalised (Holtzman et al. 2020, section 2).

With combined scores s and temperature T, token w follows with probability exp(s_w / T) / sum_v exp(s_v / T), over
all tokens that can follow, or over the ``top_k`` best (Fan et al. 2018), or over the ``top_p`` nucleus: the smallest
set of best tokens whose probability reaches p (Holtzman et al. 2020).

Guarantee: each sample is an independent draw of a whole hypothesis with the product of these probabilities. A draw
depends only on the seed, the sentence and the number of the sample, not on batches or other samples. If a sample
reaches a dead end, it is lost and not redrawn.

The list has the ``--nbest`` best of ``samples`` samples, each hypothesis once. So ``samples 1`` is a fair draw; with
more samples the best ones are selected.

Cost: one expansion per token and sample; all samples of a sentence are one batch. Memory: their last nodes.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

import sgdec
from sgdec import Decoder, Node, Result, SearchSpace


class SampleDecoder(Decoder):
    """Hypotheses drawn at random, token by token."""

    def __init__(
        self,
        samples: Annotated[int, Field(ge=1, description="number of samples; the best are listed")] = 1,
        temperature: Annotated[
            float,
            Field(
                gt=0, allow_inf_nan=False, description="divisor of the scores; values below 1 favour likely tokens"
            ),
        ] = 1.0,
        top_k: Annotated[int, Field(ge=0, description="sample from the k best tokens; 0 = from all")] = 0,
        top_p: Annotated[
            float,
            Field(gt=0, le=1, description="sample from the smallest set of best tokens with this probability mass"),
        ] = 1.0,
    ) -> None:
        self.samples = samples
        self.temperature = temperature
        self.top_k = top_k
        self.top_p = top_p

    def decode(self, space: SearchSpace) -> Result:
        unfinished = dict.fromkeys(range(self.samples), space.root)
        finished: dict[tuple[int, ...], Node] = {}
        while unfinished:
            children = space.sample(
                list(unfinished.values()),
                list(unfinished),
                temperature=self.temperature,
                top_k=self.top_k,
                top_p=self.top_p,
            )
            drawn = {number: child for number, child in zip(unfinished, children, strict=True) if child is not None}
            unfinished = {number: node for number, node in drawn.items() if not node.finished}
            for node in drawn.values():
                if node.finished:
                    finished.setdefault(node.tokens, node)
        space.stopped("finished")
        return Result([space.finish(node) for node in space.nbest_of(finished.values())])


@sgdec.hookimpl
def sgdec_decoders() -> dict[str, type[Decoder]]:
    return {"sample": SampleDecoder}
