"""The beginning of OpenFst's binary files: the header and the symbol tables."""

from __future__ import annotations

import struct
from typing import NamedTuple

from sgdec.io.symbols import RESERVED

MAGIC, SYMBOLS_MAGIC = 2125659606, 2125658996
"""The first number of a file and of a symbol table."""
_RESERVED_NAMES = {name.encode() for name in RESERVED.values()}
_INPUT_SYMBOLS, _OUTPUT_SYMBOLS, ALIGNED = 1, 2, 4
_ALIGNED_VERSION = 1
VERSION = 2
"""The version of ``vector`` that OpenFst writes."""


class OpenFstHeader(NamedTuple):
    """The header of a file."""

    format: str
    arc_type: str
    flags: int
    start: int
    states: int
    """The number of states; -1 = up to the end of the file."""
    arcs: int
    symbols: dict[int, str]
    """As in `sgdec.io.openfst.StoredAutomaton`."""
    end: int
    """The position of the states, after the symbol tables."""


class Damaged(Exception):
    """The content of the file contradicts its header."""


def read_header(data: bytes) -> OpenFstHeader:
    """Parse the header: a magic number, the names of format and arcs, version, flags, properties, start, numbers of
    states and arcs. Raises `Damaged` or `struct.error`."""
    (magic,) = struct.unpack_from("<i", data)
    if magic != MAGIC:
        raise Damaged
    format, at = _string(data, 4)
    arc_type, at = _string(data, at)
    version, flags, _, start, states, arcs = struct.unpack_from("<iiQqqq", data, at)
    at += struct.calcsize("<iiQqqq")
    symbols: dict[int, str] = {}
    if flags & _INPUT_SYMBOLS:
        symbols, at = _symbols(data, at)
    if flags & _OUTPUT_SYMBOLS:
        _, at = _symbols(data, at)
    if version == _ALIGNED_VERSION:
        flags |= ALIGNED
    return OpenFstHeader(
        format.decode("latin-1"), arc_type.decode("latin-1"), flags, start, states, arcs, symbols, at
    )


def _string(data: bytes, at: int) -> tuple[bytes, int]:
    """A string that is stored after its length, and the position of its end."""
    (length,) = struct.unpack_from("<i", data, at)
    end = at + 4 + length
    if length < 0 or end > len(data):
        raise Damaged
    return data[at + 4 : end], end


def _symbols(data: bytes, at: int) -> tuple[dict[int, str], int]:
    """The reserved symbols of a table, and the end of the table.

    A table is a number, its name, the next free key, its size n, and n symbols with keys.
    """
    (magic,) = struct.unpack_from("<i", data, at)
    if magic != SYMBOLS_MAGIC:
        raise Damaged
    _, at = _string(data, at + 4)
    _, size = struct.unpack_from("<qq", data, at)
    at += 16
    if size > (len(data) - at) // 12:  # a symbol takes at least 12 bytes
        raise Damaged
    found = {}
    for _ in range(size):
        symbol, at = _string(data, at)
        (key,) = struct.unpack_from("<q", data, at)
        at += 8
        if key in RESERVED or symbol in _RESERVED_NAMES:
            found[key] = symbol.decode("utf-8", "replace")
    return found, at
