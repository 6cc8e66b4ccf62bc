"""A grid of settings from one decode: each cell re-ranks the lists, and has a metric with its confidence interval.

A cell can only choose among the hypotheses of the lists, which another search might not have found. So a cell is
suspicious if it takes many outputs from the ends of the lists, if it would take others from lists half as long, or if
it has other weights than the decode and takes many other outputs: then a search with its weights goes other ways.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from sgdec.arrays import FORBIDDEN, Floats, Ints
from sgdec.errors import UsageError
from sgdec.ranking import Ranking
from sgdec.tuning.lists import padded
from sgdec.tuning.metrics import CorpusMetric
from sgdec.tuning.scored_lists import ScoredLists

RANKING = ("alpha", "beta", "normalize", "length_offset")
"""The axes that are options of the ranking."""
NBEST = "nbest"
"""The axis of list lengths."""
RESAMPLES = 1000
AT_END = 0.1
"""The share of outputs from the last tenths of lists above which a cell is suspicious: more than if all places were
equally likely."""
MOVED = 0.2
"""The change of the metric with half the lists, or in a decode, from which a cell is suspicious."""
FAR = 0.25
"""The share of outputs that are not those of the decode above which a cell with other weights is suspicious."""


@dataclass(frozen=True)
class SweptCell:
    """One point of the grid."""

    settings: Mapping[str, Any]
    """The value on each axis."""
    score: float
    margin: float
    """Half the width of the 95 % confidence interval, by the bootstrap over sentences."""
    at_end: float
    """The share of outputs from the last tenths of their lists."""
    half: float
    """The metric if the lists were half as long."""
    changed: float
    """The share of outputs that are not the first of their lists, if the weights are not those of the decode."""
    apart: float = 0.0
    """The metric of a decode with these settings minus ``score``, if there was one."""

    @property
    def suspicious(self) -> bool:
        """Whether a decode with these settings may find something else, or did."""
        moved = max(abs(self.score - self.half), abs(self.apart)) >= MOVED
        return moved or self.at_end > AT_END or self.changed > FAR


def sweep(
    lists: ScoredLists,
    references: Sequence[str],
    axes: Mapping[str, Sequence[Any]],
    *,
    metric: CorpusMetric,
    ranking: Ranking,
    seed: int = 1,
) -> list[SweptCell]:
    """All cells of a grid, the last axis fastest.

    ``axes``: values by axis, which is ``NAME.weight`` of a predictor, one of `RANKING`, or ``nbest``. Other settings
    are those of the lists and of ``ranking``. Raises UsageError for an unknown axis, and for beta without coverage.
    """
    require_axes(lists.names, axes)
    if any(axes.get("beta", ())) and lists.coverage is None:
        raise UsageError("beta needs the coverage of hypotheses, and these lists have none: decode with --coverage.")
    statistics = lists.statistics(metric, references)
    counts = np.random.default_rng(seed).multinomial(
        len(references), np.full(len(references), 1 / len(references)), RESAMPLES
    )
    return [
        _cell(lists, statistics, dict(zip(axes, values, strict=True)), metric, ranking, counts)
        for values in product(*axes.values())
    ]


def require_axes(predictors: Sequence[str], axes: Iterable[str]) -> None:
    """Raise UsageError for an unknown axis."""
    known = [*(f"{name}.weight" for name in predictors), *RANKING, NBEST]
    for axis in axes:
        if axis not in known:
            raise UsageError(f"no axis {axis!r}. Available: {', '.join(known)}.")


def _cell(
    lists: ScoredLists,
    statistics: Floats,
    settings: Mapping[str, Any],
    metric: CorpusMetric,
    ranking: Ranking,
    counts: Ints,
) -> SweptCell:
    ranking = replace(ranking, **{name: settings[name] for name in RANKING if name in settings})
    weights = [settings.get(f"{name}.weight", weight) for name, weight in lists.weights.items()]
    scores = lists.features(ranking) @ np.array(weights if lists.coverage is None else [*weights, ranking.beta])
    sizes = np.minimum(np.diff(lists.starts), settings.get(NBEST, np.iinfo(np.int64).max))
    by_sentence = padded(scores, lists.starts, FORBIDDEN)
    place = _best(by_sentence, sizes)
    chosen, half = (lists.starts[:-1] + each for each in (place, _best(by_sentence, (sizes + 1) // 2)))
    resampled = metric.scores(counts @ statistics[chosen])
    low, high = np.percentile(resampled, [2.5, 97.5])
    return SweptCell(
        settings,
        float(metric.scores(statistics[chosen].sum(axis=0))),
        float(high - low) / 2,
        float(np.mean((place >= sizes - np.maximum(sizes // 10, 1)) & (sizes > 1))),
        float(metric.scores(statistics[half].sum(axis=0))),
        float(np.mean(place > 0)) if weights != list(lists.weights.values()) else 0.0,
    )


def _best(scores: Floats, sizes: Ints) -> Ints:
    """``[S]``: the place of the best of the first hypotheses of each list; of equal ones the first."""
    found: Ints = np.argmax(np.where(np.arange(scores.shape[1]) < sizes[:, None], scores, FORBIDDEN), axis=1)
    return found
