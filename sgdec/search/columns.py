"""One predictor's answer about a batch of nodes: the tokens that it restricts them to, and its scores."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np

from sgdec import arrays
from sgdec.arcs import MORE
from sgdec.arrays import Array, Flags, Floats, Ints
from sgdec.context import EOS
from sgdec.errors import SgdecError, UsageError
from sgdec.protocol import Candidates
from sgdec.scores import (
    FEW,
    FORBIDDEN,
    AllowedScores,
    CandidateScores,
    DenseScores,
    ListedScores,
    Scores,
    SparseRow,
    TokenLists,
)

END_ONLY = SparseRow((EOS,), (0.0,))
"""At the length limit ``</s>`` is the only candidate, scored as usual."""


class Wanted(NamedTuple):
    """The tokens whose scores are needed, for several nodes, as flat arrays ``[n]`` in the order of the nodes."""

    nodes: Sequence[int]
    tokens: Sequence[Candidates]
    token: Ints
    place: Ints
    """The position in ``nodes`` of each token's node."""

    @classmethod
    def of(cls, nodes: Sequence[int], tokens: Sequence[Candidates]) -> Wanted:
        if isinstance(tokens, TokenLists):
            counts = tokens.offsets[1:] - tokens.offsets[:-1]
            return cls(nodes, tokens, tokens.tokens, np.arange(len(tokens)).repeat(counts))
        lengths = np.fromiter(map(len, tokens), np.int64, len(nodes))
        token = np.fromiter(chain.from_iterable(tokens), np.int64, lengths.sum())
        return cls(nodes, tokens, token, np.repeat(np.arange(len(nodes)), lengths))


@dataclass(frozen=True)
class Column:
    """One predictor's answer about a batch of nodes."""

    name: str
    scores: Scores | None
    """None if no node of the batch consults it."""
    places: Sequence[int | None]
    """For each node its row in ``scores``; None = the node does not consult this predictor. A range = all do."""
    weights: Sequence[float | None]
    """For each node the weight of this predictor."""

    @property
    def width(self) -> int | None:
        """The number of columns of its matrix, of scores or of marks; None if it has none."""
        matrix = None if self.scores is None else matrix_of(self.scores)
        return None if matrix is None else int(matrix.shape[1])

    def sparse_row(self, node: int) -> SparseRow | None:
        """The node's row if it is sparse; None if it is dense or the predictor is not consulted."""
        place = self.places[node]
        if place is None or self.scores is None or isinstance(self.scores, DenseScores):
            return None
        return self.scores.rows[place]

    def answer_to(self, candidates: Sequence[Candidates]) -> Floats | None:
        """Its scores of these candidates of all nodes, ``[n]``; None unless it was asked for exactly these."""
        if isinstance(self.scores, CandidateScores) and self.scores.answers(candidates):
            return self.scores.flat
        return None

    def scores_of(self, wanted: Wanted) -> Floats:
        """Its unweighted scores of these tokens, ``[n]``; 0 for nodes that do not consult it.

        Raises SgdecError for a token that its matrix does not have.
        """
        if self.scores is None:
            return np.zeros(len(wanted.token))
        places = [self.places[node] for node in wanted.nodes]
        if isinstance(self.scores, ListedScores):
            return self._of_listed(self.scores, wanted, places)
        values = matrix_of(self.scores)
        if values is None:
            rows = self.scores.rows
            found = [
                [0.0] * len(tokens) if row is None else rows[row].at(tokens)
                for row, tokens in zip(places, wanted.tokens, strict=True)
            ]
            return np.fromiter(chain.from_iterable(found), np.float64, len(wanted.token))
        if wanted.token.max(initial=0) >= values.shape[1]:
            raise SgdecError(
                f"token {wanted.token.max()} is outside the vocabulary of predictor {self.name!r} "
                f"({values.shape[1]} tokens); lattice and model must share one target vocabulary."
            )
        at = np.array([-1 if row is None else row for row in places])[wanted.place]
        picked = arrays.to_numpy(arrays.pick(values, np.maximum(at, 0), wanted.token))
        scores = np.where(picked, 0.0, FORBIDDEN) if picked.dtype == np.bool_ else picked.astype(np.float64)
        return np.where(at < 0, 0.0, scores)

    @staticmethod
    def _of_listed(scores: ListedScores, wanted: Wanted, places: Sequence[int | None]) -> Floats:
        """The scores of these tokens in rows that are arrays."""
        if wanted.token is scores.lists.tokens:
            return scores.scores
        row = np.array([-1 if place is None else place for place in places])[wanted.place]
        found, place = _found(_keys(scores.lists), row * MORE + wanted.token)
        of_token = np.full(len(found), FORBIDDEN)
        of_token[found] = scores.scores[place[found]]
        return np.where(row < 0, 0.0, of_token)


def matrix_of(scores: Scores) -> Array | None:
    """The matrix ``[rows, V]`` of dense scores, or of marks; None for other kinds."""
    return scores.allowed if isinstance(scores, AllowedScores) else scores.values


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
        scores = column.scores
        if scores is None or isinstance(scores, (DenseScores, AllowedScores, CandidateScores)):
            return False  # answers to candidates and marks never restrict: they forbid a token by the score -inf
        if isinstance(scores, ListedScores) and isinstance(column.places, range):
            self._lists.append(scores.lists)
            return len(scores) > 0
        rows, any_restricts = scores.rows, False
        for found, place in zip(self._rows, column.places, strict=True):
            if place is not None and rows[place].restricts:
                found.append(rows[place])
                any_restricts = True
        self._arrays_only &= not any_restricts
        return any_restricts

    def candidates(self) -> Sequence[Candidates | None]:
        """For each node the tokens that all of its rows list, ascending; None if no row restricts it."""
        if not self._lists:
            return [candidates_of(rows) for rows in self._rows]
        lists, *others = self._lists
        kept = np.ones(len(lists.tokens), dtype=bool)
        if self._ending.any():
            kept &= (lists.tokens == EOS) | ~self._ending.repeat(lists.offsets[1:] - lists.offsets[:-1])
        for other in others:
            kept &= _found(_keys(other), _keys(lists))[0]
        if not kept.all():
            offsets = np.append(0, np.cumsum(kept))[lists.offsets]
            lists = TokenLists(offsets, lists.tokens[kept])
        if self._arrays_only:
            return lists
        return [
            candidates_of([*rows, SparseRow(tokens, tokens)]) for rows, tokens in zip(self._rows, lists, strict=True)
        ]


def _keys(lists: TokenLists) -> Ints:
    """``[n]``: row * `MORE` + token, ascending."""
    rows = np.arange(len(lists)).repeat(lists.offsets[1:] - lists.offsets[:-1])
    return rows * MORE + lists.tokens


def _found(keys: Ints, wanted: Ints) -> tuple[Flags, Ints]:
    """Whether each wanted key is among the ascending ``keys``, and its place there."""
    place = np.minimum(keys.searchsorted(wanted), len(keys) - 1)
    return (keys[place] == wanted) if len(keys) else np.zeros(len(wanted), dtype=bool), place


def agreed_width(widths: Iterable[tuple[str, int | None]], vocab_size: int | None) -> int | None:
    """V, the number of target tokens, or None if it is unknown.

    ``widths``: for each predictor its name and the width of its matrix, None if it has none. Raises UsageError if
    widths differ from each other or from ``vocab_size``.
    """
    for name, width in widths:
        if width is not None and vocab_size is not None and width != vocab_size:
            raise UsageError(
                f"predictor {name!r} scores {width} tokens, but the vocabulary has {vocab_size}; all predictors must "
                "share one target vocabulary."
            )
        vocab_size = vocab_size if width is None else width
    return vocab_size


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
