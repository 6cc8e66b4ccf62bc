"""The promise of the scheduler where something fails: that sentence alone, with its own error, in its place."""

from __future__ import annotations

import numpy as np
import pytest
from sgdec_decoders.beam import BeamDecoder
from sgdec_decoders.dfs import DfsDecoder
from sgdec_decoders.greedy import GreedyDecoder
from sgdec_decoders.vanilla import VanillaDecoder

from sgdec.context import EOS
from sgdec.decoder import Decoder
from sgdec.errors import SgdecError, UsageError
from sgdec.protocol import FORBIDDEN, Candidates, Result, Scores, Source
from sgdec.search.constellation import Constellation
from sgdec.search.outcome import Unreadable
from sgdec.search.scheduler import Scheduler
from sgdec.search.space import SearchSpace
from sgdec.testing.toys import Bonus, Lattice
from sgdec.text.words import SPECIAL, WordVocabulary
from tests.helpers.scheduling import MIXES, SOURCES, BestFirst, Dense, Failing, InBatches, Together, alone, together


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


@pytest.mark.parametrize("size", [1, 8])
def test_a_search_that_fails_has_its_count_of_expansions(size: int) -> None:
    class Late(Dense):
        """Fails after three tokens."""

        def consume(self, token: int) -> None:
            super().consume(token)
            if len(self.get_state()) == 3:
                raise SgdecError("too long")

    class Longest(Decoder):
        def decode(self, space: SearchSpace) -> Result:
            node = space.root
            while True:
                node = next(child for child in space.expand([node])[0] if not child.finished)

    scheduler = Scheduler(Constellation.of({"mine": Late()}), Longest(), batch_size=size)
    (outcome,) = scheduler.run([Source(1, SOURCES[0].tokens)])
    assert str(outcome.error) == "too long" and outcome.result.expansions == 4  # the fourth asked for its state


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


DIED = "After the longest prefix, 3 4: a allows nothing."


@pytest.mark.parametrize(
    ("decoder", "why"),
    [
        (BeamDecoder(), f"the search found no path that satisfies all predictors. {DIED}"),
        (DfsDecoder(), f"no path satisfies all predictors. {DIED}"),
        (
            DfsDecoder(max_expansions=1),
            "the search was cut short before it found one; give it a length limit (--max-length N) and a larger "
            "budget.",
        ),
    ],
)
def test_a_sentence_without_any_hypothesis_says_no_more_than_is_known(decoder: Decoder, why: str) -> None:
    trap = Lattice({0: {3: (-0.1, 1)}, 1: {4: (-0.1, 2)}, 2: {}})
    trap.best_remaining = lambda states: [0.0] * len(states)  # type: ignore[method-assign]
    (outcome,) = together(Constellation.of({"a": trap}), decoder, [Source(1, (3,))])
    assert outcome.result.hypotheses == []
    assert str(outcome.error) == f"no hypothesis: {why}"


def test_a_search_without_a_hypothesis_says_what_could_follow_its_longest_prefix() -> None:
    lattice = Lattice({0: {3: (-0.1, 1)}, 1: dict.fromkeys(range(3, 10), (-0.1, 2)), 2: {EOS: (0.0, 3)}})
    for listed, limit, where in [
        ({3: FORBIDDEN, EOS: FORBIDDEN}, 2, "After the empty prefix: lattice allows only 3; bonus forbids </s>, 3."),
        ({EOS: FORBIDDEN}, 1, "After the longest prefix, 3, which has the full length: lattice forbids </s>; bonus"),
        (dict.fromkeys(range(3, 10), FORBIDDEN), 2, "bonus forbids 3, 4, 5, 6, 7 and 2 more."),
    ]:
        mix = Constellation.of({"lattice": lattice, "bonus": Bonus(listed, default=0.0)}, vocab_size=11)
        for decoder in (BeamDecoder(), GreedyDecoder(), VanillaDecoder()):
            (outcome,) = together(mix, decoder, [Source(1, (3,), max_length=limit)])
            assert where in str(outcome.error)


@pytest.mark.parametrize(("length", "omission"), [(20, ""), (21, "... "), (300, "... ")])
def test_a_search_without_a_hypothesis_shows_the_end_of_its_longest_prefix(length: int, omission: str) -> None:
    arcs: dict[int, dict[int, tuple[float, int]]] = {place: {3: (-0.1, place + 1)} for place in range(length - 1)}
    lattice = Lattice({**arcs, length - 1: {4: (-0.1, length)}, length: {}})
    (outcome,) = together(Constellation.of({"lattice": lattice}), GreedyDecoder(), [Source(1, (3,), max_length=400)])
    assert f"After the longest prefix, {omission}{'3 ' * 19}4: lattice allows nothing." in str(outcome.error)


def test_tokens_of_a_dead_end_are_named_by_their_pieces() -> None:
    vocabulary = WordVocabulary((*SPECIAL, "a", "it's", "b"))
    lattice = Lattice({0: {3: (-0.1, 1)}, 1: {4: (-0.1, 2), 6: (-0.2, 2)}, 2: {}})
    bonus = Bonus({4: FORBIDDEN, 6: FORBIDDEN}, default=0.0)
    mix = Constellation.of({"lattice": lattice, "bonus": bonus}, vocab_size=8)
    for decoder in (BeamDecoder(), VanillaDecoder()):
        (outcome,) = Scheduler(mix, decoder, vocabulary=vocabulary).run([Source(1, (3,), max_length=5)])
        # No piece has number 6: models can have more tokens than their vocabulary has pieces.
        assert """After the longest prefix, 'a': lattice allows only "it's", 6; bonus forbids""" in str(outcome.error)


def test_unreadable_sentences_keep_their_places() -> None:
    bad = [Unreadable(n, SgdecError(f"bad {n}")) for n in (1, 3, 4, 9)]
    sentences: list[Source | Unreadable] = [bad[0], SOURCES[1], bad[1], bad[2], *SOURCES[4:8], bad[3]]
    for batch_size in (1, 2, 64):
        outcomes = together(MIXES["in batches"](), GreedyDecoder(), sentences, batch_size=batch_size)
        assert [outcome.source.id for outcome in outcomes] == list(range(1, 10))
        assert [o.source.id for o in outcomes if o.error is not None] == [1, 3, 4, 9]
        assert [str(o.error) for o in outcomes if o.error is not None] == ["bad 1", "bad 3", "bad 4", "bad 9"]


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


def test_in_a_whole_batch_too_only_the_culprit_fails() -> None:
    outcomes = together(MIXES["in batches"](), Together(raises=[3, 8]))
    assert [o.source.id for o in outcomes if o.error is not None] == [3, 8]
    broken_root = {("initialize", 5): SgdecError("no lattice")}
    outcomes = together(Constellation.of({"a": InBatches(broken_root)}), Together())
    assert [o.source.id for o in outcomes if o.error is not None] == [5]
