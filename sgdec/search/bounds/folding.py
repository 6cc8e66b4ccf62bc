"""Product bounds: what a restricting automaton and the other predictors can still add *together*.

The sum of the predictors' own bounds is loose, because the best path of a lattice is not the best path of a language
model. A product bound is the distance to the end of a restricting automaton, computed together with relaxations of
the others (`sgdec.search.bounds.distances`), plus the bounds of those that are not folded in. Each restricting
automaton gives one; with the plain sum (`sgdec.search.bounds.declared`), the lowest counts.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby, repeat
from typing import Any, Literal, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary, ref

import numpy as np

from sgdec.arcs import Automaton
from sgdec.errors import SgdecError, counted
from sgdec.protocol import FORBIDDEN, BatchPredictor, Source, State
from sgdec.relaxations import Relaxation
from sgdec.search.answers import require_automaton
from sgdec.search.blame import WrongAnswer, blamed
from sgdec.search.bounds.declared import Bounds, total_bound
from sgdec.search.bounds.distances import Distances, LocalDistances
from sgdec.search.bounds.relaxed import Relaxed, require_relaxation
from sgdec.search.bounds.relaxed_product import TooLarge
from sgdec.settings import BoundsKind

BoundsUsed: TypeAlias = Literal["product", "sum"]
MOST_ARCS: dict[BoundsKind, int] = {"auto": 1 << 20, "product": 1 << 22, "sum": 0}
"""A product of more arcs than this is not built; coarser relaxations are tried instead."""
WEIGHTINGS = 16
"""One automaton has distances for at most this many vectors of weights; for others, plain sums are used."""
KEPT = 64
"""The most tables of distances that one automaton keeps; relaxations can belong to single sentences."""

SMALL = 1 << 10
"""The distances of automata with at most this many arcs are computed together."""

Levels: TypeAlias = Sequence[Sequence[Relaxation]]
"""For each predictor that is folded in: its relaxations, ever coarser ones."""
Table: TypeAlias = Distances | LocalDistances
Columns: TypeAlias = Sequence[Sequence[State]]
"""``[K][R]``: the states of each predictor for R prefixes; only those of `Folding.reads` are read."""

UNKNOWN, DEAD_END = (
    Automaton(np.zeros(1, np.int64), np.zeros(0, np.int64), np.zeros(0), np.zeros(0, np.int64)) for _ in range(2)
)
"""In place of an automaton that is not known as a whole, and of one in which nothing can follow."""


@dataclass
class Products:
    """The products of a run: their distances, which are kept as long as the automata, and their cost."""

    tables: WeakKeyDictionary[Automaton, dict[Any, Table | None]] = field(default_factory=WeakKeyDictionary)
    """By `Folding`, predictor and relaxations; None = the product is too large."""
    begun: dict[int, Sequence[State]] = field(default_factory=dict)
    """The roots' states of the sentences that began together last and have not ended, by identity of the root."""
    weights: Sequence[float | None] = ()
    """``[K]``: those of the roots."""
    products: int = 0
    arcs: int = 0
    too_large: dict[tuple[str, ...], TooLargeOnes] = field(default_factory=dict)
    """By the names of their predictors."""
    seconds: float = 0.0

    def count(self, products: int, arcs: int, began: float) -> None:
        """Add the cost of products: their arcs, and the time since ``began``."""
        self.products += products
        self.arcs += arcs
        self.seconds += time.perf_counter() - began

    def line(self) -> str | None:
        """One line for the end of a run; None if there is nothing to say."""
        if not self.products and not self.too_large:
            return None
        built = f"bounds: {counted(self.products, 'product')} with {counted(self.arcs, 'arc')}, {self.seconds:.2f} s"
        return "; ".join([built, *(of_names.line(*names) for names, of_names in self.too_large.items())])


@dataclass
class TooLargeOnes:
    """The products of one automaton's predictor and others that were too large to build."""

    kind: BoundsKind
    number: int = 0
    unbounded: int = 0
    """The number of those without coarser relaxations."""
    largest: tuple[int, int, tuple[int, ...]] = 0, 0, ()
    """The states and arcs of the automaton and the sizes of the relaxations."""

    def add(self, automaton: Automaton, sizes: tuple[int, ...], coarsest: bool) -> None:
        self.number += 1
        self.unbounded += coarsest
        size = automaton.states, len(automaton.tokens), sizes
        self.largest = max(self.largest, size, key=lambda each: (each[1] * math.prod(each[2]), each))

    def line(self, automaton: str, *relaxed: str) -> str:
        """``automaton`` and ``relaxed`` are the names of the predictors."""
        states, arcs, sizes = self.largest
        parts = f"{counted(states, 'state')} and {counted(arcs, 'arc')} of {automaton!r}"
        for name, size in zip(relaxed, sizes, strict=True):
            parts += f", {counted(size, 'relaxed state')} of {name!r}"
        were = "was" if self.number == 1 else "were"
        more = "" if self.kind == "product" else f", --bounds product allows {MOST_ARCS['product']:,} arcs"
        return (
            f"{self.number:,} {were} too large (more than {MOST_ARCS[self.kind]:,} arcs, or too many sweeps; the "
            f"largest: {parts}), so coarser relaxations were tried, and {counted(self.unbounded, 'time')} plain sums "
            f"were left (--bounds sum builds none{more})"
        )


class Folder(NamedTuple):
    """A restricting automaton."""

    k: int
    weight: float
    name: str
    predictor: BatchPredictor
    whole: Callable[[State], tuple[Automaton, int] | None] | None
    subset: Callable[[State], tuple[Automaton, Sequence[tuple[int, float]]] | None] | None = None

    @classmethod
    def of(cls, k: int, weight: float, name: str, predictor: BatchPredictor) -> Folder | None:
        """A predictor as one, if it is an automaton that is known as a whole.

        The best of several paths bounds nothing if its weight is negative.
        """
        whole, subset = getattr(predictor, "whole", None), getattr(predictor, "subset", None)
        if whole is not None or (subset is not None and weight >= 0):
            return cls(k, weight, name, predictor, whole, subset)
        return None

    def places(self, states: Sequence[State]) -> list[tuple[Automaton, Any]]:
        """`find` for each of these states; exceptions name the predictor."""
        try:
            return list(map(self.find, states))
        except Exception as error:
            raise blamed(self.name, self.predictor, error) from error

    def find(self, state: State) -> tuple[Automaton, Any]:
        """The automaton of a predictor's state (or `UNKNOWN` or `DEAD_END`), and the state or the subset in it."""
        if self.whole is not None:
            if state < 0:
                return DEAD_END, -1
            found = self.whole(state)
            return (UNKNOWN, -1) if found is None else (found[0], state - found[1])
        assert self.subset is not None
        automaton, places = self.subset(state) or (UNKNOWN, ())
        if any(residual != residual for _, residual in places):
            raise WrongAnswer("subset returned a residual that is NaN; expected a number.")
        return automaton, places


class Folded(NamedTuple):
    """A predictor that is folded into the automata."""

    k: int
    weight: float
    name: str
    predictor: Any

    def levels(self, state: State) -> Sequence[Relaxation]:
        """The relaxations for the sentence of this state; exceptions name the predictor."""
        try:
            found: Sequence[Relaxation] = tuple(self.predictor.relaxations(state))
        except Exception as error:
            raise blamed(self.name, self.predictor, error) from error
        if not found:
            raise SgdecError(
                f"predictor {self.name!r}: relaxations returned nothing; expected at least one Relaxation."
            )
        return found


class Latest(NamedTuple):
    """The table that was asked last, so that the next prefix of its sentence need not look for it."""

    automaton: ref[Automaton]
    levels: Levels
    table: ref[Table]


class Folding:
    """The product bounds under given weights ``[K]``."""

    def __init__(
        self,
        names: Sequence[str],
        predictors: Sequence[BatchPredictor],
        weights: Sequence[float | None],
        bounds: Bounds,
        kind: BoundsKind,
        products: Products,
    ) -> None:
        self._products = products
        self._weights = tuple(weights)
        self._latest: dict[int, Latest] = {}
        """By number of the restricting predictor."""
        self._kind, self._most_arcs = kind, MOST_ARCS[kind]
        consulted = [(k, p, weight) for k, (p, weight) in enumerate(zip(predictors, weights, strict=True))
                     if weight is not None]  # fmt: skip
        folders = [Folder.of(k, weight, names[k], predictor) for k, predictor, weight in consulted]
        self._folders = [folder for folder in folders if folder is not None]
        folding = {folder.k for folder in self._folders}
        self._folded = [
            Folded(k, weight, names[k], predictor)
            for k, predictor, weight in consulted
            if weight and hasattr(predictor, "relaxations") and predictor.relaxations and k not in folding
        ]
        relaxed = {each.k for each in self._folded}
        self._per_token = bounds.per_token_of([k for k, _, _ in consulted if k not in relaxed])
        """The most that the predictors without bounds for each state and without relaxations add with one token."""
        self._own = {k: weight for k, weight, _ in bounds.own if k not in relaxed}
        """The weights of the predictors with bounds for each state that are not folded in."""
        something = bool(self._folders) and bool(self._folded or self._per_token)
        self.helps = kind != "sum" and something and bounds.undeclared <= relaxed
        """Whether there are product bounds that can be lower than the plain sum."""
        alone = len(self._folders) == 1 and relaxed.isdisjoint(k for k, _, _ in bounds.own)
        self._replaces = alone and bounds.per_token <= 0.0
        """Whether product bounds are never above the plain sum: nothing in them is looser than in the sum.

        If tokens can add something, the sum may know better how many can follow, by the length limit.
        """
        self.reads = {*relaxed, *(each.k for each in self._folders)} if self.helps else set()
        """The numbers of the predictors whose states decide the distances."""

    def bounds(
        self,
        states: Columns,
        tokens: Sequence[float],
        own: Callable[[int], Sequence[float]],
        sums: Callable[[], Sequence[float]],
        sources: Sequence[Source] | None = None,
    ) -> Sequence[float]:
        """The lowest bound of each of R unfinished prefixes, R > 0; of one sentence, or of these sentences ``[R]``.

        ``tokens [R]``: how many tokens can still follow, ``</s>`` included; math.inf = no limit. ``own`` returns a
        predictor's bounds for each state, and ``sums`` the plain sums; both are called only if they are needed.
        """
        lowest: Sequence[float] | None = None
        for folder in self._folders:
            distances = self._distances(folder, states, tokens, sources)
            rest = {k: weight for k, weight in self._own.items() if k != folder.k}
            if rest:
                added = map(partial(total_bound, rest.values()), zip(*map(own, rest), strict=True))
                distances = [
                    FORBIDDEN if FORBIDDEN in pair else sum(pair) for pair in zip(distances, added, strict=True)
                ]
            lowest = distances if lowest is None else list(map(min, lowest, distances))
        assert lowest is not None  # there is an automaton
        return lowest if self._replaces and math.inf not in lowest else list(map(min, lowest, sums()))

    def has_product(self, states: Columns) -> bool:
        """Whether distances have been computed for the sentence of these states, one for each predictor."""
        found = [folder.find(states[folder.k][0])[0] for folder in self._folders] if self.helps else []
        return any(
            table is not None and key[0] is self
            for automaton in found
            for key, table in self._products.tables.get(automaton, {}).items()
        )

    def _distances(
        self, folder: Folder, states: Columns, tokens: Sequence[float], sources: Sequence[Source] | None
    ) -> Sequence[float]:
        """The distance from each of R prefixes to the end of this automaton; +inf if the product is too large."""
        places = folder.places(states[folder.k])
        automaton = places[0][0]
        same = all(each is automaton for each, _ in places)
        if same and (sources is None or all(source is sources[0] for source in sources)):
            return self._distances_in(automaton, folder, [at for _, at in places], states, tokens)
        found = [0.0] * len(places)
        rows = groupby(
            range(len(places)), lambda row: (id(places[row][0]), None if sources is None else id(sources[row]))
        )
        for _, group in rows:
            chosen = list(group)
            automaton, at = places[chosen[0]][0], [places[row][1] for row in chosen]
            columns = [[column[row] for row in chosen] if column else () for column in states]
            own = self._distances_in(automaton, folder, at, columns, [tokens[row] for row in chosen])
            for row, distance in zip(chosen, own, strict=True):
                found[row] = distance
        return found

    def _distances_in(
        self, automaton: Automaton, folder: Folder, at: Sequence[Any], states: Columns, tokens: Sequence[float]
    ) -> Sequence[float]:
        """The distances of one sentence's prefixes, with the finest relaxations whose product is not too large."""
        if automaton is DEAD_END or automaton is UNKNOWN:
            return [FORBIDDEN if automaton is DEAD_END else math.inf] * len(at)
        levels = [each.levels(states[each.k][0]) for each in self._folded]
        if (latest := self._latest.get(folder.k)) and latest.automaton() is automaton and latest.levels == levels:
            table = latest.table()
            if table is not None:
                with suppress(TooLarge):
                    return self._ask(table, folder, at, states, tokens)
        for coarseness in range(max(map(len, levels), default=1)):
            table = self._table(automaton, folder, levels, coarseness)
            if table is not None:
                began, arcs = time.perf_counter(), table.arcs
                try:
                    found = self._ask(table, folder, at, states, tokens)
                    self._latest[folder.k] = Latest(ref(automaton), levels, ref(table))
                    return found
                except TooLarge:
                    key = self._key(folder, levels, coarseness)
                    self._products.tables[automaton][key] = None
                    names = folder.name, *(each.name for each in self._folded)
                    too_large = self._products.too_large.setdefault(names, TooLargeOnes(self._kind))
                    sizes = tuple(each.size for each in key[2:])
                    too_large.add(automaton, sizes, coarseness == max(map(len, levels), default=1) - 1)
                finally:
                    if table.arcs != arcs:
                        self._products.count(not arcs, table.arcs - arcs, began)
        return [math.inf] * len(at)

    def _ask(
        self, table: Table, folder: Folder, at: Sequence[Any], states: Columns, tokens: Sequence[float]
    ) -> Sequence[float]:
        """The distances of one sentence's prefixes in a table. Raises TooLarge."""
        relaxed = [one.of(states[each.k]) for each, one in zip(self._folded, table.relaxed, strict=True)]
        distance = table.of_subset if isinstance(table, Distances) and folder.whole is None else table.of
        return list(map(distance, at, zip(*relaxed, strict=True) if relaxed else repeat(()), tokens))

    def _key(self, folder: Folder, levels: Levels, coarseness: int) -> tuple[Any, ...]:
        return self, folder.k, *(of_one[min(coarseness, len(of_one) - 1)] for of_one in levels)

    def _table(
        self, automaton: Automaton, folder: Folder, levels: Levels, coarseness: int
    ) -> Table | None:
        """The distances with these relaxations; None if their product is too large, or weights vary too much."""
        key = self._key(folder, levels, coarseness)
        try:
            tables = self._products.tables.setdefault(automaton, {})
            is_new = key not in tables
        except TypeError:  # something else, which cannot be a key
            self._require_right(automaton, folder, key[2:])
            raise
        if is_new:
            known = {folding for folding, *_ in tables}
            if self not in known and len(known) >= WEIGHTINGS:
                return None
            if len(tables) >= KEPT:
                del tables[next(iter(tables))]  # the oldest
            self._require_right(automaton, folder, key[2:])
            if folder.whole is None or not self._add_together(automaton, folder, key, coarseness):
                tables[key] = self._new([automaton], folder, key[2:])
        return tables[key]

    def _add_together(self, automaton: Automaton, folder: Folder, key: tuple[Any, ...], coarseness: int) -> bool:
        """Compute the distances of this and others that have begun together, if they are small and need no more."""
        if len(automaton.tokens) > SMALL or self._weights != self._products.weights:
            return False  # other sentences may never use these weights, and keep few tables
        group: dict[Automaton, tuple[int, Sequence[State]]] = {}
        """The small automata, each with the place of the root in it, and the root's states."""
        began = time.perf_counter()
        try:
            for states in self._products.begun.values():
                other, at = folder.find(states[folder.k])
                levels = [each.levels(states[each.k]) for each in self._folded]
                if len(other.tokens) <= SMALL and at >= 0 and self._key(folder, levels, coarseness) == key:
                    require_automaton(folder.name, other)
                    group[other] = at, states
            if automaton not in group or len(group) == 1:
                return False
            distances = self._new(list(group), folder, key[2:])
            roots = [
                (at, [one.of([states[each.k]])[0] for each, one in zip(self._folded, distances.relaxed, strict=True)])
                for at, states in group.values()
            ]
            distances.settle(roots)
        except Exception:  # each alone knows its error, and how far its product is too large
            return False
        for i, each in enumerate(group):
            self._products.tables.setdefault(each, {})[key] = distances.part(i)
        self._products.count(len(group), distances.arcs, began)
        return True

    def _new(self, automata: Sequence[Automaton], folder: Folder, chosen: Sequence[Relaxation]) -> Distances:
        relaxed = [
            Relaxed(each.weight, of_one, each.name, each.predictor)
            for each, of_one in zip(self._folded, chosen, strict=True)
        ]
        return Distances(automata, folder.weight, relaxed, self._per_token, self._most_arcs, folder.name)

    def _require_right(self, automaton: Automaton, folder: Folder, chosen: Sequence[Relaxation]) -> None:
        """Raise SgdecError unless these are an automaton and relaxations."""
        require_automaton(folder.name, automaton)
        for each, of_one in zip(self._folded, chosen, strict=True):
            require_relaxation(each.name, of_one)
