"""Solutions of assignment ``decode_this`` with one mistake each, and the promises that it breaks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sgdec import Decoder, Node, Result, SearchSpace
from tests.course_solutions.my_decode_this import MyDecoder

MODEL = "model: the translation model and a lattice"
BIGRAMS = "bigrams: a lattice and a bigram table"
LATTICES = "lattices: two lattices and a bigram table"
EXCEEDED = "the budget is never exceeded, however small it is"
OUTPUT = "a budget of one expansion per token is enough for an output, if there are no dead ends"
LARGE = "with a large budget it finds the best of all paths"
COMPLETE = "hypotheses are complete and within the length limit"
SIDE_BY_SIDE = "one decoder searches many spaces side by side"
HALF = "half of the budget on bigrams: half of the way"

WRONG: list[tuple[type[Decoder], set[str]]] = []


def breaks(*promises: str) -> Callable[[type[Decoder]], type[Decoder]]:
    """Marks a class with one mistake, and names all promises that it breaks."""

    def mark(cls: type[Decoder]) -> type[Decoder]:
        WRONG.append((cls, set(promises)))
        return cls

    return mark


@breaks(MODEL, BIGRAMS, LATTICES, LARGE)
class Greedy(MyDecoder):
    def decode(self, space: SearchSpace) -> Result:
        node: Node | None = space.root
        while node is not None and not node.finished and space.expansions < self.budget:
            (children,) = space.expand([node], limit=1)
            node = children[0] if children else None
        return Result([space.finish(node)] if node is not None and node.finished else [])


@breaks(EXCEEDED, OUTPUT, MODEL, BIGRAMS, LATTICES)
class SpendsMore(MyDecoder):
    """One pass more than the budget allows."""

    def __init__(self, budget: int = 100) -> None:
        super().__init__(budget + 10)


@breaks(OUTPUT)
class AlwaysWide(MyDecoder):
    """The first pass has width 4, even if the budget ends on the way."""

    def _width(self, space: SearchSpace, best: Node | None, length: int, left: int) -> int:
        return min(left, 4) if best is None else 1


@breaks(MODEL, BIGRAMS, HALF)
class OrdersByTotals(MyDecoder):
    """Bounds cut, but do not lead."""

    def decode(self, space: SearchSpace) -> Result:
        space.bound = lambda nodes: [0.0 if node.finished else 1e3 for node in nodes]  # type: ignore[method-assign]
        try:
            return super().decode(space)
        finally:
            del space.bound


@breaks(MODEL, BIGRAMS, LATTICES, OUTPUT, COMPLETE)
class LosesTheLastToken(MyDecoder):
    def decode(self, space: SearchSpace) -> Result:
        result = super().decode(space)
        return Result([replace(each, tokens=each.tokens[:-1]) for each in result.hypotheses])


@breaks(SIDE_BY_SIDE)
class SharesItsResult(MyDecoder):
    """What one search finds is kept in the decoder."""

    def decode(self, space: SearchSpace) -> Result:
        self._found = super().decode(space)
        space.keys([space.root])
        return self._found
