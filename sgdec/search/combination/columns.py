"""One predictor's answer about a batch of nodes: the tokens that it restricts them to, and its scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sgdec.arrays import Floats
from sgdec.context import EOS
from sgdec.errors import SgdecError
from sgdec.protocol import Candidates
from sgdec.scores import Places, Scores
from sgdec.sparse import FEW, SparseRow, TokenLists, Wanted

END_ONLY = SparseRow((EOS,), (0.0,))
"""At the length limit ``</s>`` is the only candidate, scored as usual."""


@dataclass(frozen=True)
class Column:
    """One predictor's answer about a batch of nodes."""

    name: str
    scores: Scores
    places: Places
    """For each node its row in ``scores``; None = the node does not consult this predictor. A range = all do."""
    weights: Sequence[float | None]
    """For each node the weight of this predictor."""

    def sparse_row(self, node: int) -> SparseRow | None:
        """The node's row if it is sparse; None if it is dense or the predictor is not consulted."""
        place = self.places[node]
        return None if place is None else self.scores.row(place)

    def scores_of(self, wanted: Wanted) -> Floats:
        """Its unweighted scores of these tokens, ``[n]``; 0 for nodes that do not consult it.

        Raises SgdecError for a token that its matrix does not have.
        """
        width = self.scores.width
        if width is not None and (highest := wanted.token.max(initial=0)) >= width:
            raise SgdecError(
                f"token {highest} is outside the vocabulary of predictor {self.name!r} ({width} tokens); lattice and "
                "model must share one target vocabulary."
            )
        every = isinstance(wanted.nodes, range)
        return self.scores.of(wanted, self.places if every else [self.places[node] for node in wanted.nodes])


class Restrictions:
    """The tokens that can follow each node of a batch, from the predictors that restrict them."""

    def __init__(self, nodes: int) -> None:
        """For this number of nodes, none of which is at the length limit until `end` says so."""
        self._ending = np.zeros(nodes, dtype=bool)
        self._lists: list[TokenLists] = []
        """Answers about all nodes as arrays."""
        self._rows: list[list[SparseRow]] = [[] for _ in range(nodes)]
        self._arrays_only = True

    def end(self, ending: Sequence[bool]) -> None:
        """``ending``: for each node whether only ``</s>`` can follow, because it is at the length limit."""
        if any(ending):
            self._ending = np.array(ending)
            for rows, ends in zip(self._rows, ending, strict=True):
                if ends:
                    rows.append(END_ONLY)

    def add(self, column: Column) -> bool:
        """Add the rows of a predictor that restrict; return whether there are any."""
        listed = column.scores.restricting(column.places)
        if listed is None:
            return False
        if isinstance(listed, TokenLists):
            self._lists.append(listed)
            return True
        for rows, row in zip(self._rows, listed, strict=True):
            if row is not None:
                rows.append(row)
        self._arrays_only = False
        return True

    def candidates(self) -> Sequence[Candidates | None]:
        """For each node the tokens that all of its rows list, ascending; None if no row restricts it."""
        if not self._lists:
            return [candidates_of(rows) for rows in self._rows]
        lists, *others = self._lists
        kept = np.ones(len(lists.tokens), dtype=bool)
        if self._ending.any():
            kept &= (lists.tokens == EOS) | ~self._ending.repeat(lists.offsets[1:] - lists.offsets[:-1])
        for other in others:
            kept &= other.find(lists.keys)[0]
        if not kept.all():
            offsets = np.append(0, np.cumsum(kept))[lists.offsets]
            lists = TokenLists(offsets, lists.tokens[kept])
        if self._arrays_only:
            return lists
        return [
            candidates_of([*rows, SparseRow(tokens, tokens)]) for rows, tokens in zip(self._rows, lists, strict=True)
        ]


def outside(tokens: Candidates, vocab_size: int | None) -> int | None:
    """The first or last of these ascending tokens if the vocabulary does not contain it; else None."""
    if len(tokens) and tokens[0] < 0:
        return tokens[0]
    return tokens[-1] if len(tokens) and vocab_size is not None and tokens[-1] >= vocab_size else None


def not_in_vocabulary(name: str, token: int, vocab_size: int | None) -> SgdecError:
    """The error for a predictor that lists a token outside the vocabulary."""
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
