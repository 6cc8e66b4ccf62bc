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
from typing import NamedTuple
from weakref import ref

import numpy as np
import numpy.typing as npt

from sgdec.arcs import Automaton, spread
from sgdec.context import EOS
from sgdec.errors import SgdecError
from sgdec.protocol import FORBIDDEN, Ints
from sgdec.search.relaxed import Relaxed

Floats = npt.NDArray[np.float64]

MOST_WORK = 1 << 28
"""The arcs that all sweeps over one product may visit."""
LARGEST_CODE = 1 << 62
"""The number of pairs of states must be below this."""
UNIT = 2.0**-52
END, NOWHERE = -1, -2
"""In place of a pair: after ``</s>``, and after a token that cannot follow."""


class TooLarge(Exception):
    """The product has too many states or arcs."""


class Product(NamedTuple):
    """The arcs of P pairs of an automaton's state and relaxed states, pair after pair."""

    codes: Ints
    """``[P]``, ascending: the numbers of the pairs."""
    gains: Floats
    """``[n]``: the most that each arc adds."""
    targets: Ints
    """``[n]``: the position of the pair after the arc; P after ``</s>``, P + 1 if it cannot be taken."""
    pairs: Ints
    """The positions of the pairs with arcs, in the order of the arcs."""
    first: Ints
    """The first arc of each of these."""


class Distances:
    """The distances from pairs of a state of one automaton and relaxed states, to the end."""

    def __init__(
        self,
        automaton: Automaton,
        weight: float,
        relaxed: Sequence[Relaxed],
        per_token: float,
        most_arcs: int,
        name: str = "",
    ) -> None:
        """``weight``: of the automaton; ``per_token``: the most that other predictors add with each token.

        ``most_arcs``: a product of more arcs is not built. ``name``: the automaton's predictor, for errors.
        """
        self._name = name
        self._most_arcs = most_arcs
        self._automaton = ref(automaton)  # the caller keeps distances only as long as the automaton
        self._weight = weight
        self._sums = automaton.sums and weight > 0
        self.relaxed = relaxed
        self._per_token = per_token
        self._sizes = [each.relaxation.size for each in relaxed]
        self._combinations = math.prod(self._sizes)
        """The number of combinations of relaxed states; the number of a pair is state * this + combination."""
        self._plus = np.logaddexp if self._sums else np.maximum
        self._places: dict[int, int] = {}
        """By number of a pair: its position in the arrays."""
        self._product: Product | None = None
        self._after_sweeps: list[Floats] = []
        """The distances of paths of at most 0, 1, 2, ... arcs; empty when they are settled."""
        self._settled: list[float] | None = None
        """The distances of paths of any length."""
        self._largest, self._unlimited = 0.0, False
        """The largest finite gain of an arc, as the sum of the sizes of its parts; whether others are not finite."""
        self._endless = False
        """Whether some paths gain without limit, the longer they are."""

    @property
    def arcs(self) -> int:
        """The number of arcs of the product, as far as it is known."""
        return len(self._product.gains) if self._product is not None else 0

    def of_subset(self, subset: Sequence[tuple[int, float]], relaxed: Sequence[int], tokens: float) -> float:
        """The distance from several states with residuals: the best, or their sum if the automaton sums."""
        each = [(residual, self.of(state, relaxed, tokens)) for state, residual in subset]
        if not self._sums:
            return max([self._weight * residual + distance for residual, distance in each], default=FORBIDDEN)
        terms = [residual + distance for residual, distance in each]
        return self._weight * float(np.logaddexp.reduce(terms, initial=FORBIDDEN))

    def of(self, state: int, relaxed: Sequence[int], tokens: float = math.inf) -> float:
        """The distance from a pair, for paths of at most this many tokens, ``</s>`` included; -inf = no path.

        +inf = no limit: cycles add more and more. For an automaton that sums, divided by its weight. Raises TooLarge.
        """
        code = self._code(state, relaxed)
        if code not in self._places:
            self._explore([code])
        if self._settled is None:
            self._sweep(tokens)
        if self._settled is not None:
            return self._settled[self._places[code]]
        if tokens == math.inf:
            return math.inf
        return float(self._after_sweeps[int(tokens)][self._places[code]]) + self._margin(int(tokens))

    def _whole(self) -> Automaton:
        automaton = self._automaton()
        assert automaton is not None
        return automaton

    def _code(self, state: int, relaxed: Sequence[int]) -> int:
        code = state
        for size, own in zip(self._sizes, relaxed, strict=True):
            code = code * size + own
        return code

    def _explore(self, wanted: Sequence[int]) -> None:
        """Build the product of all pairs that can follow these, and those that are known."""
        automaton, markov = self._whole(), all(each.relaxation.markov for each in self.relaxed)
        self._require_states(automaton, wanted)
        if automaton.states * self._combinations >= LARGEST_CODE:
            raise TooLarge
        known = np.array([*self._places, *wanted], np.int64)
        if markov:  # a pair is decided by any arc that leads to it, so all pairs are known at once
            known = np.append(known, self._pairs_after_arcs())
        rounds: list[tuple[Ints, Floats, Ints]] = []
        codes = frontier = np.unique(known)
        arcs = 0
        while len(frontier):
            state = frontier // self._combinations
            arcs += int((automaton.offsets[state + 1] - automaton.offsets[state]).sum())
            if arcs > self._most_arcs:
                raise TooLarge
            found = self._arcs_of(frontier)
            rounds.append(found)
            if markov:
                break
            after = np.unique(found[2])
            frontier = np.setdiff1d(after[after >= 0], codes, assume_unique=True)
            if len(frontier):
                codes = np.union1d(codes, frontier)
        source, gains, after = (np.concatenate(parts) for parts in zip(*rounds, strict=True))
        place = codes.searchsorted(source)
        starts = np.ones(len(place), bool)
        np.not_equal(place[1:], place[:-1], out=starts[1:])
        (first,) = starts.nonzero()
        targets = np.where(after >= 0, codes.searchsorted(after), len(codes) - 1 - after)  # END, NOWHERE: P, P + 1
        self._product = Product(codes, gains, targets, place[first], first)
        self._places = dict(zip(codes.tolist(), range(len(codes)), strict=True))
        self._after_sweeps, self._settled, self._endless = [self._none_yet(len(codes))], None, False

    def _require_states(self, automaton: Automaton, codes: Sequence[int]) -> None:
        """Raise SgdecError if one of these pairs has a state that the automaton lacks."""
        for code in codes:
            state = code // self._combinations
            if not 0 <= state < automaton.states:
                raise SgdecError(
                    f"predictor {self._name!r}: a prefix is in state {state} of its whole automaton, which has the "
                    f"states 0 to {automaton.states - 1}. --bounds sum does without it."
                )

    def _pairs_after_arcs(self) -> Ints:
        """The pairs that the automaton's arcs lead to, if relaxed states depend on the last token alone."""
        automaton = self._whole()
        code: Ints
        (goes_on,) = ((automaton.tokens != EOS) & (automaton.after >= 0)).nonzero()
        tokens, code = automaton.tokens[goes_on], automaton.after[goes_on].astype(np.int64)
        anything = np.zeros(len(tokens), np.int64)
        for each in self.relaxed:
            after = each.after(anything, tokens, anything > 0)
            code = np.where((code >= 0) & (after >= 0), code * each.relaxation.size + after, NOWHERE)
        return code[code >= 0]

    def _arcs_of(self, codes: Ints) -> tuple[Ints, Floats, Ints]:
        """The arcs of these pairs, pair after pair: the pair, what it adds, and the pair after it."""
        automaton = self._whole()
        state, combination = codes // self._combinations, codes % self._combinations
        offsets = automaton.offsets
        counts = offsets[state + 1] - offsets[state]
        row, arc = np.arange(len(state)).repeat(counts), spread(offsets[state], counts)[1]
        tokens = automaton.tokens[arc].astype(np.int64)
        scores = automaton.scores[arc]
        scale = 1.0 / self._weight if self._sums else 1.0
        gains = scores + scale * self._per_token if self._sums else self._weight * scores + self._per_token
        sizes = np.abs(gains)
        after = automaton.after[arc].astype(np.int64)
        nowhere = (after < 0) | (scores == FORBIDDEN)
        for each, size, own in zip(self.relaxed, self._sizes, self._split(combination), strict=True):
            relaxed = own[row]
            most = scale * each.most(relaxed, tokens)
            gains, sizes = gains + most, sizes + np.abs(most)
            then = each.after(relaxed, tokens, ~nowhere & (tokens != EOS))
            nowhere |= then < 0
            after = after * size + then
        after[nowhere] = NOWHERE
        after[(tokens == EOS) & (scores > FORBIDDEN)] = END
        finite = sizes < np.inf
        if not finite.all():
            self._unlimited = True
            gains[np.isnan(gains)] = FORBIDDEN  # one predictor forbids what another does not limit
        self._largest = max(self._largest, float(sizes.max(initial=0.0, where=finite)))
        return codes[row], gains, after

    def _split(self, combination: Ints) -> list[Ints]:
        """The relaxed states of each predictor in these combinations."""
        parts: list[Ints] = []
        for size in reversed(self._sizes):
            parts.append(combination % size)
            combination = combination // size
        return parts[::-1]

    def _sweep(self, tokens: float) -> None:
        """Sweep over all arcs until nothing changes, or all paths of at most this many tokens are covered.

        A sweep makes the distances of paths of at most T + 1 arcs from those of at most T. A path that visits no
        pair twice has at most P arcs, so without a limit, what still rises after that rises for ever.
        """
        assert self._product is not None
        codes, gains, targets, pairs, first = self._product
        while len(self._after_sweeps) <= tokens and not (tokens == math.inf and self._endless):
            distances = self._after_sweeps[-1]
            sums = gains + distances[targets]
            if self._unlimited:
                sums[np.isnan(sums)] = FORBIDDEN  # an unlimited gain on the way to a dead end
            best = self._plus.reduceat(sums, first) if len(first) else sums
            if not (best > distances[pairs]).any():
                self._settled = (distances[:-2] + self._margin(len(self._after_sweeps))).tolist()
                self._after_sweeps = []
                return
            if len(self._after_sweeps) * len(gains) > MOST_WORK:
                raise TooLarge
            self._endless = len(self._after_sweeps) > len(codes)
            distances = distances.copy()
            distances[pairs] = best
            self._after_sweeps.append(distances)

    def _none_yet(self, pairs: int) -> Floats:
        """The distances of paths without arcs: only the end is reached, at the last place but one."""
        distances = np.full(pairs + 2, FORBIDDEN)
        distances[-2] = 0.0
        return distances

    def _margin(self, arcs: int) -> float:
        """The most that rounding can add to a total, beside a distance of this many arcs.

        Sums of n numbers in any two orders differ by at most 2 n u times the sum of their absolute values, with the
        unit u of rounding (Higham 1993). A total has as many terms before the prefix's end as after it.
        """
        terms = (arcs + 1) * (len(self.relaxed) + 3)
        if self._sums and self._product is not None:  # each sum rounds once more for each of its terms
            terms *= 1 + int(np.diff(self._product.first, append=len(self._product.gains)).max(initial=0))
        return 4 * terms * UNIT * 2 * (arcs + 1) * (self._largest + self._sums)
