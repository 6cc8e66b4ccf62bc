"""Lattices as networks: scores instead of costs, arcs grouped by kind, and exit scores.

A network may call others: an arc whose label is not a token stands for all paths of another network. A lattice is a
network without calls.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from sgdec import EOS
from sgdec.context import UNK
from sgdec.files import Lattice, LatticeError
from sgdec.protocol import FORBIDDEN
from sgdec_predictors.automata.semirings import LOG, Semiring, Ways, distances_to_end, times

_Signature: TypeAlias = "tuple[frozenset[NetworkArc], frozenset[tuple[float, int]], frozenset[NetworkArc], float]"
"""A state: its arcs, epsilons and calls, and the score of ending in it."""


class NetworkArc(NamedTuple):
    """One labelled arc."""

    label: int
    score: float
    target: Any


@dataclass(frozen=True)
class Network:
    """The arcs of each state, without arcs of infinite cost."""

    start: int
    arcs: list[list[NetworkArc]]
    """Tokens, by label."""
    silent: list[list[tuple[float, int]]]
    """Epsilons: scores and targets."""
    calls: list[list[NetworkArc]]
    """Other networks, by label."""
    final: list[float]
    """The score of ending in each state; -inf = not final."""

    @classmethod
    def of(cls, lattice: Lattice, use_weights: bool, is_call: Callable[[int], bool] = lambda label: False) -> Network:
        """The network of a lattice. Without ``use_weights`` every arc and every end scores 0."""
        arcs: list[list[NetworkArc]] = [[] for _ in lattice.arcs]
        silent: list[list[tuple[float, int]]] = [[] for _ in lattice.arcs]
        calls: list[list[NetworkArc]] = [[] for _ in lattice.arcs]
        for state, leaving in enumerate(lattice.arcs):
            for label, cost, target in leaving:
                if cost < math.inf:
                    score = -cost if use_weights else 0.0
                    if label == UNK:
                        silent[state].append((score, target))
                    else:
                        (calls if is_call(label) else arcs)[state].append(NetworkArc(label, score, target))
        final = [-cost if use_weights or cost == math.inf else 0.0 for cost in lattice.final.tolist()]
        return cls(lattice.start, arcs, silent, calls, final)

    def __len__(self) -> int:
        return len(self.arcs)

    @property
    def has_silent_ways(self) -> bool:
        """Whether there are epsilons, or calls that may be empty."""
        return any(self.silent) or any(self.calls)

    def merged(self) -> Network:
        """The same paths, with equivalent states merged: those whose arcs have the same labels, scores and (merged)
        targets.

        Partitions are refined until they are stable. Arcs that become equal are merged, so the best replaces a sum.
        """
        of = [0] * len(self)
        count = min(len(self), 1)
        while True:
            signatures = [self._signature(state, of) for state in range(len(self))]
            number = {signature: i for i, signature in enumerate(dict.fromkeys(signatures))}
            of = [number[signature] for signature in signatures]
            if len(number) == count:
                break
            count = len(number)
        return Network(
            start=of[self.start] if self.start >= 0 else self.start,
            arcs=[sorted(arcs) for arcs, _, _, _ in number],
            silent=[sorted(silent) for _, silent, _, _ in number],
            calls=[sorted(calls) for _, _, calls, _ in number],
            final=[final for _, _, _, final in number],
        )

    def _signature(self, state: int, of: Sequence[int]) -> _Signature:
        """The distinct arcs of a state, with targets replaced by their classes."""
        return (
            frozenset(arc._replace(target=of[arc.target]) for arc in self.arcs[state]),
            frozenset((score, of[target]) for score, target in self.silent[state]),
            frozenset(arc._replace(target=of[arc.target]) for arc in self.calls[state]),
            self.final[state],
        )


class Exit(NamedTuple):
    """The combined score of all paths from a state to the final states of its network; -inf = there is none."""

    silent: float
    """The score of paths without any token."""
    through: float
    """Without ``</s>``."""
    ended: float
    """The score of paths with ``</s>``, followed only by epsilons."""


class Paths:
    """The paths of one network, with calls replaced by the paths of the called networks."""

    def __init__(self, network: Network, semiring: Semiring, callees: Mapping[int, Exit] = {}, sign: int = 1) -> None:
        """Every score is multiplied by ``sign``. ``callees``: by label the exit from the first state, multiplied
        too."""
        self._network = network
        self._semiring = semiring
        self._callees = callees
        self._sign = sign

    def exits(self) -> list[Exit]:
        """The exit from each state; +inf if cycles add without limit."""
        states = range(len(self._network))
        silent = self.silent_exits()
        through = distances_to_end(self._semiring, states, self._through, self._final)
        ended = distances_to_end(self._semiring, states, self._through, partial(self._end, silent))
        return [Exit(silent[state], through[state], ended[state]) for state in states]

    def silent_exits(self) -> dict[int, float]:
        """The exit score from each state without any token."""
        states = range(len(self._network))
        if not self._network.has_silent_ways:
            return {state: self._final(state) for state in states}
        return distances_to_end(self._semiring, states, self._silent, self._final)

    def diverges(self) -> int | None:
        """A state whose paths without tokens gain without limit, or have no finite sum; None = there is none."""
        states = range(len(self._network))
        sums = distances_to_end(self._semiring, states, self._silent, lambda state: 0.0)
        return next((state for state in states if sums[state] == math.inf), None)

    def _silent(self, state: int) -> Ways[int]:
        ways = [(self._sign * score, target) for score, target in self._network.silent[state]]
        for label, score, target in self._network.calls[state]:
            ways.append((times(self._sign * score, self._callees[label].silent), target))
        return ways

    def _through(self, state: int) -> Ways[int]:
        ways = [(self._sign * score, target) for score, target in self._network.silent[state]]
        ways += [(self._sign * score, target) for label, score, target in self._network.arcs[state] if label != EOS]
        for label, score, target in self._network.calls[state]:
            ways.append((times(self._sign * score, self._callees[label].through), target))
        return ways

    def _final(self, state: int) -> float:
        score = self._network.final[state]
        return score if score == FORBIDDEN else self._sign * score

    def _end(self, silent: Mapping[int, float], state: int) -> float:
        ends = [
            times(self._sign * score, silent[target])
            for label, score, target in self._network.arcs[state]
            if label == EOS
        ]
        for label, score, target in self._network.calls[state]:
            ends.append(times(self._sign * score, self._callees[label].ended, silent[target]))
        return self._semiring.plus(ends)


def refuse_unfit(
    network: Network, path: str, semiring: Semiring, vocab_size: int | None, callees: Mapping[int, Exit] = {}
) -> None:
    """Raises LatticeError for a label outside the vocabulary, and for epsilons that diverge."""
    for state, arcs in enumerate(network.arcs):
        if arcs and vocab_size is not None and arcs[-1].label >= vocab_size:
            raise LatticeError(
                path,
                f"state {state} has an arc with label {arcs[-1].label}, but there are {vocab_size} target tokens",
                "Lattices and models must share one vocabulary.",
            )
    wrong = Paths(network, semiring, callees).diverges() if network.has_silent_ways else None
    if wrong is not None:
        what = "the log-sum of the epsilon paths" if semiring is LOG else "the cost of the best epsilon path"
        why = "their probabilities have no finite sum" if semiring is LOG else "a cycle of negative cost"
        raise LatticeError(
            path, f"{what} from state {wrong} diverges ({why})", "Correct the costs of its epsilon arcs."
        )
