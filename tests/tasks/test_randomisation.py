"""Approximate randomisation holds its level, and its p is the share of all exchanges with such a difference."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
import pytest

from sgdec.tasks import randomisation
from sgdec.tasks.metrics import NAMES, SEED, corpus_scores, score_of_sums, statistics_of
from sgdec.tasks.randomisation import ScoreOf, Statistics, p_value

sacrebleu = pytest.importorskip("sacrebleu")

METRICS = {"bleu": sacrebleu.BLEU(force=True), "chrf": sacrebleu.CHRF(), "ter": sacrebleu.TER()}
WORDS = ("the", "a", "dog", "cat", "man", "sees", "hears", "red", "old", "house", "by", "in")
PValue = Callable[[Statistics, Statistics, ScoreOf, int, int], float]


def texts(sentences: int, seed: int = 1) -> tuple[list[str], list[str], list[str]]:
    """References, and the outputs of two systems that replace three words in ten."""
    rng = random.Random(seed)
    references = [rng.choices(WORDS, k=rng.randint(5, 20)) for _ in range(sentences)]

    def system() -> list[str]:
        return [" ".join(word if rng.random() < 0.7 else "other" for word in words) for words in references]

    return [" ".join(words) for words in references], system(), system()


def rejected(name: str, test: PValue, trials: int = 1000) -> float:
    """The share of pairs of systems with p <= 0.05. They are equally good: a coin decides whose each output is."""
    metric = METRICS[name]
    references, one, other = texts(60)
    first, second = (statistics_of(metric, each, [references]) for each in (one, other))
    rng, count = np.random.default_rng(2), 0
    for trial in range(trials):
        exchanged = rng.integers(2, size=(len(references), 1), dtype=bool)
        pair = np.where(exchanged, second, first), np.where(exchanged, first, second)
        count += test(*pair, score_of_sums(metric), 99, trial + 1) <= 0.05
    return count / trials


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_level_of_5_percent_is_one(name: str) -> None:
    assert 0.03 <= rejected(name, p_value) <= 0.07


def bootstrap(first: Statistics, second: Statistics, score_of: ScoreOf, samples: int, seed: int) -> float:
    """That of sacreBLEU."""
    from sacrebleu.significance import _compute_p_value

    drawn = np.random.default_rng(seed).integers(len(first), size=(samples, len(first)))
    sums = zip(first[drawn].sum(1).tolist(), second[drawn].sum(1).tolist(), strict=True)
    found = np.array([abs(score_of(one) - score_of(other)) for one, other in sums])
    observed = abs(score_of(first.sum(0).tolist()) - score_of(second.sum(0).tolist()))
    return float(_compute_p_value(found - found.mean(), observed))


def one_sided(first: Statistics, second: Statistics, score_of: ScoreOf, trials: int, seed: int) -> float:
    """On the side of the better system."""
    return p_value(first, second, score_of, trials, seed) / 2


@pytest.mark.slow
@pytest.mark.parametrize("wrong", [bootstrap, one_sided])
def test_the_level_tells_a_p_value_that_is_too_small(wrong: PValue) -> None:
    """Both reject twice as many pairs."""
    assert rejected("ter", wrong) > 0.07


def exact(first: Statistics, second: Statistics, score_of: ScoreOf) -> float:
    """The p-value of all exchanges."""
    found = []
    for chosen in product([False, True], repeat=len(first)):
        exchanged = np.array(chosen)[:, None]
        sums = np.where(exchanged, second, first).sum(0), np.where(exchanged, first, second).sum(0)
        found.append(abs(score_of(sums[0].tolist()) - score_of(sums[1].tolist())))
    return float(np.mean(np.array(found) >= found[0] - 1e-9))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", NAMES)
def test_p_is_the_share_of_all_exchanges(name: str, seed: int) -> None:
    metric = METRICS[name]
    references, one, other = texts(7, seed)
    first, second = (statistics_of(metric, each, [references]) for each in (one, other))
    expected = exact(first, second, score_of_sums(metric))
    assert p_value(first, second, score_of_sums(metric), 4000, 1) == pytest.approx(expected, abs=0.03)


def test_few_sentences_are_never_significant() -> None:
    """Of the exchanges of 4 sentences, 2 in 16 have the observed difference, however large it is."""
    scores = corpus_scores([["a b c d"] * 4, ["x y z w"] * 4], [["a b c d"] * 4], samples=2000).systems[1]
    for score in scores.values():
        assert score.p_value == pytest.approx(2 / 16, abs=0.03)


def by_sacrebleu(systems: Sequence[list[str]], references: Sequence[list[str]]) -> list[float]:
    from sacrebleu.significance import PairedTest

    named = [(str(place), each) for place, each in enumerate(systems)]
    _, results = PairedTest(named, METRICS, references, "ar", 500)()
    return [each[1].p_value for each in list(results.values())[1:]]


def test_p_is_that_of_sacrebleu_but_for_equal_differences() -> None:
    references, one, other = texts(40)
    scores = corpus_scores([one, other], [references], "approx", 500, SEED).systems[1]
    bleu, chrf, ter = by_sacrebleu([one, other], [references])
    assert scores["bleu"].p_value == bleu and scores["chrf"].p_value == chrf
    assert (scores["ter"].p_value or 0) > ter, "edits are whole numbers, so differences are often equal"


def test_draws_do_not_depend_on_their_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    for sentences in (1, 7, 40):
        whole = np.concatenate(list(randomisation._exchanges(100, sentences, 3)))
        monkeypatch.setattr(randomisation, "AT_ONCE", 1)
        parts = list(randomisation._exchanges(100, sentences, 3))
        monkeypatch.undo()
        assert len(parts) == 4 and (np.concatenate(parts) == whole).all()
