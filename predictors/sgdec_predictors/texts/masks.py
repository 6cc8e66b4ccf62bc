"""Rows of scores from masks: what can follow scores 0, everything else is forbidden.

Masks repeat: within a JSON string most prefixes have the same one, and so have all prefixes at one place of a schema.
To find the row of an earlier mask takes less time than to make it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from sgdec.arrays import FORBIDDEN, Ints
from sgdec.scores import SparseRow

ROOM = 64 << 20
"""The bytes of all masks and rows that are kept."""
ENTRY = 16
"""The bytes of a token and its score in a row."""
SHARE, FEW = 1 / 8, 64
"""If at most this share of the vocabulary or this many tokens can follow, a row lists them, otherwise the others."""
WORD = np.dtype("<u4")
BITS = 8 * WORD.itemsize


class MaskRows:
    """The rows of masks."""

    def __init__(self, vocab_size: int, first_byte: int, room: int = ROOM) -> None:
        """The bit of token 0 is the lowest of the byte ``first_byte`` of a mask; later bytes are those of tokens."""
        self._vocab_size = vocab_size
        self._first_byte = first_byte
        self._room = room
        self._kept: dict[bytes, SparseRow] = {}
        self._free = room

    def of(self, mask: bytes) -> SparseRow:
        """The row of a mask, which is shared: callers do not change it."""
        row = self._kept.get(mask)
        if row is None:
            row = self._make(mask)
            self._keep(mask, row)
        return row

    def _keep(self, mask: bytes, row: SparseRow) -> None:
        size = len(mask) + ENTRY * len(row)
        if size > self._free:
            self._kept.clear()
            self._free = self._room
        self._kept[mask] = row
        self._free -= size

    def _make(self, mask: bytes) -> SparseRow:
        words: npt.NDArray[np.uint32] = np.frombuffer(mask, WORD, offset=self._first_byte)
        allowed = int(np.bitwise_count(words).sum())
        if allowed <= max(self._vocab_size * SHARE, FEW):
            return SparseRow(_bits(words).tolist(), [0.0] * allowed)
        forbidden: Any = _bits(~words)
        forbidden = forbidden[: forbidden.searchsorted(self._vocab_size)]
        scores: Any = np.full(len(forbidden), FORBIDDEN)
        return SparseRow(forbidden, scores, 0.0)


def _bits(words: npt.NDArray[np.uint32]) -> Ints:
    """The positions of the bits that are set, ascending. Most words are all zeros."""
    (at,) = (words != 0).nonzero()
    place, bit = np.unpackbits(words[at].view(np.uint8).reshape(-1, BITS // 8), axis=1, bitorder="little").nonzero()
    positions: Ints = at[place] * BITS + bit
    return positions
