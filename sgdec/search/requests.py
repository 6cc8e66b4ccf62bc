"""The requests of searches, as values, and the function that answers many of them in one batch.

A `SearchSpace` asks its constellation one `Request` after the other, which `Constellation.perform` answers. A
scheduler can come between: it suspends the searches, gathers their requests, and answers those that go together in
one batch per predictor. Searching and scheduling share only this interface.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any, Literal, NamedTuple, TypeAlias

from sgdec.context import EOS
from sgdec.protocol import FORBIDDEN
from sgdec.ranking import Ranking
from sgdec.search.combination.choosing import Choice
from sgdec.search.node import Node

Question: TypeAlias = Literal["children", "best", "draw", "distributions", "bounds", "keys", "progress"]
"""The first four are the ways to get children: one after the other, the best of a beam, one at random, any of all."""


class Request(NamedTuple):
    """A question about open nodes. Each node has its own answer."""

    question: Question
    nodes: Sequence[Node]
    each: tuple[Sequence[Any], ...] = ()
    """Arguments with a value for each node."""
    shared: tuple[Any, ...] = ()
    """Arguments for all nodes. Only requests that share them form one batch."""
    beam_of: Sequence[int] = ()
    """``[nodes]``, ascending: the search of each node, in a batch of several; empty = all belong to one."""


class Offer(NamedTuple):
    """The children that one node offers for the next beam of a search with banks, as an answer to ``best``.

    Without banks the answer is ``best`` alone.
    """

    best: list[Node]
    """Those among the best of its beam, best first; perhaps more, since the space sorts the offers of a beam."""
    besides: list[Node]
    """Its best child, and those that meet more of a constraint."""


Perform: TypeAlias = Callable[[Request], Sequence[Any]]
"""Returns the answers to a request, one per node."""


def answer(perform: Perform, requests: Sequence[Request], max_rows: int | None = None) -> list[list[Any]]:
    """The answers, in the order of the requests, one per node of a request.

    All requests of one kind form one batch, or batches of at most ``max_rows`` nodes.
    """
    if len(requests) == 1 and max_rows is None:
        return [list(perform(requests[0]))]
    answers: list[list[Any]] = [[] for _ in requests]
    for kind in dict.fromkeys((request.question, request.shared) for request in requests):
        chosen = [i for i, request in enumerate(requests) if (request.question, request.shared) == kind]
        for batch in _batches(chosen, requests, max_rows):
            replies = iter(perform(_joined([piece for _, piece in batch])))
            for i, piece in batch:
                answers[i] += [next(replies) for _ in piece.nodes]
                if piece.question == "best":
                    answers[i] = _pruned(answers[i], *piece.shared)
    return answers


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
    return request._replace(nodes=request.nodes[part], each=tuple(values[part] for values in request.each))


def _joined(requests: Sequence[Request]) -> Request:
    """One request for the nodes of all of these, which differ in nothing else."""
    return requests[0]._replace(
        nodes=[node for request in requests for node in request.nodes],
        each=tuple(map(_flat, zip(*(request.each for request in requests), strict=True))),
        beam_of=[number for number, request in enumerate(requests) for _ in request.nodes],
    )


def _flat(lists: Sequence[Sequence[Any]]) -> list[Any]:
    return list(chain.from_iterable(lists))


def _pruned(
    families: list[Any], choice: Choice, coverage: bool, distinct: Ranking | None, banks: bool
) -> list[Any]:
    """The children of some nodes of a beam, without those that others of these exclude from the choice.

    They are dropped as soon as there are twice as many as are wanted, so a beam in many batches needs little more
    memory than in one batch.
    """
    size, all_ends = choice.size, choice.all_ends
    if banks or distinct is not None or sum(map(len, families)) <= 2 * size:
        return families
    opened = sorted(node.total for family in families for node in family if node.last != EOS)
    least = opened[-size] if len(opened) >= size else FORBIDDEN
    return [
        [node for node in family if node.total >= least or (all_ends and node.last == EOS)] for family in families
    ]
