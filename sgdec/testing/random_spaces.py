"""Random search spaces small enough to enumerate, with scores of both signs, many ties, and forbidden tokens.

All random values come from a generator that the caller seeds, so that a failure can be reproduced.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from sgdec.arrays import Floats
from sgdec.context import EOS
from sgdec.protocol import FORBIDDEN, BatchPredictor, Predictor, Source
from sgdec.search.constellation import Constellation
from sgdec.testing.tiny_spaces import TinySpace
from sgdec.testing.toys import BatchTable, Bonus, Lattice, OnDemandTable, Table

V = 4
"""The vocabulary size of these spaces."""
KINDS = ("table", "falling", "capped", "batch", "on demand", "bonus", "lattice")
WEIGHTS = (1.0, 0.5, 2.0, -1.0, -0.3, 0.0)


class FallingTable(Table):
    """A table of scores <= 0, like log-probabilities; it declares ``max_score`` 0."""

    max_score = 0.0


class CappedTable(Table):
    """A table that declares only ``max_score``, the highest score of any token, which may be positive."""

    best_remaining = None  # type: ignore[assignment]  # it lacks the ability

    def __init__(self, table: npt.ArrayLike) -> None:
        super().__init__(table)
        self.max_score = float(self.table.max())


def random_space(
    rng: np.random.Generator,
    *,
    kinds: Sequence[str] = KINDS,
    weights: Sequence[float] = WEIGHTS,
    highest: float = 2.0,
) -> TinySpace:
    """A space of one sentence and one to three predictors, with kinds and weights drawn from ``kinds``, ``weights``.

    >>> space = random_space(np.random.default_rng(7))
    >>> len(space.constellation().names) in (1, 2, 3)
    True
    """
    chosen = rng.choice(kinds, rng.integers(1, 4)).tolist()
    coarse = bool(rng.random() < 0.5)
    predictors = dict(zip("abc", [random_predictor(kind, rng, highest, coarse) for kind in chosen], strict=False))
    given = rng.choice(weights, len(chosen)).tolist()
    limit = None if needs_no_limit(chosen, given) and rng.random() < 0.5 else int(rng.integers(0, 4))
    make = partial(Constellation.of, predictors, weights=given, vocab_size=V)
    return TinySpace(f"random: {' and '.join(chosen)}", make, Source(1, (3, 4, 3), max_length=limit))


def needs_no_limit(kinds: Sequence[str], weights: Sequence[float]) -> bool:
    """Whether a lattice limits the length of all hypotheses and no other predictor has positive scores."""
    falling = all(kind == "lattice" or (kind == "falling" and w >= 0) for kind, w in zip(kinds, weights, strict=True))
    return falling and "lattice" in kinds


def random_predictor(kind: str, rng: np.random.Generator, highest: float, coarse: bool) -> Predictor | BatchPredictor:
    """A predictor of a kind in `KINDS` over `V` tokens, with scores from `random_scores`."""
    if kind == "lattice":
        return random_lattice(rng, highest, coarse)
    if kind == "bonus":
        few = random_scores(rng, (2,), highest, coarse).tolist()
        return Bonus({EOS: few[0], 3: few[1]}, default=min(highest, -0.5))
    table = random_scores(rng, (V, V), highest, coarse)
    if kind == "falling":
        return FallingTable(np.minimum(table, 0.0))
    if kind == "batch":
        return BatchTable(table)
    return {"table": Table, "capped": CappedTable, "on demand": OnDemandTable}[kind](table)


def random_lattice(rng: np.random.Generator, highest: float, coarse: bool) -> Lattice:
    """An acyclic lattice with five states; it may have no complete path."""
    arcs: dict[int, dict[int, tuple[float, int]]] = {}
    for state in range(5):
        tokens = rng.permutation(V)[: rng.integers(1, 4)].tolist()
        values = random_scores(rng, (len(tokens),), highest, coarse).tolist()
        targets = rng.integers(state + 1, 6, len(tokens)).tolist()
        arcs[state] = {
            token: (value, 9 if token == EOS else target)
            for token, value, target in zip(tokens, values, targets, strict=True)
            if value != FORBIDDEN
        }
    return Lattice(arcs)


def random_scores(rng: np.random.Generator, shape: Sequence[int], highest: float, coarse: bool) -> Floats:
    """Scores <= ``highest``, one in seven of them -inf. ``coarse``: multiples of 0.5, so that many are equal."""
    values = rng.uniform(highest - 4.0, highest, shape)
    if coarse:
        values = np.floor(2 * values) / 2
    return np.where(rng.random(shape) < 1 / 7, FORBIDDEN, values)
