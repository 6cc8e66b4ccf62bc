"""What a search asks, as values, and how many such questions are answered at once.

A `SearchSpace` turns each of its verbs into one of these requests. `answer` serves a list of them, from any number
of searches, with one batch a predictor. That is the whole seam between searching and scheduling: a scheduler
suspends the searches, gathers their requests, calls `answer`, and hands the answers back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from sgdec.protocol import FORBIDDEN
from sgdec.ranking import Coverage, Ranking
from sgdec.search import lazily
from sgdec.search.combining import Combined
from sgdec.search.constellation import Constellation
from sgdec.search.node import Node, require_finite
from sgdec.search.sampling import Draw, draw


class Expand(NamedTuple):
    """The children of each node: lists of at most ``limit``, or lazy iterators."""

    nodes: Sequence[Node]
    limit: int | None
    above: float
    coverage: bool
    """Whether children carry their coverage (a ranking with beta > 0)."""
    bounded: bool = False
    """Whether the children's bounds will be wanted: known at once where that costs little."""


class Sample(NamedTuple):
    """One child of each node, drawn at random; None where a node has no child."""

    nodes: Sequence[Node]
    draws: Sequence[Draw]
    coverage: bool


class Bound(NamedTuple):
    """For each node the most that its continuations can still add."""

    nodes: Sequence[Node]


class Keys(NamedTuple):
    """Recombination keys."""

    nodes: Sequence[Node]
    ranking: Ranking


Request: TypeAlias = Expand | Sample | Bound | Keys


def answer(
    constellation: Constellation, requests: Sequence[Request], max_rows: int | None = None
) -> list[list[Any]]:
    """The answers, in the order of the requests; all requests of one kind are one job, or jobs of ``max_rows`` nodes.

    Expand: ``list[list[Node]]`` or ``list[Iterator[Node]]``; Sample: ``list[Node | None]``; Bound: ``list[float]``;
    Keys: ``list[Hashable]``.
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
    return answers


def _batches(
    chosen: Sequence[int], requests: Sequence[Request], max_rows: int | None
) -> Iterator[list[tuple[int, Request]]]:
    """Requests with their numbers, in batches of at most ``max_rows`` nodes; a large request is cut into pieces."""
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
    """The same question about some of its nodes."""
    if isinstance(request, Sample):
        return request._replace(nodes=request.nodes[part], draws=request.draws[part])
    return request._replace(nodes=request.nodes[part])


def _expand(constellation: Constellation, requests: Sequence[Expand]) -> Iterable[list[Any]]:
    """Where predictors can be composed, prefix by prefix; else together."""
    composition = constellation.composition
    if composition is None or any(r.coverage or not composition.covers(r.nodes) for r in requests):
        return _expand_together(constellation, requests)
    return [composition.expand(request.nodes, request.limit, request.above, request.bounded) for request in requests]


def _expand_together(constellation: Constellation, requests: Sequence[Expand]) -> Iterator[list[Any]]:
    nodes = _all_nodes(requests)
    combined = constellation.combine(nodes)
    coverages = _coverages(constellation, nodes, requests)
    limits = [request.limit for request in requests if request.limit is not None]
    best = combined.best(max(limits)) if limits else []
    blocks = combined.blocks(lazily.FIRST_BLOCK) if len(limits) < len(requests) else []
    for request, places in zip(requests, _places(requests), strict=True):
        limit, above = request.limit, request.above
        if limit is None:
            yield [
                lazily.children(constellation, nodes[i], combined, i, blocks[i], coverages[i], above) for i in places
            ]
        else:
            families = [nodes[i].children(best[i][:limit], coverages[i]) for i in places]
            for children in families:
                require_finite(children, constellation.names)
            yield [_cut(children, above) for children in families]


def _cut(children: list[Node], above: float) -> list[Node]:
    """The children whose totals exceed ``above``."""
    return children if above == FORBIDDEN else [child for child in children if child.total > above]


def _sample(constellation: Constellation, requests: Sequence[Sample]) -> Iterator[list[Any]]:
    nodes = _all_nodes(requests)
    combined = constellation.combine(nodes)
    coverages = _coverages(constellation, nodes, requests)
    for request, places in zip(requests, _places(requests), strict=True):
        yield [
            _drawn(constellation, combined, place, nodes[place], coverages[place], drawn)
            for place, drawn in zip(places, request.draws, strict=True)
        ]


def _drawn(
    constellation: Constellation, combined: Combined, place: int, node: Node, coverage: Coverage, drawn: Draw
) -> Node | None:
    tokens, scores = combined.distribution(place)
    if not len(tokens) or np.max(scores) == FORBIDDEN:
        return None
    token = draw(tokens, scores, drawn, sentence=node.source.id, step=node.length)
    (child,) = children = node.children([combined.continuation(place, token)], coverage)
    require_finite(children, constellation.names)
    return child


def _bound(constellation: Constellation, requests: Sequence[Bound]) -> Iterator[list[Any]]:
    bounds = constellation.bounds(_all_nodes(requests))
    return ([bounds[place] for place in places] for places in _places(requests))


def _keys(constellation: Constellation, requests: Sequence[Keys]) -> Iterator[list[Any]]:
    assert all(request.ranking == requests[0].ranking for request in requests), "one decoder, one ranking"
    keys = constellation.keys(_all_nodes(requests), requests[0].ranking)
    return ([keys[place] for place in places] for places in _places(requests))


_JOBS: dict[type[Any], Callable[[Constellation, Sequence[Any]], Iterable[list[Any]]]] = {
    Expand: _expand,
    Sample: _sample,
    Bound: _bound,
    Keys: _keys,
}


def _all_nodes(requests: Sequence[Request]) -> list[Node]:
    return [node for request in requests for node in request.nodes]


def _places(requests: Sequence[Request]) -> Iterator[range]:
    """Where the nodes of each request are among all."""
    start = 0
    for request in requests:
        yield range(start, start + len(request.nodes))
        start += len(request.nodes)


def _coverages(
    constellation: Constellation, nodes: Sequence[Node], requests: Sequence[Expand] | Sequence[Sample]
) -> list[Coverage]:
    """The coverage of each node's children, if any request wants it."""
    if any(request.coverage for request in requests):
        return constellation.coverage(nodes)
    return [()] * len(nodes)
