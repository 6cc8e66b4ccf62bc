"""The promise of the scheduler: a search finds what it finds alone, outcomes come in order, memory stays bounded."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from itertools import count

import numpy as np
import pytest
from sgdec_decoders.beam import BeamDecoder
from sgdec_decoders.greedy import GreedyDecoder

from sgdec.decoder import BatchDecoder, Decoder, Feed
from sgdec.errors import SgdecError, UsageError
from sgdec.lifting import lift
from sgdec.protocol import BatchPredictor, Result, Source, State
from sgdec.search.constellation import Constellation
from sgdec.search.outcome import Unreadable
from sgdec.search.scheduler import WINDOW, Scheduler
from sgdec.search.space import SearchSpace
from sgdec.testing import PassThrough
from tests.helpers.scheduling import (
    DECODERS,
    MIXES,
    SOURCES,
    InBatches,
    Sampling,
    Together,
    V,
    alone,
    or_refusal,
    together,
)

DENSE = ("a stranger's", "in batches", "both forms", "dense and sparse", "not consulted")


@pytest.mark.slow
@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("name", DECODERS)
def test_every_decoder_finds_together_what_it_finds_alone(name: str, mix: str) -> None:
    decoder = DECODERS[name]()
    each = or_refusal(lambda: [alone(MIXES[mix](), decoder, source) for source in SOURCES])
    outcomes = or_refusal(lambda: together(MIXES[mix](), decoder))
    if isinstance(each, str) or isinstance(outcomes, str):
        assert outcomes == each
        assert mix not in DENSE, "scores for every token are what every decoder can use"
        return
    assert [outcome.source for outcome in outcomes] == SOURCES
    for (expected, expansions), outcome in zip(each, outcomes, strict=True):
        assert outcome.result.expansions == expansions
        assert outcome.result.proven == expected.proven
        assert (outcome.error is None) == bool(expected.hypotheses)
        found = outcome.result.hypotheses
        assert [h.tokens for h in found] == [h.tokens for h in expected.hypotheses]
        for ours, theirs in zip(found, expected.hypotheses, strict=True):
            assert ours.score == pytest.approx(theirs.score, abs=1e-9)
            assert ours.rank_score == pytest.approx(theirs.rank_score, abs=1e-9)
            assert ours.weights == theirs.weights
            assert np.allclose(ours.ledger, theirs.ledger, rtol=0, atol=1e-9)


def test_different_seeds_draw_differently() -> None:
    first, second = (together(MIXES["in batches"](), Sampling(), seed=seed) for seed in (5, 6))
    assert [o.result.hypotheses for o in first] != [o.result.hypotheses for o in second]


@pytest.mark.parametrize("batch_size", [1, 3, 64])
def test_samples_do_not_depend_on_the_batch_size(batch_size: int) -> None:
    expected = [o.result.hypotheses for o in together(MIXES["in batches"](), Sampling())]
    assert [
        o.result.hypotheses for o in together(MIXES["in batches"](), Sampling(), batch_size=batch_size)
    ] == expected


def test_one_batch_serves_all_sentences_in_flight_and_the_next_one_takes_a_free_place() -> None:
    predictor = InBatches()
    sources = [Source(1, (3,), max_length=0), Source(2, (3,), max_length=2), Source(3, (4,), max_length=0)]

    class ToTheLimit(Decoder):
        def decode(self, space: SearchSpace) -> Result:
            node = space.root
            while not node.finished:
                (children,) = space.expand([node], limit=V)
                node = next((child for child in children if not child.finished), children[0])
            return Result([space.finish(node)])

    together(Constellation.of({"a": predictor}), ToTheLimit(), sources, batch_size=2)
    assert predictor.asked == [[1, 2], [2, 3], [2]]


def test_which_questions_meet_does_not_depend_on_timing() -> None:
    quick, slow = InBatches(), InBatches(slow=True)
    for predictor in (quick, slow):
        together(Constellation.of({"a": predictor}), BeamDecoder())
    assert quick.asked == slow.asked


@pytest.mark.slow
@pytest.mark.parametrize("max_rows", [1, 2, 3, 5])
@pytest.mark.parametrize("name", ["beam", "best first", "sampling"])
def test_jobs_have_at_most_the_given_rows_and_the_same_answers(name: str, max_rows: int) -> None:
    predictor = InBatches()
    outcomes = together(Constellation.of({"a": predictor}), DECODERS[name](), max_rows=max_rows)
    assert max(map(len, predictor.asked)) == (min(max_rows, 4) if name == "best first" else max_rows)
    expected = together(MIXES["in batches"](), DECODERS[name]())
    assert [o.result for o in outcomes] == [o.result for o in expected]


def test_a_deterministic_run_asks_sentence_by_sentence() -> None:
    predictor = InBatches()
    together(Constellation.of({"a": predictor}), BeamDecoder(), deterministic=True)
    assert all(len(set(sentences)) == 1 for sentences in predictor.asked)


def test_a_decoder_over_whole_batches_is_given_them_by_length() -> None:
    decoder = Together()
    outcomes = together(MIXES["in batches"](), decoder, window=8)
    expected = together(MIXES["in batches"](), GreedyDecoder())
    assert [o.result for o in outcomes] == [o.result for o in expected]
    assert [o.result.expansions for o in outcomes] == [o.result.expansions for o in expected]
    lengths = [[len(SOURCES[n - 1].tokens) for n in batch] for batch in decoder.batches]
    assert lengths == [[1, 1, 2, 2], [3, 3, 4, 4], [1, 2, 2, 3], [4]]
    (expansion,) = together(MIXES["in batches"](), decoder, SOURCES[:1])
    assert 0 <= expansion.seconds < 10


def test_a_bound_that_a_whole_batch_would_not_keep_is_refused() -> None:
    with pytest.raises(UsageError, match="lower --batch-size"):
        together(MIXES["in batches"](), Together(), max_rows=2)


def test_no_sentences_give_no_outcomes() -> None:
    assert together(MIXES["in batches"](), GreedyDecoder(), []) == []


class SlowAt(Decoder):
    """Asks very often in one sentence, once in all others."""

    def __init__(self, sentence: int) -> None:
        self._sentence = sentence

    def decode(self, space: SearchSpace) -> Result:
        for _ in range(400 if space.source.id == self._sentence else 1):
            (children,) = space.expand([space.root], limit=V)
        return Result([space.finish(child) for child in children if child.finished])


@pytest.mark.parametrize("slow", [1, 150])
def test_sources_are_read_as_they_are_needed_even_behind_a_slow_sentence(slow: int) -> None:
    read = yielded = furthest = 0

    def sentences() -> Iterator[Source]:
        nonlocal read
        for n in range(1, 301):
            read = n
            yield Source(n, (3,))

    scheduler = Scheduler(MIXES["a lattice"](), SlowAt(slow), batch_size=2)
    for outcome in scheduler.run(sentences()):
        yielded += 1
        furthest = max(furthest, read - yielded)
        assert outcome.source.id == yielded
    assert yielded == 300
    window = 2 * WINDOW
    assert window <= furthest < 2 * window


@pytest.mark.parametrize("batch_size", [1, 2])
def test_an_outcome_comes_before_the_rest_is_read_and_a_run_that_is_left_ends_its_searches(batch_size: int) -> None:
    read, begun, ended = [], [], []

    def sentences() -> Iterator[Source]:
        for n in count(1):
            read.append(n)
            yield Source(n, (3,), max_length=1 if n == 1 else 9)

    class Longest(Decoder):
        """As many tokens as there may be."""

        def decode(self, space: SearchSpace) -> Result:
            begun.append(space.source.id)
            node = space.root
            try:
                while not node.finished:
                    (children,) = space.expand([node], limit=2)
                    node = next((child for child in children if not child.finished), children[0])
                return Result([space.finish(node)])
            finally:
                ended.append(space.source.id)

    outcomes = Scheduler(MIXES["in batches"](), Longest(), batch_size=batch_size, window=5).run(sentences())
    assert next(outcomes).source.id == 1
    assert len(read) <= 10
    assert len(begun) - len(ended) == batch_size - 1
    outcomes.close()
    assert sorted(begun) == sorted(ended)


def test_sentences_are_begun_by_length_within_a_window_and_come_out_in_order() -> None:
    lengths = [5, 1, 4, 2, 3, 1, 2, 9]
    sources = [Source(n, (3,) * length, max_length=0) for n, length in enumerate(lengths, 1)]
    predictor = InBatches()
    outcomes = together(
        Constellation.of({"a": predictor}), GreedyDecoder(), sources, batch_size=2, window=6
    )
    assert predictor.asked == [[2, 6], [4, 5], [3, 1], [7, 8]]
    assert [outcome.source.id for outcome in outcomes] == list(range(1, 9))


@pytest.mark.parametrize("decoder", [GreedyDecoder(), Together()], ids=["searches", "whole batches"])
def test_what_has_ended_is_told_before_it_can_come_out(decoder: Decoder) -> None:
    """The first sentence is the longest of its window, so it is begun last, and all others wait for it."""
    sources = [Source(n, (3,) * (9 - n), max_length=9 - n) for n in range(1, 9)]
    told: list[int] = []
    outcomes = Scheduler(MIXES["in batches"](), decoder, batch_size=2, window=8).run(sources, told.append)
    next(outcomes)
    assert told[0] <= 2
    assert told[-2:] == [6, 8] or told[-3:] == [6, 7, 8], told
    assert len(list(outcomes)) == 7


@pytest.mark.slow
def test_memory_does_not_grow_with_the_input() -> None:
    def peak(sentences: int) -> int:
        outcomes = Scheduler(MIXES["a lattice"](), GreedyDecoder(), batch_size=8, window=16).run(
            Source(n, (3,), max_length=2) for n in range(sentences)
        )
        tracemalloc.start()
        try:
            assert sum(1 for _ in outcomes) == sentences
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    outcome = 500  # bytes, at least: one that is kept for each sentence would show
    assert peak(3300) - peak(300) < 3000 * outcome / 4


@pytest.mark.parametrize("decoder", [SlowAt(1), SlowAt(3), Together()], ids=["first", "third", "whole batches"])
def test_one_by_one_a_sentence_is_read_only_when_those_before_it_are_out(decoder: Decoder) -> None:
    """So that whoever types line by line sees each answer at once."""
    out = 0

    def sentences() -> Iterator[Source]:
        for n in range(1, 6):
            assert out == n - 1, f"sentence {n} was read before {n - 1} came out"
            yield Source(n, (3,), max_length=3)

    for outcome in Scheduler(MIXES["a lattice"](), decoder, batch_size=1).run(sentences()):
        out = outcome.source.id
    assert out == 5


class Streaming(BatchDecoder):
    """Greedy, a step of all sentences in flight at a time; ends each when it has had as many steps as tokens.

    Raises when the sentences that it is told have ended their first step.
    """

    def __init__(self, raises: Sequence[int] = (), forgets: Sequence[int] = ()) -> None:
        self._raises, self._forgets = raises, forgets
        self.most = 0

    def decode_batch(self, spaces: Sequence[SearchSpace]) -> list[Result]:
        if any(space.source.id in self._raises for space in spaces):
            raise SgdecError("not this one")
        return [GreedyDecoder().decode(space) for space in spaces]

    def decode_stream(self, more: Feed, in_flight: int) -> Iterator[tuple[SearchSpace, Result]]:
        flying: list[tuple[SearchSpace, int]] = []
        while True:
            flying += [(space, len(space.source.tokens)) for space in more(in_flight - len(flying))]
            self.most = max(self.most, len(flying))
            if not flying:
                return
            if any(space.source.id in self._raises for space, _ in flying):
                raise SgdecError("not these")
            over = [space for space, left in flying if left <= 1]
            flying = [(space, left - 1) for space, left in flying if left > 1]
            kept = [space for space in over if space.source.id not in self._forgets]
            yield from ((space, GreedyDecoder().decode(space)) for space in kept)


@pytest.mark.parametrize("batch_size", [1, 3, 64])
def test_a_decoder_may_begin_sentences_while_others_are_in_flight(batch_size: int) -> None:
    decoder = Streaming()
    outcomes = together(MIXES["in batches"](), decoder, batch_size=batch_size)
    expected = together(MIXES["in batches"](), GreedyDecoder())
    assert [(o.source, o.result, o.error) for o in outcomes] == [(o.source, o.result, o.error) for o in expected]
    assert decoder.most == min(batch_size, len(SOURCES))


def test_what_is_decoded_alone_after_a_stream_broke_is_told_one_by_one() -> None:
    told: list[int] = []
    outcomes = Scheduler(MIXES["in batches"](), Streaming([1]), batch_size=64).run(SOURCES, told.append)
    assert len(list(outcomes)) == len(SOURCES)
    assert list(dict.fromkeys(told)) == list(range(1, len(SOURCES) + 1))


@pytest.mark.parametrize("raises", [[1], [3, 8], [13]])
def test_a_sentence_that_breaks_a_stream_fails_alone(raises: list[int]) -> None:
    outcomes = together(MIXES["in batches"](), Streaming(raises), batch_size=4)
    expected = together(MIXES["in batches"](), GreedyDecoder())
    assert [o.source.id for o in outcomes if o.error is not None] == raises
    for found, right in zip(outcomes, expected, strict=True):
        assert str(found.error) == "not this one" if found.source.id in raises else found.result == right.result


def test_sentences_that_a_stream_forgets_are_decoded_alone() -> None:
    outcomes = together(MIXES["in batches"](), Streaming(forgets=[2, 5]), batch_size=64)
    assert [outcome.error for outcome in outcomes] == [None] * len(SOURCES)


def test_an_input_that_breaks_off_raises_in_a_stream_too() -> None:
    def sentences() -> Iterator[Source]:
        yield from SOURCES[:3]
        raise OSError("the disk is gone")

    for decoder in (Streaming(), GreedyDecoder()):
        with pytest.raises(OSError, match="the disk is gone"):
            together(MIXES["in batches"](), decoder, sentences(), batch_size=2)


class Released(InBatches):
    """Remembers which sentences it may forget."""

    def __init__(self) -> None:
        super().__init__({("initialize", 4): SgdecError("no lattice"), ("predict", 6): SgdecError("no scores")})
        self.begun: list[State] = []
        self.over: list[State] = []

    def initialize_batch(self, sources: Sequence[Source]) -> list[State]:
        roots = super().initialize_batch(sources)
        self.begun += roots
        return roots

    def release(self, roots: Sequence[State]) -> None:
        self.over += roots


@pytest.mark.parametrize("batch_size", [1, 4, 64])
@pytest.mark.parametrize("decoder", [GreedyDecoder(), Together(), Streaming([8])], ids=["nodes", "batches", "stream"])
def test_every_sentence_is_released_once_when_its_search_has_ended(decoder: Decoder, batch_size: int) -> None:
    predictor = Released()
    scheduler = Scheduler(Constellation.of({"a": predictor}), decoder, batch_size=batch_size)
    outcomes = list(scheduler.run([Unreadable(99, SgdecError("what?")), *SOURCES]))
    assert {outcome.source.id for outcome in outcomes if outcome.error} >= {99, 4, 6}
    assert sorted(map(str, predictor.over)) == sorted(map(str, predictor.begun))
    assert len(predictor.over) == len(SOURCES) - 1


@pytest.mark.parametrize("wrap", [lift, PassThrough], ids=["bare", "wrapped"])
@pytest.mark.parametrize("batch_size", [1, 4, 64])
def test_sentences_that_a_later_predictor_refuses_are_released(
    batch_size: int, wrap: Callable[[BatchPredictor], BatchPredictor]
) -> None:
    first = Released()
    refusing = InBatches({("initialize", 5): SgdecError("no such line"), ("initialize", 6): ZeroDivisionError()})
    constellation = Constellation.of({"a": wrap(first), "b": refusing})
    outcomes = list(Scheduler(constellation, GreedyDecoder(), batch_size=batch_size).run(SOURCES))
    assert {outcome.source.id for outcome in outcomes if outcome.error} >= {4, 5, 6}
    assert sorted(map(str, first.over)) == sorted(map(str, first.begun))
    assert sum(state[0] == 5 for state in first.begun) >= 1


@pytest.mark.parametrize("batch_size", [1, 4])
@pytest.mark.parametrize("decoder", [GreedyDecoder(), Together(), Streaming([])], ids=["nodes", "batches", "stream"])
def test_a_run_that_is_left_early_releases_what_is_in_flight(decoder: Decoder, batch_size: int) -> None:
    predictor = Released()
    run = Scheduler(Constellation.of({"a": predictor}), decoder, batch_size=batch_size).run(SOURCES)
    next(run)
    run.close()
    assert predictor.begun and sorted(map(str, predictor.over)) == sorted(map(str, predictor.begun))
