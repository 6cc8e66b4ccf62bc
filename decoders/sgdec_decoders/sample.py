"""Ancestral sampling: each token is drawn from the combined scores, renormalised (Holtzman et al. 2020, section 2).

With combined scores s, token w follows with probability exp(s_w) / sum_v exp(s_v), over all tokens v that can follow.
The links of ``chain`` change this distribution in the order given: ``temperature``, ``top_k``, ``top_p``, ``min_p``,
``typical``, ``epsilon``, ``eta``, ``top_n_sigma`` and ``mirostat`` (`sgdec.chain` has their definitions and edges):

    --sample.chain temperature=0.7+top_k=50+min_p=0.05

The options ``top_k``, ``temperature`` and ``top_p`` are short for such a chain, in this order.

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
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, NamedTuple

from pydantic import Field

import sgdec
from sgdec import Decoder, Node, Result, SearchSpace, UsageError
from sgdec.chain import UNCHAINED, Chain


class Sample(NamedTuple):
    """One sample so far."""

    node: Node
    log_q: float = 0.0
    state: float | None = None
    """The number that the chain keeps."""


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
        chain: Annotated[
            Chain, Field(description="links that change the distribution, in order: top_k=50+min_p=0.05")
        ] = UNCHAINED,
    ) -> None:
        """Raises UsageError for a chain together with one of the options that are short for one."""
        short = Chain.of(temperature=temperature, top_k=top_k, top_p=top_p)
        if chain.links and short.links:
            raise UsageError(
                f"sample: chain {chain} is given together with {short.links[0].name}; make it a link of the chain."
            )
        self.samples = samples
        self.chain = chain if chain.links else short

    def decode(self, space: SearchSpace) -> Result:
        growing = dict.fromkeys(range(self.samples), Sample(space.root))
        finished: dict[tuple[int, ...], Sample] = {}
        counts: Counter[tuple[int, ...]] = Counter()
        while growing:
            before = growing.values()
            children = space.draw(
                [each.node for each in before], list(growing), self.chain, [each.state for each in before]
            )
            samples = {
                number: Sample(drawn.node, each.log_q + drawn.log_prob, drawn.state)
                for (number, each), drawn in zip(growing.items(), children, strict=True)
                if drawn is not None
            }
            tell(space, growing, samples)
            growing = {number: each for number, each in samples.items() if not each.node.finished}
            for each in samples.values():
                if each.node.finished:
                    counts[each.node.tokens] += 1
                    finished.setdefault(each.node.tokens, each)
        space.stopped("finished")
        best = space.nbest_of(each.node for each in finished.values())
        return Result(
            [
                replace(space.finish(node), count=counts[node.tokens], log_q=finished[node.tokens].log_q)
                for node in best
            ],
            drawn=self.samples,
        )


def tell(space: SearchSpace, before: Mapping[int, Sample], after: Mapping[int, Sample]) -> None:
    """Note beside the last node of each sample that has ended, or is lost, of a search that is traced its number."""
    if space.traced:
        for number, each in before.items():
            last = after.get(number, each).node
            if last.finished or number not in after:
                space.noted(last, f"draw {number + 1}")


@sgdec.hookimpl
def sgdec_decoders() -> dict[str, type[Decoder]]:
    return {"sample": SampleDecoder}
