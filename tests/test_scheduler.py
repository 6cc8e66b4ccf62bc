"""The promise of the scheduler: a search finds what it finds alone, outcomes come in order, memory stays bounded."""

from __future__ import annotations

import heapq
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import count
from typing import Any

import numpy as np
import pytest
from sgdec_decoders.beam import BeamDecoder
from sgdec_decoders.greedy import GreedyDecoder

from sgdec.constellation import Constellation
from sgdec.context import EOS
from sgdec.errors import SgdecError, UsageError
from sgdec.node import Node
from sgdec.outcome import Outcome, Unreadable
from sgdec.plugins import Host
from sgdec.protocol import BatchDecoder, BatchPredictor, Candidates, Decoder, Predictor, Result, Scores, Source, lift
from sgdec.scheduler import WINDOW, Scheduler
from sgdec.search import SearchSpace
from sgdec.testing.toys import Bonus, Lattice, PassThrough

V = 6
HOST = Host(autoload=False)
SOURCES = [Source(n, tuple(range(3, 3 + n % 4 + 1)), max_length=n % 3) for n in range(1, 14)]


# Predictors whose scores depend on the sentence and the whole prefix.


def log_probabilities(source: Sequence[int], prefix: Sequence[int]) -> Any:
    """``[V]``."""
    scores = np.random.default_rng([*source, 77, *prefix]).normal(0.0, 2.0, V)
    return scores - np.log(np.exp(scores).sum())


class Dense(Predictor):
    """As a stranger writes it, one prefix at a time."""

    def initialize(self, source: Source) -> None:
        self._source = source.tokens
        self._prefix: tuple[int, ...] = ()

    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        return Scores.dense(log_probabilities(self._source, self._prefix))

    def consume(self, token: int) -> None:
        self._prefix = (*self._prefix, token)

    def get_state(self) -> tuple[int, ...]:
        return self._prefix

    def set_state(self, state: tuple[int, ...]) -> None:
        self._prefix = state

    def best_remaining(self, states: Sequence[tuple[int, ...]]) -> list[float]:
        return [0.0] * len(states)

    def state_key(self, states: Sequence[tuple[int, ...]]) -> list[Hashable]:
        return list(states)


class OnDemand(Dense):
    on_demand = True

    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        scores = log_probabilities((*self._source, 9), self._prefix)
        if candidates is None:
            return Scores.dense(scores)
        return Scores.sparse(list(candidates), [float(scores[token]) for token in candidates], default=-50.0)


class Restricting(Dense):
    """Some tokens, others for each sentence; ``</s>`` among them."""

    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        scores = log_probabilities(self._source, (4, *self._prefix))
        tokens = [EOS, 3 + sum(self._source) % 3, 3 + len(self._prefix) % 3]
        listed = list(dict.fromkeys(tokens))
        return Scores.sparse(listed, [float(scores[token]) for token in listed])


class InBatches(BatchPredictor):
    """Says which states it was asked about together, and can raise for one sentence."""

    def __init__(self, raises: dict[tuple[str, int], Exception] | None = None, slow: bool = False) -> None:
        self.asked: list[list[int]] = []
        self.raised = 0
        self._raises = raises or {}
        self._slow = slow

    def initialize_batch(self, sources: Sequence[Source]) -> list[Any]:
        self._perhaps("initialize", [source.id for source in sources])
        return [(source.id, source.tokens, ()) for source in sources]

    def predict_batch(self, states: Sequence[Any], candidates: Any = None) -> Scores:
        self.asked.append([sentence for sentence, _, _ in states])
        if self._slow:
            time.sleep(0.001 * (len(self.asked) % 3))
        self._perhaps("predict", self.asked[-1])
        return Scores.dense(np.stack([log_probabilities(source, prefix) for _, source, prefix in states]))

    def consume_batch(self, states: Sequence[Any], tokens: Sequence[int]) -> list[Any]:
        self._perhaps("consume", [sentence for sentence, _, _ in states])
        return [(*state[:2], (*state[2], token)) for state, token in zip(states, tokens, strict=True)]

    def best_remaining(self, states: Sequence[Any]) -> list[float]:
        self._perhaps("bound", [sentence for sentence, _, _ in states])
        return [0.0] * len(states)

    def _perhaps(self, verb: str, sentences: list[int]) -> None:
        for sentence in sentences:
            if (verb, sentence) in self._raises:
                self.raised += 1
                raise self._raises[verb, sentence]


LATTICE = {
    0: {3: (-0.5, 1), 4: (-0.7, 2), EOS: (-3.0, 9)},
    1: {3: (-0.4, 3), 5: (-0.2, 3), EOS: (-2.0, 9)},
    2: {5: (-0.1, 3), EOS: (-1.5, 9)},
    3: {EOS: (-0.6, 9)},
}
MIXES: dict[str, Callable[[], Constellation]] = {
    "a stranger's": lambda: Constellation.of({"a": Dense()}),
    "in batches": lambda: Constellation.of({"a": InBatches()}),
    "both forms": lambda: Constellation.of({"a": InBatches(), "b": OnDemand()}, weights=[0.6, 0.4]),
    "dense and sparse": lambda: Constellation.of({"a": InBatches(), "b": Bonus({EOS: -1.0})}, weights=[1.0, 0.5]),
    "restricted": lambda: Constellation.of({"a": InBatches(), "b": Restricting()}),
    "a lattice": lambda: Constellation.of({"a": Lattice(LATTICE)}),
    "a lattice and on demand": lambda: Constellation.of({"a": Lattice(LATTICE), "b": OnDemand()}),
    "wrapped": lambda: Constellation.of({"a": PassThrough(lift(Dense())), "b": Lattice(LATTICE)}),
    "not consulted": lambda: Constellation.of({"a": InBatches(), "b": Dense()}, weights=[1.0, None]),
}


# Decoders.


class DepthFirst(Decoder):
    """The whole space, one node at a time, children produced lazily."""

    def decode(self, space: SearchSpace) -> Result:
        finished, stack = [], [space.root]
        while stack:
            (children,) = space.expand([stack.pop()])
            for child in children:
                (finished if child.finished else stack).append(child)
        finished.sort(key=lambda node: (-node.total, node.tokens))
        return Result([space.finish(node) for node in finished[: space.nbest]])


class BestFirst(Decoder):
    """A*: the node with the highest total plus bound comes first; asks for bounds and keys."""

    def decode(self, space: SearchSpace) -> Result:
        order = count()
        queue = [(0.0, next(order), space.root)]
        found: list[Node] = []
        visits: Counter[Hashable] = Counter()
        while queue and len(found) < space.nbest:
            _, _, node = heapq.heappop(queue)
            if node.finished:
                found.append(node)
                continue
            visits.update(space.keys([node]))
            if visits[space.keys([node])[0]] > space.nbest:
                continue
            (children,) = space.expand([node], limit=V)
            for child, bound in zip(children, space.bound(children), strict=True):
                heapq.heappush(queue, (-child.total - bound, next(order), child))
        return Result([space.finish(node) for node in found], proven=True)


class Sampling(Decoder):
    """As many samples as the n-best asks for."""

    def decode(self, space: SearchSpace) -> Result:
        nodes = dict.fromkeys(range(space.nbest), space.root)
        found = {}
        while nodes:
            children = space.sample(list(nodes.values()), list(nodes))
            grown = {number: child for number, child in zip(nodes, children, strict=True) if child is not None}
            found |= {number: child for number, child in grown.items() if child.finished}
            nodes = {number: child for number, child in grown.items() if not child.finished}
        return Result([space.finish(found[number]) for number in sorted(found)])


class Failing(GreedyDecoder):
    """Raises in every third sentence, after a question."""

    def decode(self, space: SearchSpace) -> Result:
        space.expand([space.root], limit=1)
        if space.source.id % 3 == 0:
            raise ZeroDivisionError(f"in sentence {space.source.id}")
        return super().decode(space)


DECODERS: dict[str, Callable[[], Decoder]] = {
    **{entry.name: HOST.load("decoder", entry.name) for entry in HOST.names("decoder")},
    "beam that finishes all": lambda: BeamDecoder(size=3, stop="full", alpha=0.6),
    "beam with proof": lambda: BeamDecoder(size=2, stop="proven", recombine=True),
    "depth first": DepthFirst,
    "best first": BestFirst,
    "sampling": Sampling,
}


def alone(constellation: Constellation, decoder: Decoder, source: Source, nbest: int = 3) -> tuple[Result, int]:
    """The result of one sentence without any scheduler, and its expansions."""
    (root,) = constellation.roots([source])
    space = SearchSpace(constellation, root, ranking=decoder.ranking, nbest=nbest, seed=5)
    return decoder.decode(space), space.expansions


def together(
    constellation: Constellation, decoder: Decoder, sources: Sequence[Source | Unreadable] = SOURCES, **options: Any
) -> list[Outcome]:
    scheduler = Scheduler(constellation, decoder, **{"nbest": 3, "seed": 5, "batch_size": 4, **options})
    return list(scheduler.run(sources))


DENSE = ("a stranger's", "in batches", "both forms", "dense and sparse", "not consulted")


@pytest.mark.parametrize(
    "name, mix", [(name, mix) for name in DECODERS for mix in MIXES if name != "vanilla" or mix in DENSE]
)
def test_every_decoder_finds_together_what_it_finds_alone(name: str, mix: str) -> None:
    decoder = DECODERS[name]()
    outcomes = together(MIXES[mix](), decoder)
    assert [outcome.source for outcome in outcomes] == SOURCES
    for source, outcome in zip(SOURCES, outcomes, strict=True):
        expected, expansions = alone(MIXES[mix](), decoder, source)
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


def test_a_decoder_that_raises_costs_only_its_sentence() -> None:
    outcomes = together(MIXES["in batches"](), Failing())
    for source, outcome in zip(SOURCES, outcomes, strict=True):
        assert outcome.source == source
        if source.id % 3 == 0:
            assert isinstance(outcome.error, ZeroDivisionError)
            assert str(outcome.error) == f"in sentence {source.id}"
            assert outcome.result.hypotheses == []
        else:
            assert outcome.error is None
            expected, _ = alone(MIXES["in batches"](), GreedyDecoder(), source)
            assert outcome.result.hypotheses == expected.hypotheses


@pytest.mark.parametrize("verb", ["initialize", "predict", "consume", "bound"])
def test_a_predictor_that_raises_for_one_sentence_costs_only_that_one(verb: str) -> None:
    error = SgdecError("broken for sentence 5")
    constellation = Constellation.of({"a": InBatches({(verb, 5): error})})
    outcomes = together(constellation, BestFirst())
    assert [outcome.source.id for outcome in outcomes if outcome.error] == [5]
    assert outcomes[4].error is error
    for source, outcome in zip(SOURCES, outcomes, strict=True):
        if source.id != 5:
            assert outcome.result.hypotheses == alone(MIXES["in batches"](), BestFirst(), source)[0].hypotheses


def test_nan_costs_only_its_sentence_and_names_the_predictor() -> None:
    class Broken(Dense):
        def predict_next(self, candidates: Candidates | None = None) -> Scores:
            scores = super().predict_next()
            if self._source == SOURCES[1].tokens:
                assert scores.values is not None
                scores.values[0, 4] = np.nan
            return scores

    outcomes = together(Constellation.of({"mine": Broken()}), BeamDecoder(), SOURCES[:3])
    assert [outcome.error is None for outcome in outcomes] == [True, False, True]
    assert "predictor 'mine' gave NaN as the score of token 4" in str(outcomes[1].error)


def test_a_decoder_can_mend_what_its_question_raised() -> None:
    class Patient(GreedyDecoder):
        def decode(self, space: SearchSpace) -> Result:
            try:
                return super().decode(space)
            except SgdecError:
                return Result([])

    constellation = Constellation.of({"a": InBatches({("predict", 2): SgdecError("no")})})
    outcomes = together(constellation, Patient(), SOURCES[:3])
    assert [len(outcome.result.hypotheses) for outcome in outcomes] == [1, 0, 1]
    assert "no hypothesis" in str(outcomes[1].error)


@pytest.mark.parametrize("verb", ["initialize", "predict", "consume", "bound"])
def test_an_error_of_the_call_is_raised_and_not_repeated_for_each_sentence(verb: str) -> None:
    predictor = InBatches({(verb, 5): UsageError("wrong option")})
    with pytest.raises(UsageError, match="wrong option"):
        together(Constellation.of({"a": predictor}), BestFirst())
    assert predictor.raised == 1


def test_a_sentence_without_any_hypothesis_says_so() -> None:
    trap = Lattice({0: {3: (-0.1, 1)}, 1: {}})
    (outcome,) = together(Constellation.of({"a": trap}), BeamDecoder(), [Source(1, (3,))])
    assert outcome.result.hypotheses == []
    assert str(outcome.error) == "no hypothesis: no path satisfies all predictors."


def test_unreadable_sentences_keep_their_places() -> None:
    bad = [Unreadable(n, SgdecError(f"bad {n}")) for n in (1, 3, 4, 9)]
    sentences: list[Source | Unreadable] = [bad[0], SOURCES[1], bad[1], bad[2], *SOURCES[4:8], bad[3]]
    for batch_size in (1, 2, 64):
        outcomes = together(MIXES["in batches"](), GreedyDecoder(), sentences, batch_size=batch_size)
        assert [outcome.source.id for outcome in outcomes] == list(range(1, 10))
        assert [o.source.id for o in outcomes if o.error is not None] == [1, 3, 4, 9]
        assert [str(o.error) for o in outcomes if o.error is not None] == ["bad 1", "bad 3", "bad 4", "bad 9"]


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


def test_an_outcome_comes_before_the_rest_is_read_and_the_run_can_be_left() -> None:
    read = []

    def sentences() -> Iterator[Source]:
        for n in count(1):
            read.append(n)
            yield Source(n, (3,), max_length=3)

    outcomes = Scheduler(MIXES["in batches"](), GreedyDecoder(), batch_size=2, window=5).run(sentences())
    assert next(outcomes).source.id == 1
    assert len(read) <= 10
    outcomes.close()  # type: ignore[attr-defined]


def test_an_interrupt_stops_the_run() -> None:
    class Interrupted(GreedyDecoder):
        def decode(self, space: SearchSpace) -> Result:
            if space.source.id == 3:
                raise KeyboardInterrupt
            return super().decode(space)

    outcomes = Scheduler(MIXES["in batches"](), Interrupted(), batch_size=1).run(SOURCES)
    assert [next(outcomes).source.id, next(outcomes).source.id] == [1, 2]
    with pytest.raises(KeyboardInterrupt):
        next(outcomes)


def test_sentences_are_begun_by_length_within_a_window_and_come_out_in_order() -> None:
    lengths = [5, 1, 4, 2, 3, 1, 2, 9]
    sources = [Source(n, (3,) * length, max_length=0) for n, length in enumerate(lengths, 1)]
    predictor = InBatches()
    outcomes = together(
        Constellation.of({"a": predictor}), GreedyDecoder(), sources, batch_size=2, window=6
    )
    assert predictor.asked == [[2, 6], [4, 5], [3, 1], [7, 8]]
    assert [outcome.source.id for outcome in outcomes] == list(range(1, 9))


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


class Together(BatchDecoder):
    """Greedy, all spaces side by side; raises for the sentences that it is told."""

    def __init__(self, raises: Sequence[int] = ()) -> None:
        self._raises = raises
        self.batches: list[list[int]] = []

    def decode_batch(self, spaces: Sequence[SearchSpace]) -> list[Result]:
        self.batches.append([space.source.id for space in spaces])
        if any(space.source.id in self._raises for space in spaces):
            raise SgdecError("not this one")
        return [GreedyDecoder().decode(space) for space in spaces]


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


def test_in_a_whole_batch_too_only_the_culprit_fails() -> None:
    outcomes = together(MIXES["in batches"](), Together(raises=[3, 8]))
    assert [o.source.id for o in outcomes if o.error is not None] == [3, 8]
    broken_root = {("initialize", 5): SgdecError("no lattice")}
    outcomes = together(Constellation.of({"a": InBatches(broken_root)}), Together())
    assert [o.source.id for o in outcomes if o.error is not None] == [5]


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
