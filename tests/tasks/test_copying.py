"""Unknown words are copied from where the attention is, and everything else stays."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from sgdec_predictors.wc import WordCount

from sgdec.context import Vocabularies
from sgdec.errors import UsageError
from sgdec.protocol import Hypothesis, Predictor, Result, Source, State
from sgdec.search.constellation import Constellation
from sgdec.search.outcome import Outcome
from sgdec.tasks.copying import Copier
from tests.helpers.attentive import SOURCE, TARGET, Attentive

SENTENCE = Source(1, SOURCE.encode("Miki met Ann"), "Miki met Ann")


def _spelled(tokens: tuple[int, ...], *predictors: Predictor, source: Source = SENTENCE) -> str | None:
    named = {f"p{i}": predictor for i, predictor in enumerate(predictors)}
    copier = Copier(Constellation.of(named), Vocabularies(SOURCE, TARGET))
    outcome = Outcome(source, Result([Hypothesis(tokens, 0.0, 0.0)]), 0.0)
    return copier.respell(outcome).result.hypotheses[0].text


def test_each_unknown_token_is_the_word_with_the_most_attention_when_it_was_predicted() -> None:
    assert _spelled((4, 3, 0), Attentive([0, 1, 2]), WordCount()) == "Miki traf Ann"
    assert _spelled((0, 3, 4), Attentive([2, 1, 1]), WordCount()) == "Ann traf met"


def test_several_predictors_say_so_together() -> None:
    assert _spelled((0,), Attentive([0], 0.5), Attentive([2], 0.9)) == "Ann"
    assert _spelled((0,), Attentive([0], 0.9), Attentive([2], 0.5)) == "Miki"


@pytest.mark.parametrize("tokens", [(), (3,), (3, 3)])
def test_an_output_without_unknown_words_stays_as_it_is(tokens: tuple[int, ...]) -> None:
    assert _spelled(tokens, Attentive([0, 0])) is None


def test_without_text_nothing_is_copied() -> None:
    assert _spelled((0,), Attentive([0]), source=Source(1, SENTENCE.tokens)) is None


def test_copying_needs_attention_and_words_on_both_sides() -> None:
    with pytest.raises(UsageError, match="no predictor has it"):
        Copier(Constellation.of({"wc": WordCount()}), Vocabularies(SOURCE, TARGET))
    with pytest.raises(UsageError, match="only from words to words"):
        Copier(Constellation.of({"a": Attentive([0])}), Vocabularies(SOURCE, None))


class Untouchable(Attentive):
    """Must not be asked anything."""

    def consume(self, token: int) -> None:
        raise AssertionError("not consulted")

    def attention(self, states: Sequence[State]) -> list[list[float]]:
        raise AssertionError("not consulted")


def _spelled_by(weights: tuple[float | None, ...], *predictors: Predictor) -> str | None:
    """Two unknown words of a hypothesis that was found under these weights."""
    copier = Copier(Constellation.of({f"p{i}": p for i, p in enumerate(predictors)}), Vocabularies(SOURCE, TARGET))
    return copier.spell(SENTENCE, Hypothesis((0, 0), 0.0, 0.0, ((0.0,) * len(weights),) * 3, (weights,) * 3))


def test_only_those_that_were_consulted_for_a_token_say_where_it_is_from() -> None:
    assert _spelled_by((1.0, None), Attentive([0, 1]), Untouchable([2, 2])) == "Miki met"
    assert _spelled_by((None, 0.0), Untouchable([0, 1]), Attentive([2, 2])) == "Ann Ann"
    assert _spelled_by((None, 1.0), Untouchable([0, 1]), WordCount()) is None, "nobody attended to anything"


def test_a_predictor_that_a_run_does_not_consult_has_no_say() -> None:
    predictors = {"a": Untouchable([0]), "b": Attentive([2], 0.4)}
    copier = Copier(Constellation.of(predictors, weights=[None, 1.0]), Vocabularies(SOURCE, TARGET))
    assert copier.spell(SENTENCE, Hypothesis((0,), 0.0, 0.0)) == "Ann"
    with pytest.raises(UsageError, match="no predictor has it"):
        Copier(Constellation.of({"a": Attentive([0])}, weights=[None]), Vocabularies(SOURCE, TARGET))
