"""BLEU, chrF and TER of several systems, with paired significance tests and sacreBLEU's signatures.

The tests compare each system with the first:

- ``approx``: approximate randomisation (`sgdec.tasks.randomisation`). Its p is the probability of an absolute
  difference at least as large if both systems were equally good.
- ``bootstrap``: paired bootstrap resampling as in sacreBLEU and Moses, which also gives 95 % confidence intervals.
  Its p is (c + 1) / (n + 1), where c of n resamples have an absolute difference that exceeds the mean of all these by
  more than the observed one. Resamples vary around the observed difference and not around 0. Hence this p is smaller
  than a two-sided one, about half of it if the difference is clear, and does not hold its level. (Koehn 2004,
  "Statistical Significance Tests for Machine Translation Evaluation", counts the resamples in which one system is the
  better one, which is one-sided, too.)

Both describe the chance in the choice of sentences, not that of training a system again (Clark et al. 2011, "Better
Hypothesis Testing for Statistical Machine Translation").
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

import numpy as np

from sgdec.errors import UsageError
from sgdec.search.memory import available
from sgdec.tasks.randomisation import ScoreOf, Statistics, p_value

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric
    from sacrebleu.metrics.chrf import CHRF

Test: TypeAlias = Literal["approx", "bootstrap", "none"]
TESTS: tuple[Test, ...] = get_args(Test)
SAMPLES: Mapping[Test, int] = {"approx": 10_000, "bootstrap": 1000, "none": 0}
"""The numbers of trials or resamples if none is given: those of sacreBLEU."""
SEED = 12345
"""sacreBLEU's own."""
SEED_VARIABLE = "SACREBLEU_SEED"
RESAMPLE_BYTES = 84
"""The memory that sacreBLEU's bootstrap needs per sentence and resample: the statistics of chrF, 18 numbers of 4
bytes, and indices."""

NAMES = {"bleu": "BLEU", "chrf": "chrF", "ter": "TER"}
"""The metrics with their names for readers. Higher BLEU and chrF are better, lower TER is."""


@dataclass(frozen=True)
class Score:
    """The score of one system by one metric, from 0 to 100; TER can be higher."""

    value: float
    difference: float | None
    """The value minus that of the first system; None for the first system."""
    p_value: float | None
    """That of the difference; None for the first system and without a test."""
    mean: float | None
    """The mean over resamples; None without the bootstrap."""
    margin: float | None
    """Half the width of the 95 % confidence interval around the mean; None without the bootstrap."""


@dataclass(frozen=True)
class MetricScores:
    """The scores of all systems."""

    signatures: Mapping[str, str]
    """sacreBLEU's signature of each metric, by its key in `NAMES`, with the seed and the number of samples of a
    test."""
    systems: tuple[Mapping[str, Score], ...]
    """The scores of each system, by the same keys."""


def corpus_scores(
    systems: Sequence[Sequence[str]],
    references: Sequence[Sequence[str]],
    test: Test = "approx",
    samples: int | None = None,
    seed: int = SEED,
    keys: Sequence[str] = tuple(NAMES),
) -> MetricScores:
    """Scores of the outputs of each system, one per sentence, against one or more references for each sentence.

    ``samples``: the number of trials or resamples, by default `SAMPLES`. ``seed`` must be above 0, because sacreBLEU
    takes 0 for a random seed. Two scores that are equal have p = 1. ``keys``: the metrics.

    Raises UsageError if resamples need more memory than is available.
    """
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF
    from sacrebleu.metrics.ter import TER

    known: dict[str, Metric] = {"bleu": BLEU(force=True), "chrf": CHRF(), "ter": TER()}
    metrics = {key: known[key] for key in keys}
    outputs = [list(system) for system in systems]
    if test == "approx":
        return _randomised(metrics, outputs, references, samples or SAMPLES[test], seed)
    if test == "bootstrap":
        return _bootstrapped(metrics, outputs, references, samples or SAMPLES[test], seed)
    values = {
        key: [metric.corpus_score(each, references).score for each in outputs] for key, metric in metrics.items()
    }
    return MetricScores(
        {key: metric.get_signature().format() for key, metric in metrics.items()},
        tuple(
            {key: _score(of[place], None if place == 0 else of[0]) for key, of in values.items()}
            for place in range(len(systems))
        ),
    )


def sentence_chrf(output: str, references: Sequence[str], metric: CHRF) -> float:
    """chrF of one sentence; 100 for two empty texts, for which sacreBLEU has 0."""
    if output in references:
        return 100.0
    return float(metric.sentence_score(output, references).score)


def _randomised(
    metrics: Mapping[str, Metric],
    outputs: Sequence[list[str]],
    references: Sequence[Sequence[str]],
    trials: int,
    seed: int,
) -> MetricScores:
    signatures = {}
    systems: list[dict[str, Score]] = [{} for _ in outputs]
    for key, metric in metrics.items():
        score_of = score_of_sums(metric)
        statistics = [statistics_of(metric, each, references) for each in outputs]
        values = [score_of(each.sum(0).tolist()) for each in statistics]
        systems[0][key] = _score(values[0], None)
        for place in range(1, len(outputs)):
            p = p_value(statistics[0], statistics[place], score_of, trials, seed)
            systems[place][key] = _score(values[place], values[0], p)
        signature = metric.get_signature()
        signature.update("seed", seed)
        signature.update("ar", trials)
        signatures[key] = signature.format()
    return MetricScores(signatures, tuple(systems))


def statistics_of(metric: Metric, outputs: Sequence[str], references: Sequence[Sequence[str]]) -> Statistics:
    """The statistics of each sentence from which a metric of sacreBLEU computes the score of a corpus."""
    return np.array(metric._extract_corpus_statistics(outputs, references), np.float64)


def score_of_sums(metric: Metric) -> ScoreOf:
    """The function from the sums of these statistics to the score."""
    return lambda sums: float(metric._compute_score_from_stats(sums).score)


def _bootstrapped(
    metrics: Mapping[str, Metric],
    outputs: Sequence[list[str]],
    references: Sequence[Sequence[str]],
    samples: int,
    seed: int,
) -> MetricScores:
    from sacrebleu.significance import PairedTest, Result

    _require_room(len(outputs[0]), samples)
    named: list[tuple[str, Sequence[str]]] = [(str(place), each) for place, each in enumerate(outputs)]
    with _seeded(seed):
        paired = PairedTest(named, metrics, references, "bs", samples)
        signatures, results = paired()
    # Both dictionaries have the metrics in the given order, under sacreBLEU's names, such as chrF2.
    tested = dict(zip(metrics, list(results.values())[1:], strict=True))
    systems = []
    for place in range(len(outputs)):
        scores = {}
        for key, of_systems in tested.items():
            first, result = of_systems[0], of_systems[place]
            assert isinstance(first, Result) and isinstance(result, Result)
            base = first.score if place else None
            scores[key] = _score(result.score, base, result.p_value, result.mean, result.ci)
        systems.append(scores)
    return MetricScores(
        {key: signature.format() for key, signature in zip(metrics, signatures.values(), strict=True)}, tuple(systems)
    )


def _score(
    value: float,
    first: float | None,
    p_value: float | None = None,
    mean: float | None = None,
    margin: float | None = None,
) -> Score:
    difference = None if first is None else float(value - first)
    if difference == 0 and p_value is not None:
        p_value = 1.0
    return Score(float(value), difference, p_value, _number(mean), _number(margin))


def _number(value: float | None) -> float | None:
    return None if value is None else float(value)  # of NumPy


def _require_room(sentences: int, samples: int) -> None:
    needed, room = sentences * samples * RESAMPLE_BYTES, available()
    if room is not None and needed > room:
        raise UsageError(
            f"the bootstrap of {sentences:,} sentences with {samples:,} samples needs {needed / 2**30:.1f} GiB, but "
            f"{room / 2**30:.1f} GiB are available. Give fewer --samples, or --test approx."
        )


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """sacreBLEU reads its seed from the environment only."""
    before = os.environ.get(SEED_VARIABLE)
    os.environ[SEED_VARIABLE] = str(seed)
    try:
        yield
    finally:
        if before is None:
            del os.environ[SEED_VARIABLE]
        else:
            os.environ[SEED_VARIABLE] = before
