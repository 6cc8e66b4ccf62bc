"""A lattice as a predictor, with the exact distance to its end as a heuristic for A*.

Score of token w at state q: minus the cost of q's arc with w; ``</s>`` scores minus q's final cost; all other tokens
are forbidden. So a total is minus the cost of a path, and costs may be negative.

The file is complete except for the two bounds. TODO: describe the bounds and their cost.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

import sgdec
from sgdec import EOS, Predictor, Scores, SgdecError, Source


@dataclass
class Lattice:
    """A deterministic acyclic acceptor; state 0 starts, and arcs lead to states with higher numbers."""

    arcs: list[dict[int, tuple[float, int]]]
    """For each state its tokens, each with its score and the state that it leads to."""
    final: list[float]
    """For each state the score of ``</s>``; -inf if no sentence can end there."""


class MyLattice(Predictor):
    """Scores along the paths of one lattice per sentence."""

    def __init__(
        self, path: Annotated[str, Field(description="lattice as text; {id} is the sentence number")]
    ) -> None:
        self._path = path
        self._lattice = Lattice([{}], [-math.inf])
        self._state = 0

    def initialize(self, source: Source) -> None:
        self._lattice = read_lattice(Path(self._path.replace("{id}", str(source.id))))
        self._state = 0

    def predict_next(self, candidates: Sequence[int] | None = None) -> Scores:
        row = {token: score for token, (score, _) in self._lattice.arcs[self._state].items()}
        if self._lattice.final[self._state] != -math.inf:
            row[EOS] = self._lattice.final[self._state]
        return Scores.sparse(tuple(row), tuple(row.values()))

    def consume(self, token: int) -> None:
        _, self._state = self._lattice.arcs[self._state][token]

    def get_state(self) -> int:
        return self._state

    def set_state(self, state: int) -> None:
        self._state = state

    def state_key(self, states: Sequence[int]) -> list[Hashable]:
        return list(states)

    def best_remaining(self, states: Sequence[int]) -> list[float]:
        """For each state the most that tokens from here to ``</s>`` can still add; -inf = there is no path."""
        raise NotImplementedError("best_remaining")

    def worst_remaining(self, states: Sequence[int]) -> list[float]:
        """For each state the least that they can add; +inf = there is no path."""
        raise NotImplementedError("worst_remaining")


def read_lattice(path: Path) -> Lattice:
    """Read OpenFst's text format for acceptors: ``FROM TO TOKEN COST`` is an arc, ``STATE COST`` a final state.

    Raises SgdecError that names the line if it does not have this form.
    """
    arcs: dict[int, dict[int, tuple[float, int]]] = {}
    final: dict[int, float] = {}
    try:
        lines = path.read_text("utf-8").splitlines()
    except OSError as error:
        raise SgdecError(f"mylattice: {path}: {error.strerror}. Give --mylattice.path.") from None
    for number, line in enumerate(lines, start=1):
        try:
            *states, cost = line.split()
            if len(states) == 3:
                start, target, token = map(int, states)
                if not 0 <= start < target:
                    raise ValueError
                arcs.setdefault(start, {})[token] = (-float(cost), target)
            else:
                (state,) = map(int, states)
                final[state] = -float(cost)
        except ValueError:
            expected = "expected 'FROM TO TOKEN COST' with FROM < TO, or 'STATE COST'"
            raise SgdecError(f"mylattice: {path}, line {number}: {line!r}; {expected}.") from None
    count = 1 + max([*final, *(target for out in arcs.values() for _, target in out.values())], default=0)
    return Lattice(
        [arcs.get(state, {}) for state in range(count)], [final.get(state, -math.inf) for state in range(count)]
    )


@sgdec.hookimpl
def sgdec_predictors() -> dict[str, type[Predictor]]:
    return {"mylattice": MyLattice}
