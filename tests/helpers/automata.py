"""Small automata as plain values, every path of them listed, and constellations around what reads them.

The oracle for predictors that walk automata: recursion over arcs, and nothing of the code under test.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sgdec import BOS, EOS, BatchPredictor, Predictor
from sgdec.protocol import Source
from sgdec.search.constellation import Constellation
from sgdec.search.node import Node
from sgdec.search.space import SearchSpace
from tests.helpers.lattice_files import automaton_bytes
from tests.helpers.optional import optional

V = 7
"""Tokens of the constellations below; labels of automata are 3 to 6, beside epsilon and ``</s>``."""
WEIGHTS = (1.0, 0.5, 2.0, -1.0, -0.3, 0.0)

Totals = dict[tuple[int, ...], float]


class Automaton(NamedTuple):
    """State 0 starts."""

    arcs: list[tuple[int, int, int, float]]
    """Origin, target, label, cost."""
    final: dict[int, float]
    """Costs."""

    @classmethod
    def parsed(cls, text: str) -> Automaton:
        """From AT&T text: ``origin target label cost`` or ``final cost`` a line."""
        rows = [line.split() for line in text.splitlines()]
        arcs = [(int(row[0]), int(row[1]), int(row[2]), float((*row, 0)[3])) for row in rows if len(row) > 2]
        return cls(arcs, {int(row[0]): float((*row, 0)[1]) for row in rows if len(row) < 3})

    def compile(self, arc_type: str = "standard") -> Any:
        """By OpenFst, for oracles; its states are numbered otherwise."""
        lines = [f"{origin} {target} {label} {cost:.9g}" for origin, target, label, cost in sorted(self.arcs)]
        lines += [f"{state} {cost:.9g}" for state, cost in self.final.items()]
        return compiled("\n".join(lines) + "\n", arc_type)

    def write(self, path: Path, arc_type: str = "standard") -> Path:
        if arc_type == "log64":
            self.compile(arc_type).write(str(path))
        else:
            arcs = [(origin, label, cost, target) for origin, target, label, cost in sorted(self.arcs)]
            path.write_bytes(automaton_bytes(arcs, self.final, arc_type))
        return path

    def paths(self) -> Iterator[tuple[tuple[int, ...], float]]:
        """Labels without epsilon, and cost, of each path; for acyclic ones only."""
        yield from self._paths_from(0, (), 0.0)

    def _paths_from(
        self, state: int, labels: tuple[int, ...], cost: float
    ) -> Iterator[tuple[tuple[int, ...], float]]:
        if state in self.final:
            yield labels, cost + self.final[state]
        for origin, target, label, more in self.arcs:
            if origin == state:
                yield from self._paths_from(target, (*labels, label) if label else labels, cost + more)


def compiled(text: str, arc_type: str = "standard") -> Any:
    """An acceptor from AT&T text: ``source target label cost`` or ``final cost`` a line."""
    compiler = optional("pywrapfst").Compiler(arc_type=arc_type, acceptor=True)
    compiler.write(text)
    return optional("pynini").Fst.from_pywrapfst(compiler.compile())


def random_automaton(rng: np.random.Generator, *, states: int = 6, coarse: bool = False) -> Automaton:
    """Acyclic, with epsilons, many arcs of one label, costs of both signs, dead ends; one path at least.

    Some begin with ``<s>``; they end in ``</s>`` arcs, in final states, or in both.
    """

    def cost() -> float:
        value = rng.uniform(-2.0, 3.0)
        return float(np.floor(2 * value) / 2 if coarse else np.float32(value))

    begin = int(rng.random() < 0.5)
    end = begin + states
    arcs = [(0, 1, BOS, cost())] * begin
    for origin in range(begin, end):
        for _ in range(rng.integers(1, 4)):
            target = int(rng.integers(origin + 1, end + 1))
            label = int(rng.choice([0, 3, 4, 5, 6])) if target < end else EOS
            arcs.append((origin, target, label, cost()))
    final = {state: cost() for state in range(begin, end) if rng.random() < 0.3}
    return Automaton([*arcs, (end - 1, end, EOS, cost())], final | {end: cost()})


def log_sum(scores: Sequence[float]) -> float:
    highest = max(scores, default=-math.inf)
    if highest == -math.inf:
        return highest
    return highest + math.log(math.fsum(math.exp(score - highest) for score in scores))


def best(scores: Sequence[float]) -> float:
    return max(scores, default=-math.inf)


SEMIRINGS: Mapping[str, Callable[[Sequence[float]], float]] = {"tropical": best, "log": log_sum}


def totals_of_paths(automaton: Automaton, semiring: str = "tropical") -> Totals:
    """By tokens, without ``<s>`` and ``</s>``: all paths together; nothing may come after ``</s>``."""
    scores: dict[tuple[int, ...], list[float]] = {}
    for labels, cost in automaton.paths():
        tokens = labels[1:] if labels[:1] == (BOS,) else labels
        tokens = tokens[:-1] if tokens[-1:] == (EOS,) else tokens
        if EOS not in tokens:
            scores.setdefault(tokens, []).append(-cost)
    return {tokens: SEMIRINGS[semiring](found) for tokens, found in scores.items()}


def space_of(
    predictor: Predictor | BatchPredictor, weight: float = 1.0, sentence: int = 1, nbest: int = 1
) -> SearchSpace:
    constellation = Constellation.of({"it": predictor}, weights=[weight])
    (root,) = constellation.roots([Source(sentence, (3, 4))])
    return SearchSpace(constellation, root, nbest=nbest)


def nodes_of(space: SearchSpace) -> list[Node]:
    """Every node of an acyclic space, shortest first."""
    found = [space.root]
    for node in found:
        if not node.finished:
            (children,) = space.expand([node])
            found.extend(children)
    return found


def totals_of(space: SearchSpace) -> Totals:
    return {node.tokens[:-1]: node.total for node in nodes_of(space) if node.finished}


def check_bounds(space: SearchSpace, nodes: Sequence[Node], *, exact: bool) -> None:
    """At each node against the best of all that follow it."""
    highest: dict[tuple[int, ...], float] = {}
    for node in nodes:
        if node.finished:
            for length in range(node.length):
                prefix = node.tokens[:length]
                highest[prefix] = max(node.total, highest.get(prefix, -math.inf))
    for node in nodes:
        if not node.finished:
            expected = highest.get(node.tokens, -math.inf) - node.total
            (bound,) = space.bound([node])
            assert bound >= expected - 1e-9
            if exact:
                assert bound == expected or abs(bound - expected) < 1e-9, (node.tokens, bound, expected)
