"""Ancestral sampling: each token is drawn from the combined scores, renormalised (Holtzman et al. 2020, section 2).

With combined scores s and temperature T, token w follows with probability exp(s_w / T) / sum_v exp(s_v / T), over
all tokens that can follow, or over the ``top_k`` best (Fan et al. 2018), or over the ``top_p`` nucleus: the smallest
set of best tokens whose probability reaches p (Holtzman et al. 2020).

Guarantee: each sample is an independent draw of a whole hypothesis from q, the product of these probabilities: of
*locally* renormalised distributions, not of exp(total) renormalised over all hypotheses. A draw depends only on the
seed, the sentence and the number of the sample, not on batches or other samples. If a sample reaches a dead end, it
is lost and not redrawn, so the probabilities of all hypotheses can add up to less than 1.

The list has the ``--nbest`` best of ``samples`` samples, each hypothesis once, with the number of its draws (`count`)
and log q (`log_q`); `Result.drawn` counts all samples, lost ones too. So ``samples 1`` is a fair draw; with more
samples the best ones are selected, and with ``--nbest`` of at least ``samples`` the list has them all.

Cost: one expansion per token and sample; all samples of a sentence are one batch. Memory: their last nodes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
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
        unfinished = dict.fromkeys(range(self.samples), (space.root, 0.0))
        finished: dict[tuple[int, ...], tuple[Node, float]] = {}
        counts: Counter[tuple[int, ...]] = Counter()
        while unfinished:
            children = space.sample(
                [node for node, _ in unfinished.values()],
                list(unfinished),
                temperature=self.temperature,
                top_k=self.top_k,
                top_p=self.top_p,
                log_probs=True,
            )
            growing = {}
            for (number, (_, before)), drawn in zip(unfinished.items(), children, strict=True):
                if drawn is None:
                    continue
                node, log_prob = drawn
                if node.finished:
                    counts[node.tokens] += 1
                    finished.setdefault(node.tokens, (node, before + log_prob))
                else:
                    growing[number] = (node, before + log_prob)
            unfinished = growing
        space.stopped("finished")
        listed = space.nbest_of(node for node, _ in finished.values())
        hypotheses = [
            replace(space.finish(node), count=counts[node.tokens], log_q=finished[node.tokens][1]) for node in listed
        ]
        return Result(hypotheses, drawn=self.samples)


@sgdec.hookimpl
def sgdec_decoders() -> dict[str, type[Decoder]]:
    return {"sample": SampleDecoder}
