"""Scores of the next token: rows that are dense or sparse, restricting or open.

This is what a predictor answers and what `sgdec.search.combining` brings together.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias, final

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import torch

Array: TypeAlias = "npt.NDArray[Any] | torch.Tensor"

FORBIDDEN = -math.inf
"""The score of a token that cannot follow, whatever the weight."""

FEW = 64
"""Up to so many tokens are looked up in plain Python: per-call costs of arrays would dominate."""


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
        """Parallel sequences, each token once, in any order."""
        self.tokens = tokens
        self.scores = scores
        self.default = default
        self._candidates: Sequence[int] | None = None
        self._lookup: dict[int, float] | None = None
        self._arrays: tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]] | None = None

    @property
    def restricts(self) -> bool:
        return self.default == FORBIDDEN

    @property
    def candidates(self) -> Sequence[int]:
        """The listed tokens, ascending; made once, and ``tokens`` itself where these are plain and in order."""
        if self._candidates is None:
            plain = _plain(self.tokens)
            ordered = sorted(plain)
            self._candidates = plain if ordered == list(plain) else ordered
        return self._candidates

    @property
    def lookup(self) -> Mapping[int, float]:
        """The listed tokens with their scores; made once."""
        if self._lookup is None:
            self._lookup = dict(zip(_plain(self.tokens), _plain(self.scores), strict=True))
        return self._lookup

    @property
    def arrays(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """Tokens, ascending, and their scores; made once."""
        if self._arrays is None:
            tokens = np.asarray(self.tokens, dtype=np.int64)
            order = np.argsort(tokens, kind="stable")
            self._arrays = tokens[order], np.asarray(self.scores, dtype=np.float64)[order]
        return self._arrays

    def at(self, tokens: Sequence[int]) -> Sequence[float]:
        """The scores of some tokens; those that were asked for and are listed need no look-up."""
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

    def filled(self, width: int) -> npt.NDArray[np.float64]:
        """The scores of the tokens below ``width``."""
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
class Scores:
    """What a predictor says about the next token: one row a prefix, all dense or all sparse.

    Dense: ``values`` is a NumPy array or tensor ``[rows, V]``. Sparse: ``rows`` lists one `SparseRow` each.

    >>> Scores.sparse([7], [-0.5]).rows        # only token 7 can follow
    [SparseRow({7: -0.5}, default=-inf)]
    >>> Scores.sparse([2], [0.0], default=-1.0).rows[0].get(9)
    -1.0
    >>> Scores.dense(np.zeros(4)).values.shape
    (1, 4)
    """

    __slots__ = ("_rows", "asked", "flat", "values")

    def __init__(self, *, values: Array | None = None, rows: list[SparseRow] | None = None) -> None:
        if (values is None) == (rows is None):
            raise ValueError("Scores are either dense (values) or sparse (rows)")
        self.values = values
        self._rows: list[SparseRow] | None = rows if rows is not None else []
        self.asked: Sequence[Sequence[int] | None] | None = None
        """Of an answer to candidates: these, row by row."""
        self.flat: npt.NDArray[np.float64] | None = None
        """Their scores, row after row; ``[n]``."""

    @property
    def rows(self) -> list[SparseRow]:
        """One a prefix if the scores are sparse; else none."""
        if self._rows is None:
            assert self.asked is not None and self.flat is not None
            left = iter(self.flat.tolist())
            asked = (() if row is None else row for row in self.asked)
            self._rows = [SparseRow(row, list(islice(left, len(row))), 0.0) for row in asked]
        return self._rows

    @classmethod
    def dense(cls, values: Array) -> Scores:
        """Every token's score: ``[V]`` for one prefix, ``[rows, V]`` for many; whole numbers become floats.

        Raises TypeError for what is no array or tensor, ValueError for one of another shape.
        """
        if not hasattr(values, "ndim"):
            raise TypeError(f"Scores.dense takes an array or a tensor, not a {type(values).__name__}: np.array(...)")
        if values.ndim not in (1, 2):
            raise ValueError(f"Scores.dense takes [V] or [rows, V], not an array of shape {list(values.shape)}")
        if isinstance(values, np.ndarray):
            values = values if values.dtype.kind == "f" else values.astype(np.float64)
        elif not values.is_floating_point():
            values = values.double()
        return cls(values=values[None] if values.ndim == 1 else values)

    @classmethod
    def sparse(cls, tokens: Sequence[int], scores: Sequence[float], default: float = FORBIDDEN) -> Scores:
        """One prefix: some tokens' scores, and a default for the others. ValueError unless there is one a token."""
        if len(tokens) != len(scores):
            raise ValueError(f"Scores.sparse needs one score a token: {len(tokens)} tokens, {len(scores)} scores")
        return cls(rows=[SparseRow(tokens, scores, default)])

    @classmethod
    def constant(cls, score: float) -> Scores:
        """One prefix: the same score for every token."""
        return cls(rows=[SparseRow((), (), score)])

    @classmethod
    def of_candidates(cls, candidates: Sequence[Sequence[int] | None], flat: npt.NDArray[np.float64]) -> Scores:
        """An answer to ``candidates``: their scores, row after row (``[n]``). Other tokens were not asked for.

        >>> Scores.of_candidates([[5, 8], [6]], np.array([-1.0, -2.0, -3.0])).rows[1].get(6)
        -3.0
        """
        scores = cls(rows=[])
        scores._rows, scores.asked, scores.flat = None, candidates, flat
        return scores

    @classmethod
    def stack(cls, parts: Iterable[Scores]) -> Scores:
        """Several batches below each other. Where dense and sparse rows meet, the sparse ones are filled in."""
        parts = list(parts)
        if all(part.values is None for part in parts):
            return cls(rows=[row for part in parts for row in part.rows])
        width = next(part.values.shape[-1] for part in parts if part.values is not None)
        matrices = [_as_numpy(part, width) for part in parts]
        return cls(values=matrices[0] if len(matrices) == 1 else np.concatenate(matrices))

    def __len__(self) -> int:
        if self.values is not None:
            return int(self.values.shape[0])
        return len(self.rows if self.asked is None else self.asked)


def _plain(values: Sequence[Any]) -> Sequence[Any]:
    """Python's own numbers, of an array or tensor too."""
    found: Sequence[Any] = values.tolist() if hasattr(values, "tolist") else values
    return found


def _as_numpy(scores: Scores, width: int) -> npt.NDArray[Any]:
    if scores.values is not None:
        values = scores.values
        return values if isinstance(values, np.ndarray) else values.detach().cpu().numpy()
    return np.stack([row.filled(width) for row in scores.rows])  # [rows, V]
