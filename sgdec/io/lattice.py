"""Lattices: weighted acceptors over token ids, read from and written to OpenFst binary files.

Weights are costs, as OpenFst keeps them: negated natural-log scores, lower is better, infinite = no way.
Label 0 is epsilon, 1 ``<s>`` and 2 ``</s>``. pynini reads and writes, and is imported only then.
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
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sgdec.context import BOS, EOS, UNK
from sgdec.errors import SgdecError
from sgdec.protocol import Hypothesis

ARC_TYPES = ("standard", "log", "log64")
_GZIP = b"\x1f\x8b"


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


@dataclass(frozen=True)
class Lattice:
    """A weighted acceptor in plain values; states are 0..n-1."""

    start: int
    """-1 = there is no state at all."""
    arcs: tuple[tuple[Arc, ...], ...]
    """The arcs that leave each state, by ascending label."""
    final: tuple[float, ...]
    """The final cost of each state; infinite = not final."""


def read_lattice(path: str | Path) -> Lattice:
    """Reads an OpenFst binary, plain or gzipped, with standard (tropical) or log arcs.

    Raises LatticeError for a file that is missing, cut short or no lattice, and for a transducer; SgdecError
    where pynini is not installed.
    """
    pynini = _pynini()
    data = _read_bytes(path)
    try:
        with _standard_error_closed():
            fst = pynini.Fst.read_from_string(data)
    except OSError:  # what pynini raises for all that it cannot read
        raise LatticeError(
            path, "cut short, or not an OpenFst file", "Write it again, for example with pynini's Fst.write."
        ) from None
    if fst.arc_type() not in ARC_TYPES:
        expected = ", ".join(ARC_TYPES)
        raise LatticeError(path, f"has arcs of type {fst.arc_type()!r}", f"Expected one of {expected}.")
    fst.set_input_symbols(None)
    fst.set_output_symbols(None)
    final, first, arcs = _unpack(fst.write_to_string(), fst.num_states(), 8 if fst.arc_type() == "log64" else 4)
    _check(path, final, first, arcs)
    states = np.repeat(np.arange(len(final)), np.diff(first))
    order = np.lexsort((arcs["target"], arcs["cost"], arcs["label"], states))
    listed = list(map(Arc, *(arcs[name][order].tolist() for name in ("label", "cost", "target"))))
    by_state = tuple(tuple(listed[a:b]) for a, b in pairwise(first.tolist()))
    return Lattice(fst.start(), by_state, tuple(final.tolist()))


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
    try:
        Path(path).write_bytes(gzip.compress(data, mtime=0) if str(path).endswith(".gz") else data)
    except OSError as error:
        raise SgdecError(f"{path}: cannot be written ({error.strerror or error}).") from None
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
        data = Path(path).read_bytes()
        return gzip.decompress(data) if data.startswith(_GZIP) else data
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise LatticeError(path, "the gzip file is damaged or cut short", "Write it again.") from None
    except FileNotFoundError:
        raise LatticeError(path, "no such file") from None
    except OSError as error:
        raise LatticeError(path, f"cannot be read ({error.strerror or error})") from None


def _unpack(data: bytes, states: int, width: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]:
    """What OpenFst's ``vector`` format holds: final costs [states], where each state's arcs begin [states + 1], arcs.

    Read at once, because asking pynini for arc after arc takes ten times as long. After the header (a number, two
    words with their lengths, 40 bytes) each state is its final cost, the number of its arcs, and these. ``width``:
    of a cost, in bytes.
    """
    cost = f"<f{width}"
    arc = np.dtype([("label", "<i4"), ("output", "<i4"), ("cost", cost), ("target", "<i4")])
    count = struct.Struct("<q")
    at = 4
    for _ in range(2):
        at += 4 + int.from_bytes(data[at : at + 4], "little")
    at += 40
    final, first, blocks = [], [0], []
    for _ in range(states):
        final.append(data[at : at + width])
        (arcs,) = count.unpack_from(data, at + width)
        begin = at + width + count.size
        at = begin + arcs * arc.itemsize
        blocks.append(data[begin:at])
        first.append(first[-1] + arcs)
    return np.frombuffer(b"".join(final), cost), np.array(first), np.frombuffer(b"".join(blocks), arc)


def _check(path: str | Path, final: npt.NDArray[Any], first: npt.NDArray[Any], arcs: npt.NDArray[Any]) -> None:
    """LatticeError for a transducer, for labels that are no token ids, for costs that are no numbers."""

    def state(wrong: npt.NDArray[Any]) -> tuple[int, Any]:
        arc = int(wrong.argmax())
        return int(np.searchsorted(first, arc, side="right")) - 1, arcs[arc]

    wrong = arcs["label"] != arcs["output"]
    if wrong.any():
        where, arc = state(wrong)
        raise LatticeError(
            path,
            f"is a transducer: state {where} has an arc {arc['label']}:{arc['output']}",
            "Expected an acceptor; keep one side, for example with pynini.project(fst, 'output').",
        )
    wrong = arcs["label"] < 0
    if wrong.any():
        where, arc = state(wrong)
        raise LatticeError(path, f"has an arc with label {arc['label']} (state {where})", "Expected token ids.")
    wrong = ~(arcs["cost"] > -math.inf)
    if wrong.any():
        where, arc = state(wrong)
        raise LatticeError(path, f"a weight at state {where} is {arc['cost']}", "Expected costs: numbers, or inf.")
    wrong = ~(final > -math.inf)
    if wrong.any():
        where = int(wrong.argmax())
        raise LatticeError(path, f"a weight at state {where} is {final[where]}", "Expected costs: numbers, or inf.")


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
