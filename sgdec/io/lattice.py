"""Lattices: weighted acceptors over token ids, read from and written to OpenFst binary files.

Weights are costs, as OpenFst keeps them: negated natural-log scores, lower is better, infinite = no way.
Label 0 is epsilon, 1 ``<s>`` and 2 ``</s>``. OpenFst's usual format, ``vector``, is read here; for the others, and
to write, pynini is imported.
"""

from __future__ import annotations

import gzip
import math
import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sgdec.context import BOS, EOS, UNK
from sgdec.errors import SgdecError
from sgdec.io.writing import write_whole
from sgdec.protocol import Hypothesis

ARC_TYPES = ("standard", "log", "log64")
_GZIP = b"\x1f\x8b"
_MAGIC = 2125659606
"""How an OpenFst binary begins."""
_WORD = 4
"""Bytes; all parts of the ``vector`` format after its header are so many words long."""


class LatticeError(SgdecError):
    """What is wrong with one lattice file, and the way out, apart: a reader who knows more can say more."""

    def __init__(self, path: str | Path, what: str, way_out: str = "") -> None:
        super().__init__(f"{path}: {what}. {way_out}".rstrip())
        self.what = what
        self.way_out = way_out


class Arc(NamedTuple):
    """One arc of an acceptor."""

    label: int
    cost: float
    target: int


@dataclass(frozen=True, eq=False)
class Lattice:
    """A weighted acceptor; states are 0..n-1, and their arcs follow each other, by ascending label."""

    start: int
    """-1 = there is no state at all."""
    first: npt.NDArray[np.int64]
    """``[states + 1]``: where the arcs of each state begin."""
    labels: npt.NDArray[np.int32]
    """``[arcs]``"""
    costs: npt.NDArray[np.float64]
    """``[arcs]``"""
    targets: npt.NDArray[np.int32]
    """``[arcs]``: the states that they lead to."""
    final: npt.NDArray[np.float64]
    """``[states]``: final costs; infinite = not final."""

    @cached_property
    def arcs(self) -> tuple[tuple[Arc, ...], ...]:
        """The arcs that leave each state, as plain values."""
        listed = list(map(Arc, self.labels.tolist(), self.costs.tolist(), self.targets.tolist()))
        return tuple(tuple(listed[begin:end]) for begin, end in pairwise(self.first.tolist()))

    def state_of(self, arc: int) -> int:
        """The state that an arc leaves."""
        return int(np.searchsorted(self.first, arc, side="right")) - 1


def read_lattice(path: str | Path) -> Lattice:
    """Reads an OpenFst binary, plain or gzipped, with standard (tropical) or log arcs.

    Raises LatticeError for a file that is missing, cut short or no lattice, and for a transducer; SgdecError
    where the file's format needs pynini and pynini is not installed.
    """
    start, first, arcs, final = read_openfst(path)
    _check_acceptor(path, first, arcs)
    states = np.repeat(np.arange(len(final)), first[1:] - first[:-1])
    places = (states << 32) + arcs["label"]
    order = np.argsort(places, kind="stable")
    if (places[order[1:]] == places[order[:-1]]).any():
        order = np.lexsort((arcs["target"], arcs["cost"], places))
    arcs = arcs[order]
    return Lattice(
        start, first, arcs["label"], arcs["cost"].astype(np.float64), arcs["target"], final.astype(np.float64)
    )


def read_openfst(path: str | Path) -> tuple[int, npt.NDArray[np.int64], npt.NDArray[Any], npt.NDArray[Any]]:
    """Start, where each state's arcs begin [states + 1], arcs, and final costs [states] of an acceptor or transducer.

    Arcs have ``label`` (of the input), ``output``, ``cost`` and ``target``. Raises as `read_lattice` does.
    """
    data = _read_bytes(path)
    header = _vector_header(data)
    if header is None:
        data = _as_vector(path, data)
        header = _vector_header(data)
        assert header is not None
    first, arcs, final = _unpack(path, data, header)
    _check(path, first, arcs, final)
    return header.start, first, arcs, final


def write_nbest(path: str | Path, hypotheses: Sequence[Hypothesis]) -> int:
    """Writes one sentence's hypotheses as a deterministic acceptor, gzipped if ``path`` ends in ``.gz``.

    A prefix tree with ``<s>`` and ``</s>`` arcs. The cost of a path is minus the hypothesis' total, to single
    precision; its arcs bear the weighted scores of its tokens, the ``</s>`` arc what is left of the total. Of
    hypotheses with equal tokens the best one counts. Without hypotheses the lattice is empty.

    Returns how many hypotheses are not in it since they contain token 0, which a lattice reads as epsilon.
    Raises SgdecError where the file cannot be written or pynini is not installed.
    """
    pynini = _pynini()
    fst = pynini.Fst()
    listed = [hypothesis for hypothesis in hypotheses if UNK not in hypothesis.tokens]
    if listed:
        tree, end = _prefix_tree(listed)
        for _ in tree:
            fst.add_state()
        fst.set_start(0)
        fst.set_final(end)
        for state, arcs in enumerate(tree):
            for label, (cost, target) in sorted(arcs.items()):
                fst.add_arc(state, pynini.Arc(label, label, cost, target))
    data = fst.write_to_string()
    write_whole(path, gzip.compress(data, mtime=0) if str(path).endswith(".gz") else data)
    return len(hypotheses) - len(listed)


def _prefix_tree(hypotheses: Sequence[Hypothesis]) -> tuple[list[dict[int, tuple[float, int]]], int]:
    """For each state its arcs, label -> (cost, target); state 0 starts. And the state where all paths end."""
    tree: list[dict[int, tuple[float, int]]] = [{BOS: (0.0, 1)}, {}, {}]
    end = 2
    for hypothesis in hypotheses:
        state, spent = 1, 0.0
        costs = [-score for score in _weighted_scores(hypothesis)] or [0.0] * len(hypothesis.tokens)
        for token, cost in zip(hypothesis.tokens, costs, strict=False):  # the last cost belongs to </s>
            if token not in tree[state]:
                tree[state][token] = _single(cost), len(tree)
                tree.append({})
            cost, state = tree[state][token]
            spent += cost
        last = _single(-hypothesis.score - spent)
        if EOS not in tree[state] or last < tree[state][EOS][0]:
            tree[state][EOS] = last, end
    return tree, end


def _weighted_scores(hypothesis: Hypothesis) -> list[float]:
    """For each token, ``</s>`` last, its combined score; nothing where the ledger is not kept."""
    return [
        sum(weight * score for weight, score in zip(weights, scores, strict=True) if weight)
        for weights, scores in zip(hypothesis.weights, hypothesis.ledger, strict=True)
    ]


def _single(cost: float) -> float:
    """As a file keeps it, so that rounding does not add up along a path."""
    return float(np.float32(cost))


def _read_bytes(path: str | Path) -> bytes:
    try:
        with open(path, "rb") as file:
            data = file.read()
        return gzip.decompress(data) if data.startswith(_GZIP) else data
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise LatticeError(path, "the gzip file is damaged or cut short", "Write it again.") from None
    except FileNotFoundError:
        raise LatticeError(path, "no such file") from None
    except OSError as error:
        raise LatticeError(path, f"cannot be read ({error.strerror or error})") from None


class _Header(NamedTuple):
    """What is known of a ``vector`` file before its states are read."""

    width: int
    """Words of a cost."""
    start: int
    states: int
    length: int
    """Bytes of the header."""


def _vector_header(data: bytes) -> _Header | None:
    """The header of a file in OpenFst's usual format; None for any other, and for one with symbol tables.

    A number, the names of format and arcs with their lengths, then version, flags, properties, the start, and the
    numbers of states and arcs.
    """
    numbers = struct.Struct("<iiQqqq")
    for arc_type in ARC_TYPES:
        name = arc_type.encode()
        begin = struct.pack("<ii6si", _MAGIC, 6, b"vector", len(name)) + name
        length = len(begin) + numbers.size
        if data.startswith(begin) and len(data) >= length:
            version, flags, _, start, states, _ = numbers.unpack_from(data, len(begin))
            if version == 2 and flags == 0 and states >= 0:
                return _Header(2 if arc_type == "log64" else 1, start, states, length)
    return None


def _as_vector(path: str | Path, data: bytes) -> bytes:
    """The same lattice in OpenFst's usual format, without symbol tables, as pynini writes it."""
    pynini = _pynini()
    try:
        with _standard_error_closed():
            fst = pynini.Fst.read_from_string(data)
    except OSError:  # what pynini raises for all that it cannot read
        raise _broken(path) from None
    if fst.arc_type() not in ARC_TYPES:
        expected = ", ".join(ARC_TYPES)
        raise LatticeError(path, f"has arcs of type {fst.arc_type()!r}", f"Expected one of {expected}.")
    fst.set_input_symbols(None)
    fst.set_output_symbols(None)
    written: bytes = fst.write_to_string()
    return written


def _unpack(
    path: str | Path, data: bytes, header: _Header
) -> tuple[npt.NDArray[np.int64], npt.NDArray[Any], npt.NDArray[Any]]:
    """Where each state's arcs begin [states + 1], the arcs, and the final costs [states].

    Each state is its final cost, the number of its arcs (two words), and these: label, output, cost, target. So only
    the numbers of arcs are looked for one by one.
    """
    words = memoryview(data[header.length : len(data) - (len(data) - header.length) % _WORD]).cast("i")
    width = header.width
    head, arc = width + 2, width + 3
    heads, at = [0], 0
    try:
        for _ in range(header.states):
            at += head + arc * words[at + width]
            if at < heads[-1]:
                raise _broken(path)
            heads.append(at)
    except IndexError:
        raise _broken(path) from None
    if at > len(words):
        raise _broken(path)
    content = np.frombuffer(words, "<i4")
    places = np.array(heads)  # [states + 1]
    first = (places - head * np.arange(len(heads))) // arc
    states = np.repeat(np.arange(header.states), first[1:] - first[:-1])  # [arcs]
    bodies = arc * np.arange(len(states)) + head * (states + 1)
    cost = f"<f{_WORD * width}"
    final = content[places[:-1, None] + np.arange(width)].view(cost).ravel()
    arcs = content[bodies[:, None] + np.arange(arc)]
    arcs = arcs.view([("label", "<i4"), ("output", "<i4"), ("cost", cost), ("target", "<i4")]).ravel()
    targets = arcs["target"]
    lost = targets.min(initial=0) < 0 or targets.max(initial=-1) >= header.states
    if lost or header.start not in range(-1, header.states):
        raise _broken(path)
    return first, arcs, final


def _broken(path: str | Path) -> LatticeError:
    way_out = "Write it again, for example with pynini's Fst.write."
    return LatticeError(path, "cut short, or not an OpenFst file", way_out)


def _check_acceptor(path: str | Path, first: npt.NDArray[np.int64], arcs: npt.NDArray[Any]) -> None:
    """LatticeError for a transducer."""
    wrong = arcs["label"] != arcs["output"]
    if wrong.any():
        where, arc = _first_arc(wrong, first, arcs)
        raise LatticeError(
            path,
            f"is a transducer: state {where} has an arc {arc['label']}:{arc['output']}",
            "Expected an acceptor; keep one side, for example with pynini.project(fst, 'output').",
        )


def _check(path: str | Path, first: npt.NDArray[np.int64], arcs: npt.NDArray[Any], final: npt.NDArray[Any]) -> None:
    """LatticeError for labels that are no token ids, for costs that are no numbers."""
    for side in ("label", "output"):
        if arcs[side].min(initial=0) < 0:
            where, arc = _first_arc(arcs[side] < 0, first, arcs)
            raise LatticeError(path, f"has an arc with label {arc[side]} (state {where})", "Expected token ids.")
    numbers = "Expected costs: numbers, or inf."
    if not arcs["cost"].min(initial=math.inf) > -math.inf:  # a NaN is not, either
        where, arc = _first_arc(~(arcs["cost"] > -math.inf), first, arcs)
        raise LatticeError(path, f"a weight at state {where} is {arc['cost']}", numbers)
    if not final.min(initial=math.inf) > -math.inf:
        where = int((final > -math.inf).argmin())
        raise LatticeError(path, f"a weight at state {where} is {final[where]}", numbers)


def _first_arc(wrong: npt.NDArray[np.bool_], first: npt.NDArray[np.int64], arcs: npt.NDArray[Any]) -> tuple[int, Any]:
    """The state and the arc."""
    arc = int(wrong.argmax())
    return int(np.searchsorted(first, arc, side="right")) - 1, arcs[arc]


def _pynini() -> Any:
    try:
        import pynini
    except ImportError as error:
        raise SgdecError(f'lattices need pynini: {error} (pip install "sgdec[fst]").') from None
    return pynini


@contextmanager
def _standard_error_closed() -> Iterator[None]:
    """OpenFst's C++ code writes to standard error what the exception then says again."""
    saved = os.dup(2)
    sink = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(sink, 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(sink)
