"""The header of KenLM's binary files, which says in which of six layouts the rest is."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sgdec.arrays import Ints

Singles = npt.NDArray[np.float32]
Bools = npt.NDArray[np.bool_]
Entry = tuple[int, float, float]
"""An n-gram: its place among those of its order, log10 p, and its back-off. A back-off of -0.0 = no n-gram begins
with this one; those of the highest order mean nothing."""
Entries = tuple[Ints, Ints, Singles, Singles]
"""The n-grams of one order that end a batch of prefixes: the indices of these prefixes ``[m]``, and what `Entry` says
of each."""
MAGIC = b"mmap lm http://kheafield.com/code"
"""The first bytes of a KenLM binary."""
_SANITY = struct.pack("<56s3f3IQ", MAGIC + b" format version 5\n", 0.0, 1.0, -0.5, 1, 0xFFFFFFFF, 0, 1)
_FIXED = struct.Struct("<B3xfi?3xI")
"""Order, multiplier of hash tables, layout, whether words are stored, version of the layout."""
PROBING, REST_PROBING, TRIE, QUANTISED_TRIE, ARRAY_TRIE, QUANTISED_ARRAY_TRIE = range(6)
HASHED = PROBING, REST_PROBING
_MOST_ORDER = 16
_FIRST_WORD = b"<unk>\0"


class DamagedKenlm(Exception):
    """The description of a defect."""


@dataclass(frozen=True)
class KenlmFile:
    """A mapped file and what its header says."""

    data: npt.NDArray[np.uint8]
    layout: int
    counts: tuple[int, ...]
    """The number of n-grams of each order."""
    multiplier: float
    """Hash tables have this many places for each entry."""
    begin: int
    """The offset of the vocabulary."""
    has_words: bool
    """Whether the words themselves follow the n-grams."""

    def check_words(self, begin: int) -> None:
        """Raises `DamagedKenlm` if words are stored, but not where the n-grams end."""
        if self.has_words and self.data[begin : begin + len(_FIRST_WORD)].tobytes() != _FIRST_WORD:
            raise DamagedKenlm("its words are not where its sizes say")


def read_header(data: npt.NDArray[np.uint8]) -> KenlmFile:
    """Raises `DamagedKenlm`."""
    if data[: len(_SANITY)].tobytes() != _SANITY:
        raise DamagedKenlm("it is not a binary of version 5 for machines like this one")
    at = len(_SANITY) + _FIXED.size
    if len(data) < at:
        raise DamagedKenlm("it is cut short")
    order, multiplier, layout, has_words, version = _FIXED.unpack_from(data.data, len(_SANITY))
    if not 2 <= order <= _MOST_ORDER:
        raise DamagedKenlm(f"its order is {order}")
    if len(data) < at + 8 * order:
        raise DamagedKenlm("it is cut short")
    counts = struct.unpack_from(f"<{order}Q", data.data, at)
    begin = at + 8 * order
    begin += -begin % 8
    if max(counts) > 8 * len(data):  # an n-gram takes more than a bit
        raise DamagedKenlm("it is cut short")
    if not 0 <= layout <= QUANTISED_ARRAY_TRIE or version != (0 if layout in HASHED else 1):
        raise DamagedKenlm(f"its layout is {layout}, version {version}")
    return KenlmFile(data, layout, counts, multiplier, begin, has_words)


class FileParts:
    """The parts of a file, one after the other."""

    def __init__(self, file: KenlmFile) -> None:
        self._data = file.data
        self.at = file.begin

    def take(self, rows: int, kind: Any) -> npt.NDArray[Any]:
        """The next ``rows`` values of a type."""
        kind = np.dtype(kind)
        begin = self.skip(rows * kind.itemsize)
        return self._data[begin : self.at].view(kind)

    def skip(self, size: int) -> int:
        """The offset of the next ``size`` bytes."""
        begin, self.at = self.at, self.at + size
        if self.at > len(self._data):
            raise DamagedKenlm("it is cut short")
        return begin
