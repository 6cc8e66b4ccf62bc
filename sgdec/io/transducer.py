"""Transducers between two kinds of tokens, read from and written to OpenFst binary files.

The input side has the tokens of the decoder, the output side those of the inner predictor. Weights are costs, that
is, negated natural-log scores. Labels are token ids, with three exceptions:

- 0 is epsilon, on both sides;
- `UNK_LABEL` is ``<unk>``, token 0, on both sides;
- `OTHERWISE`, on the input side, is a failure arc: it reads no token, and only tokens that no other arc of its state
  reads may follow it (``</s>`` counts as read if the state is final). So words that are not in a dictionary need one
  arc per state, instead of one for each other token.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sgdec.arrays import Floats, Ints
from sgdec.io.openfst import read_openfst
from sgdec.io.openfst_writing import write_openfst

EPSILON = 0
UNK_LABEL = 999_999_998
OTHERWISE = 999_999_999


class TransducerArc(NamedTuple):
    """One arc, with labels as in the file."""

    input: int
    output: int
    cost: float
    target: int


@dataclass(frozen=True, eq=False)
class Transducer:
    """States are 0..n-1; the arcs are sorted by state, then by input label."""

    start: int
    """The start state; -1 = there is no state."""
    first: Ints
    """``[states + 1]``: the index of the first arc of each state."""
    inputs: npt.NDArray[np.int32]
    """``[arcs]``"""
    outputs: npt.NDArray[np.int32]
    """``[arcs]``"""
    costs: Floats
    """``[arcs]``"""
    targets: npt.NDArray[np.int32]
    """``[arcs]``"""
    final: Floats
    """``[states]``: final costs; infinite = not final."""

    def arcs(self, state: int) -> list[TransducerArc]:
        """The arcs that leave a state."""
        own = slice(self.first[state], self.first[state + 1])
        inputs, outputs, costs, targets = self.inputs[own], self.outputs[own], self.costs[own], self.targets[own]
        return list(map(TransducerArc, inputs.tolist(), outputs.tolist(), costs.tolist(), targets.tolist()))

    def state_of(self, arc: int) -> int:
        """The state that an arc leaves."""
        return int(np.searchsorted(self.first, arc, side="right")) - 1


def read_transducer(path: str | Path) -> Transducer:
    """Read an OpenFst binary, plain or gzipped, with standard (tropical) or log arcs; an acceptor maps each string to
    itself.

    Raises LatticeError if the file is missing, damaged or not a transducer.
    """
    start, first, arcs, final, _ = read_openfst(path)
    states = np.repeat(np.arange(len(final)), np.diff(first))
    arcs = arcs[np.lexsort((arcs["target"], arcs["cost"], arcs["output"], arcs["label"], states))]
    costs, final = arcs["cost"].astype(np.float64), final.astype(np.float64)
    return Transducer(start, first, arcs["label"], arcs["output"], costs, arcs["target"], final)


def write_transducer(path: str | Path, arcs: Iterable[tuple[int, TransducerArc]], final: Mapping[int, float]) -> None:
    """Write arcs, each with its source state, and final costs; state 0 is the start. ``.gz`` files are gzipped.

    Raises SgdecError if the file cannot be written.
    """
    listed = list(arcs)
    last = max([0, *final, *(state for state, _ in listed), *(arc.target for _, arc in listed)])
    leaving: list[list[TransducerArc]] = [[] for _ in range(last + 1)]
    for state, arc in listed:
        leaving[state].append(arc)
    write_openfst(path, [(final.get(state, np.inf), own) for state, own in enumerate(leaving)])
