"""The checks that grade assignment ``lattice``.

Random lattices are written to files for the submission. The correct answers come from trying all paths of
`sgdec.testing.Lattice`, which neither reads files nor computes bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple, TypeAlias

import numpy as np
from grader import inbox
from grader.assignment import Assignment, Make
from sgdec_decoders.astar import AStarDecoder

from sgdec import EOS, Constellation, Predictor, Source
from sgdec.lifting import lift
from sgdec.protocol import BatchPredictor, State, ability
from sgdec.testing import Lattice, PredictorContract, Table, TinySpace, enumerate_space

V = 7
"""The number of tokens; those of the lattices are 3, 4, 5, 6."""
END = 10_000
"""The state that ``</s>`` leads to."""
ASSIGNMENT = Assignment("predictor", "mylattice")
Arcs: TypeAlias = Mapping[int, Mapping[int, tuple[float, int]]]
"""Arcs in the form that `sgdec.testing.Lattice` takes: scores, not costs."""


def random_arcs(rng: np.random.Generator, *, ends: bool = False, dead: bool = False) -> Arcs:
    """Six states, scores of both signs. ``</s>`` scores 0 unless ``ends`` is set. Every state leads to the last one,
    but with ``dead`` some arcs lead to dead ends."""
    last, nowhere = 5, 6
    arcs: dict[int, dict[int, tuple[float, int]]] = {}
    for state in range(last):
        tokens = rng.permutation(np.arange(3, V))[: rng.integers(1, 4)].tolist()
        lost = dead and rng.random() < 0.3
        targets = [nowhere if lost else int(rng.integers(state + 1, nowhere)) for _ in tokens]
        scores = rng.uniform(-1.5, 1.5, len(tokens)).tolist()
        arcs[state] = dict(zip(tokens, zip(scores, targets, strict=True), strict=True))
    if dead:
        arcs[nowhere] = {3: (0.5, nowhere + 1)}
    for state in range(1, nowhere):
        if state == last or (not dead and rng.random() < 0.25):
            arcs.setdefault(state, {})[EOS] = (float(rng.uniform(-1.5, 1.5)) if ends else 0.0, END)
    return arcs


def as_text(arcs: Arcs) -> str:
    """The lattice file."""
    lines = []
    for state, out in arcs.items():
        for token, (score, target) in out.items():
            lines.append(f"{state} {-score!r}" if token == EOS else f"{state} {target} {token} {-score!r}")
    return "\n".join(sorted(lines)) + "\n"


@contextmanager
def files(lattices: Sequence[Arcs]) -> Iterator[str]:
    """The lattices of sentences 1, 2, ... as files; the pattern of their paths."""
    with inbox.folder() as (folder, seen):
        for number, arcs in enumerate(lattices, start=1):
            (folder / f"{number}.txt").write_text(as_text(arcs))
        yield f"{seen}/{{id}}.txt"


class Visit(NamedTuple):
    """One prefix of a lattice."""

    prefix: tuple[int, ...]
    score: float
    """The score of the last token."""
    parent: int
    """The index of the prefix without the last token, in the list of visits."""
    remaining: tuple[float, ...]
    """The score that each path to the end adds; empty = there is no path."""

    @property
    def best(self) -> float:
        return max(self.remaining, default=-math.inf)

    @property
    def worst(self) -> float:
        return min(self.remaining, default=math.inf)


def visit(arcs: Arcs) -> list[Visit]:
    """Every prefix, shortest first, with all scores that can still be added to it, found by trying all paths."""
    paths = enumerate_space(Constellation.of({"lattice": Lattice(arcs)}), Source(1, ()))
    ways = [(path.tokens, [score for (score,) in path.ledger]) for path in paths]
    found, states = [Visit((), 0.0, 0, tuple(sum(scores) for _, scores in ways))], [0]
    for parent, (state, above) in enumerate(zip(states, found, strict=False)):  # both grow as we go
        for token, (score, target) in arcs.get(state, {}).items():
            if token != EOS:
                prefix = (*above.prefix, token)
                length = len(prefix)
                remaining = tuple(sum(scores[length:]) for tokens, scores in ways if tokens[:length] == prefix)
                found.append(Visit(prefix, score, parent, remaining))
                states.append(target)
    return found


def bounds(make: Make, arcs: Arcs, visits: Sequence[Visit], name: str = "best_remaining") -> list[float]:
    """The bounds of the submission after each prefix. One that hides every path is worth no point."""
    with files([arcs]) as path:
        predictor = lift(make(path=path))
        states: list[State] = predictor.initialize_batch([Source(1, (3,))])
        for each in visits[1:]:
            states += predictor.consume_batch([states[each.parent]], [each.prefix[-1]])
        found = ask(predictor, name, states)
    none = -math.inf if name == "best_remaining" else math.inf
    assert not visits[0].remaining or any(bound != none for bound in found), (
        f"{name} is always {none}, but a path leads to an end, {at(visits[0], arcs)}"
    )
    return found


def ask(predictor: BatchPredictor, name: str, states: Sequence[State]) -> list[float]:
    method = ability(predictor, name)
    assert method is not None, f"the predictor must have {name}"
    return [float(bound) for bound in method(states)]


def at(each: Visit, arcs: Arcs) -> str:
    lines = " | ".join(as_text(arcs).splitlines())
    return f"after {' '.join(map(str, each.prefix)) or '<s>'}, in the lattice {lines}"


@ASSIGNMENT.check("admissible: best_remaining is never below what can still be added", points=4)
def _(make: Make, rng: np.random.Generator) -> None:
    for arcs in [random_arcs(rng) for _ in range(25)]:
        visits = visit(arcs)
        for each, bound in zip(visits, bounds(make, arcs, visits), strict=True):
            assert bound >= each.best - 1e-9, (
                f"{bound:.4f} is not an upper bound: one way to the end adds {each.best:.4f}, {at(each, arcs)}"
            )


@ASSIGNMENT.check("consistent: total + best_remaining never rises from a prefix to the next", points=2)
def _(make: Make, rng: np.random.Generator) -> None:
    for arcs in [random_arcs(rng) for _ in range(25)]:
        visits = visit(arcs)
        found = bounds(make, arcs, visits)
        for each, bound in zip(visits[1:], found[1:], strict=True):
            before = found[each.parent]
            assert each.score + bound <= before + 1e-9, (
                f"the bound was {before:.4f}, but the last token scores {each.score:.4f} and then it is {bound:.4f}, "
                f"{at(each, arcs)}"
            )


@ASSIGNMENT.check("exact: best_remaining is no higher than it must be", points=2)
def _(make: Make, rng: np.random.Generator) -> None:
    for arcs in [random_arcs(rng) for _ in range(25)]:
        visits = visit(arcs)
        for each, bound in zip(visits, bounds(make, arcs, visits), strict=True):
            assert bound <= each.best + 1e-9, (
                f"{bound:.4f} is more than needed: the best way to the end adds {each.best:.4f}, {at(each, arcs)}"
            )


@ASSIGNMENT.check("if only the end is left, best_remaining is the score of </s>", points=2)
def _(make: Make, rng: np.random.Generator) -> None:
    for first, expected in rng.normal(size=(25, 2)).tolist():
        arcs = {0: {3: (first, 1)}, 1: {EOS: (expected, END)}}
        visits = visit(arcs)
        found = bounds(make, arcs, visits)[-1]
        assert math.isclose(found, expected, abs_tol=1e-9), (
            f"best_remaining is {found:.4f}, but </s> scores {expected:.4f}, {at(visits[-1], arcs)}"
        )


@ASSIGNMENT.check("if no path leads to an end, best_remaining is -inf", points=2)
def _(make: Make, rng: np.random.Generator) -> None:
    for arcs in [random_arcs(rng, dead=True) for _ in range(25)]:
        visits = visit(arcs)
        for each, bound in zip(visits, bounds(make, arcs, visits), strict=True):
            hopeless = not each.remaining
            assert not hopeless or bound == -math.inf, f"a dead end is worth -inf, not {bound:.4f}, {at(each, arcs)}"


@ASSIGNMENT.check("sentences in flight keep their own bounds", points=1)
def _(make: Make, rng: np.random.Generator) -> None:
    lattices = [random_arcs(rng) for _ in range(6)]
    with files(lattices) as path:
        predictor = lift(make(path=path))
        states = predictor.initialize_batch([Source(number, (3,)) for number in range(1, 7)])
        for turn in ([0, 1, 2, 3, 4, 5], [5, 2, 0, 4, 1, 3]):
            together = ask(predictor, "best_remaining", [states[i] for i in turn])
            for i, bound in zip(turn, together, strict=True):
                (alone,) = bounds(make, lattices[i], visit(lattices[i])[:1])
                assert math.isclose(alone, bound, abs_tol=1e-9), (
                    f"sentence {i + 1} has the bound {alone:.4f} alone, but {bound:.4f} after other sentences"
                )


@ASSIGNMENT.check("a lattice of 3,000 states and 2^3000 paths is no problem", points=1)
def _(make: Make, rng: np.random.Generator) -> None:
    scores = rng.uniform(-1.0, 1.0, (3000, 2)).tolist()
    arcs: dict[int, dict[int, tuple[float, int]]] = {3000: {EOS: (0.0, END)}}
    for state, (first, second) in enumerate(scores):
        arcs[state] = {3: (first, state + 1), 4: (second, state + 1)}
    with files([arcs]) as path:
        predictor = lift(make(path=path))
        (found,) = ask(predictor, "best_remaining", predictor.initialize_batch([Source(1, (3,))]))
    assert found > -math.inf, f"best_remaining must be a number, not {found}: there are paths"


def spaces(
    make: Make, rng: np.random.Generator, count: int, weights: Sequence[float], *, dead: bool = True
) -> Iterator[tuple[TinySpace, TinySpace, str]]:
    """The submission and the true lattice, alone and with a bigram table, with these weights."""
    for number in range(count):
        arcs = random_arcs(rng, ends=True, dead=dead and number % 3 == 0)
        table = Table(rng.normal(0.0, 0.5, (V, V)))
        with files([arcs]) as path:
            yield (
                space_of(lambda path=path: make(path=path), table, weights),  # type: ignore[misc]
                space_of(lambda arcs=arcs: Lattice(arcs), table, weights),  # type: ignore[misc]
                f"weights {', '.join(map(str, weights))}, {at(Visit((), 0.0, 0, ()), arcs)}",
            )


def space_of(lattice: Callable[[], Predictor], table: Table, weights: Sequence[float]) -> TinySpace:
    def constellation() -> Constellation:
        named = {"mylattice": lattice(), "table": table}
        return Constellation.of(dict(list(named.items())[: len(weights)]), weights=weights)

    return TinySpace("lattice", constellation, Source(1, (3, 4, 5), max_length=8))


def expect_optimum(mine: TinySpace, truth: TinySpace, about: str) -> None:
    """A* with the submission must find the hypotheses that enumeration of the true lattice finds."""
    for nbest in (1, 3):
        paths = enumerate_space(truth.constellation(), truth.source)[:nbest]
        found = AStarDecoder().decode(mine.open(nbest=nbest, most=5_000)).hypotheses
        expected = [round(path.total, 6) for path in paths]
        assert [round(hypothesis.score, 6) for hypothesis in found] == expected, (
            f"A* finds {[(h.tokens, round(h.score, 4)) for h in found]}, but the best are "
            f"{[(path.tokens, round(path.total, 4)) for path in paths]}; {about}"
        )


@ASSIGNMENT.check("A* finds the true n-best, alone and beside another predictor", points=2)
def _(make: Make, rng: np.random.Generator) -> None:
    for weights in ((1.0,), (0.5, 1.0)):
        for mine, truth, about in spaces(make, rng, 20, weights):
            expect_optimum(mine, truth, about)


@ASSIGNMENT.check("A* expands one prefix for each token of the best path, and no other", points=1)
def _(make: Make, rng: np.random.Generator) -> None:
    for mine, truth, about in spaces(make, rng, 20, (1.0,), dead=False):
        space = mine.open(most=5_000)
        assert AStarDecoder().decode(space).hypotheses, f"A* must find something, found nothing; {about}"
        needed = len(enumerate_space(truth.constellation(), truth.source)[0].tokens) + 1
        assert space.expansions <= needed, f"{space.expansions} prefixes were expanded, not {needed}; {about}"


@ASSIGNMENT.check("worst_remaining is the least that can still be added, exactly", points=1)
def _(make: Make, rng: np.random.Generator) -> None:
    for dead in (False, True):
        for arcs in [random_arcs(rng, ends=True, dead=dead) for _ in range(15)]:
            visits = visit(arcs)
            for each, bound in zip(visits, bounds(make, arcs, visits, "worst_remaining"), strict=True):
                same = bound == each.worst or math.isclose(bound, each.worst, abs_tol=1e-9)
                assert same, f"the least is {each.worst:.4f}, not {bound:.4f}, {at(each, arcs)}"


@ASSIGNMENT.check("A* finds the true n-best with a negative weight", points=1)
def _(make: Make, rng: np.random.Generator) -> None:
    for weights in ((-1.0,), (-2.0, 1.0)):
        for mine, truth, about in spaces(make, rng, 20, weights):
            expect_optimum(mine, truth, about)


class LatticeContract(PredictorContract):
    """sgdec's own contract, with the lattices of a folder."""

    vocab_size = V

    def __init__(self, make: Make, path: str) -> None:
        self._make, self._path = make, path

    def make(self) -> Predictor:
        predictor: Predictor = self._make(path=self._path)
        return predictor


@ASSIGNMENT.check("abilities change nothing", points=1)
def _(make: Make, rng: np.random.Generator) -> None:
    lattices = [random_arcs(rng, ends=True) for _ in LatticeContract.sources]
    bounds(make, lattices[0], visit(lattices[0]))
    with files(lattices) as path:
        LatticeContract(make, path).test_abilities_change_nothing()
