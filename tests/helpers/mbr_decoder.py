"""Minimum Bayes risk decoding with samples (Eikema and Aziz 2020, "Is MAP Decoding All You Need?", section 6).

Draws ``samples`` hypotheses; each distinct one is ranked by its expected utility, the mean over all samples of how
similar they are: unigram F1, ``</s>`` included. So a sample that was drawn often counts often.

Guarantee: none; the criterion is an estimate. Cost: one expansion a token and sample, and samples squared utilities.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Annotated

from pydantic import Field

import sgdec
from sgdec import Decoder, Node, Result, SearchSpace


class MbrDecoder(Decoder):
    """The sample that is most like the others."""

    ranks_by = "expected utility"

    def __init__(self, samples: Annotated[int, Field(ge=1, description="how many are drawn")] = 8) -> None:
        self.samples = samples

    def decode(self, space: SearchSpace) -> Result:
        drawn = self.draw(space)
        utilities = {node.tokens: self.expected_utility(node, drawn) for node in drawn}
        distinct = {node.tokens: node for node in drawn}
        best = sorted(utilities, key=lambda tokens: (-utilities[tokens], tokens))[: space.nbest]
        return Result([replace(space.finish(distinct[t]), rank_score=utilities[t]) for t in best])

    def draw(self, space: SearchSpace) -> list[Node]:
        """Finished samples; dead ends are left out."""
        growing, finished = dict.fromkeys(range(self.samples), space.root), []
        while growing:
            children = zip(growing, space.sample(list(growing.values()), list(growing)), strict=True)
            grown = {number: child for number, child in children if child is not None}
            finished += [node for node in grown.values() if node.finished]
            growing = {number: node for number, node in grown.items() if not node.finished}
        return finished

    def expected_utility(self, node: Node, samples: list[Node]) -> float:
        return sum(unigram_f1(node.tokens, sample.tokens) for sample in samples) / len(samples)


def unigram_f1(hypothesis: tuple[int, ...], reference: tuple[int, ...]) -> float:
    """2 x matches / all tokens of both."""
    matches = (Counter(hypothesis) & Counter(reference)).total()
    return 2 * matches / (len(hypothesis) + len(reference))


@sgdec.hookimpl
def sgdec_decoders() -> dict[str, type[Decoder]]:
    return {"mbr": MbrDecoder}
