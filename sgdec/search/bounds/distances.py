"""Distances to the end of an automaton, folded together with relaxations of other predictors.

The relaxations (`sgdec.relaxations`) run along the paths of the automaton. From a pair of one of its states and a
combination of relaxed states, the *distance* is the highest sum, over all paths to the end, of

    w a(arc)  +  sum over relaxed predictors k of w_k h_k(arc)  +  c

with the automaton's weight w and score a, the highest (for w_k < 0 the lowest) relaxed score h_k, and the most c that
other predictors can add with one token. No relaxed predictor has a higher score for any token, so the distance
bounds what all of them together can still add. The distances of all pairs are computed at once, as arrays.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from sgdec.arcs import Automaton
from sgdec.arrays import Floats, Ints
from sgdec.protocol import FORBIDDEN
from sgdec.search.bounds.relaxed import Relaxed
from sgdec.search.bounds.relaxed_product import Links, RelaxedProduct, TooLarge

MOST_WORK = 1 << 28
"""The arcs that all sweeps over one product may visit."""
EARLY, EARLY_WORK = 128, 1 << 22
"""Distances are used with any length limit if they settle within this many sweeps, or visits of arcs."""
UNIT = 2.0**-52


class Distances:
    """The distances from pairs of an automaton's state and relaxed states, to the end.

    Small automata share their arrays: each call costs the same for one of them as for many. The distances are those
    of each automaton alone, to the last bit.
    """

    def __init__(
        self,
        automata: Sequence[Automaton],
        weight: float,
        relaxed: Sequence[Relaxed],
        per_token: float,
        most_arcs: int,
        name: str = "",
    ) -> None:
        """``weight``: of the automata; ``per_token``: the most that other predictors add with each token.

        ``most_arcs``: a product of more arcs is not built. ``name``: the automata's predictor, for errors.
        """
        self.relaxed = relaxed
        self._weight = weight
        self._product = RelaxedProduct(automata, weight, relaxed, per_token, most_arcs, name)
        self._plus = np.logaddexp if self._product.sums else np.maximum
        self._after_sweeps: list[Floats] = []
        """The distances of paths of at most 0, 1, 2, ... arcs; empty if they have settled early."""
        self._settled: Floats | None = None
        """The distances of paths of any length."""
        self._last_rise: Ints = np.zeros(len(automata), np.int64)
        """By automaton: the last sweep in which a distance became higher."""
        self._endless = False
        """Whether some paths gain without limit, the longer they are."""

    @property
    def arcs(self) -> int:
        """The number of arcs of the product, as far as it is known."""
        return self._product.arcs

    def of_subset(self, subset: Sequence[tuple[int, float]], relaxed: Sequence[int], tokens: float) -> float:
        """The distance from several states with residuals: the best, or their sum if the automaton sums."""
        each = [(residual, self.of(state, relaxed, tokens)) for state, residual in subset]
        if not self._product.sums:
            return max([self._weight * residual + distance for residual, distance in each], default=FORBIDDEN)
        terms = [residual + distance for residual, distance in each]
        return self._weight * float(np.logaddexp.reduce(terms, initial=FORBIDDEN))

    def settle(self, roots: Sequence[tuple[int, Sequence[int]]]) -> None:
        """Compute all distances from these pairs, one of each automaton. Raises TooLarge if they settle late."""
        product = self._product
        pairs = zip(product.starts, roots, strict=True)
        self._explore([product.code(start + state, own) for start, (state, own) in pairs])
        self._sweep_early(EARLY)
        if self._settled is None:
            raise TooLarge

    def part(self, automaton: int) -> LocalDistances:
        """The distances of one of the automata."""
        return LocalDistances(self, self._product.starts[automaton])

    def of(self, state: int, relaxed: Sequence[int], tokens: float = math.inf) -> float:
        """The distance from a pair, for paths of at most this many tokens, ``</s>`` included; -inf = no path.

        +inf = no limit: cycles add more and more. For an automaton that sums, divided by its weight. Raises TooLarge.
        """
        product = self._product
        code = product.code(state, relaxed)
        place = product.place(code)
        if place is None:
            self._explore([code])
            place = product.place(code)
            assert place is not None
            self._sweep_early(max(EARLY, EARLY_WORK // max(product.arcs, 1)))
        if self._after_sweeps:
            self._sweep(tokens)
            if tokens < len(self._after_sweeps):
                margins = self._margins(int(tokens))
                return self._after_sweeps[int(tokens)].item(place) + margins.item(self._links.parts.item(place))
        return self._settled.item(place) if self._settled is not None else math.inf

    @property
    def _links(self) -> Links:
        assert self._product.links is not None  # they are dropped only when no sweep needs them
        return self._product.links

    def _explore(self, wanted: Sequence[int]) -> None:
        self._product.explore(wanted)
        self._after_sweeps, self._settled, self._endless = [self._none_yet()], None, False
        self._last_rise[:] = 0

    def _sweep_early(self, sweeps: int) -> None:
        """Sweep before anything is asked, so that no answer depends on earlier questions."""
        self._sweep(min(sweeps, len(self._product.codes) + 1))
        if self._settled is not None:
            self._after_sweeps, self._product.links = [], None

    @np.errstate(invalid="ignore")
    def _sweep(self, tokens: float) -> None:
        """Sweep over all arcs until nothing changes, or all paths of at most this many tokens are covered.

        A sweep makes the distances of paths of at most T + 1 arcs from those of at most T. A path that visits no
        pair twice has at most P arcs, so without a limit, what still rises after that rises for ever.
        """
        gains, targets, pairs, first, parts = self._links
        while self._settled is None and len(self._after_sweeps) <= tokens:
            if tokens == math.inf and self._endless:
                return
            distances = self._after_sweeps[-1]
            sums = gains + distances[targets]
            if self._product.unlimited:
                sums[np.isnan(sums)] = FORBIDDEN  # an unlimited gain on the way to a dead end
            best = self._plus.reduceat(sums, first) if len(first) else sums
            (rising,) = (best > distances[pairs]).nonzero()
            if not len(rising):
                self._settled = distances[:-2] + self._margins(self._last_rise + 1)[parts]
                return
            self._last_rise[parts[pairs[rising]]] = len(self._after_sweeps)
            if len(self._after_sweeps) * len(gains) > MOST_WORK:
                raise TooLarge
            self._endless = len(self._after_sweeps) > len(self._product.codes)
            distances = distances.copy()
            distances[pairs] = best
            self._after_sweeps.append(distances)

    def _none_yet(self) -> Floats:
        """The distances of paths without arcs: only the end is reached, at the last place but one."""
        distances = np.full(len(self._product.codes) + 2, FORBIDDEN)
        distances[-2] = 0.0
        return distances

    def _margins(self, arcs: int | Ints) -> Floats:
        """By automaton, the most that rounding can add to a total, beside a distance of this many arcs.

        Sums of n numbers in any two orders differ by at most 2 n u times the sum of their absolute values, with the
        unit u of rounding (Higham 1993). A total has as many terms before the prefix's end as after it.
        """
        product = self._product
        terms = (arcs + 1) * (len(self.relaxed) + 3)
        if product.sums:  # each sum rounds once more for each of its terms
            terms *= 1 + int(np.diff(self._links.first, append=product.arcs).max(initial=0))
        margins: Floats = 4 * terms * UNIT * 2 * (arcs + 1) * (product.largest + product.sums)
        return margins


class LocalDistances:
    """The distances of one of several automata."""

    def __init__(self, distances: Distances, start: int) -> None:
        """``start``: the number of the automaton's state 0."""
        self.relaxed = distances.relaxed
        self._distances = distances
        self._start = start

    @property
    def arcs(self) -> int:
        return self._distances.arcs

    def of(self, state: int, relaxed: Sequence[int], tokens: float = math.inf) -> float:
        """`Distances.of`"""
        return self._distances.of(self._start + state, relaxed, tokens)
