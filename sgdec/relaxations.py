"""Relaxations: small automata that bound a predictor's scores from above and from below.

A predictor that scores tokens without restricting them, such as a language model, can describe itself coarsely: by a
deterministic automaton over tokens with few states, each of which stands for many states of the predictor. The
distances to the end of a predictor that restricts, such as a lattice, are then computed together with these automata
(`sgdec.search.bounds.folding`): lattice and language model bound together what a path can still add, not each alone.

For a relaxation with the map ``of`` from the predictor's states to its own, and for every state s that a search can
reach and every token t whose score after s is finite:

1. ``of(consume(s, t)) = after(of(s), t)``;
2. ``lowest(of(s), t) <= score(s, t) <= highest(of(s), t)``.

The first is what makes the second hold along whole paths: the relaxed states of a path can be followed without the
predictor. Both are checked by `sgdec.testing`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from sgdec.arcs import Automaton
from sgdec.arrays import Floats, Ints
from sgdec.protocol import State

__all__ = ["Constant", "Relax", "Relaxation", "Subsets", "Whole"]


class Relaxation(ABC):
    """A relaxation of one predictor, for one sentence or for all."""

    size: int
    """The number of its states, which are 0 .. size - 1."""
    memory: int | None = None
    """The state after this many tokens depends on these alone, whatever the state before; None = on more."""

    @abstractmethod
    def of(self, states: Sequence[State]) -> Sequence[int]:
        """The relaxed state of each of the predictor's states."""

    @abstractmethod
    def after(self, states: Ints, tokens: Ints) -> Ints:
        """``[n]``: the relaxed states after these tokens; any number after ``</s>``, or if `highest` is -inf."""

    @abstractmethod
    def highest(self, states: Ints, tokens: Ints) -> Floats:
        """``[n]``: numbers that no score of these tokens exceeds, ``</s>`` included; +inf = unknown."""

    @abstractmethod
    def lowest(self, states: Ints, tokens: Ints) -> Floats:
        """``[n]``: numbers that no finite score of these tokens falls below; -inf = unknown."""

    def arcs(self, states: Ints, tokens: Ints, *, lowest: bool = False) -> tuple[Floats, Ints]:
        """`highest`, or `lowest`, and `after`; for relaxations that find both at once."""
        return (self.lowest if lowest else self.highest)(states, tokens), self.after(states, tokens)


class Constant(Relaxation):
    """One state: each token scores between two numbers."""

    size = 1
    memory = 0

    def __init__(self, lowest: float, highest: float) -> None:
        self._lowest = lowest
        self._highest = highest

    def of(self, states: Sequence[State]) -> Sequence[int]:
        return [0] * len(states)

    def after(self, states: Ints, tokens: Ints) -> Ints:
        return np.zeros(len(tokens), np.int64)

    def highest(self, states: Ints, tokens: Ints) -> Floats:
        return np.full(len(tokens), self._highest)

    def lowest(self, states: Ints, tokens: Ints) -> Floats:
        return np.full(len(tokens), self._lowest)


class Relax(Protocol):
    """An ability: bounds its scores by relaxations, which are folded into the bounds of others."""

    @abstractmethod
    def relaxations(self, state: State) -> Sequence[Relaxation]:
        """Relaxations for the sentence of this state, ever coarser ones; the same objects for all of its states."""


class Whole(Protocol):
    """An ability: an automaton that restricts and is known as a whole, so that others can be folded into it."""

    @abstractmethod
    def whole(self, state: State) -> tuple[Automaton, int] | None:
        """The automaton of a state that is not negative, and the number of its state 0; its other states follow.

        None = it is too large; the answer is the same for all states of a sentence.
        Token ``</s>`` ends a path, whatever the state after it.
        """


class Subsets(Protocol):
    """The same for an automaton that is not deterministic: a prefix leads to several of its states.

    The total of a token sequence is the best of the scores of its paths, or with ``Automaton.sums`` the log of the
    sum of their exponentials. A state of the predictor stands for states of the automaton, each with a residual r:
    the total of a prefix and a continuation is the prefix's total and the best, or the log-sum, of r + score(path)
    over the paths of that continuation.
    """

    @abstractmethod
    def subset(self, state: State) -> tuple[Automaton, Sequence[tuple[int, float]]] | None:
        """The automaton, which has no epsilons, and its states with their residuals; None = it is not known."""
