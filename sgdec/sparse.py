"""Lists of tokens: rows of scores that list some tokens, as single rows, and as arrays of many rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, pairwise
from typing import Any, NamedTuple, final, overload

import numpy as np

from sgdec import arrays
from sgdec.arrays import FORBIDDEN, MORE, Array, Flags, Floats, Ints

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

    def shifted(self, by: float) -> SparseRow:
        """The same row, all scores minus a number."""
        tokens, scores = self.arrays
        return SparseRow(tokens.tolist(), (scores - by).tolist(), self.default - by)

    def favourite(self, weight: float) -> tuple[int, float] | None:
        """The listed token with the best weighted score, and its own score; None if others have no worse one."""
        tokens, scores = self.arrays
        possible = scores > FORBIDDEN
        if not possible.any():
            return None
        weighted = np.where(possible, weight * np.where(possible, scores, 0.0), FORBIDDEN)
        place = int(weighted.argmax())
        others = FORBIDDEN if self.default == FORBIDDEN else weight * self.default
        return (int(tokens[place]), float(scores[place])) if weighted[place] > others else None

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

    @property
    def keys(self) -> Ints:
        """``[n]``: row * `MORE` + token, ascending."""
        rows = np.arange(len(self)).repeat(self.offsets[1:] - self.offsets[:-1])
        return rows * MORE + self.tokens

    def find(self, wanted: Ints) -> tuple[Flags, Ints]:
        """Whether each wanted key is one of `keys`, and its place there."""
        keys = self.keys
        place = np.minimum(keys.searchsorted(wanted), len(keys) - 1)
        return (keys[place] == wanted) if len(keys) else np.zeros(len(wanted), dtype=bool), place


class Wanted(NamedTuple):
    """Tokens whose scores are needed, of several nodes, as flat arrays ``[n]`` in the order of the nodes."""

    nodes: Sequence[int]
    """Their positions in a batch; a range = all of it."""
    tokens: Sequence[Sequence[int]]
    """The tokens of each node."""
    token: Ints
    place: Ints
    """The position in ``nodes`` of each token's node."""

    @classmethod
    def of(cls, nodes: Sequence[int], tokens: Sequence[Sequence[int]]) -> Wanted:
        if isinstance(tokens, TokenLists):
            counts = tokens.offsets[1:] - tokens.offsets[:-1]
            return cls(nodes, tokens, tokens.tokens, np.arange(len(tokens)).repeat(counts))
        lengths = np.fromiter(map(len, tokens), np.int64, len(nodes))
        token = np.fromiter(chain.from_iterable(tokens), np.int64, lengths.sum())
        return cls(nodes, tokens, token, np.repeat(np.arange(len(nodes)), lengths))


@dataclass(frozen=True)
class OpenRows:
    """Sparse rows that do not restrict: one default per row, and n tokens in total that differ from it."""

    default: Floats
    """``[R]``"""
    row: Ints
    """``[n]``: the row of each listed token, ascending."""
    token: Ints
    """``[n]``: the listed tokens, ascending within a row."""
    score: Floats
    """``[n]``: their scores."""

    @classmethod
    def of(cls, rows: Sequence[SparseRow]) -> OpenRows:
        listed = [row.arrays for row in rows]
        return cls(
            np.array([row.default for row in rows]),
            np.repeat(np.arange(len(listed)), [len(tokens) for tokens, _ in listed]),
            np.concatenate([tokens for tokens, _ in listed]),
            np.concatenate([scores for _, scores in listed]),
        )

    @cached_property
    def only_forbids(self) -> bool:
        """Whether all scores are 0 or -inf."""
        return not self.default.any() and bool((self.score == FORBIDDEN).all())

    def at(self, rows: Ints, tokens: Ints) -> Floats:
        """The scores of tokens in these rows; both of one shape."""
        found = self.default[rows]
        if len(self.row):
            width = max(int(tokens.max(initial=0)), int(self.token.max())) + 1
            known = self.row * width + self.token  # ascending, because rows and the tokens of each row are
            asked = rows * width + tokens
            place = np.minimum(np.searchsorted(known, asked), len(known) - 1)
            listed = known[place] == asked
            found[listed] = self.score[place[listed]]
        return found

    def added_to(self, total: Array, factors: Floats) -> Array:
        """A new matrix ``[R, V]``: ``total`` plus these rows times their ``factors`` ``[R, 1]``."""
        forbidden, infinite = self.score == FORBIDDEN, self.score == math.inf
        if not factors.any() and not forbidden.any() and not infinite.any():
            return total
        factor = factors[:, 0]
        base = np.zeros(len(factor))
        np.multiply(factor, self.default, out=base, where=factor != 0.0)
        total = total + arrays.like(total, base[:, None])
        if forbidden.all():  # a mask, which can list half of the vocabulary
            flat = total.reshape(-1)
            flat[self.row * total.shape[1] + self.token] += FORBIDDEN
            return flat.reshape(total.shape)
        more = factor[self.row] * (np.where(forbidden, 0.0, self.score) - self.default[self.row])
        more[forbidden] = FORBIDDEN
        more[infinite] = math.nan  # so that later checks find it, whatever the weight
        total[self.row, self.token] += arrays.like(total, more)
        return total

    def magnitudes(self) -> Floats:
        """``[R]``: the highest magnitude of the scores of each row."""
        magnitude = np.abs(self.default)
        finite = np.isfinite(self.score)
        np.maximum.at(magnitude, self.row[finite], np.abs(self.score[finite]))
        return magnitude

    def filled(self, width: int) -> Floats:
        """``[R, width]``: the scores of the tokens 0..width-1."""
        values = np.repeat(self.default[:, None], width, axis=1)
        values[self.row, self.token] = self.score
        return values


def _plain(values: Sequence[Any]) -> Sequence[Any]:
    """A sequence of Python numbers: an array or tensor is converted to a list."""
    found: Sequence[Any] = values.tolist() if hasattr(values, "tolist") else values
    return found
