"""The search space as a submitted decoder sees it: each method is a question to the grader, who has the space.

`sgdec.search.space.SearchSpace` documents the methods. Nodes have numbers instead of predictors' states.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

from sgdec.errors import SgdecError, UsageError
from sgdec.protocol import FORBIDDEN, Hypothesis, Source
from sgdec.ranking import Ranking
from sgdec.search.bounds.declared import most_of
from sgdec.search.listing import Listing
from sgdec.search.node import Family, Node
from sgdec.search.tracing.telling import Telling

BLOCK = 32
"""The most children that an iterator fetches at once."""
ERRORS: dict[str, type[Exception]] = {"SgdecError": SgdecError, "UsageError": UsageError, "ValueError": ValueError}


class Space(Telling, Listing):
    """One sentence."""

    def __init__(
        self,
        ask: Callable[[str, dict[str, Any]], dict[str, Any]],
        source: Source,
        ranking: Ranking,
        *,
        weights: Sequence[float | None],
        nbest: int,
        seed: int,
        max_score: float,
    ) -> None:
        Telling.__init__(self, None)
        Listing.__init__(self, ranking, nbest, None)
        self._to_grader = ask
        self.source, self.seed, self.max_score = source, seed, max_score
        self.weights = tuple(weights)
        self.root = Node.root(source, self.weights, ())
        self.root.states = 0  # type: ignore[assignment] # its number
        self.longest: Node | None = None

    @property
    def never_rises(self) -> bool:
        return self.max_score <= 0.0

    def expand(
        self,
        nodes: Sequence[Node],
        limit: int | None = None,
        above: float = FORBIDDEN,
        bounded: bool = False,
        lazy: bool = False,
    ) -> list[Any]:
        answer = self._ask("expand", nodes=_numbers(nodes), limit=limit, above=above, bounded=bounded, lazy=lazy)
        if "iterators" in answer:
            return [self._children(node, place) for node, place in zip(nodes, answer["iterators"], strict=True)]
        return [_new(node, family) for node, family in zip(nodes, answer["families"], strict=True)]

    def best_children(
        self,
        beam: Sequence[Node],
        size: int,
        *,
        width: float = math.inf,
        all_ends: bool = False,
        distinct: bool = False,
    ) -> list[Node]:
        answer = self._ask(
            "best_children", beam=_numbers(beam), size=size, width=width, all_ends=all_ends, distinct=distinct
        )
        known = {_number(node): node for node in beam}
        return [_known_or_new(known, child) for child in answer["nodes"]]

    def sample(
        self,
        nodes: Sequence[Node],
        numbers: Sequence[int],
        *,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
    ) -> list[Node | None]:
        answer = self._ask(
            "sample", nodes=_numbers(nodes), numbers=list(numbers), temperature=temperature, top_k=top_k, top_p=top_p
        )
        known = {_number(node): node for node in nodes}
        return [None if child is None else _known_or_new(known, child) for child in answer["nodes"]]

    def bound(self, nodes: Sequence[Node]) -> list[float]:
        found: list[float] = self._ask("bound", nodes=_numbers(nodes))["bounds"]
        return found

    def keys(self, nodes: Sequence[Node]) -> list[Hashable]:
        found: list[Hashable] = self._ask("keys", nodes=_numbers(nodes))["keys"]
        return found

    def most_after(self, length: int) -> float:
        return most_of(self.max_score, self.source.max_length, length)

    def require_end(self, nodes: Sequence[Node] | None = None) -> None:
        self._ask("require_end", nodes=None if nodes is None else _numbers(nodes))

    def finish(self, node: Node) -> Hypothesis:
        if not node.finished:
            raise ValueError(f"only a node that ends with </s> is a hypothesis, not {node!r}")
        tokens, ledger, weights = node.columns()
        return Hypothesis(tokens[:-1], node.total, self.rank_score(node), ledger, weights)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"in the course a search space has no {name!r}")

    def _children(self, parent: Node, place: int) -> Iterator[Node]:
        """The children of an iterator of the grader, a few at a time."""
        count = 1
        while True:
            children = self._ask("more", iterator=place, count=count)["children"]
            yield from _new(parent, children)
            if len(children) < count:
                return
            count = min(2 * count, BLOCK)

    def _ask(self, verb: str, **arguments: Any) -> dict[str, Any]:
        answer = self._to_grader(verb, arguments)
        self.expansions = answer["expansions"]
        if "error" in answer:
            raise ERRORS[answer["kind"]](answer["error"])
        return answer


def _number(node: Node) -> int:
    if not (isinstance(node, Node) and isinstance(node.states, int)):
        raise ValueError(f"a node of another space: {node!r}")
    return node.states


def _numbers(nodes: Sequence[Node]) -> list[int]:
    return [_number(node) for node in nodes]


def _new(parent: Node, children: Sequence[tuple[int, int, float, list[float], float | None]]) -> list[Node]:
    family = parent.next_family()
    return [_child(family, *child) for child in children]


def _known_or_new(known: dict[int, Node], given: dict[str, Any]) -> Node:
    if "known" in given:
        return known[given["known"]]
    return _child(known[given["parent"]].next_family(), *given["child"])


def _child(family: Family, number: int, last: int, total: float, scores: list[float], bound: float | None) -> Node:
    return Node(family, last, tuple(scores), total, number, bound=bound)  # type: ignore[arg-type]
