"""BLEU, chrF and TER of many selections of outputs at once, from sums of sacreBLEU's statistics.

The scores equal sacreBLEU's ``corpus_score`` with its default settings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sgdec.arrays import Floats
from sgdec.tasks.metrics import NAMES, statistics_of

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric


class CorpusMetric(NamedTuple):
    """A metric whose statistics of sentences add up."""

    key: str
    """Its key in `sgdec.tasks.metrics.NAMES`."""
    sign: int
    """1 if higher is better, -1 if lower is."""
    scores: Callable[[Floats], Floats]
    """The scores ``[...]`` of sums of statistics ``[..., D]``, from 0 to 100; TER can be higher."""

    @property
    def name(self) -> str:
        return NAMES[self.key]

    def statistics(self, outputs: Sequence[str], references: Sequence[str]) -> Floats:
        """``[N, D]``: of each output with its reference."""
        return statistics_of(_sacrebleu(self.key), outputs, [references])


def _sacrebleu(key: str) -> Metric:
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF
    from sacrebleu.metrics.ter import TER

    return {"bleu": BLEU(force=True), "chrf": CHRF(), "ter": TER()}[key]


def _bleu(sums: Floats) -> Floats:
    """D = 10: the lengths of output and reference, the matches of 1- to 4-grams, and their numbers."""
    length, reference = sums[..., 0], sums[..., 1]
    matches, total = sums[..., 2:6], sums[..., 6:10]
    missed = (matches == 0) & (total > 0)
    smoothed = np.where(missed, 0.5 ** np.cumsum(missed, axis=-1), matches)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(smoothed / total).sum(axis=-1) / 4
        brevity = np.minimum(0.0, 1.0 - reference / length)
        scores = 100 * np.exp(brevity + logs)
    found: Floats = np.where((matches > 0).any(axis=-1) & (total > 0).all(axis=-1), scores, 0.0)
    return found


def _chrf(sums: Floats) -> Floats:
    """D = 18: for 1- to 6-grams of characters the numbers in output and reference, and of matches."""
    ours, theirs, matches = (sums[..., place::3] for place in range(3))
    both = (ours > 0) & (theirs > 0)
    used = np.maximum(both.sum(axis=-1), 1)
    precision, recall = (
        np.divide(matches, side, out=np.zeros(matches.shape), where=both).sum(axis=-1) / used
        for side in (ours, theirs)
    )
    below = 4 * precision + recall
    found: Floats = 100 * np.divide(5 * precision * recall, below, out=np.zeros(below.shape), where=below > 0)
    return found


def _ter(sums: Floats) -> Floats:
    """D = 2: the edits, and the mean length of the references."""
    edits, length = sums[..., 0], sums[..., 1]
    rate = np.divide(edits, length, out=np.where(edits > 0, 1.0, 0.0), where=length > 0)
    found: Floats = 100 * rate
    return found


METRICS: Mapping[str, CorpusMetric] = {
    each.key: each
    for each in (CorpusMetric("bleu", 1, _bleu), CorpusMetric("chrf", 1, _chrf), CorpusMetric("ter", -1, _ter))
}
"""All metrics by key."""
