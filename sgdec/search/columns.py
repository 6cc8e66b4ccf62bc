"""What each predictor says about a batch of nodes: to which tokens it restricts them, and the scores of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from sgdec.errors import SgdecError
from sgdec.protocol import Candidates, Scores, SparseRow
from sgdec.scores import FEW
from sgdec.search import arrays

Ints: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Column:
    """What one predictor says about a batch of nodes."""

    name: str
    scores: Scores | None
    """None if no node of the batch consults it."""
    places: Sequence[int | None]
    """For each node its row in ``scores``; None = not consulted."""
    weights: Sequence[float | None]
    """For each node the weight of this predictor."""

    @property
    def is_dense(self) -> bool:
        return self.scores is not None and self.scores.values is not None

    def filled(self, nodes: Sequence[int], width: int) -> Floats:
        """``[len(nodes), width]``: their scores of all tokens; 0 where it is not consulted."""
        assert self.scores is not None
        rows = np.zeros((len(nodes), width))
        for i, node in enumerate(nodes):
            place = self.places[node]
            if place is not None:
                values = self.scores.values
                rows[i] = self.scores.rows[place].filled(width) if values is None else arrays.to_numpy(values[place])
        return rows

    def sparse_row(self, node: int) -> SparseRow | None:
        """The node's row, if it is a sparse one."""
        place = self.places[node]
        if place is None or self.scores is None or self.scores.values is not None:
            return None
        return self.scores.rows[place]

    def add_restricting(self, listed: Sequence[list[SparseRow]]) -> bool:
        """Adds this predictor's restricting rows to those of each node; whether there are any."""
        if self.scores is None or self.scores.values is not None or self.scores.asked is not None:
            return False  # an answer to candidates is open: what it forbids, it scores -inf
        rows, any_restricts = self.scores.rows, False
        for found, place in zip(listed, self.places, strict=True):
            if place is not None and rows[place].restricts:
                found.append(rows[place])
                any_restricts = True
        return any_restricts


def outside(tokens: Candidates, vocab_size: int | None) -> int | None:
    """The first or last of these ascending tokens where the vocabulary does not have it; else None."""
    if len(tokens) and tokens[0] < 0:
        return tokens[0]
    return tokens[-1] if len(tokens) and vocab_size is not None and tokens[-1] >= vocab_size else None


def not_in_vocabulary(name: str, token: int, vocab_size: int | None) -> SgdecError:
    """What to raise where a predictor lists such a token."""
    size = "" if vocab_size is None else f" of {vocab_size} tokens"
    return SgdecError(
        f"predictor {name!r} scores token {token}, which is outside the target vocabulary{size}; all predictors must "
        "share one vocabulary."
    )


def candidates_of(rows: Sequence[SparseRow]) -> Candidates | None:
    """The tokens that all of these restricting rows list, ascending; None if there is no row."""
    if not rows:
        return None
    if len(rows) == 1:
        return rows[0].candidates
    smallest = min(rows, key=len)
    if len(smallest) <= FEW:
        others = [row.lookup for row in rows if row is not smallest]
        return [token for token in smallest.candidates if all(token in other for other in others)]
    tokens = smallest.arrays[0]
    for row in rows:
        if row is not smallest:
            tokens = np.intersect1d(tokens, row.arrays[0], assume_unique=True)
    common: list[int] = tokens.tolist()
    return common


def scores_at(
    column: Column, nodes: Sequence[int], tokens: Sequence[Candidates], token: Ints, place: Ints
) -> Floats:
    """One predictor's unweighted scores of the given tokens, ``[n]``; 0 where it is not consulted.

    ``token`` and ``place``: the same tokens as one array, and the place of each one's node among ``nodes``.
    """
    scores = column.scores
    if scores is None:
        return np.zeros(len(token))
    if scores.flat is not None and scores.asked is tokens:
        return scores.flat
    places = [column.places[node] for node in nodes]
    if scores.values is None:
        found = [
            [0.0] * len(wanted) if row is None else scores.rows[row].at(wanted)
            for row, wanted in zip(places, tokens, strict=True)
        ]
        return np.fromiter(chain.from_iterable(found), np.float64, len(token))
    width = scores.values.shape[1]
    if token.max(initial=0) >= width:
        raise SgdecError(
            f"token {token.max()} is outside the vocabulary of predictor {column.name!r} "
            f"({width} tokens); lattice and model must share one target vocabulary."
        )
    rows = np.array([-1 if row is None else row for row in places])[place]
    picked: Floats = arrays.to_numpy(arrays.pick(scores.values, np.maximum(rows, 0), token)).astype(np.float64)
    return np.where(rows < 0, 0.0, picked)
