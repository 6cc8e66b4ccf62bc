"""Batching any decoder with any predictors: searches as coroutines, their questions answered together.

Each sentence's ``decode`` is plain synchronous code and runs in a greenlet. Where its space asks a question, the
search is suspended; when all searches in flight are suspended, one `answer` serves them all, and as one finishes
the next sentence takes its place (continuous batching). Which questions meet depends on the input and the options
only, never on timing.

A batch that raises is asked again question by question, so that only the culprit's sentence fails.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from greenlet import getcurrent, greenlet

from sgdec.constellation import Constellation
from sgdec.errors import SgdecError, UsageError
from sgdec.jobs import Request, answer
from sgdec.node import Node
from sgdec.outcome import Outcome, Unreadable
from sgdec.protocol import Decoder, Result, Source
from sgdec.search import SearchSpace

READ_AHEAD = 16
"""Batches' worth of sentences in flight or waiting for a slower one before them."""

Item = TypeVar("Item")


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

    def run(self, sentences: Iterable[Source | Unreadable]) -> Iterator[Outcome]:
        """Outcomes in the order of the sentences, each as soon as all before it are there.

        An error of one sentence is part of its outcome; a UsageError, which all would share, is raised.
        """
        waiting = enumerate(sentences)
        active: list[_Search] = []
        done: dict[int, Outcome] = {}
        due = 0
        while True:
            room = min(self._batch_size, READ_AHEAD * self._batch_size - len(done)) - len(active)
            admitted = list(islice(waiting, room))
            if not active and not admitted:
                return
            active = _in_flight([*active, *self._started(admitted, done)], done)
            questions = [search.question for search in active if search.question is not None]
            for search, reply in zip(active, _each(partial(answer, self._constellation), questions), strict=True):
                search.resume(reply)
            active = _in_flight(active, done)
            while due in done:
                yield done.pop(due)
                due += 1

    def _started(
        self, admitted: Sequence[tuple[int, Source | Unreadable]], done: dict[int, Outcome]
    ) -> list[_Search]:
        """The searches of new sentences, each run up to its first question; unreadable ones are done."""
        searches = []
        for place, sentence in admitted:
            if isinstance(sentence, Unreadable):
                done[place] = Outcome(Source(sentence.id, ()), Result([]), 0.0, sentence.error)
            else:
                searches.append(_Search(place, sentence, greenlet(self._decode)))
        roots = _each(self._constellation.roots, [search.source for search in searches])
        for search, root in zip(searches, roots, strict=True):
            search.resume(root)
        return searches

    def _decode(self, root: Node) -> Result:
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


@dataclass
class _Search:
    """One sentence in flight: its decoder's code, suspended at a question until it has come to an outcome."""

    place: int
    source: Source
    coroutine: greenlet
    started: float = field(default_factory=time.monotonic)
    question: Request | None = None
    outcome: Outcome | None = None

    def resume(self, reply: Any) -> None:
        """Go on with a reply (the first one is the root), or with an exception, raised where the question was."""
        try:
            given = self.coroutine.throw(reply) if isinstance(reply, Exception) else self.coroutine.switch(reply)
        except UsageError:
            raise
        except Exception as error:
            self._finish(Result([]), error)
        else:
            if not self.coroutine.dead:
                self.question = given
            elif given.hypotheses:
                self._finish(given)
            else:
                self._finish(given, SgdecError("no hypothesis: no path satisfies all predictors."))

    def _finish(self, result: Result, error: Exception | None = None) -> None:
        self.outcome = Outcome(self.source, result, time.monotonic() - self.started, error)


def _in_flight(searches: Sequence[_Search], done: dict[int, Outcome]) -> list[_Search]:
    """The searches that are suspended; the outcomes of the others are done."""
    done.update((search.place, search.outcome) for search in searches if search.outcome is not None)
    return [search for search in searches if search.outcome is None]


def _each(ask: Callable[[list[Item]], Sequence[Any]], items: list[Item]) -> Sequence[Any]:
    """``ask(items)``; if that raises, asked about one item at a time, with the exception of an item as its reply."""
    if not items:
        return []
    try:
        return ask(items)
    except UsageError:
        raise
    except Exception as error:
        if len(items) == 1:
            return [error]
        return [reply for item in items for reply in _each(ask, [item])]
