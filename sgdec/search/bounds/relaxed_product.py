"""The product of restricting automata and relaxations of other predictors, as arrays.

Its states are *pairs* of a state of the automaton and a combination of relaxed states (`sgdec.relaxations`). Its arcs
are those of the automaton; each adds the most that

    w a(arc)  +  sum over relaxed predictors k of w_k h_k(arc)  +  c

can be, with the automaton's weight w and score a, the highest (for w_k < 0 the lowest) relaxed score h_k, and the
most c that other predictors can add with one token.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple
from weakref import ref

import numpy as np

from sgdec.arcs import Automaton, joined, spread
from sgdec.arrays import Flags, Floats, Ints
from sgdec.context import EOS
from sgdec.errors import SgdecError
from sgdec.protocol import FORBIDDEN
from sgdec.search.bounds.relaxed import Relaxed

LARGEST_CODE = 1 << 62
"""The number of pairs must be below this."""
NOWHERE = -1
"""In place of a pair, after a token that cannot follow."""


class TooLarge(Exception):
    """The product has too many states or arcs."""


class ProductArcs(NamedTuple):
    """n arcs of pairs, pair after pair."""

    counts: Ints
    """The number of arcs of each pair."""
    numbers: Ints
    """``[n]``: the number of each arc in the automaton."""
    tokens: Ints
    """``[n]``"""
    relaxed: Sequence[Ints]
    """For each relaxation ``[n]``: the states before the arcs."""
    possible: Flags
    """``[n]``: whether other arcs can follow."""


class Links(NamedTuple):
    """The n arcs of P pairs as arrays, pair after pair."""

    gains: Floats
    """``[n]``: the most that each arc adds."""
    targets: Ints
    """``[n]``: the position of the pair after the arc; P after ``</s>``, P + 1 if it cannot be taken."""
    pairs: Ints
    """The positions of the pairs with arcs, in the order of the arcs."""
    first: Ints
    """The first arc of each of these."""
    parts: Ints
    """``[P]``: the number of the automaton of each pair."""


class RelaxedProduct:
    """The product as far as it has been explored: P pairs with n arcs."""

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
        self._name = name
        automaton, self.starts = joined(automata) if len(automata) > 1 else (automata[0], [0])
        """``starts``: the number of each automaton's state 0."""
        self._joint = automaton if len(automata) > 1 else None
        self._automaton = ref(automaton)  # the caller keeps the product only as long as the automata
        self._scale = 1.0
        """Gains are divided by this: by the weight if the automaton sums, so that its own scores have weight 1."""
        self.sums = automaton.sums and weight > 0
        """Whether the gains of several paths with the same tokens are added up."""
        if self.sums:
            weight, per_token, self._scale = 1.0, per_token / weight, weight
        self._weight, self._per_token = weight, per_token
        self._relaxed = relaxed
        self._sizes = [each.relaxation.size for each in relaxed]
        self._combinations = math.prod(self._sizes)
        """The number of combinations of relaxed states; the number of a pair is state * this + combination."""
        memories = [each.relaxation.memory for each in relaxed]
        self._memory = None if None in memories else max((each for each in memories if each), default=0)
        """The number of last tokens on which all relaxed states depend; None = on more."""
        self._most_arcs = most_arcs
        self.codes: Ints = np.empty(0, np.int64)
        """``[P]``, ascending: the numbers of the pairs."""
        self._sorted = self.codes.data  # single numbers from views are fast
        self.arcs = 0
        """n"""
        self.links: Links | None = None
        """The arcs; None before they are known, and when they are no longer needed."""
        self.largest: Floats = np.zeros(len(automata))
        """By automaton: the largest finite gain of an arc, as the sum of the sizes of its terms."""
        self.unlimited = False
        """Whether other gains are not finite."""

    def code(self, state: int, relaxed: Sequence[int]) -> int:
        """The number of a pair."""
        code = state
        for size, own in zip(self._sizes, relaxed, strict=True):
            code = code * size + own
        return code

    def place(self, code: int) -> int | None:
        """The position of the pair with this number; None = it has not been explored."""
        place = bisect_left(self._sorted, code)
        return place if place < len(self._sorted) and self._sorted[place] == code else None

    def explore(self, wanted: Sequence[int]) -> None:
        """Find these pairs and all that can follow them. Raises TooLarge."""
        automaton = self._whole()
        for code in wanted:
            self._require_state(automaton, code // self._combinations)
        if automaton.states * self._combinations >= LARGEST_CODE:
            raise TooLarge
        starts = _distinct(np.append(self.codes, wanted).astype(np.int64))
        codes = self._in_rounds(starts) if self._memory is None else self._in_few_rounds(starts, self._memory)
        self._join(codes, self._arcs_of(codes))

    def _in_rounds(self, starts: Ints) -> Ints:
        """These pairs and all that can follow them, found arc by arc."""
        codes = frontier = starts
        while len(frontier := _distinct(self._after(self._arcs_of(frontier)), known=codes)):
            codes = np.sort(np.concatenate([codes, frontier]))
        return codes

    def _in_few_rounds(self, starts: Ints, memory: int) -> Ints:
        """The same if relaxed states depend on so few tokens: then pairs further from a start need no way from it.

        From each state of the automaton, with whatever relaxed states, ``memory`` arcs lead to the same pairs as the
        ways from a start that end with these arcs. A few pairs more are found if starts do not reach all states.
        """
        everywhere, found = np.arange(self._whole().states) * self._combinations, [starts]
        for _ in range(memory):
            arcs = self._arcs_of(np.concatenate([everywhere, starts]))
            after, split = self._after(arcs), arcs.counts[: len(everywhere)].sum()
            everywhere, starts = _distinct(after[:split]), _distinct(after[split:])
            found.append(starts)
        return _distinct(np.concatenate([everywhere, *found]))

    def _whole(self) -> Automaton:
        automaton = self._automaton()
        assert automaton is not None
        return automaton

    def _require_state(self, automaton: Automaton, state: int) -> None:
        if not 0 <= state < automaton.states:
            raise SgdecError(
                f"predictor {self._name!r}: a prefix is in state {state} of its whole automaton, which has the "
                f"states 0 to {automaton.states - 1}. --bounds sum does without it."
            )

    def _arcs_of(self, codes: Ints) -> ProductArcs:
        """The arcs of these pairs. Raises TooLarge."""
        automaton = self._whole()
        state, combination = np.divmod(codes, self._combinations)
        first = automaton.offsets[state]
        counts = automaton.offsets[state + 1] - first
        if counts.sum() > self._most_arcs:
            raise TooLarge
        numbers = spread(first, counts)[1]
        tokens = automaton.tokens[numbers].astype(np.int64)
        possible = (automaton.after[numbers] >= 0) & (automaton.scores[numbers] > FORBIDDEN) & (tokens != EOS)
        return ProductArcs(
            counts, numbers, tokens, [own.repeat(counts) for own in self._split(combination)], possible
        )

    def _after(self, arcs: ProductArcs) -> Ints:
        """``[n]``: the pairs after these arcs; NOWHERE after an arc that ends a path."""
        each = [
            one.after(states, arcs.tokens, arcs.possible)
            for one, states in zip(self._relaxed, arcs.relaxed, strict=True)
        ]
        return self._pairs(arcs, each)

    def _pairs(self, arcs: ProductArcs, relaxed: Sequence[Ints]) -> Ints:
        """``[n]``: the pairs after these arcs, with these relaxed states; NOWHERE after an arc that ends a path."""
        after, possible = self._whole().after[arcs.numbers].astype(np.int64), arcs.possible
        for size, own in zip(self._sizes, relaxed, strict=True):
            after, possible = after * size + own, possible & (own >= 0)
        after[~possible] = NOWHERE
        return after

    def _split(self, combination: Ints) -> list[Ints]:
        """The relaxed states of each predictor in these combinations."""
        parts: list[Ints] = []
        for size in reversed(self._sizes):
            combination, part = np.divmod(combination, size)
            parts.append(part)
        return parts[::-1]

    @np.errstate(invalid="ignore")
    def _join(self, codes: Ints, arcs: ProductArcs) -> None:
        """Set the arrays of these pairs. Raises SgdecError if an arc leads to another pair."""
        scores = self._whole().scores[arcs.numbers]
        gains = self._weight * scores + self._per_token
        sizes, relaxed = np.abs(gains), []
        for each, states in zip(self._relaxed, arcs.relaxed, strict=True):
            most, after = each.arcs(states, arcs.tokens, arcs.possible)
            most = most / self._scale
            gains, sizes = gains + most, sizes + np.abs(most)
            relaxed.append(after)
        finite = sizes < np.inf
        if not finite.all():
            self.unlimited = True
            gains[np.isnan(gains)] = FORBIDDEN  # one predictor forbids what another does not limit
            sizes[~finite] = 0.0
        parts = np.searchsorted(self.starts, codes // self._combinations, side="right") - 1
        self.largest[:] = 0.0
        np.maximum.at(self.largest, parts.repeat(arcs.counts), sizes)
        pairs = self._pairs(arcs, relaxed)
        places = codes.searchsorted(pairs)
        if (codes.take(places, mode="clip") != pairs)[pairs >= 0].any():
            names = ", ".join(repr(each.name) for each in self._relaxed)
            raise SgdecError(
                f"predictor {names}: relaxed states depend on more tokens than the memory of a relaxation says. "
                "--bounds sum does without relaxations."
            )
        targets = np.where(pairs >= 0, places, len(codes) + 1)
        targets[(arcs.tokens == EOS) & (scores > FORBIDDEN)] = len(codes)
        (with_arcs,) = arcs.counts.nonzero()
        first = (arcs.counts.cumsum() - arcs.counts)[with_arcs]
        self.codes, self._sorted, self.arcs = codes, codes.data, len(gains)
        self.links = Links(gains, targets, with_arcs, first, parts)


def _distinct(codes: Ints, known: Ints | None = None) -> Ints:
    """Those that are not NOWHERE and not in ``known``; ascending, each once. Often faster than `numpy.unique`."""
    codes = np.sort(codes)
    new = codes >= 0
    new[1:] &= codes[1:] != codes[:-1]
    if known is not None and len(known):
        new &= known.take(known.searchsorted(codes), mode="clip") != codes
    found: Ints = codes[new]
    return found
