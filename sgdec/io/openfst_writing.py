"""OpenFst's binary format ``vector``, written without OpenFst; `sgdec.io.openfst` describes and reads it."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from sgdec.io.openfst_header import MAGIC, VERSION
from sgdec.io.writing import write_whole

_EXPANDED, _MUTABLE, _ACCEPTOR, _NOT_ACCEPTOR = 0x1, 0x2, 0x10000, 0x20000
"""Properties that a header states (fst/properties.h); OpenFst computes others when it needs them."""

OpenFstState = tuple[float, Sequence[tuple[int, int, float, int]]]
"""A state: its final cost, infinite = not final; its arcs: label, output label, cost and target."""


def write_openfst(path: str | Path, states: Sequence[OpenFstState], *, durable: bool = True) -> None:
    """Write an automaton whose state 0 is the start, gzipped if ``path`` ends in ``.gz``; no states = it is empty.

    Costs are stored in single precision.

    Raises:
        SgdecError: The file cannot be written.
    """
    data = openfst_bytes(states)
    write_whole(path, gzip.compress(data, mtime=0) if str(path).endswith(".gz") else data, durable=durable)


def openfst_bytes(states: Sequence[OpenFstState]) -> bytes:
    """The content of an OpenFst file, before compression."""
    arcs = [arc for _, leaving in states for arc in leaving]
    acceptor = all(label == output for label, output, _, _ in arcs)
    properties = _EXPANDED | _MUTABLE | (_ACCEPTOR if acceptor else _NOT_ACCEPTOR)
    names = b"".join(struct.pack("<i", len(name)) + name for name in (b"vector", b"standard"))
    numbers = VERSION, 0, properties, 0 if states else -1, len(states), len(arcs)
    head = struct.pack("<i", MAGIC) + names + struct.pack("<iiQqqq", *numbers)
    kinds = "<" + "".join("fq" + "iifi" * len(leaving) for _, leaving in states)
    values = chain.from_iterable((final, len(leaving), *chain(*leaving)) for final, leaving in states)
    return head + struct.pack(kinds, *values)
