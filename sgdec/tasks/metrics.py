"""BLEU, chrF and TER of several systems, with sacreBLEU's paired significance tests and signatures.

The tests compare each system with the first:

- ``bootstrap``: paired bootstrap resampling (Koehn 2004, "Statistical Significance Tests for Machine Translation
  Evaluation", section 3), which also gives 95 % confidence intervals;
- ``approx``: approximate randomisation (Riezler and Maxwell 2005, "On Some Pitfalls in Automatic Evaluation and
  Significance Testing for MT", section 4).

A p-value is the probability of a difference at least as large if both systems were equally good.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from sgdec.errors import UsageError
from sgdec.search.memory import available

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric
    from sacrebleu.metrics.chrf import CHRF

Test: TypeAlias = Literal["bootstrap", "approx", "none"]
TESTS: tuple[Test, ...] = get_args(Test)
SAMPLES: Mapping[Test, int] = {"bootstrap": 1000, "approx": 10_000, "none": 0}
"""The numbers of resamples or trials if none is given: those of sacreBLEU."""
SEED = 12345
"""sacreBLEU's own."""
SEED_VARIABLE = "SACREBLEU_SEED"
SAMPLE_BYTES: Mapping[Test, int] = {"bootstrap": 84, "approx": 12, "none": 0}
"""The memory that sacreBLEU needs per sentence and sample. Bootstrap: the statistics of chrF, 18 numbers of 4 bytes,
and indices. Randomisation: masks, and one of them as integers of 8 bytes."""

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
class Scores:
    """The scores of all systems."""

    signatures: Mapping[str, str]
    """sacreBLEU's signature of each metric, by its key in `NAMES`."""
    systems: tuple[Mapping[str, Score], ...]
    """The scores of each system, by the same keys."""


def corpus_scores(
    systems: Sequence[Sequence[str]],
    references: Sequence[Sequence[str]],
    test: Test = "bootstrap",
    samples: int | None = None,
    seed: int = SEED,
    keys: Sequence[str] = tuple(NAMES),
) -> Scores:
    """Scores of the outputs of each system, one per sentence, against one or more references for each sentence.

    ``samples``: the number of resamples or trials, by default `SAMPLES`. ``seed`` must be above 0, because sacreBLEU
    takes 0 for a random seed. sacreBLEU computes the p-values; two scores that are equal have p = 1, where it would
    give 1 / (samples + 1). ``keys``: the metrics.

    Raises UsageError if the samples need more memory than is available.
    """
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF
    from sacrebleu.metrics.ter import TER

    known: dict[str, Metric] = {"bleu": BLEU(force=True), "chrf": CHRF(), "ter": TER()}
    metrics = {key: known[key] for key in keys}
    outputs = [list(system) for system in systems]
    if test != "none":
        return _tested(metrics, outputs, references, test, samples or SAMPLES[test], seed)
    values = {
        key: [metric.corpus_score(each, references).score for each in outputs] for key, metric in metrics.items()
    }
    return Scores(
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


def _tested(
    metrics: Mapping[str, Metric],
    outputs: Sequence[list[str]],
    references: Sequence[Sequence[str]],
    test: Test,
    samples: int,
    seed: int,
) -> Scores:
    from sacrebleu.significance import PairedTest, Result

    _require_room(len(outputs[0]), samples, test)
    named: list[tuple[str, Sequence[str]]] = [(str(place), each) for place, each in enumerate(outputs)]
    with _seeded(seed):
        paired = PairedTest(named, metrics, references, {"bootstrap": "bs", "approx": "ar"}[test], samples)
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
    return Scores(
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


def _require_room(sentences: int, samples: int, test: Test) -> None:
    needed, room = sentences * samples * SAMPLE_BYTES[test], available()
    if room is not None and needed > room:
        raise UsageError(
            f"the test of {sentences:,} sentences with {samples:,} samples needs {needed / 2**30:.1f} GiB, but "
            f"{room / 2**30:.1f} GiB are available. Give fewer --samples, or --test approx or none."
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
