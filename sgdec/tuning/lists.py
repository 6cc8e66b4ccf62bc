"""The hypotheses of a set of sentences, with what an optimiser of weights needs to know of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sgdec.arrays import FORBIDDEN, Flags, Floats, Ints
from sgdec.errors import SgdecError
from sgdec.tuning.metrics import CorpusMetric


@dataclass(frozen=True, eq=False)
class FeatureLists:
    """N hypotheses of S sentences; those of a sentence are neighbours, in the order of its list."""

    names: tuple[str, ...]
    """``[F]``: the names of the features."""
    features: Floats
    """``[N, F]``: a hypothesis has the score w f."""
    statistics: Floats
    """``[N, D]``: those of the metric."""
    starts: Ints
    """``[S + 1]``: where each sentence begins."""
    metric: CorpusMetric

    def __post_init__(self) -> None:
        """Raises SgdecError for a sentence without hypotheses, and for a feature that is not finite."""
        sizes = np.diff(self.starts)
        if not len(sizes) or not sizes.all():
            which = f"sentence {int(np.argmin(sizes)) + 1} has" if len(sizes) else "there are"
            raise SgdecError(f"{which} no hypotheses: expected at least one for each sentence.")
        wrong = np.argwhere(~np.isfinite(self.features))
        if len(wrong):
            at, feature = wrong[0].tolist()
            sentence = int(np.searchsorted(self.starts, at, side="right"))
            raise SgdecError(
                f"sentence {sentence}, hypothesis {at - int(self.starts[sentence - 1]) + 1}: feature "
                f"{self.names[feature]!r} is {self.features[at, feature]}; expected a number."
            )

    @property
    def sentences(self) -> int:
        return len(self.starts) - 1

    @property
    def constant(self) -> list[str]:
        """The features that have one value in each list, so that their weights decide nothing."""
        first = np.repeat(self.features[self.starts[:-1]], np.diff(self.starts), axis=0)
        same = (self.features == first).all(axis=0)
        return [name for name, alike in zip(self.names, same.tolist(), strict=True) if alike]

    @cached_property
    def there(self) -> Flags:
        """``[S, L]``: which places of `padded` have a hypothesis."""
        return places(self.starts)

    @cached_property
    def padded(self) -> Floats:
        """``[S, L, F]``: the features of each sentence; zeros after the last hypothesis."""
        return padded(self.features, self.starts, 0.0)

    def best(self, weights: Floats) -> Ints:
        """``[S]``: the number of the best hypothesis of each sentence; of equal ones the first."""
        scores = np.where(self.there, self.padded @ weights, FORBIDDEN)
        found: Ints = self.starts[:-1] + np.argmax(scores, axis=1)
        return found

    def score(self, weights: Floats) -> float:
        """The metric of the best hypotheses, with the sign that makes higher better."""
        return self.metric.sign * float(self.metric.scores(self.statistics[self.best(weights)].sum(axis=0)))


def places(starts: Ints) -> Flags:
    """``[S, L]``: where each sentence has a hypothesis, if all lists had the length L of the longest."""
    sizes = np.diff(starts)
    found: Flags = np.arange(sizes.max()) < sizes[:, None]
    return found


def padded(values: Floats, starts: Ints, fill: float) -> Floats:
    """``[S, L, ...]``: the values ``[N, ...]`` of all hypotheses by sentence; ``fill`` after the last one."""
    there = places(starts)
    found = np.full((*there.shape, *values.shape[1:]), fill)
    found[there] = values
    return found
