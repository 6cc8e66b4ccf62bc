"""Scores of the next token, in rows that are dense or sparse, restricting or open.

Predictors return these scores, and `sgdec.search.combining` combines them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice, pairwise
from typing import Any, final, overload

import numpy as np
import numpy.typing as npt

from sgdec.arrays import FORBIDDEN as FORBIDDEN
from sgdec.arrays import Array as Array
from sgdec.arrays import Flags, Floats, Ints

NO_TOKENS = np.zeros(0, np.int64), np.zeros(0)
FEW = 64
"""Up to this many tokens are looked up in plain Python, because the overhead of array calls would dominate."""


@final
class SparseRow:
    """The scores of some tokens, and one ``default`` for every other token.

    ``default = -inf`` makes the row *restricting*: only its tokens can follow. A finite default makes it *open*.

    >>> row = SparseRow([5, 2], [-1.0, -0.5])
    >>> row.restricts, row.get(5), row.get(7)
    (True, -1.0, -inf)
    """

    __slots__ = ("_arrays", "_candidates", "_lookup", "default", "scores", "tokens")

    def __init__(self, tokens: Sequence[int], scores: Sequence[float], default: float = FORBIDDEN) -> None:
        """``tokens`` and ``scores`` are parallel sequences in any order; each token occurs once."""
        self.tokens = tokens
        self.scores = scores
        self.default = default
        self._candidates: Sequence[int] | None = None
        self._lookup: dict[int, float] | None = None
        self._arrays: tuple[Ints, Floats] | None = None

    @property
    def restricts(self) -> bool:
        return self.default == FORBIDDEN

    @property
    def candidates(self) -> Sequence[int]:
        """The listed tokens, ascending; ``tokens`` itself if it is a plain sorted sequence. Cached."""
        if self._candidates is None:
            plain = _plain(self.tokens)
            ordered = sorted(plain)
            self._candidates = plain if ordered == list(plain) else ordered
        return self._candidates

    @property
    def lookup(self) -> Mapping[int, float]:
        """The listed tokens with their scores. Cached."""
        if self._lookup is None:
            self._lookup = dict(zip(_plain(self.tokens), _plain(self.scores), strict=True))
        return self._lookup

    @property
    def arrays(self) -> tuple[Ints, Floats]:
        """The listed tokens ``[n]``, ascending, and their scores ``[n]``. Cached."""
        if self._arrays is None and not len(self.tokens):
            self._arrays = NO_TOKENS
        elif self._arrays is None:
            tokens = np.asarray(self.tokens, dtype=np.int64)
            order = np.argsort(tokens, kind="stable")
            self._arrays = tokens[order], np.asarray(self.scores, dtype=np.float64)[order]
        return self._arrays

    def at(self, tokens: Sequence[int]) -> Sequence[float]:
        """The scores of these tokens; returned without a look-up if ``tokens`` is the listed sequence itself."""
        if tokens is self.tokens and isinstance(self.scores, list):
            return self.scores
        if not len(self.tokens):
            return [self.default] * len(tokens)
        if len(tokens) <= FEW:
            get, default = self.lookup.get, self.default
            return [get(token, default) for token in tokens]
        known, scores = self.arrays
        wanted = np.asarray(tokens, dtype=np.int64)
        place = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
        found: list[float] = np.where(known[place] == wanted, scores[place], self.default).tolist()
        return found

    def filled(self, width: int) -> Floats:
        """``[width]``: the scores of the tokens 0..width-1."""
        values = np.full(width, self.default)
        tokens, scores = self.arrays
        inside = tokens < width
        values[tokens[inside]] = scores[inside]
        return values

    def get(self, token: int) -> float:
        """The score of one token."""
        return self.lookup.get(token, self.default)

    def __len__(self) -> int:
        return len(self.tokens)

    def __repr__(self) -> str:
        return f"SparseRow({dict(self.lookup)}, default={self.default})"


@final
class TokenLists(Sequence[Sequence[int]]):
    """Lists of tokens, one for each of R rows, as arrays; made into lists when they are read.

    >>> lists = TokenLists(np.array([0, 2, 3]), np.array([5, 8, 6]))
    >>> len(lists), lists[0], lists[1]
    (2, [5, 8], [6])
    """

    def __init__(self, offsets: Ints, tokens: Ints) -> None:
        """``offsets [R + 1]``: the first token of each row; ``tokens [n]``, ascending within a row."""
        self.offsets = offsets
        self.tokens = tokens
        self._lists: list[list[int]] | None = None

    @overload
    def __getitem__(self, row: int) -> Sequence[int]: ...
    @overload
    def __getitem__(self, row: slice) -> Sequence[Sequence[int]]: ...
    def __getitem__(self, row: int | slice) -> Sequence[int] | Sequence[Sequence[int]]:
        if self._lists is None:
            tokens = self.tokens.tolist()
            self._lists = [tokens[begin:end] for begin, end in pairwise(self.offsets.tolist())]
        return self._lists[row]

    def __len__(self) -> int:
        return len(self.offsets) - 1


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

    __slots__ = ()
    values: Array | None = None
    """The matrix of dense scores; None for the other kinds."""

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


@final
class DenseScores(Scores):
    """A score for every token of the vocabulary."""

    __slots__ = ("values",)

    def __init__(self, values: Array) -> None:
        """``[rows, V]``, a NumPy array or a tensor, of floats."""
        self.values: Array = values

    def __len__(self) -> int:
        return int(self.values.shape[0])


@final
class SparseScores(Scores):
    """Rows that list some tokens, and have one default for all others."""

    __slots__ = ("_rows",)

    def __init__(self, rows: Sequence[SparseRow]) -> None:
        """One row per prefix."""
        self._rows = list(rows)

    @property
    def rows(self) -> list[SparseRow]:
        return self._rows

    def __len__(self) -> int:
        return len(self._rows)


@final
class ListedScores(Scores):
    """Rows that restrict, as arrays. Their `SparseRow` objects are created when they are needed."""

    __slots__ = ("_rows", "lists", "scores")

    def __init__(self, lists: TokenLists, scores: Floats) -> None:
        """``lists``: the tokens of each row; ``scores [n]``: theirs."""
        self.lists = lists
        self.scores = scores
        self._rows: list[SparseRow] | None = None

    @property
    def rows(self) -> list[SparseRow]:
        if self._rows is None:
            scores, bounds = self.scores.tolist(), pairwise(self.lists.offsets.tolist())
            self._rows = [
                SparseRow(tokens, scores[begin:end]) for tokens, (begin, end) in zip(self.lists, bounds, strict=True)
            ]
        return self._rows

    def __len__(self) -> int:
        return len(self.lists)


@final
class AllowedScores(Scores):
    """Rows that restrict, as marks. Their `SparseRow` objects are created when they are needed."""

    __slots__ = ("_rows", "allowed")

    def __init__(self, allowed: Flags) -> None:
        """``allowed [rows, V]``: the tokens that can follow; all have score 0."""
        self.allowed = allowed
        self._rows: list[SparseRow] | None = None

    @property
    def rows(self) -> list[SparseRow]:
        if self._rows is None:
            tokens = [row.nonzero()[0].tolist() for row in self.allowed]
            self._rows = [SparseRow(listed, [0.0] * len(listed)) for listed in tokens]
        return self._rows

    def __len__(self) -> int:
        return len(self.allowed)


@final
class CandidateScores(Scores):
    """The scores of the candidates given to a predictor on demand, and of no other token.

    They forbid a token only by the score -inf, so they never restrict. Their rows are created when they are needed.
    """

    __slots__ = ("_rows", "asked", "flat")

    def __init__(self, asked: Sequence[Sequence[int] | None], flat: Floats) -> None:
        """``asked``: the candidates of each prefix, None = all tokens; ``flat [n]``: scores, row after row."""
        self.asked = asked
        self.flat = flat
        self._rows: list[SparseRow] | None = None

    @property
    def rows(self) -> list[SparseRow]:
        """One row per prefix; tokens outside the candidates have score 0."""
        if self._rows is None:
            left = iter(self.flat.tolist())
            asked = (() if row is None else row for row in self.asked)
            self._rows = [SparseRow(row, list(islice(left, len(row))), 0.0) for row in asked]
        return self._rows

    def answers(self, candidates: Sequence[Sequence[int] | None]) -> bool:
        """Whether these are exactly the given candidates."""
        if self.asked is candidates:
            return True
        return len(self.asked) == len(candidates) and all(map(_same, self.asked, candidates))

    def __len__(self) -> int:
        return len(self.asked)


def _plain(values: Sequence[Any]) -> Sequence[Any]:
    """A sequence of Python numbers: an array or tensor is converted to a list."""
    found: Sequence[Any] = values.tolist() if hasattr(values, "tolist") else values
    return found


def _same(row: Sequence[int] | None, other: Sequence[int] | None) -> bool:
    """Whether both hold the same tokens. Usually they are the same object."""
    return row is other or (row is not None and other is not None and list(row) == list(other))


def _as_numpy(scores: Scores, width: int) -> npt.NDArray[Any]:
    if isinstance(scores, DenseScores):
        values = scores.values
        return values if isinstance(values, np.ndarray) else values.detach().cpu().numpy()
    return np.stack([row.filled(width) for row in scores.rows])  # [rows, V]
