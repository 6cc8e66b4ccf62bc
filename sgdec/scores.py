"""Scores of the next token, in rows that are dense or sparse, restricting or open.

Predictors return these scores. A search combines them without asking for their kind: each kind says what it can be
asked (`Scores`), and those that can be added to a score for every token of the vocabulary add themselves (`Addable`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import chain, count, islice, pairwise
from typing import Any, final

import numpy as np
import numpy.typing as npt

from sgdec import arrays
from sgdec.arrays import FORBIDDEN as FORBIDDEN
from sgdec.arrays import MORE, Flags, Floats, Ints
from sgdec.arrays import Array as Array
from sgdec.errors import SgdecError, described
from sgdec.sparse import FEW as FEW
from sgdec.sparse import OpenRows, Wanted
from sgdec.sparse import SparseRow as SparseRow
from sgdec.sparse import TokenLists as TokenLists
from sgdec.topk import top_tokens

UNASKED = SparseRow((), (), 0.0)
"""The row of a prefix that does not consult the predictor."""
Places = Sequence[int | None]
"""For each node its row; None = it does not consult the predictor. A range = all rows, in order."""


class Scores:
    """A predictor's scores of the next token: one row per prefix, of one of five kinds.

    `DenseScores` are a matrix, `SparseScores` list some tokens of each row, `ListedScores` do so in arrays,
    `AllowedScores` mark the tokens that can follow, `CandidateScores` score the requested candidates. Each
    constructor here returns the right kind.

    >>> Scores.sparse([7], [-0.5]).rows        # only token 7 can follow
    [SparseRow({7: -0.5}, default=-inf)]
    >>> Scores.sparse([2], [0.0], default=-1.0).rows[0].get(9)
    -1.0
    >>> Scores.dense(np.zeros(4)).values.shape
    (1, 4)
    """

    values: Array | None = None
    """The matrix of dense scores; None for the other kinds."""
    width: int | None = None
    """The number of columns of a matrix, of scores or of marks; None if there is none."""

    def __new__(cls, values: Array | None = None, rows: Sequence[SparseRow] | None = None) -> Scores:
        """``Scores(values=matrix)`` is a `DenseScores`, ``Scores(rows=rows)`` a `SparseScores`."""
        if cls is not Scores:
            return object.__new__(cls)
        if (values is None) == (rows is None):
            raise ValueError("Scores are either dense (values) or sparse (rows)")
        return object.__new__(SparseScores if values is None else DenseScores)

    @property
    def rows(self) -> list[SparseRow]:
        """One row per prefix. Raises TypeError if the scores are dense."""
        raise TypeError("dense Scores have no rows: they are the matrix .values")

    @classmethod
    def dense(cls, values: Array) -> DenseScores:
        """Every token's score: ``[V]`` for one prefix, ``[rows, V]`` for many. Integers are converted to floats.

        Raises TypeError unless ``values`` is an array or tensor of real numbers, ValueError for another shape.
        """
        if not hasattr(values, "ndim"):
            raise TypeError(f"Scores.dense takes an array or a tensor, not a {type(values).__name__}: np.array(...)")
        if values.ndim not in (1, 2):
            raise ValueError(f"Scores.dense takes [V] or [rows, V], not an array of shape {list(values.shape)}")
        if isinstance(values, np.ndarray):
            if values.dtype.kind not in "fiub":
                raise TypeError(f"Scores.dense takes real numbers, not an array of type {values.dtype}")
            values = values if values.dtype.kind == "f" else values.astype(np.float64)
        elif values.is_complex():
            raise TypeError(f"Scores.dense takes real numbers, not a tensor of type {values.dtype}")
        elif not values.is_floating_point():
            values = values.double()
        return DenseScores(values[None] if values.ndim == 1 else values)

    @classmethod
    def sparse(cls, tokens: Sequence[int], scores: Sequence[float], default: float = FORBIDDEN) -> SparseScores:
        """One prefix: the scores of some tokens, and a default for all others.

        Raises TypeError for tokens without an order, ValueError unless there is one score per token.
        """
        if isinstance(tokens, (set, frozenset, dict)):
            raise TypeError(f"Scores.sparse takes a sequence of tokens, not a {type(tokens).__name__}: sorted(...)")
        if len(tokens) != len(scores):
            raise ValueError(f"Scores.sparse needs one score per token: {len(tokens)} tokens, {len(scores)} scores")
        return SparseScores([SparseRow(tokens, scores, default)])

    @classmethod
    def constant(cls, score: float) -> SparseScores:
        """One prefix: the same score for every token."""
        return SparseScores([SparseRow((), (), score)])

    @classmethod
    def of_candidates(cls, candidates: Sequence[Sequence[int] | None], flat: Floats) -> CandidateScores:
        """The scores ``flat [n]`` of ``candidates``, row after row. They say nothing about other tokens.

        >>> Scores.of_candidates([[5, 8], [6]], np.array([-1.0, -2.0, -3.0])).rows[1].get(6)
        -3.0
        """
        return CandidateScores(candidates, flat)

    @classmethod
    def listed(cls, offsets: Ints, tokens: Ints, scores: Floats) -> ListedScores:
        """Rows that restrict, as arrays: row i has the tokens ``[offsets[i] : offsets[i + 1]]``, ascending.

        The same as ``Scores(rows=...)``, in less time if there are many rows. ``offsets [rows + 1]``, ``tokens [n]``,
        ``scores [n]``.

        >>> Scores.listed(np.array([0, 2, 3]), np.array([5, 8, 6]), np.array([-1.0, -2.0, 0.0])).rows[0]
        SparseRow({5: -1.0, 8: -2.0}, default=-inf)
        """
        return ListedScores(TokenLists(offsets, tokens), scores)

    @classmethod
    def allowing(cls, allowed: Flags) -> AllowedScores:
        """Rows ``[rows, V]`` that restrict: the marked tokens can follow, with score 0.

        The same as ``Scores.listed`` with all scores 0, in less time if many tokens can follow.

        >>> Scores.allowing(np.array([[False, True, True]])).rows
        [SparseRow({1: 0.0, 2: 0.0}, default=-inf)]
        """
        return AllowedScores(allowed)

    @classmethod
    def stack(cls, parts: Iterable[Scores]) -> Scores:
        """Concatenate batches. If one part is dense, all rows are converted to dense rows."""
        parts = list(parts)
        widths = [part.values.shape[-1] for part in parts if isinstance(part, DenseScores)]
        if not widths:
            return SparseScores([row for part in parts for row in part.rows])
        matrices = [_as_numpy(part, widths[0]) for part in parts]
        return DenseScores(matrices[0] if len(matrices) == 1 else np.concatenate(matrices))

    def __len__(self) -> int:
        """The number of prefixes."""
        raise NotImplementedError

    def changed(self, matrix: Callable[[Array], Array], row: Callable[[SparseRow, int], SparseRow]) -> Scores:
        """For wrappers: the same scores, changed as a ``matrix [rows, V]`` if they are dense, else row by row.

        ``row`` gets each row and its number.

        >>> Scores.sparse([7], [-0.5]).changed(lambda values: 2 * values, lambda row, i: row.shifted(1.0)).rows
        [SparseRow({7: -1.5}, default=-inf)]
        """
        return SparseScores(list(map(row, self.rows, count())))

    def as_list(self, place: int) -> SparseRow:
        """One row as a list; of all tokens, if it is dense."""
        return self.rows[place]

    def as_array(self, place: int, width: int) -> Array:
        """One row as an array ``[width]``; ``[V]`` if it is dense."""
        return self.rows[place].filled(width)

    # A search asks the following methods. Each kind of scores answers in its own way.

    def row(self, place: int) -> SparseRow | None:
        """The row at ``place`` as a list; None if it is dense."""
        return self.rows[place]

    def row_bytes(self) -> int | None:
        """The memory of a row of a matrix; None without one."""
        return None

    def restricting(self, places: Places) -> TokenLists | list[SparseRow | None] | None:
        """The row that lists the tokens of each node, or None if it is not restricted; None = no node is restricted.

        As `TokenLists` if all nodes are, in arrays.
        """
        found = [None if place is None else self._restriction(place) for place in places]
        return None if all(row is None for row in found) else found

    def answer_to(self, candidates: Sequence[Sequence[int] | None]) -> Floats | None:
        """The scores of these candidates of all nodes, ``[n]``, if they are at hand because they were asked for."""
        return None

    def of(self, wanted: Wanted, places: Places) -> Floats:
        """The scores ``[n]`` of these tokens; ``places``: of ``wanted.nodes``; 0 if they do not consult it."""
        rows = self.rows
        found = [
            [0.0] * len(tokens) if place is None else rows[place].at(tokens)
            for place, tokens in zip(places, wanted.tokens, strict=True)
        ]
        return np.fromiter(chain.from_iterable(found), np.float64, len(wanted.token))

    def taken(self, places: Places) -> Addable:
        """The rows of these R nodes, none of which lists the only candidates; 0 for nodes that do not consult it."""
        rows = self.rows
        return SparseScores([UNASKED if place is None else rows[place] for place in places])

    def shifted(self, by: Floats) -> Scores:
        """The same scores, each row minus its number in ``by``, ``[rows]``."""
        rows = zip(self.rows, by.tolist(), strict=True)
        return SparseScores([row.shifted(less) for row, less in rows])

    def favourites(self, places: Sequence[int], weights: Sequence[float]) -> list[tuple[int, float] | None]:
        """For each of these rows the token with the best weighted score (ties: the lowest), and its own score.

        None if a row prefers no token to all others. ``weights``: of the rows, not 0.
        """
        return [self.rows[place].favourite(weight) for place, weight in zip(places, weights, strict=True)]

    @property
    def restricts(self) -> bool:
        """Whether a row lists the only candidates."""
        return any(row.restricts for row in self.rows)

    def ends(self) -> tuple[int, int] | None:
        """The lowest and the highest token that rows list; None if they list none."""
        tokens = [token for row in self.rows for token in (*row.candidates[:1], *row.candidates[-1:])]
        return (min(tokens), max(tokens)) if tokens else None

    def for_all_tokens(self, width: int) -> Scores:
        """The same scores; if a row lists the only candidates, all rows as a matrix ``[rows, width]``."""
        if not self.restricts:
            return self
        return DenseScores(np.stack([row.filled(width) for row in self.rows]))

    def _restriction(self, place: int) -> SparseRow | None:
        row = self.rows[place]
        return row if row.restricts else None


class Addable(Scores):
    """Scores of R rows that can be added to a sum for all tokens, a matrix ``[R, V]``.

    A sum is made in this order: all matrices, in their precision; all lists; then what only forbids, since it changes
    no other sum.
    """

    only_forbids = False
    """Whether all scores are 0 or -inf: a sum with them cannot overflow."""

    @abstractmethod
    def at(self, rows: Ints, tokens: Ints) -> Floats:
        """The scores of tokens in these rows; both of one shape."""

    @abstractmethod
    def filled(self, width: int) -> Floats:
        """All scores ``[R, width]``, in float64."""

    @abstractmethod
    def magnitudes(self, weights: Floats) -> Floats | float:
        """``[R]``: the highest magnitude of the weighted scores; 0 if none is positive. ``weights [R]``."""

    def add_matrix(self, total: Array | None, weights: Sequence[float | None]) -> Array | None:
        """``total`` plus the weighted matrix, if there is one."""
        return total

    def add_lists(self, total: Array, factors: Floats) -> Array:
        """A new matrix ``[R, V]``: ``total`` plus the lists times their ``factors [R, 1]``, if there are any."""
        return total

    def adds_exactly(self, weights: Sequence[float | None]) -> bool:
        """Whether a sum with nothing else has no rounding errors."""
        return False

    def itemsize(self) -> int | None:
        """The bytes of one score of its matrix, 0 on another device; None without a matrix."""
        return None

    def allowed(self, flags: Any, consulted: Flags) -> Any:
        """These flags ``[R, V]``, with False for what is forbidden here. ``consulted [R, 1]``: rows that count."""
        return flags


@final
class DenseScores(Addable):
    """A score for every token of the vocabulary."""

    def __init__(self, values: Array) -> None:
        """``[rows, V]``, a NumPy array or a tensor, of floats."""
        self.values: Array = values

    def __len__(self) -> int:
        return int(self.values.shape[0])

    @property
    def width(self) -> int:  # type: ignore[override]  # a constant of other kinds, which is read faster
        return int(self.values.shape[1])

    def changed(self, matrix: Callable[[Array], Array], row: Callable[[SparseRow, int], SparseRow]) -> DenseScores:
        return DenseScores(matrix(self.values))

    def as_list(self, place: int) -> SparseRow:
        values = self.values[place].tolist()
        return SparseRow(range(len(values)), values)

    def as_array(self, place: int, width: int) -> Array:
        return self.values[place]

    def row(self, place: int) -> None:
        return None

    def row_bytes(self) -> int:
        return arrays.host_row_bytes(self.values)

    @property
    def restricts(self) -> bool:
        return False

    def ends(self) -> None:
        return None

    def restricting(self, places: Places) -> None:
        return None

    def of(self, wanted: Wanted, places: Places) -> Floats:
        return _picked(self.values, wanted, places).astype(np.float64)

    def taken(self, places: Places) -> DenseScores:
        if isinstance(places, range) or list(places) == list(range(len(self))):
            return self
        return DenseScores(arrays.rows(self.values, [place or 0 for place in places]))

    def shifted(self, by: Floats) -> DenseScores:
        values = self.values.astype(np.float64) if isinstance(self.values, np.ndarray) else self.values.double()
        return DenseScores(values - arrays.like(values, by[:, None]))

    def favourites(self, places: Sequence[int], weights: Sequence[float]) -> list[tuple[int, float] | None]:
        values = arrays.rows(self.values, places)
        tokens = top_tokens(arrays.weighted(values, weights), 1)[:, 0]
        best = arrays.to_numpy(arrays.pick(values, np.arange(len(places)), tokens)).astype(np.float64)
        pairs = zip(tokens.tolist(), best.tolist(), strict=True)
        return [None if pair[1] == FORBIDDEN else pair for pair in pairs]

    def at(self, rows: Ints, tokens: Ints) -> Floats:
        picked = arrays.pick(self.values, rows.ravel(), tokens.ravel())
        return arrays.to_numpy(picked).astype(np.float64).reshape(tokens.shape)

    def filled(self, width: int) -> Floats:
        return arrays.to_numpy(self.values).astype(np.float64)

    def magnitudes(self, weights: Floats) -> Floats | float:
        if weights.min() >= 0.0 and float(self.values.max()) <= 0.0:
            return 0.0
        return arrays.magnitudes(self.values) * np.abs(weights)

    def add_matrix(self, total: Array | None, weights: Sequence[float | None]) -> Array:
        scores = arrays.weighted(self.values, weights)
        return scores if total is None else arrays.add(total, scores)

    def adds_exactly(self, weights: Sequence[float | None]) -> bool:
        return set(weights) <= {1.0, 0.0, None}

    def itemsize(self) -> int:
        return arrays.host_itemsize(self.values)

    def allowed(self, flags: Any, consulted: Flags) -> Any:
        return flags & ~(arrays.like(flags, consulted) & arrays.forbidden(self.values, flags))


@final
class SparseScores(Addable):
    """Rows that list some tokens, and have one default for all others."""

    def __init__(self, rows: Sequence[SparseRow]) -> None:
        """One row per prefix."""
        self._rows = list(rows)

    @property
    def rows(self) -> list[SparseRow]:
        return self._rows

    def __len__(self) -> int:
        return len(self._rows)

    @cached_property
    def _open(self) -> OpenRows:
        return OpenRows.of(self._rows)

    @property
    def only_forbids(self) -> bool:  # type: ignore[override]  # a constant of other kinds, as width is
        return self._open.only_forbids

    def at(self, rows: Ints, tokens: Ints) -> Floats:
        return self._open.at(rows, tokens)

    def filled(self, width: int) -> Floats:
        return self._open.filled(width)

    def magnitudes(self, weights: Floats) -> Floats:
        return self._open.magnitudes() * np.abs(weights)

    def add_lists(self, total: Array, factors: Floats) -> Array:
        return self._open.added_to(total, factors)

    def ends(self) -> tuple[int, int] | None:
        tokens = self._open.token
        return (int(tokens.min()), int(tokens.max())) if len(tokens) else None

    def allowed(self, flags: Any, consulted: Flags) -> Any:
        forbidden = self._open.score == FORBIDDEN
        flags[self._open.row[forbidden], self._open.token[forbidden]] = False
        return flags


@final
class AllowedScores(Addable):
    """Rows that restrict, as marks. Their `SparseRow` objects are created when they are needed."""

    only_forbids = True

    def __init__(self, marks: Flags) -> None:
        """``marks [rows, V]``: the tokens that can follow; all have score 0."""
        self.marks = marks

    def __len__(self) -> int:
        return len(self.marks)

    @property
    def width(self) -> int:  # type: ignore[override]  # a constant of other kinds, which is read faster
        return int(self.marks.shape[1])

    @cached_property
    def rows(self) -> list[SparseRow]:
        tokens = [row.nonzero()[0].tolist() for row in self.marks]
        return [SparseRow(listed, [0.0] * len(listed)) for listed in tokens]

    def restricting(self, places: Places) -> None:
        """Marks forbid a token by the score -inf; as lists, they would be long."""
        return None

    def of(self, wanted: Wanted, places: Places) -> Floats:
        return np.where(_picked(self.marks, wanted, places, absent=True), 0.0, FORBIDDEN)

    def taken(self, places: Places) -> AllowedScores:
        marks = self.marks[[place or 0 for place in places]]
        marks[[place is None for place in places]] = True
        return AllowedScores(marks)

    def shifted(self, by: Floats) -> DenseScores:
        return DenseScores(np.where(self.marks, -by[:, None], FORBIDDEN))

    def ends(self) -> None:
        return None

    def for_all_tokens(self, width: int) -> AllowedScores:
        return self

    def at(self, rows: Ints, tokens: Ints) -> Floats:
        return np.where(self.marks[rows, tokens], 0.0, FORBIDDEN)

    def filled(self, width: int) -> Floats:
        return np.where(self.marks, 0.0, FORBIDDEN)

    def magnitudes(self, weights: Floats) -> float:
        return 0.0

    def add_lists(self, total: Array, factors: Floats) -> Array:
        return arrays.allowing(total, self.marks)


@final
class ListedScores(Scores):
    """Rows that restrict, as arrays. Their `SparseRow` objects are created when they are needed."""

    def __init__(self, lists: TokenLists, scores: Floats) -> None:
        """``lists``: the tokens of each row; ``scores [n]``: theirs."""
        self.lists = lists
        self.scores = scores

    def __len__(self) -> int:
        return len(self.lists)

    @cached_property
    def rows(self) -> list[SparseRow]:
        scores, bounds = self.scores.tolist(), pairwise(self.lists.offsets.tolist())
        return [
            SparseRow(tokens, scores[begin:end])
            for tokens, (begin, end) in zip(self.lists, bounds, strict=True)
        ]

    def restricting(self, places: Places) -> TokenLists | list[SparseRow | None] | None:
        return self.lists if isinstance(places, range) and len(self) else super().restricting(places)

    def of(self, wanted: Wanted, places: Places) -> Floats:
        if wanted.token is self.lists.tokens:
            return self.scores
        if isinstance(places, range):
            row = wanted.place
        else:
            row = np.array([-1 if place is None else place for place in places])[wanted.place]
        found, place = self.lists.find(row * MORE + wanted.token)
        scores = np.full(len(found), FORBIDDEN)
        scores[found] = self.scores[place[found]]
        return np.where(row < 0, 0.0, scores)

    def shifted(self, by: Floats) -> ListedScores:
        return ListedScores(self.lists, self.scores - by.repeat(np.diff(self.lists.offsets)))


@final
class CandidateScores(Scores):
    """The scores of the candidates given to a predictor on demand, and of no other token.

    They forbid a token only by the score -inf, so they never restrict. Their rows are created when they are needed.
    """

    def __init__(self, asked: Sequence[Sequence[int] | None], flat: Floats) -> None:
        """``asked``: the candidates of each prefix, None = all tokens; ``flat [n]``: scores, row after row."""
        self.asked = asked
        self.flat = flat

    def __len__(self) -> int:
        return len(self.asked)

    @cached_property
    def rows(self) -> list[SparseRow]:
        """One row per prefix; tokens outside the candidates have score 0."""
        left = iter(self.flat.tolist())
        asked = (() if row is None else row for row in self.asked)
        return [SparseRow(row, list(islice(left, len(row))), 0.0) for row in asked]

    def restricting(self, places: Places) -> None:
        return None

    def answer_to(self, candidates: Sequence[Sequence[int] | None]) -> Floats | None:
        same = len(self.asked) == len(candidates) and all(map(_same, self.asked, candidates))
        return self.flat if self.asked is candidates or same else None

    def shifted(self, by: Floats) -> CandidateScores:
        counts = [0 if tokens is None else len(tokens) for tokens in self.asked]
        return CandidateScores(self.asked, self.flat - by.repeat(counts))

    def favourites(self, places: Sequence[int], weights: Sequence[float]) -> list[tuple[int, float] | None]:
        """Nothing is known about the tokens that it was not asked about."""
        return [None] * len(places)


def require_scores(name: str, found: object, rows: int) -> None:
    """Raise SgdecError unless predictor ``name`` returned `Scores` with this number of rows, one per state."""
    if not isinstance(found, Scores):
        raise SgdecError(
            f"predictor {name!r}: predict_batch returned {described(found)}; expected Scores, such as "
            "Scores.dense(array) with an array [rows, V]."
        )
    if len(found) != rows:
        raise SgdecError(f"predictor {name!r}: predict_batch returned {len(found)} rows for {rows} states.")
    if getattr(found.values, "requires_grad", False):
        raise SgdecError(f"predictor {name!r}: its scores require gradients; compute them under torch.no_grad().")


def _picked(matrix: Array, wanted: Wanted, places: Places, absent: Any = 0.0) -> npt.NDArray[Any]:
    """The cells ``[n]`` of these tokens, ``absent`` for nodes without a row."""
    if isinstance(places, range):
        return arrays.to_numpy(arrays.pick(matrix, wanted.place, wanted.token))
    at = np.array([-1 if place is None else place for place in places])[wanted.place]
    picked = arrays.to_numpy(arrays.pick(matrix, np.maximum(at, 0), wanted.token))
    return np.where(at < 0, absent, picked)


def _same(row: Sequence[int] | None, other: Sequence[int] | None) -> bool:
    """Whether both hold the same tokens. Usually they are the same object."""
    return row is other or (row is not None and other is not None and list(row) == list(other))


def _as_numpy(scores: Scores, width: int) -> npt.NDArray[Any]:
    if isinstance(scores, DenseScores):
        values = scores.values
        return values if isinstance(values, np.ndarray) else values.detach().cpu().numpy()
    return np.stack([row.filled(width) for row in scores.rows])  # [rows, V]
