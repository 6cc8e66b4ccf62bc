"""Lattices: weighted acceptors over token ids, read from and written to OpenFst binary files.

Weights are costs, as in OpenFst: negated natural-log scores, lower is better, infinite = no path. Label 0 is epsilon,
1 ``<s>`` and 2 ``</s>``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sgdec.arrays import Floats, Ints
from sgdec.context import BOS, EOS, UNK
from sgdec.io.openfst import LatticeError, OpenFstAutomata, first_arc, read_together
from sgdec.io.openfst_writing import OpenFstState, write_openfst
from sgdec.io.symbols import misnumbered
from sgdec.protocol import Hypothesis


class Arc(NamedTuple):
    """One arc of an acceptor."""

    label: int
    cost: float
    target: int


@dataclass(frozen=True, eq=False)
class Lattice:
    """A weighted acceptor with states 0..n-1. The arcs are sorted by state, then by label."""

    start: int
    """The start state; -1 = the lattice has no state."""
    first: Ints
    """``[states + 1]``: the index of the first arc of each state."""
    labels: npt.NDArray[np.int32]
    """``[arcs]``"""
    costs: Floats
    """``[arcs]``"""
    targets: npt.NDArray[np.int32]
    """``[arcs]``: the target states."""
    final: Floats
    """``[states]``: final costs; infinite = not final."""

    @cached_property
    def arcs(self) -> tuple[tuple[Arc, ...], ...]:
        """The arcs that leave each state, as plain values."""
        listed = list(map(Arc, self.labels.tolist(), self.costs.tolist(), self.targets.tolist()))
        return tuple(tuple(listed[begin:end]) for begin, end in pairwise(self.first.tolist()))

    def state_of(self, arc: int) -> int:
        """The state that an arc leaves."""
        return int(np.searchsorted(self.first, arc, side="right")) - 1


class Lattices(NamedTuple):
    """F lattices as one, whose states are numbered through."""

    starts: list[int]
    """``[F]``: the start states; -1 = the lattice has no state."""
    states: Ints
    """``[F + 1]``: the first state of each lattice, then the number of all states."""
    all: Lattice
    """The states and arcs of all lattices; its start is that of the first one."""


def read_lattice(path: str | Path) -> Lattice:
    """Read an OpenFst binary, plain or gzipped, with standard (tropical) or log arcs.

    Raises LatticeError if the file is missing, damaged, not an OpenFst file, or a transducer, and if a symbol
    table has other words than ``<s>`` and ``</s>`` as 1 and 2.
    """
    found = read_lattices([path])
    assert found is not None
    return found.all


def read_lattices(paths: Sequence[str | Path]) -> Lattices | None:
    """Read several lattices in fewer steps than one by one; None if their files differ too much for that.

    Raises the same errors. With several files an error does not tell which one is wrong: then read each alone.
    """
    found = read_together(paths)
    if found is None:
        return None
    path = paths[0]
    _check_acceptor(path, found)
    for symbols in found.symbols:
        _check_symbols(path, symbols)
    starts, states, first, arcs, final, _ = found
    places = (np.arange(len(final)) << 32).repeat(first[1:] - first[:-1]) + arcs["label"]
    if not (places[1:] > places[:-1]).all():
        order = places.argsort(kind="stable")
        if (places[order[1:]] == places[order[:-1]]).any():
            order = np.lexsort((arcs["target"], arcs["cost"], places))
        arcs = arcs[order]
    costs, finals = arcs["cost"].astype(np.float64), final.astype(np.float64)
    return Lattices(starts, states, Lattice(starts[0], first, arcs["label"], costs, arcs["target"], finals))


def require_ends(lattice: Lattice, path: str | Path) -> None:
    """Raise LatticeError for an arc ``</s>`` after which paths have to continue.

    Such paths would be left out without any sign of it. Mostly the labels are those of another numbering.
    """
    first, labels = lattice.first, lattice.labels
    (ends,) = (labels == EOS).nonzero()
    targets = lattice.targets[ends]
    goes_on = (lattice.final[targets] == np.inf) & (first[targets] < first[targets + 1])
    if goes_on.any():
        # After an epsilon arc a path may end. Labels are sorted, so a state has one if its first label is 0.
        goes_on[goes_on] = labels[first[targets[goes_on]]] != 0
    if goes_on.any():
        arc = int(ends[goes_on.argmax()])
        raise LatticeError(
            path,
            f"continues after </s>: state {lattice.state_of(arc)} has an arc with label 2 to state "
            f"{lattice.targets[arc]}, which is not final",
            "If 2 is a word in it, number the words from 3: 0 is epsilon, 1 is <s>, 2 is </s>.",
        )


def write_nbest(path: str | Path, hypotheses: Sequence[Hypothesis]) -> int:
    """Write one sentence's hypotheses as a deterministic acceptor, gzipped if ``path`` ends in ``.gz``.

    The lattice is a prefix tree with ``<s>`` and ``</s>`` arcs. The cost of a path is minus the hypothesis' total, in
    single precision. Each arc has the negated weighted score of its token, and the ``</s>`` arc has the rest of the
    total. Among hypotheses with equal tokens only the best is written. Without hypotheses the lattice is empty.

    Returns the number of hypotheses that are left out because they contain token 0, which is epsilon in a lattice.
    Raises SgdecError if the file cannot be written.
    """
    listed = [hypothesis for hypothesis in hypotheses if UNK not in hypothesis.tokens]
    states: list[OpenFstState] = []
    if listed:
        tree, end = _prefix_tree(listed)
        for state, arcs in enumerate(tree):
            leaving = [(label, label, cost, target) for label, (cost, target) in sorted(arcs.items())]
            states.append((0.0 if state == end else np.inf, leaving))
    write_openfst(path, states, durable=False)
    return len(hypotheses) - len(listed)


def _prefix_tree(hypotheses: Sequence[Hypothesis]) -> tuple[list[dict[int, tuple[float, int]]], int]:
    """For each state its arcs, label -> (cost, target), with start state 0; and the state where all paths end."""
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
    """The combined score of each token, ``</s>`` last; empty if the ledger is not kept."""
    return [
        sum(weight * score for weight, score in zip(weights, scores, strict=True) if weight)
        for weights, scores in zip(hypothesis.weights, hypothesis.ledger, strict=True)
    ]


def _single(cost: float) -> float:
    """The cost rounded to single precision, as in a file, so that rounding errors do not add up along a path."""
    return float(np.float32(cost))


def _check_acceptor(path: str | Path, found: OpenFstAutomata) -> None:
    """Raises LatticeError for a transducer."""
    wrong = found.arcs["label"] != found.arcs["output"]
    if wrong.any():
        where, arc = first_arc(wrong, found)
        raise LatticeError(
            path,
            f"is a transducer: state {where} has an arc {arc['label']}:{arc['output']}",
            "Expected an acceptor; keep one side, for example with pynini.project(fst, 'output').",
        )


def _check_symbols(path: str | Path, symbols: Mapping[int, str]) -> None:
    """Raise LatticeError for a symbol table with another numbering."""
    departure = misnumbered(symbols)
    if departure:
        raise LatticeError(
            path,
            f"has a symbol table in which {departure}",
            "Compile it with a table that has <eps> 0, <s> 1, </s> 2 and the words from 3; if its labels follow such "
            "a table, remove this one with set_input_symbols(None).",
        )

