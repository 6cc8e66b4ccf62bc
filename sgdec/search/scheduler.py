"""Batching for any decoder with any predictors: searches run as coroutines, and their requests are answered together.

Each sentence's ``decode`` is plain synchronous code and runs in a greenlet. When its search space makes a request,
the search is suspended. When all searches in flight are suspended, one call of `answer` serves them all. When a
search finishes, the next sentence takes its place (continuous batching). Sentences are read one window at a time and
started in order of length, so that sentences of similar length are in flight together; their roots are created in
batches. The composition of batches depends only on the input and the options, never on timing.

If a batch raises, its requests are repeated one by one, so that only the sentence that caused the error fails. A
decoder that works on whole tensors (`BatchDecoder`) receives batches of search spaces instead; if it raises, each
space in flight is decoded alone. If all predictors are automata, batches gain nothing, so requests other than samples
are answered at once. With ``--deterministic`` each request is a job of its own, unless all predictors declare
`Traits.independent_rows`.

Jobs run in the thread of the searches. An alternative was measured: two groups of searches in turn, with the jobs of
one group on a worker thread while the other group searches. Beam search with `nmt` then took 1.09 times as long with
one thread and 1.5 times with two (medians of three), because batches are half as large.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import InitVar, dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from greenlet import getcurrent, greenlet

from sgdec.context import Vocabulary
from sgdec.decoder import BatchDecoder, Decoder
from sgdec.errors import SgdecError, UsageError, counted
from sgdec.protocol import Result, Source
from sgdec.search.constellation import Constellation
from sgdec.search.dead_ends import NameOf, dead_end, names_of
from sgdec.search.listing import TextOf
from sgdec.search.memory import let_go
from sgdec.search.node import Node
from sgdec.search.outcome import Outcome, Unreadable
from sgdec.search.requests import Request, answer
from sgdec.search.results import require_result, require_results
from sgdec.search.space import SearchSpace
from sgdec.search.tracing.meter import Meter
from sgdec.trace.records import Tracing

WINDOW = 16
"""The default size of a window, in batches."""
BEGIN_TOGETHER = 16
"""Searches over automata alone run one after the other. So many share the cost of loading and stay in the cache."""

WHY_NONE = {
    True: "no path{limit} satisfies all predictors",
    False: "the search was cut short before it found one; give it {end}a larger budget",
    None: "the search found no path{limit} that satisfies all predictors",
}
"""The reason for an empty n-best list, by `Result.proven`. It names the length limit, which users easily forget.

Without one no budget may be large enough.
"""

Item = TypeVar("Item")


class Scheduler:
    """Decodes sentences, with up to ``batch_size`` searches in flight."""

    def __init__(
        self,
        constellation: Constellation,
        decoder: Decoder,
        *,
        nbest: int = 1,
        seed: int = 0,
        batch_size: int = 64,
        window: int | None = None,
        max_rows: int | None = None,
        deterministic: bool = False,
        tracing: Tracing | None = None,
        meter: Meter | None = None,
        text_of: TextOf | None = None,
        vocabulary: Vocabulary | None = None,
        weights_of: Callable[[Source], Sequence[float | None]] | None = None,
        coverage: bool = False,
    ) -> None:
        """``window``: the number of sentences read and sorted at a time; at most two windows are held in memory.

        ``max_rows``: the most nodes in a batch. ``deterministic``: results do not depend on ``batch_size``, not even
        in the last bit. If a predictor's rows depend on their batch, or with ``max_rows``, each request then becomes
        a batch of its own, and the speed gain of batching is lost. ``tracing``: which sentences to trace, in the form
        that their decoder has for one sentence; None = none. ``meter``: of a run that shows its progress.
        ``text_of``: lists have each text of outputs once (`sgdec.search.listing`). ``vocabulary``: its pieces name
        tokens in messages. ``weights_of``: the weights of a sentence, for the first predictors; None = those of the
        constellation. ``coverage``: hypotheses say their coverage. Raises UsageError for ``max_rows``, ``weights_of``
        and ``coverage`` with a `BatchDecoder`, which calls the predictors itself.
        """
        if weights_of is not None and isinstance(decoder, BatchDecoder):
            raise UsageError(
                "--weights does not work with decoders over whole batches, in which all sentences have the same "
                "weights; use --decoder beam."
            )
        if coverage and isinstance(decoder, BatchDecoder):
            raise UsageError("--coverage does not work with decoders over whole batches; use --decoder beam.")
        if coverage and not constellation.attentive(constellation.weights):
            raise UsageError(
                f"--coverage needs a predictor with attention, and none of {', '.join(constellation.names)} has it: "
                "omit it, or add an nmt model (with weight 0 it contributes only its attention)."
            )
        if max_rows is not None and isinstance(decoder, BatchDecoder):
            raise UsageError("--max-rows does not work with decoders over whole batches; lower --batch-size instead.")
        self._constellation = constellation
        self._decoder = decoder
        self._nbest = nbest
        self._seed = seed
        self._batch_size = batch_size
        self._window = window or (WINDOW * batch_size if batch_size > 1 else 1)
        self._max_rows = max_rows
        self._tracing = tracing
        self._meter = meter
        self._text_of = text_of
        self._weights_of = weights_of
        self._coverage = coverage
        self._name_of = names_of(vocabulary)
        independent = max_rows is None and all(member.independent_rows for member in constellation.predictors)
        self._alone = deterministic and not independent and batch_size > 1
        self._over_batches: BatchDecoder | None = None
        """The decoder that receives spaces of many sentences, in place of one call of ``decode`` for each."""
        alike = not (max_rows or weights_of or coverage or self._alone or tracing)
        if isinstance(decoder, BatchDecoder):
            self._over_batches = decoder
        elif batch_size > 1 and alike and _means_its_decode(decoder):
            self._over_batches = decoder.in_batches(batch_size, constellation.product is not None)
        one_by_one = constellation.automaton is not None
        self._begin_together = min(batch_size, BEGIN_TOGETHER) if one_by_one else batch_size
        """The number of sentences that `_continuously` begins at a time."""
        self._rounds = self._jobs = 0
        self._begun: dict[int, Node] = {}
        """The roots that are not released yet, by identity."""
        self._spaces: dict[int, SearchSpace] = {}
        """Their search spaces, by identity of the root."""

    def summary(self) -> str | None:
        """The cost of ``deterministic`` so far; None unless it prevents batching."""
        return f"deterministic: {self._jobs:,} batches instead of {self._rounds:,}" if self._alone else None

    def run(
        self, sentences: Iterable[Source | Unreadable], ended: Callable[[int], object] = lambda number: None
    ) -> Generator[Outcome, None, None]:
        """Yield outcomes in the order of the sentences, each as soon as it and all earlier ones are available.

        An error in one sentence is part of its outcome. A UsageError, which concerns all sentences, is raised. If the
        caller stops early, or an error is raised, the sentences in flight are released. ``ended`` is called with the
        number of sentences that have an outcome so far, which may wait for that of an earlier sentence.
        """
        waiting = _Window(enumerate(sentences), self._window)
        work: Callable[[_Window, Mapping[int, Outcome]], Iterator[list[_Search]]]
        work = self._continuously if self._batch_size > 1 else self._one_by_one
        if self._over_batches is not None:
            work = partial(self._streamed, self._over_batches)
        done: dict[int, Outcome] = {}
        due = 0
        try:
            for searches in work(waiting, done):
                self._count_failed(searches)
                self._end_traces(searches)
                if self._meter is not None:
                    for search in searches:
                        self._meter.ended(search.source.id)
                self._release([search.root for search in searches if search.root is not None])
                done.update((search.place, search.outcome) for search in searches if search.outcome is not None)
                if searches:
                    ended(due + len(done))
                while due in done:
                    yield done.pop(due)
                    due += 1
        finally:
            self._release(list(self._begun.values()))

    def _release(self, roots: Sequence[Node]) -> None:
        """Let the predictors free what they keep for these sentences."""
        for root in roots:
            del self._begun[id(root)]
            self._spaces.pop(id(root), None)
            self._constellation.observer.forget(root)
        self._constellation.release(roots)

    def _count_failed(self, ended: Sequence[_Search]) -> None:
        """Add the expansions to the outcomes of searches that an error has ended."""
        for search in ended:
            space, outcome = self._spaces.get(id(search.root)), search.outcome
            if space is not None and outcome is not None and outcome.error is not None:
                counted = replace(outcome.result, expansions=space.expansions)
                search.outcome = replace(outcome, result=counted)

    def _end_traces(self, ended: Sequence[_Search]) -> None:
        """Add their traces to the outcomes of these searches."""
        if self._tracing is not None:
            for search in ended:
                if search.root is not None and search.outcome is not None:
                    trace = self._constellation.observer.end(search.root, search.outcome, self._text_of)
                    search.outcome = replace(search.outcome, trace=trace)

    def _one_by_one(self, waiting: _Window, done: Mapping[int, Outcome]) -> Iterator[list[_Search]]:
        """Run one search after the other; each request is answered immediately."""
        ask = None if self._max_rows is None else self._answer
        while searches := self._searches(waiting.next(1, len(done))):
            (search,) = searches
            if search.outcome is None:
                search.run(partial(self._search, ask=ask))
            yield searches

    def _continuously(self, waiting: _Window, done: Mapping[int, Outcome]) -> Iterator[list[_Search]]:
        """Keep a batch of searches in flight; yield those that have ended after each round of answers."""
        ready: deque[_Search] = deque()
        active: list[_Search] = []
        while True:
            if not ready and len(active) < self._batch_size:  # read no earlier: input may depend on earlier output
                ready.extend(self._searches(waiting.next(self._begin_together, len(done))))
            begun = [ready.popleft() for _ in range(min(self._batch_size - len(active), len(ready)))]
            for search in begun:
                search.begin(self._decode)
            active = [search for search in [*active, *begun] if search.outcome is None]
            ended = [search for search in begun if search.outcome is not None]
            if not active and not ended:
                return
            questions = [search.question for search in active if search.question is not None]
            for search, reply in zip(active, self._answers(questions), strict=True):
                search.resume(reply)
            ended += [search for search in active if search.outcome is not None]
            active = [search for search in active if search.outcome is None]
            yield ended

    def _streamed(
        self, decoder: BatchDecoder, waiting: _Window, done: Mapping[int, Outcome]
    ) -> Iterator[list[_Search]]:
        """Let the decoder keep a batch of spaces in flight. If it raises, each of these spaces is decoded alone."""
        flying: dict[int, tuple[SearchSpace, _Search]] = {}
        ended: list[_Search] = []
        unreadable: list[Exception] = []
        """The error that the input has raised, if any."""

        def more(number: int) -> list[SearchSpace]:
            begun: list[SearchSpace] = []
            while not begun and (searches := self._searches(following(number))):
                ended.extend(search for search in searches if search.outcome is not None)
                for search in searches:
                    if search.outcome is None and search.root is not None:
                        begun.append(self._space(search.root))
                        flying[id(begun[-1])] = begun[-1], search
            return begun

        def following(number: int) -> list[tuple[int, Source | Unreadable]]:
            try:
                return waiting.next(number, len(done))
            except Exception as error:
                unreadable.append(error)
                raise

        while True:
            try:
                for space, found in decoder.decode_stream(more, 1 if self._alone else self._batch_size):
                    result = _completed(require_result(decoder, found), space, decoder, self._name_of)
                    ended.append(flying.pop(id(space))[1])
                    ended[-1].finish(result)
                    yield ended[:]
                    ended.clear()
            except UsageError:
                raise
            except Exception as error:
                if unreadable or not flying:
                    raise
                let_go(error)
            if not flying:
                break
            alone = [search for _, search in flying.values()]
            flying.clear()
            for search in alone:
                search.run(self._search)
                yield [*ended, search]
                ended.clear()
        yield ended

    def _searches(self, sentences: Sequence[tuple[int, Source | Unreadable]]) -> list[_Search]:
        """Searches for new sentences, with roots created in one batch. Unreadable or failed ones have an outcome."""
        searches = [_Search(place, sentence) for place, sentence in sentences]
        readable = [search for search in searches if search.outcome is None]
        roots = self._each(self._roots, [search.source for search in readable])
        for search, root in zip(readable, roots, strict=True):
            if isinstance(root, Exception):
                search.finish(root)
            else:
                search.root = self._begun[id(root)] = root
        return searches

    def _roots(self, sources: Sequence[Source]) -> list[Node]:
        weights = None if self._weights_of is None else list(map(self._weights_of, sources))
        return self._constellation.roots(sources, weights)

    def _answer(self, request: Request) -> Any:
        """The answer to one request; its error is raised."""
        return answer(self._constellation.perform, [request], self._max_rows)[0]

    def _answers(self, questions: list[Request]) -> Sequence[Any]:
        return self._each(partial(answer, self._constellation.perform, max_rows=self._max_rows), questions)

    def _each(self, ask: Callable[[list[Item]], Sequence[Any]], items: list[Item]) -> Sequence[Any]:
        """Return ``ask(items)``, computed in one batch, or item by item if `deterministic` needs it."""
        self._rounds += bool(items)
        if self._alone:
            self._jobs += len(items)
            return [reply for item in items for reply in _safely(ask, [item])]
        return _safely(ask, items)

    def _space(self, root: Node, ask: Callable[[Request], Any] | None = None) -> SearchSpace:
        recorder = None
        if self._tracing is not None and self._tracing.includes(root.source.id):
            recorder = self._constellation.observer.begin(root, self._tracing)
        self._spaces[id(root)] = space = SearchSpace(
            self._constellation, root, ranking=self._decoder.ranking, nbest=self._nbest, seed=self._seed, ask=ask,
            recorder=recorder, meter=self._meter, text_of=self._text_of, coverage=self._coverage,
        )  # fmt: skip
        return space

    def _decode(self, root: Node) -> Result:
        """The body of a coroutine: decodes one sentence; its requests switch to the scheduler's greenlet."""
        scheduler = getcurrent().parent
        assert scheduler is not None
        return self._search(root, scheduler.switch)

    def _search(self, root: Node, ask: Callable[[Request], Any] | None = None) -> Result:
        space = self._space(root, ask)
        if isinstance(self._decoder, BatchDecoder):
            (result,) = require_results(self._decoder, self._decoder.decode_batch([space]), 1)
        else:
            result = require_result(self._decoder, self._decoder.decode(space))
        return _completed(result, space, self._decoder, self._name_of)


class _Window:
    """The sentences not started yet: read one window at a time, shortest first."""

    def __init__(self, sentences: Iterator[tuple[int, Source | Unreadable]], size: int) -> None:
        self._sentences = sentences
        self._size = size
        self._read: list[tuple[int, Source | Unreadable]] = []

    def next(self, wanted: int, unwritten: int) -> list[tuple[int, Source | Unreadable]]:
        """At most ``wanted`` sentences; none while a full window of outcomes waits for a slower sentence."""
        if not self._read and unwritten < self._size:
            self._read = sorted(islice(self._sentences, min(self._size, sys.maxsize)), key=_length)
        taken, self._read = self._read[:wanted], self._read[wanted:]
        return taken


def _length(numbered: tuple[int, Source | Unreadable]) -> int:
    return 0 if isinstance(numbered[1], Unreadable) else len(numbered[1].tokens)


@dataclass
class _Search:
    """The search for one sentence: a coroutine, suspended at its current request until it has an outcome."""

    place: int
    sentence: InitVar[Source | Unreadable]
    source: Source = field(init=False)
    root: Node | None = None
    """None if there is none, because the sentence is unreadable or a predictor refused it."""
    coroutine: greenlet = field(init=False)
    started: float = field(default_factory=time.monotonic)
    question: Request | None = None
    outcome: Outcome | None = None

    def __post_init__(self, sentence: Source | Unreadable) -> None:
        if isinstance(sentence, Unreadable):
            self.source = Source(sentence.id, ())
            self.outcome = Outcome(self.source, Result([]), 0.0, sentence.error)
        else:
            self.source = sentence

    def run(self, decode: Callable[[Node], Result]) -> None:
        """Decode the sentence without suspension, and store the outcome."""
        self.started = time.monotonic()
        try:
            assert self.root is not None
            found: Result | Exception = decode(self.root)
        except UsageError:
            raise
        except Exception as error:
            found = error
        self.finish(found)

    def begin(self, decode: Callable[[Node], Result]) -> None:
        """Run up to the first request."""
        if self.outcome is None:
            self.started = time.monotonic()
            self.coroutine = greenlet(decode)
            self.resume(self.root)

    def resume(self, reply: Any) -> None:
        """Continue with a reply (at first the root); an exception is raised at the point of the request."""
        try:
            given = self.coroutine.throw(reply) if isinstance(reply, Exception) else self.coroutine.switch(reply)
        except UsageError:
            raise
        except Exception as error:
            self.finish(error)
        else:
            if self.coroutine.dead:
                self.finish(given)
            else:
                self.question = given

    def finish(self, found: Result | Exception) -> None:
        """Store the outcome of a search that has ended with a result or an exception."""
        seconds = time.monotonic() - self.started
        if isinstance(found, Exception):
            self.outcome = Outcome(self.source, Result([]), seconds, let_go(found))
        elif found.hypotheses:
            self.outcome = Outcome(self.source, found, seconds)
        else:
            length = self.source.max_length
            limit = "" if length is None else f" of at most {counted(length, 'token')} (--max-length N allows more)"
            end = "a length limit (--max-length N) and " if length is None else ""
            where = "" if found.dead_end is None else f" {found.dead_end}"
            none = SgdecError(f"no hypothesis: {WHY_NONE[found.proven].format(limit=limit, end=end)}.{where}")
            self.outcome = Outcome(self.source, found, seconds, none)


def _completed(result: Result, space: SearchSpace, decoder: Decoder, name_of: NameOf) -> Result:
    """The result with what the framework knows of its search."""
    died = None
    if not result.hypotheses and result.proven is not False:
        longest = space.longest or _longest_on_arrays(space, decoder)
        died = None if longest is None else dead_end(space.constellation, longest, name_of)
    listed = space.without_repetitions(result)
    return replace(listed, expansions=space.expansions, bounds=space.bounds_used, dead_end=died)


def _longest_on_arrays(space: SearchSpace, decoder: Decoder) -> Node | None:
    """The longest prefix of a search without nodes, which is repeated with nodes; None = it cannot be repeated."""
    if not isinstance(decoder, BatchDecoder):
        return None
    again = SearchSpace(space.constellation, space.root, ranking=space.ranking, nbest=space.nbest, seed=space.seed)
    again.watched = True
    try:
        decoder.decode_batch([again])
    except SgdecError:
        return None
    return again.longest


def _means_its_decode(decoder: Decoder) -> bool:
    """Whether ``in_batches`` knows the class's ``decode``: a subclass may have overridden only the latter."""
    searches, batches = (
        next(base for base in type(decoder).__mro__ if name in vars(base)) for name in ("decode", "in_batches")
    )
    return issubclass(batches, searches)


def _safely(ask: Callable[[list[Item]], Sequence[Any]], items: list[Item]) -> Sequence[Any]:
    """Return ``ask(items)``; if it raises, ask for one item at a time, and return an item's exception as its reply.

    A UsageError is raised.
    """
    if not items:
        return []
    try:
        return ask(items)
    except UsageError:
        raise
    except Exception as error:
        error = let_go(error)
        if len(items) == 1:
            return [error]
    # Outside the handler, so that an item's exception does not drag along that of the batch.
    return [reply for item in items for reply in _safely(ask, [item])]
