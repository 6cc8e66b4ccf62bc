"""`restarting` goes greedily to the end, and then on from where ``node_score`` says."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from sgdec_decoders.greedy import GreedyDecoder
from sgdec_decoders.restarting import RestartingDecoder

from sgdec import EOS, Node, SearchSpace
from sgdec.testing import Lattice
from tests.helpers.contracts import require_exact
from tests.helpers.oracles import tiny
from tests.helpers.random_spaces import search


class Loose(Lattice):
    """Scores never rise, and that is all it knows."""

    def best_remaining(self, states: Sequence[int]) -> list[float]:
        return [0.0] * len(states)


END = {EOS: (-9.0, 99)}
TREE = Loose(
    {
        0: {3: (-1.0, 1), 4: (-1.5, 2), 5: (-1.7, 3)},
        1: {3: (-0.1, 10), 4: (-1.2, 11), 5: (-1.4, 12)},
        2: {3: (-0.2, 13), 4: (-0.3, 14)},
        3: {3: (-0.4, 15)},
        **dict.fromkeys(range(10, 16), END),
    }
)
"""All ends cost the same, so nothing is cut before the list is full."""


@pytest.mark.parametrize(
    ("node_score", "expected"),
    [
        # Losses after the first pass: 0.5 at the root, 1.1 in "3"; then 0.1 in "4", 0.2 at the root, ...
        ("difference", ["", "3", "33", "4", "43", "44", "5", "53", "34", "35"]),
        # Tokens after the first pass: -1.5 at the root, -1.2 and then -1.4 in "3"; then -0.3 in "4", ...
        ("absolute", ["", "3", "33", "34", "35", "4", "43", "44", "5", "53"]),
        # The queue after the first pass: root, "3"; after the second: "3", root, "4"; ...
        ("constant", ["", "3", "33", "4", "43", "34", "5", "53", "44", "35"]),
        # After the second pass one has begun at the root, none in "3" and "4".
        ("expansions", ["", "3", "33", "4", "43", "34", "44", "5", "53", "35"]),
    ],
)
def test_passes_begin_where_the_strategy_says(
    node_score: str, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    expand = SearchSpace.expand

    def noted(self: SearchSpace, nodes: Sequence[Node], bounded: bool) -> object:
        order.extend("".join(map(str, node.tokens)) for node in nodes)
        return expand(self, nodes, bounded=bounded)

    monkeypatch.setattr(SearchSpace, "expand", noted)
    search(RestartingDecoder(node_score=node_score), tiny(a=TREE), nbest=6)  # type: ignore[arg-type]
    assert order == expected


def test_the_first_pass_is_greedy_search() -> None:
    greedy, there = search(GreedyDecoder(), tiny(a=TREE))
    first, here = search(RestartingDecoder(max_expansions=there.expansions), tiny(a=TREE))
    assert first.hypotheses == greedy.hypotheses and here.expansions == there.expansions


@pytest.mark.parametrize("node_score", ["difference", "absolute", "constant", "expansions"])
def test_every_strategy_is_exact(node_score: str) -> None:
    require_exact(lambda: RestartingDecoder(node_score=node_score))  # type: ignore[arg-type]
