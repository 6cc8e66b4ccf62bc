"""Rows of scores from masks: what can follow scores 0, everything else is forbidden."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from sgdec.protocol import FORBIDDEN, SparseRow

KEPT = 256
"""Different masks whose rows are kept. Masks repeat: within a JSON string most prefixes have the same one."""
SHARE, FEW = 1 / 8, 64
"""If at most this share of the vocabulary or this many tokens can follow, a row lists them, otherwise the others."""
WORD = 32
"""Bits that are looked at together: most words of a mask are all zeros or all ones."""


def rows_of_masks(vocab_size: int, first_byte: int) -> Callable[[bytes], SparseRow]:
    """A function from masks to rows; the bit of token 0 is the lowest of the byte ``first_byte``."""

    @lru_cache(maxsize=KEPT)
    def row(mask: bytes) -> SparseRow:
        words: npt.NDArray[np.uint32] = np.frombuffer(mask, "<u4", offset=first_byte)
        allowed = int(np.bitwise_count(words).sum())
        if allowed <= max(vocab_size * SHARE, FEW):
            return SparseRow(_bits(words).tolist(), [0.0] * allowed)
        forbidden: Any = _bits(~words)
        forbidden = forbidden[: np.searchsorted(forbidden, vocab_size)]
        scores: Any = np.full(len(forbidden), FORBIDDEN)
        return SparseRow(forbidden, scores, 0.0)

    return row


def _bits(words: npt.NDArray[np.uint32]) -> npt.NDArray[np.int64]:
    """The positions of the bits that are set, ascending."""
    (at,) = words.nonzero()
    place, bit = np.unpackbits(words[at].view(np.uint8).reshape(-1, 4), axis=1, bitorder="little").nonzero()
    return at[place] * WORD + bit
