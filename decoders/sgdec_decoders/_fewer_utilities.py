"""The candidate with the highest expected utility, from some of the utilities: pruning and halving.

Both compare the candidates that are left with the references so far, drop some candidates, and take more references.

References come in random order: the next one is r with probability proportional to p(r) among those that are left.
With t of them, the estimate of U(h) is the mean of u(h, r) with weights p(r) / q(r) over their sum. q(r) is the
probability that r is among the first t, given the others' noise (Kool et al. 2019, "Stochastic Beams and Where to
Find Them"). So references with equal weights count equally, as in the papers below; a heavy one comes early and
counts as much as it should; and with all references the estimate is U(h).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from sgdec.arrays import FORBIDDEN, Flags, Floats, Ints
from sgdec_decoders.stochastic import log_inclusion


class Estimates:
    """The expected utilities of candidates under the references so far."""

    def __init__(
        self,
        utilities: Callable[[Ints, Ints], Floats],
        candidates: int,
        weights: Floats,
        generator: np.random.Generator,
    ) -> None:
        """``utilities``: of these candidates for these references ``[c, r]``. ``weights``: of all references, not all
        0; those with weight 0 are left out. ``[R]``
        """
        self._utilities = utilities
        there = np.flatnonzero(weights)
        log_weights = np.log(weights[there])
        perturbed = log_weights + generator.gumbel(size=len(there))  # the order of their sums is that of such draws
        order = np.argsort(-perturbed, kind="stable")
        self._references, self._log_weights, self._perturbed = there[order], log_weights[order], perturbed[order]
        self.left = np.arange(candidates)
        """The candidates that are compared. ``[c]``, ascending"""
        self.matrix = np.zeros((candidates, 0))
        """Their utilities for the references so far. ``[c, t]``"""
        self.expected = np.zeros(candidates)
        """The estimates of all candidates, when they were last compared."""
        self.comparisons = np.zeros(candidates, np.int64)
        """In how many comparisons each has been."""

    @property
    def used(self) -> int:
        """The number of references so far."""
        return self.matrix.shape[1]

    @property
    def unused(self) -> int:
        return len(self._references) - self.used

    @property
    def open(self) -> bool:
        """Whether more references can change the choice."""
        return self.unused > 0 and (len(self.left) > 1 or not self.used)

    def compare(self, more: int) -> None:
        """Estimate the expected utilities of the candidates that are left, with this number of references more."""
        new = self._references[self.used : self.used + more]
        self.matrix = np.hstack([self.matrix, self._utilities(self.left, new)])
        weights = self.weights()
        self.expected[self.left] = (self.matrix * weights).sum(axis=1) / weights.sum()
        self.comparisons[self.left] += 1

    def weights(self) -> Floats:
        """The weights of the references so far in an estimate; the highest is 1. ``[t]``"""
        threshold = float(self._perturbed[self.used]) if self.unused else FORBIDDEN
        logs = np.array([each - log_inclusion(each, threshold) for each in self._log_weights[: self.used].tolist()])
        return np.asarray(np.exp(logs - logs.max()))

    def keep(self, kept: Flags | Ints) -> None:
        """Drop all candidates but these of those that are left."""
        self.left, self.matrix = self.left[kept], self.matrix[kept]

    def ranking(self) -> Ints:
        """All candidates: those of the last comparison, then those that were dropped later; in each, best first."""
        return np.lexsort((-self.expected, -self.comparisons))


def prune(
    estimates: Estimates,
    first: int,
    alpha: float,
    resamples: int,
    generator: Callable[[int], np.random.Generator],
) -> None:
    """Confidence-based pruning (Cheng and Vlachos 2023, Algorithms 1 and 2).

    ``first``: the number of references in the first step; each step doubles it. ``generator``: the random numbers of
    a step. The candidates are pruned that lose to the best one in ``alpha`` or more of the bootstrap ``resamples``.
    """
    step = 0
    while estimates.open:
        estimates.compare(estimates.used or first)
        if not estimates.unused:
            break
        step += 1
        estimates.keep(losses(estimates, resamples, generator(step)) < alpha)


def losses(estimates: Estimates, resamples: int, generator: np.random.Generator) -> Floats:
    """The share of the resamples in which each candidate that is left is worse than the best one. ``[c]``"""
    used, best = estimates.used, np.argmax(estimates.expected[estimates.left])
    times = generator.multinomial(used, np.full(used, 1 / used), resamples)  # with replacement  [resamples, t]
    above = (estimates.matrix - estimates.matrix[best]) * estimates.weights()  # exactly 0 for its equals  [c, t]
    return np.asarray((above @ times.T < 0).mean(axis=1))


def halve(estimates: Estimates, budget: int) -> None:
    """Correlated sequential halving (Baharav and Tse 2019, Algorithm 1), with the references of earlier rounds
    (Jinnai and Ariu 2024).

    ``budget``: the number of utilities. If its rest is enough for all references, all are used.
    """
    rounds = max(1, math.ceil(math.log2(len(estimates.left))))
    spent = 0
    while estimates.open:
        left = len(estimates.left)
        enough = budget - spent >= left * estimates.unused
        more = estimates.unused if enough else max(1, budget // (left * rounds))
        estimates.compare(more)
        if not estimates.unused:
            break
        spent += left * more
        best = np.argsort(-estimates.expected[estimates.left], kind="stable")[: (left + 1) // 2]
        estimates.keep(np.sort(best))
