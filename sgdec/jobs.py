"""What a search asks, as values, and how many such questions are answered at once.

A `SearchSpace` turns each of its verbs into one of these requests. `answer` serves a list of them, from any number
of searches, with one batch a predictor. That is the whole seam between searching and scheduling: a scheduler
suspends the searches, gathers their requests, calls `answer`, and hands the answers back.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from sgdec.combination import Combined
from sgdec.constellation import Constellation
from sgdec.node import Node
from sgdec.protocol import FORBIDDEN
from sgdec.ranking import Coverage, Ranking
from sgdec.sampling import Draw, draw


@dataclass(frozen=True)
class Expand:
    """The children of each node: lists of at most ``limit``, or lazy iterators."""

    nodes: Sequence[Node]
    limit: int | None
    above: float
    coverage: bool
    """Whether children carry their coverage (a ranking with beta > 0)."""


@dataclass(frozen=True)
class Sample:
    """One child of each node, drawn at random; None where a node has no child."""

    nodes: Sequence[Node]
    draws: Sequence[Draw]
    coverage: bool


@dataclass(frozen=True)
class Bound:
    """For each node the most that its continuations can still add."""

    nodes: Sequence[Node]


@dataclass(frozen=True)
class Keys:
    """Recombination keys."""

    nodes: Sequence[Node]
    ranking: Ranking


Request: TypeAlias = Expand | Sample | Bound | Keys


def answer(constellation: Constellation, requests: Sequence[Request]) -> list[Any]:
    """The answers, in the order of the requests.

    Expand: ``list[list[Node]]`` or ``list[Iterator[Node]]``; Sample: ``list[Node | None]``; Bound: ``list[float]``;
    Keys: ``list[Hashable]``.
    """
    answers: list[Any] = [None] * len(requests)
    scored = [i for i, request in enumerate(requests) if isinstance(request, Expand | Sample)]
    if scored:
        _answer_scored(constellation, requests, scored, answers)
    for i, request in enumerate(requests):
        if isinstance(request, Bound):
            answers[i] = constellation.bounds(request.nodes)
        elif isinstance(request, Keys):
            answers[i] = constellation.keys(request.nodes, request.ranking)
    return answers


def _answer_scored(
    constellation: Constellation, requests: Sequence[Request], scored: Sequence[int], answers: list[Any]
) -> None:
    """Expansions and samples: every predictor is asked once, about the nodes of all of them."""
    nodes: list[Node] = []
    starts = []
    for i in scored:
        starts.append(len(nodes))
        nodes.extend(requests[i].nodes)
    if not nodes:
        for i in scored:
            answers[i] = []
        return
    combined = constellation.combine(nodes)
    coverages: list[Coverage] = [()] * len(nodes)
    if any(request.coverage for request in requests if isinstance(request, Expand | Sample)):
        coverages = constellation.coverage(nodes)
    limits = [r.limit for r in (requests[i] for i in scored) if isinstance(r, Expand) and r.limit is not None]
    best = combined.best(max(limits), _thresholds(requests, scored)) if limits else []
    for i, start in zip(scored, starts, strict=True):
        request = requests[i]
        places = range(start, start + len(request.nodes))
        if isinstance(request, Sample):
            answers[i] = [
                _sampled(combined, place, nodes[place], coverages[place], drawn)
                for place, drawn in zip(places, request.draws, strict=True)
            ]
        elif isinstance(request, Expand) and request.limit is not None:
            answers[i] = [
                [nodes[place].child(found, coverages[place]) for found in best[place][: request.limit]]
                for place in places
            ]
        elif isinstance(request, Expand):
            answers[i] = [
                _lazy_children(combined, place, nodes[place], coverages[place], request.above)
                for place in places
            ]


def _thresholds(requests: Sequence[Request], scored: Sequence[int]) -> list[float]:
    """For each node the combined score that a child's token must exceed, so that its total exceeds ``above``."""
    thresholds = []
    for i in scored:
        request = requests[i]
        above = request.above if isinstance(request, Expand) else FORBIDDEN
        thresholds.extend([_threshold(above, node) for node in request.nodes])
    return thresholds


def _threshold(above: float, node: Node) -> float:
    return FORBIDDEN if above == FORBIDDEN else above - node.total


def _lazy_children(
    combined: Combined, place: int, node: Node, coverage: Coverage, above: float
) -> Iterator[Node]:
    for found in combined.all(place, _threshold(above, node)):
        yield node.child(found, coverage)


def _sampled(combined: Combined, place: int, node: Node, coverage: Coverage, drawn: Draw) -> Node | None:
    tokens, scores = combined.distribution(place)
    if not len(tokens) or np.max(scores) == -math.inf:
        return None
    token = draw(tokens, scores, drawn, sentence=node.source.id, step=node.length)
    return node.child(combined.continuation(place, token), coverage)
