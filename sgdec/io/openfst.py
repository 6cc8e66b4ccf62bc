"""OpenFst's binary files, read without OpenFst, because its code aborts the process if a file is damaged.

Two formats are read, ``vector`` (the usual one) and ``const``, with standard (tropical) or log arcs, with or without
symbol tables, plain or gzipped. Every size, state number and table length in a file is checked against the actual
bytes. Other formats are refused with the command that converts them.

A file is a header and symbol tables (`sgdec.io.openfst_header`), and then

- ``vector``: for each state its final cost, its number of arcs (64 bits), and the arcs: label, output, cost, target;
- ``const``: a table of states (final cost, first arc, numbers of arcs, of input epsilons and of output epsilons), and
  a table of arcs. Aligned tables begin on multiples of 16 bytes.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sgdec.arrays import Flags, Ints
from sgdec.errors import SgdecError
from sgdec.io.limits import FILE, GZIP, gunzipped, read_all
from sgdec.io.openfst_header import ALIGNED, SYMBOLS_MAGIC, Damaged, OpenFstHeader, read_header
from sgdec.optional import with_way_to_install

__all__ = [
    "SYMBOLS_MAGIC",
    "LatticeError",
    "OpenFstAutomata",
    "OpenFstAutomaton",
    "first_arc",
    "read_openfst",
    "read_together",
]

COSTS = {"standard": "<f4", "log": "<f4", "log64": "<f8"}
"""The types of arcs, with the number type of their costs."""
_ALIGNMENT = 16
_WORD = 4
"""The size of a word in bytes; all parts of ``vector`` after the header are multiples of it."""


class LatticeError(SgdecError):
    """An error in one lattice file. The error and the advice are separate, so that a caller can add to each.

    Advice that names pynini says how to install it where it is missing.
    """

    def __init__(self, path: str | Path, what: str, way_out: str = "") -> None:
        way_out = with_way_to_install(way_out)
        super().__init__(f"{path}: {what}. {way_out}".rstrip())
        self.what = what
        self.way_out = way_out


class OpenFstAutomaton(NamedTuple):
    """The content of an OpenFst file."""

    start: int
    """The start state; -1 = there is no state."""
    first: Ints
    """``[states + 1]``: the index of the first arc of each state."""
    arcs: npt.NDArray[Any]
    """``[arcs]``: ``label`` (of the input), ``output``, ``cost``, ``target``."""
    final: npt.NDArray[Any]
    """``[states]``: final costs; infinite = not final."""
    symbols: dict[int, str]
    """Entries of the input labels' symbol table: those of 1 and 2, and those named ``<s>`` and ``</s>``."""


class OpenFstAutomata(NamedTuple):
    """The contents of F files as one automaton, whose states are numbered through."""

    starts: list[int]
    """``[F]``: the start state of each file; -1 = it has none."""
    states: Ints
    """``[F + 1]``: the first state of each file, then the number of all states."""
    first: Ints
    arcs: npt.NDArray[Any]
    final: npt.NDArray[Any]
    """As in `OpenFstAutomaton`."""
    symbols: list[dict[int, str]]
    """``[F]``"""


def read_openfst(path: str | Path) -> OpenFstAutomaton:
    """Read a file. Raises `LatticeError` if it is missing, damaged, of another format, has a label that is not a
    token id, or a cost that is not a number.
    """
    found = read_together([path])
    assert found is not None
    return OpenFstAutomaton(found.starts[0], found.first, found.arcs, found.final, found.symbols[0])


def read_together(paths: Sequence[str | Path]) -> OpenFstAutomata | None:
    """Read several files in fewer steps than one by one; None if they differ too much for that.

    Raises the same errors. With several files an error does not tell which one is wrong: then read each alone.
    """
    path = paths[0]
    try:
        files = [_opened(path) for path in paths]
        kinds = {(header.format, header.arc_type) for _, header in files}
        if len(kinds) > 1 or (len(files) > 1 and files[0][1].format != "vector"):
            return None
        found = _vectors(files) if files[0][1].format == "vector" else _const(*files[0])
    except (Damaged, struct.error):
        way_out = "Write it again, for example with pynini's Fst.write; OpenFst's text is compiled by fstcompile."
        raise LatticeError(path, "cut short, or not an OpenFst file", way_out) from None
    _require_values(path, found)
    return found


def first_arc(wrong: Flags, found: OpenFstAutomaton | OpenFstAutomata) -> tuple[int, Any]:
    """The number of a state and its first arc that is marked in ``wrong``."""
    arc = int(wrong.argmax())
    return int(np.searchsorted(found.first, arc, side="right")) - 1, found.arcs[arc]


def _opened(path: str | Path) -> tuple[bytes, OpenFstHeader]:
    """The content of a file and its header. Raises `LatticeError` for another format."""
    data = _read_bytes(path)
    header = read_header(data)
    if header.arc_type not in COSTS:
        raise LatticeError(path, f"has arcs of type {header.arc_type!r}", f"Expected one of {', '.join(COSTS)}.")
    if header.format not in ("vector", "const"):
        way_out = "Convert it: fstconvert --fst_type=vector IN OUT."
        raise LatticeError(path, f"has OpenFst's format {header.format!r}", way_out)
    return data, header


def _read_bytes(path: str | Path) -> bytes:
    try:
        with open(path, "rb") as file:
            data = read_all(file, str(path), FILE)
        return gunzipped(data, str(path)) if data.startswith(GZIP) else data
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise LatticeError(path, "the gzip file is damaged or cut short", "Write it again.") from None
    except FileNotFoundError:
        raise LatticeError(path, "no such file", _beside(str(path))) from None
    except OSError as error:
        raise LatticeError(path, f"cannot be read ({error.strerror or error})") from None


def _beside(path: str) -> str:
    """The way out if the file is there with another ending."""
    other = path.removesuffix(".gz") if path.endswith(".gz") else f"{path}.gz"
    return f"There is {other}." if Path(other).exists() else ""


def _vectors(files: Sequence[tuple[bytes, OpenFstHeader]]) -> OpenFstAutomata:
    """Parse files of the format ``vector`` with one type of arcs. Only the numbers of arcs are read one by one."""
    cost = COSTS[files[0][1].arc_type]
    width = np.dtype(cost).itemsize // _WORD
    head, arc = width + 2, width + 3
    heads: list[int] = []
    words: list[npt.NDArray[np.int32]] = []
    states, base = [0], 0
    for data, header in files:
        of_file, end = _heads(data, header, width)
        heads += [base + at for at in of_file] if base else of_file
        states.append(len(heads))
        words.append(np.frombuffer(data, "<i4", end, header.end))
        base += end
    content = np.concatenate(words) if len(words) > 1 else words[0]
    places = np.array([*heads, len(content)])
    if (places[1:] - places[:-1] < head).any() or content[places[:-1] + width + 1].any():
        raise Damaged
    first = (places - head * np.arange(len(places))) // arc
    is_arc = np.ones(len(content), bool)
    is_arc[places[:-1, None] + np.arange(head)] = False
    arcs = content[is_arc].view(_arc_type(cost))
    final = content[places[:-1, None] + np.arange(width)].view(cost).ravel()
    starts, symbols = [header.start for _, header in files], [header.symbols for _, header in files]
    return _numbered(starts, states, first, arcs, final, symbols)


def _heads(data: bytes, header: OpenFstHeader, width: int) -> tuple[list[int], int]:
    """The places of the states in the words after the header, and the end of the last one."""
    head, arc = width + 2, width + 3
    most = (len(data) - header.end) // _WORD
    words = memoryview(data)[header.end : header.end + most * _WORD].cast("i")
    heads, at = [0], 0
    if header.states > most // head:
        raise Damaged
    try:
        for _ in range(header.states if header.states >= 0 else most // head):
            at += head + arc * words[at + width]
            heads.append(at)
            if at == most and header.states < 0:
                break
    except IndexError:
        raise Damaged from None
    if not 0 <= at <= most:
        raise Damaged
    del heads[-1]
    return heads, at


def _const(data: bytes, header: OpenFstHeader) -> OpenFstAutomata:
    cost = COSTS[header.arc_type]
    numbers = [(name, "<u4") for name in ("first", "arcs", "input_epsilons", "output_epsilons")]
    states_type = np.dtype([("final", cost), *numbers], align=True)
    states, end = _table(data, header.end, header.states, states_type, header.flags)
    arcs, _ = _table(data, end, header.arcs, np.dtype(_arc_type(cost), align=True), header.flags)
    first = np.concatenate([[0], np.cumsum(states["arcs"], dtype=np.int64)])
    if first[-1] != len(arcs) or (states["first"] != first[:-1])[states["arcs"] > 0].any():
        raise Damaged
    arcs = arcs.astype(_arc_type(cost))
    return _numbered([header.start], [0, len(states)], first, arcs, states["final"], [header.symbols])


def _table(data: bytes, at: int, rows: int, kind: np.dtype[Any], flags: int) -> tuple[npt.NDArray[Any], int]:
    """The next ``rows`` rows, and the position of their end."""
    if flags & ALIGNED:
        at += -at % _ALIGNMENT
    end = at + rows * kind.itemsize
    if rows < 0 or end > len(data):
        raise Damaged
    return np.frombuffer(data, kind, rows, at), end


def _arc_type(cost: str) -> list[tuple[str, str]]:
    return [("label", "<i4"), ("output", "<i4"), ("cost", cost), ("target", "<i4")]


def _numbered(
    starts: list[int],
    states: list[int],
    first: Ints,
    arcs: npt.NDArray[Any],
    final: npt.NDArray[Any],
    symbols: list[dict[int, str]],
) -> OpenFstAutomata:
    """Files whose arcs have targets in their own numbering. Raises `Damaged` if one, or a start, is not a state."""
    bounds, target = np.array(states), arcs["target"]
    if len(starts) == 1:
        outside = target.max(initial=-1) >= states[-1]
    else:
        base = bounds[:-1].repeat(first[bounds[1:]] - first[bounds[:-1]])
        end = bounds[1:].repeat(first[bounds[1:]] - first[bounds[:-1]])
        outside = (target >= end - base).any()
    sizes = (bounds[1:] - bounds[:-1]).tolist()
    if outside or target.min(initial=0) < 0 or not all(-1 <= s < n for s, n in zip(starts, sizes, strict=True)):
        raise Damaged
    if len(starts) > 1:
        arcs["target"] = target + base
        starts = [start if start < 0 else start + before for start, before in zip(starts, states, strict=False)]
    return OpenFstAutomata(starts, bounds, first, arcs, final, symbols)


def _require_values(path: str | Path, found: OpenFstAutomata) -> None:
    """Raises `LatticeError` for a label that is not a token id, and for a cost that is not a number."""
    arcs, final = found.arcs, found.final
    for side in ("label", "output"):
        if arcs[side].min(initial=0) < 0:
            state, arc = first_arc(arcs[side] < 0, found)
            raise LatticeError(path, f"has an arc with label {arc[side]} (state {state})", "Expected token ids.")
    numbers = "Expected costs: numbers, or inf."
    if not arcs["cost"].min(initial=np.inf) > -np.inf:  # also true for NaN
        state, arc = first_arc(~(arcs["cost"] > -np.inf), found)
        raise LatticeError(path, f"a weight at state {state} is {arc['cost']}", numbers)
    if not final.min(initial=np.inf) > -np.inf:
        state = int((final > -np.inf).argmin())
        raise LatticeError(path, f"a weight at state {state} is {final[state]}", numbers)
