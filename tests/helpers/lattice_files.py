"""Automata as OpenFst files, written without pynini. State 0 starts."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from pathlib import Path

from sgdec.io.openfst_writing import OpenFstState, openfst_bytes

Arc = tuple[int, int | tuple[int, int], float, int]
"""Origin; label, or what a transducer reads and what it writes; cost; target."""


def automaton_bytes(arcs: Iterable[Arc], final: Mapping[int, float], arc_type: str = "standard") -> bytes:
    """``final``: the costs of final states. ``arc_type``: standard or log, which differ in this name alone."""
    leaving: dict[int, list[tuple[int, int, float, int]]] = {}
    for origin, label, cost, target in arcs:
        reads, writes = label if isinstance(label, tuple) else (label, label)
        leaving.setdefault(origin, []).append((reads, writes, cost, target))
    named = {*final, *leaving, *(arc[-1] for own in leaving.values() for arc in own)}
    states: list[OpenFstState] = [
        (final.get(state, inf), leaving.get(state, [])) for state in range(max(named, default=-1) + 1)
    ]
    standard, wanted = (struct.pack("<i", len(name)) + name.encode() for name in ("standard", arc_type))
    return openfst_bytes(states).replace(standard, wanted, 1)


def write_automaton(path: str | Path, arcs: Iterable[Arc], final: Mapping[int, float]) -> None:
    Path(path).write_bytes(automaton_bytes(arcs, final))


def write_paths(path: str | Path, paths: Iterable[tuple[Sequence[int], float]]) -> None:
    """A deterministic acceptor of these sequences of labels, each with its cost, which is that of its end."""
    Path(path).write_bytes(paths_bytes(paths))


def paths_bytes(paths: Iterable[tuple[Sequence[int], float]]) -> bytes:
    numbers: dict[tuple[int, ...], int] = {(): 0}
    final: dict[int, float] = {}
    for labels, cost in paths:
        for length in range(1, len(labels) + 1):
            numbers.setdefault(tuple(labels[:length]), len(numbers))
        end = numbers[tuple(labels)]
        final[end] = min(cost, final.get(end, inf))
    arcs = [(numbers[prefix[:-1]], prefix[-1], 0.0, state) for prefix, state in numbers.items() if prefix]
    return automaton_bytes(arcs, final)
