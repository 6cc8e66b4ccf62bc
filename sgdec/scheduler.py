"""Batching any decoder with any predictors: searches as coroutines, their questions answered together.

Each sentence's ``decode`` is plain synchronous code and runs in a greenlet. Where its space asks a question, the
search is suspended; when all searches in flight are suspended, one `answer` serves them all, and as one finishes
the next sentence takes its place (continuous batching). Which questions meet depends on the input and the options
only, never on timing.

A batch that raises is asked again question by question, so that only the culprit's sentence fails.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from greenlet import getcurrent, greenlet

from sgdec.constellation import Constellation
from sgdec.errors import UsageError
from sgdec.jobs import Request, answer
from sgdec.node import Node
from sgdec.protocol import Decoder, Result, Source
from sgdec.search import SearchSpace


@dataclass(frozen=True)
class Outcome:
    """What became of one sentence."""

    source: Source
    result: Result
    """No hypotheses where the search failed."""
    seconds: float
    error: Exception | None = None


@dataclass(frozen=True)
class Unreadable:
    """A sentence that never became a `Source`: its number and why."""

    id: int
    error: Exception


@dataclass
class _Search:
    """One sentence in flight."""

    place: int
    source: Source
    started: float
    coroutine: greenlet
    request: Request | None = None


class Scheduler:
    """Decodes sentences, ``batch_size`` of them in flight at once."""

    def __init__(
        self,
        constellation: Constellation,
        decoder: Decoder,
        *,
        nbest: int = 1,
        seed: int = 0,
        batch_size: int = 64,
    ) -> None:
        self._constellation = constellation
        self._decoder = decoder
        self._nbest = nbest
        self._seed = seed
        self._batch_size = batch_size

    def run(self, sources: Iterable[Source | Unreadable]) -> Iterator[Outcome]:
        """Outcomes in the order of the sources, as soon as all before them are there.

        An error of one sentence is part of its outcome; a UsageError, which all would share, is raised.
        """
        waiting = enumerate(sources)
        active: list[_Search] = []
        done: dict[int, Outcome] = {}
        due = 0
        while True:
            # A slow sentence must not let the finished ones behind it pile up without end.
            room = min(self._batch_size - len(active), due + 16 * self._batch_size - len(done))
            admitted = list(islice(waiting, max(room, 0)))
            active.extend(self._admit(admitted, done))
            if not active and not admitted:
                return
            self._advance(active, done)
            active = [search for search in active if search.request is not None]
            while due in done:
                yield done.pop(due)
                due += 1

    def _admit(
        self, admitted: Sequence[tuple[int, Source | Unreadable]], done: dict[int, Outcome]
    ) -> list[_Search]:
        """Searches of new sentences, each run up to its first question."""
        readable = []
        for place, source in admitted:
            if isinstance(source, Unreadable):
                done[place] = Outcome(Source(source.id, ()), Result([]), 0.0, source.error)
            else:
                readable.append((place, source))
        if not readable:
            return []
        started = time.monotonic()
        searches = []
        for (place, source), root in zip(readable, self._roots([s for _, s in readable]), strict=True):
            if isinstance(root, Node):
                coroutine = greenlet(self._search)
                search = _Search(place, source, started, coroutine)
                self._resume(search, (root,), done)
                searches.append(search)
            else:
                done[place] = Outcome(source, Result([]), time.monotonic() - started, root)
        return [search for search in searches if search.request is not None]

    def _roots(self, sources: Sequence[Source]) -> Sequence[Node | Exception]:
        try:
            return self._constellation.roots(sources)
        except UsageError:
            raise
        except Exception as error:
            if len(sources) == 1:
                return [error]
            return [self._roots([source])[0] for source in sources]

    def _search(self, root: Node) -> Result:
        """The body of a coroutine: one sentence, decoded by code that knows nothing of all this."""
        scheduler = getcurrent().parent
        assert scheduler is not None
        space = SearchSpace(
            self._constellation,
            root,
            ranking=self._decoder.ranking,
            nbest=self._nbest,
            seed=self._seed,
            ask=scheduler.switch,
        )
        result = self._decoder.decode(space)
        return replace(result, expansions=space.expansions)

    def _advance(self, active: Sequence[_Search], done: dict[int, Outcome]) -> None:
        """One round: all questions answered, every search run up to its next one."""
        requests = [search.request for search in active if search.request is not None]
        if not requests:
            return
        for search, reply in zip(active, self._answers(requests), strict=True):
            self._resume(search, reply, done)

    def _answers(self, requests: Sequence[Request]) -> Sequence[Any]:
        """Answers, or the exception that a question raises on its own."""
        try:
            return answer(self._constellation, requests)
        except UsageError:
            raise
        except Exception as error:
            if len(requests) == 1:
                return [error]
            return [self._answers([request])[0] for request in requests]

    def _resume(self, search: _Search, reply: Any, done: dict[int, Outcome]) -> None:
        """Hand a reply over (first: the arguments of `_search`) and take the next question, or the result."""
        try:
            if isinstance(reply, Exception):
                given = search.coroutine.throw(reply)
            elif search.request is None:
                given = search.coroutine.switch(*reply)
            else:
                given = search.coroutine.switch(reply)
        except UsageError:
            raise
        except Exception as error:
            given = error
        if not search.coroutine.dead:
            search.request = given
            return
        search.request = None
        seconds = time.monotonic() - search.started
        if isinstance(given, Exception):
            done[search.place] = Outcome(search.source, Result([]), seconds, given)
        else:
            done[search.place] = Outcome(search.source, given, seconds)
