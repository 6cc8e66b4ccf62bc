"""The requests of searches, as values, and the function that answers many of them in one batch.

A `SearchSpace` calls a constellation, or an `Asking`, which turns each method call into a request. `answer` serves a
list of requests, from any number of searches, with one batch per predictor. Searching and scheduling share only this
interface: a scheduler suspends the searches, gathers their requests, calls `answer`, and passes the answers back.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from sgdec.context import EOS
from sgdec.protocol import FORBIDDEN
from sgdec.ranking import Ranking
from sgdec.search.choosing import Choice
from sgdec.search.constellation import Constellation
from sgdec.search.node import Node
from sgdec.search.sampling import Draw


class Expand(NamedTuple):
    """The children of each node: see `Constellation.expand`."""

    nodes: Sequence[Node]
    limits: Sequence[int | None]
    above: Sequence[float]
    coverage: bool
    """Whether children carry their coverage (a ranking with beta > 0)."""
    bounded: bool = False
    """Whether children carry their bounds, if predictors know these without another call."""


class Choose(NamedTuple):
    """The best children of the open nodes of one beam: see `Constellation.best_children`."""

    nodes: Sequence[Node]
    choice: Choice
    coverage: bool
    distinct: Ranking | None


class ChooseForBanks(Choose):
    """The same for a search with banks: see `Constellation.bank_children`."""


class Sample(NamedTuple):
    """One child of each node, drawn at random; None if a node has no child."""

    nodes: Sequence[Node]
    draws: Sequence[Draw]
    coverage: bool


class Bound(NamedTuple):
    """For each node an upper bound on what its continuations can still add."""

    nodes: Sequence[Node]


class Keys(NamedTuple):
    """The recombination key of each node."""

    nodes: Sequence[Node]
    ranking: Ranking


class Progress(NamedTuple):
    """For each node how much of all constraints is met, and how much there is to meet."""

    nodes: Sequence[Node]


Request: TypeAlias = Expand | Choose | Sample | Bound | Keys | Progress


class Asking:
    """Stands in for a constellation and passes each method call on as a request, so that a scheduler can batch it.

    If a batch would not be faster, the constellation is called directly.
    """

    def __init__(self, constellation: Constellation, ask: Callable[[Request], Any]) -> None:
        self._constellation = constellation
        self._ask = ask

    def expand(
        self,
        nodes: Sequence[Node],
        limits: Sequence[int | None],
        above: Sequence[float],
        *,
        coverage: bool = False,
        bounded: bool = False,
    ) -> list[Iterator[Node]]:
        if not coverage and self._constellation.gains_nothing_from_batches(nodes):
            return self._constellation.expand(nodes, limits, above, bounded=bounded)
        found: list[Iterator[Node]] = self._ask(Expand(nodes, limits, above, coverage, bounded))
        return found

    def best_children(
        self,
        beams: Sequence[Sequence[Node]],
        choice: Choice,
        *,
        coverage: bool = False,
        distinct: Ranking | None = None,
    ) -> list[list[Node]]:
        (nodes,) = beams
        if not coverage and self._constellation.gains_nothing_from_batches(nodes):
            return self._constellation.best_children(beams, choice, distinct=distinct)
        found: list[list[Node]] = self._ask(Choose(nodes, choice, coverage, distinct))
        return found

    def bank_children(
        self,
        beams: Sequence[Sequence[Node]],
        choice: Choice,
        *,
        coverage: bool = False,
        distinct: Ranking | None = None,
    ) -> list[tuple[list[Node], list[Node]]]:
        (nodes,) = beams
        found: list[tuple[list[Node], list[Node]]] = self._ask(ChooseForBanks(nodes, choice, coverage, distinct))
        return found

    def progress(self, nodes: Sequence[Node]) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = self._ask(Progress(nodes))
        return found

    def sample(self, nodes: Sequence[Node], draws: Sequence[Draw], *, coverage: bool = False) -> list[Node | None]:
        found: list[Node | None] = self._ask(Sample(nodes, draws, coverage))
        return found

    def bounds(self, nodes: Sequence[Node]) -> list[float]:
        if self._constellation.gains_nothing_from_batches(nodes):
            return self._constellation.bounds(nodes)
        found: list[float] = self._ask(Bound(nodes))
        return found

    def keys(self, nodes: Sequence[Node], ranking: Ranking) -> list[Hashable]:
        if not ranking.uses_coverage and self._constellation.gains_nothing_from_batches(nodes):
            return self._constellation.keys(nodes, ranking)
        found: list[Hashable] = self._ask(Keys(nodes, ranking))
        return found


def answer(
    constellation: Constellation, requests: Sequence[Request], max_rows: int | None = None
) -> list[list[Any]]:
    """The answers, in the order of the requests, one per node of a request.

    All requests of one kind form one batch, or batches of at most ``max_rows`` nodes. Types of the answers: Expand
    ``list[Iterator[Node]]``; Choose ``list[list[Node]]``; ChooseForBanks ``list[tuple[list[Node], list[Node]]]``;
    Sample ``list[Node | None]``; Bound ``list[float]``; Keys ``list[Hashable]``; Progress ``list[tuple[int, int]]``.
    """
    if len(requests) == 1 and max_rows is None:
        return list(_JOBS[type(requests[0])](constellation, requests))
    answers: list[list[Any]] = [[] for _ in requests]
    for kind in dict.fromkeys(map(type, requests)):
        chosen = [i for i, request in enumerate(requests) if type(request) is kind]
        for batch in _batches(chosen, requests, max_rows):
            replies = _JOBS[kind](constellation, [piece for _, piece in batch])
            for (i, _), reply in zip(batch, replies, strict=True):
                answers[i] += reply
                if kind is Choose:
                    answers[i] = _pruned(answers[i], requests[i])
    return answers


def _pruned(families: list[list[Node]], request: Any) -> list[list[Node]]:
    """The children of some nodes of a beam, without those that others of these children exclude from the choice.

    They are dropped as soon as there are twice as many as are wanted, so a beam in many batches needs little more
    memory than in one batch.
    """
    size, all_ends = request.choice.size, request.choice.all_ends
    if request.distinct is not None or sum(map(len, families)) <= 2 * size:
        return families
    opened = sorted(node.total for family in families for node in family if node.last != EOS)
    least = opened[-size] if len(opened) >= size else FORBIDDEN
    return [
        [node for node in family if node.total >= least or (all_ends and node.last == EOS)] for family in families
    ]


def _batches(
    chosen: Sequence[int], requests: Sequence[Request], max_rows: int | None
) -> Iterator[list[tuple[int, Request]]]:
    """Requests with their numbers, in batches of at most ``max_rows`` nodes; requests that do not fit are split."""
    if max_rows is None:
        yield [(i, requests[i]) for i in chosen]
        return
    batch: list[tuple[int, Request]] = []
    room = max_rows
    for i in chosen:
        request = requests[i]
        start = 0
        while start < len(request.nodes):
            piece = _piece(request, slice(start, start + room))
            batch.append((i, piece))
            start, room = start + len(piece.nodes), room - len(piece.nodes)
            if not room:
                yield batch
                batch, room = [], max_rows
    if batch:
        yield batch


def _piece(request: Request, part: slice) -> Request:
    """The same request for a slice of its nodes."""
    nodes = request.nodes[part]
    if isinstance(request, Expand):
        return request._replace(nodes=nodes, limits=request.limits[part], above=request.above[part])
    if isinstance(request, Sample):
        return request._replace(nodes=nodes, draws=request.draws[part])
    return request._replace(nodes=nodes)


def _expand(constellation: Constellation, requests: Sequence[Expand]) -> Iterable[list[Any]]:
    limits = [limit for request in requests for limit in request.limits]
    above = [least for request in requests for least in request.above]
    coverage, bounded = any(r.coverage for r in requests), any(r.bounded for r in requests)
    families = constellation.expand(_all_nodes(requests), limits, above, coverage=coverage, bounded=bounded)
    return _apart(families, requests)


def _choose(constellation: Constellation, requests: Sequence[Choose]) -> Iterable[list[Any]]:
    _, choice, coverage, distinct = requests[0]
    assert all(request[1:] == requests[0][1:] for request in requests), "one decoder, one choice"
    beams = [request.nodes for request in requests]
    return _apart(constellation.best_children(beams, choice, coverage=coverage, distinct=distinct), requests)


def _choose_for_banks(constellation: Constellation, requests: Sequence[ChooseForBanks]) -> Iterable[list[Any]]:
    _, choice, coverage, distinct = requests[0]
    beams = [request.nodes for request in requests]
    return _apart(constellation.bank_children(beams, choice, coverage=coverage, distinct=distinct), requests)


def _progress(constellation: Constellation, requests: Sequence[Progress]) -> Iterable[list[Any]]:
    return _apart(constellation.progress(_all_nodes(requests)), requests)


def _sample(constellation: Constellation, requests: Sequence[Sample]) -> Iterable[list[Any]]:
    draws = [drawn for request in requests for drawn in request.draws]
    coverage = any(request.coverage for request in requests)
    return _apart(constellation.sample(_all_nodes(requests), draws, coverage=coverage), requests)


def _bound(constellation: Constellation, requests: Sequence[Bound]) -> Iterable[list[Any]]:
    return _apart(constellation.bounds(_all_nodes(requests)), requests)


def _keys(constellation: Constellation, requests: Sequence[Keys]) -> Iterable[list[Any]]:
    assert all(request.ranking == requests[0].ranking for request in requests), "one decoder, one ranking"
    return _apart(constellation.keys(_all_nodes(requests), requests[0].ranking), requests)


_JOBS: dict[type[Any], Callable[[Constellation, Sequence[Any]], Iterable[list[Any]]]] = {
    Expand: _expand,
    Choose: _choose,
    Sample: _sample,
    Bound: _bound,
    ChooseForBanks: _choose_for_banks,
    Keys: _keys,
    Progress: _progress,
}


def _all_nodes(requests: Sequence[Request]) -> list[Node]:
    return [node for request in requests for node in request.nodes]


def _apart(answers: Sequence[Any], requests: Sequence[Request]) -> Iterator[list[Any]]:
    """Split the answers for the nodes of all requests into one list per request."""
    start = 0
    for request in requests:
        yield list(answers[start : start + len(request.nodes)])
        start += len(request.nodes)
