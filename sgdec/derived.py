"""Relaxations of a predictor that contains another one, such as a wrapper, made from those of the inner predictor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from weakref import WeakValueDictionary

from sgdec.arrays import Floats, Ints
from sgdec.protocol import State
from sgdec.relaxations import Relaxation


class DerivedRelaxation(Relaxation):
    """An inner relaxation for the outer predictor's states; subclasses also change tokens or scores."""

    def __init__(self, inner: Relaxation, inner_states: Callable[[Sequence[State]], Sequence[State]]) -> None:
        """``inner_states`` returns the inner predictor's states that outer states contain."""
        self.inner = inner
        self.size, self.memory = inner.size, inner.memory
        self._inner_states = inner_states

    def of(self, states: Sequence[State]) -> Sequence[int]:
        return self.inner.of(self._inner_states(states))

    def after(self, states: Ints, tokens: Ints) -> Ints:
        return self.inner.after(states, tokens)

    def highest(self, states: Ints, tokens: Ints) -> Floats:
        return self.inner.highest(states, tokens)

    def lowest(self, states: Ints, tokens: Ints) -> Floats:
        return self.inner.lowest(states, tokens)


class Derived:
    """The relaxations derived from inner ones: always the same object for the same inner one.

    Relaxations are parts of keys. An entry lives as long as its relaxation is in use, so nothing of a sentence stays.
    """

    def __init__(self, derive: Callable[[Relaxation], Relaxation]) -> None:
        self._derive = derive
        self._by_inner: WeakValueDictionary[int, Relaxation] = WeakValueDictionary()
        """By identity of the inner relaxation, which lives as long as the one that is derived from it."""

    def all(self, inner: Sequence[Relaxation]) -> tuple[Relaxation, ...]:
        return tuple(map(self._of, inner))

    def _of(self, inner: Relaxation) -> Relaxation:
        found = self._by_inner.get(id(inner))
        if found is None:
            found = self._by_inner[id(inner)] = self._derive(inner)
        return found
