"""A constellation: predictors with names and weights, and the batched operations on nodes of any sentences.

A constellation holds no data of a single sentence: the nodes carry it. So one call can serve many independent
searches.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import cache, lru_cache, partial
from itertools import repeat
from typing import Any
from weakref import ref

from sgdec.arrays import Floats
from sgdec.chain import Chain
from sgdec.errors import UsageError
from sgdec.lifting import lift
from sgdec.protocol import BatchPredictor, Candidates, Predictor, Source, State, ability
from sgdec.ranking import Coverage, Ranking, add_attention
from sgdec.scores import SparseScores
from sgdec.search.answers import attention_rows, bounds_given, require_hashable
from sgdec.search.automata import JointAutomaton
from sgdec.search.banks import advancing_of, progress_of, require_progress, with_progress
from sgdec.search.bounds.declared import Bounds, bound_of
from sgdec.search.bounds.folding import BoundsUsed, Folding, Products
from sgdec.search.combination.choosing import Choice
from sgdec.search.combination.columns import Column, Restrictions
from sgdec.search.combination.renormalizing import Renormalized, renormalized
from sgdec.search.combining import Combined, ScoredRows
from sgdec.search.completing import Constraint, allowed_output, is_constraint
from sgdec.search.distinct import until_distinct
from sgdec.search.member import Member
from sgdec.search.node import Node
from sgdec.search.product import Product
from sgdec.search.requests import Offer, Question, Request
from sgdec.search.sampling import Distribution, Draw, Drawn
from sgdec.search.tracing.observing import Observer
from sgdec.settings import BoundsKind

KEPT = 64
"""The number of weight vectors whose `Bounds` are cached."""


class Constellation:
    """Predictors with names and weights, and the batched operations on nodes of any sentences."""

    def __init__(
        self, members: Sequence[Member], *, vocab_size: int | None = None, bounds: BoundsKind = "auto"
    ) -> None:
        """``vocab_size``: V, the number of target tokens; None = take it from the width of the predictors' rows.

        ``bounds``: plain sums, or products too (`sgdec.search.bounds.folding`).
        """
        self.members = tuple(members)
        self.bounds_kind: BoundsKind = bounds
        self._products = Products()
        self.vocab_size = vocab_size
        self.names = tuple(member.name for member in members)
        self.predictors = tuple(member.predictor for member in members)
        self.weights = tuple(member.weight for member in members)
        order = sorted(range(len(self.members)), key=lambda k: self.predictors[k].on_demand)
        self.renormalized = [k for k, predictor in enumerate(self.predictors) if isinstance(predictor, Renormalized)]
        """The numbers of the predictors whose scores are renormalised (`sgdec.search.combination.renormalizing`)."""
        self._last = [k for k in order if self.renormalized and self.members[k].given]
        self._first = [k for k in order if not self.predictors[k].on_demand and k not in self._last]
        self._on_demand = [k for k in order if self.predictors[k].on_demand]
        self._attentive = [k for k in order if ability(self.predictors[k], "attention") is not None]
        self.bounds_under = lru_cache(KEPT)(self._bounds_under)
        """The `Bounds` that predictors declare under given weights ``[K]``; cached."""
        self.folding_under = lru_cache(KEPT)(self._folding_under)
        """The product bounds under given weights ``[K]``; cached."""
        self._combined: Callable[[], Combined | None] = lambda: None
        self._methods: Mapping[Question, Callable[..., Sequence[Any]]] = {
            "children": self._children, "draw": self._draw, "distributions": self._distributions,
            "bounds": self.bounds, "keys": self.keys, "progress": self.progress,
        }  # fmt: skip
        self.observer = Observer()
        """Records the expansions of the sentences that are traced."""
        self.answered: Callable[[Sequence[Column]], object] = lambda columns: None
        """Called with the predictors' answers about the nodes of each expansion, unless automata alone answer."""
        self.automaton = self._joint_automaton()
        """The intersection of all predictors if each is an automaton; for nodes with the constellation's weights."""
        self.product = self._product()
        """The same as operations on arrays, for many prefixes at once."""

    @classmethod
    def of(
        cls,
        predictors: Mapping[str, Predictor | BatchPredictor],
        *,
        weights: Sequence[float | None] | None = None,
        vocab_size: int | None = None,
        bounds: BoundsKind = "auto",
    ) -> Constellation:
        """A constellation of predictors of either form, given by name; weights are 1.0 by default."""
        given = weights if weights is not None else [1.0] * len(predictors)
        members = [
            Member(name, lift(predictor), weight)
            for (name, predictor), weight in zip(predictors.items(), given, strict=True)
        ]
        return cls(members, vocab_size=vocab_size, bounds=bounds)

    def attentive(self, weights: Sequence[float | None]) -> list[int]:
        """The numbers of the predictors that have attention and are consulted under these weights."""
        return [k for k in self._attentive if weights[k] is not None]

    def require_attention(self, ranking: Ranking) -> None:
        """Raise UsageError if ``ranking`` needs attention and no consulted predictor has it."""
        if ranking.uses_coverage and not self.attentive(self.weights):
            raise self._no_attention(self.weights, f"beta = {ranking.beta:g}")

    def roots(
        self, sources: Sequence[Source], weights: Sequence[Sequence[float | None]] | None = None
    ) -> list[Node]:
        """The root node of each sentence. Each predictor initialises all sentences in one call.

        ``weights``: for each sentence those of the first predictors; None = the constellation's.
        If a predictor refuses a sentence, the states that others have made are released.
        """
        columns: list[list[State]] = []
        try:
            for member in self.members:
                columns.append(member.initialize(sources))
        except BaseException:
            for member, states in zip(self.members, columns, strict=False):
                if member.releases:
                    member.release(states)
            raise
        rows = list(zip(*columns, strict=True))
        chosen = repeat(self.weights) if weights is None else [(*own, *self.weights[len(own) :]) for own in weights]
        roots = list(map(Node.root, sources, chosen, rows))
        self._products.begun, self._products.weights = dict(zip(map(id, roots), rows, strict=True)), self.weights
        return roots

    def release(self, roots: Sequence[Node]) -> None:
        """Free what predictors keep for these sentences. Their searches have ended."""
        for root in roots:
            self._products.begun.pop(id(root), None)
        for k, member in enumerate(self.members):
            if member.releases:
                member.release(self.states(k, roots))

    # The questions of searches. Only this class decides how each is answered.

    def perform(self, request: Request) -> Sequence[Any]:
        """The answers to a request, one per node."""
        nodes, each, shared = request.nodes, request.each, request.shared
        if request.question == "best":
            return self._best(nodes, request.beam_of or [0] * len(nodes), *shared)
        method: Callable[..., Sequence[Any]] = self._methods[request.question]
        return method(nodes, *each, *shared)

    def _children(
        self,
        nodes: Sequence[Node],
        limits: Sequence[int | None],
        above: Sequence[float],
        coverage: bool,
        bounded: bool,
    ) -> list[Iterator[Node]]:
        """For each node its children, as `ScoredRows.children` describes.

        ``coverage``: children carry their coverage. ``bounded``: children carry their bounds if predictors know these
        without another call. Raises what `combine` and `coverage` raise.
        """
        automaton = None if coverage else self._automaton_of(nodes)
        if automaton is not None:
            return automaton.children(nodes, limits, above, bounded)
        return self._scored(nodes, coverage).children(limits, above)

    def _best(
        self,
        nodes: Sequence[Node],
        beam_of: Sequence[int],
        choice: Choice,
        coverage: bool,
        distinct: Ranking | None,
        banks: bool,
    ) -> list[list[Node]] | list[Offer]:
        """For each node the children that it offers for the next beam, best first; an `Offer` with ``banks``.

        ``beam_of``: the beam of each node, ascending. ``distinct``: enough children that ``choice.size`` open ones of
        each beam have different `keys` under this ranking, or all that are offered. Raises the same errors.
        """
        automaton = None if coverage or banks else self._automaton_of(nodes)
        if automaton is not None:
            best = partial(automaton.best, nodes, beam_of)
        else:
            rows = self._scored(nodes, coverage)
            best = partial(rows.best, beam_of)
        if distinct is None:
            families = best(choice)
        else:
            families = until_distinct(beam_of, choice, best, partial(self.keys, ranking=distinct))
        return list(map(Offer, families, rows.besides(families, self.advancing(nodes)))) if banks else families

    def _draw(self, nodes: Sequence[Node], draws: Sequence[Draw], coverage: bool) -> list[Drawn | None]:
        """One child of each node, as `ScoredRows.draw` describes. Raises the same errors."""
        return self._scored(nodes, coverage).draw(draws)

    def _distributions(
        self, nodes: Sequence[Node], states: Sequence[float | None], chain: Chain, coverage: bool
    ) -> list[Distribution]:
        """For each node its local distribution. Raises the same errors."""
        return self._scored(nodes, coverage).distributions(chain, states)

    def _scored(self, nodes: Sequence[Node], coverage: bool) -> ScoredRows:
        """The children of these nodes from scores; recorded as an expansion if they are traced."""
        combined = self.observed(nodes)
        covered = self.coverage(nodes) if coverage else [()] * len(nodes)
        return ScoredRows(nodes, combined, covered, self.names, self.combine)

    def child(self, node: Node, token: int, *, coverage: bool = False) -> Node | None:
        """The child with this token; None if it cannot follow. Raises the same errors."""
        (found,) = self._scored([node], coverage).with_tokens([[token]])
        return found[0] if found else None

    def allowed_output(self, root: Node) -> list[int] | None:
        """The tokens of an output of this sentence that all constraints allow, with ``</s>``, whatever it scores."""
        places = [k for k, weight in enumerate(root.weights) if weight is not None]
        columns = [Constraint(self.members[k], self.states(k, [root])[0]) for k in places]
        constraints = [each for each in columns if is_constraint(*each)]
        if not constraints:
            return None
        width = self.vocab_size or self.combine([root]).width
        return allowed_output(constraints, width, root.source.max_length)

    def progress(self, nodes: Sequence[Node]) -> list[tuple[int, int]]:
        """For each unfinished node how much of all constraints is met, and how much there is to meet."""
        found = [(0, 0)] * len(nodes)
        for weights, places in _by_weights(nodes).items():
            chosen = [nodes[i] for i in places]
            counted = with_progress(self.members, weights)
            met = progress_of(self.members, counted, partial(self.states, nodes=chosen), len(chosen))
            for i, each in zip(places, met, strict=True):
                found[i] = each
        return found

    def advancing(self, nodes: Sequence[Node]) -> list[list[int]]:
        """For each unfinished node the tokens that meet more of a constraint."""
        found: list[list[int]] = [[] for _ in nodes]
        for weights, places in _by_weights(nodes).items():
            chosen = [nodes[i] for i in places]
            counted = with_progress(self.members, weights)
            tokens = advancing_of(self.members, counted, partial(self.states, nodes=chosen), len(chosen))
            for i, each in zip(places, tokens, strict=True):
                found[i] = each
        return found

    def require_progress(self, weights: Sequence[float | None]) -> None:
        """Raise UsageError unless a predictor that is consulted under these weights counts progress."""
        require_progress(self.members, weights)

    def gains_nothing_from_batches(self, nodes: Sequence[Node]) -> bool:
        """Whether children, bounds and keys (without coverage) are computed node by node even in a batch."""
        return self._automaton_of(nodes) is not None

    def observed(self, nodes: Sequence[Node]) -> Combined:
        """`combine` for a search that expands these nodes: recorded if they are traced."""
        began = time.perf_counter()
        combined = self.combine(nodes)
        if self.observer.follows(nodes):
            self.observer.see(nodes, combined, time.perf_counter() - began, self._answers_of)
        self.answered(combined.columns)
        return combined

    def combine(self, nodes: Sequence[Node]) -> Combined:
        """Ask every predictor for the scores of the token after each node, and combine the answers.

        The result of the previous call is freed (`Combined.forget`), because open iterators would keep it in memory.
        Raises what `Combined` raises, and what predictors raise, with their names.
        """
        if (before := self._combined()) is not None:
            before.forget()
        columns: dict[int, Column] = {}
        restrictions = Restrictions(len(nodes))
        families = [node.family for node in nodes]
        ending = [family.length == family.source.max_length for family in families]
        if not self.renormalized and True in ending:
            restrictions.end(ending)
        for k in self._first:
            columns[k] = self._ask(k, nodes, None)
            restrictions.add(columns[k])
        candidates = restrictions.candidates()
        restricts = False
        for k in self._on_demand:
            columns[k] = self._ask(k, nodes, candidates)
            restricts |= restrictions.add(columns[k])
        if restricts:
            candidates = restrictions.candidates()
        if self.renormalized:
            columns = renormalized(columns, self.renormalized, candidates, self.vocab_size)
            restrictions.end(ending)
            for k in self._last:
                columns[k] = self._ask(k, nodes, None)
                restrictions.add(columns[k])
            candidates = restrictions.candidates()
        in_order = list(map(columns.__getitem__, range(len(self.members))))
        combined = Combined(in_order, candidates, self.vocab_size)
        self._combined = ref(combined)
        return combined

    def coverage(self, nodes: Sequence[Node]) -> list[Coverage]:
        """For each node the coverage of its children, from the predictors that the node consults.

        Raises UsageError if a node consults no predictor with attention. Its coverage is then undefined, and a
        penalty of 0 would prefer it to all other nodes.
        """
        attention: list[list[Floats | None]] = [[None] * len(self._attentive) for _ in nodes]
        for weights in dict.fromkeys(node.weights for node in nodes):
            if not self.attentive(weights):
                raise self._no_attention(weights, "beta > 0")
        for place, k in enumerate(self._attentive):
            chosen = [i for i, node in enumerate(nodes) if node.weights[k] is not None]
            if chosen:
                found = self.members[k].ask("attention", self.states(k, [nodes[i] for i in chosen]))
                for i, row in zip(chosen, attention_rows(self.names[k], found), strict=True):
                    attention[i][place] = row
        return [add_attention(node.coverage, rows) for node, rows in zip(nodes, attention, strict=True)]

    def states(self, k: int, nodes: Sequence[Node]) -> list[State]:
        """Predictor k's states for these nodes; it first consumes the tokens that it has not consumed yet."""
        return self.members[k].states(k, nodes)

    def bounds(self, nodes: Sequence[Node]) -> list[float]:
        """For each node an upper bound on what its continuations can still add; 0 for finished nodes.

        Raises UsageError if a predictor does not declare the bound that its weight needs.
        """
        best = [0.0] * len(nodes)
        for weights, chosen in _by_weights(nodes).items():
            bounds = self.bounds_under(weights)
            if not self.folding_under(weights).helps:
                bounds.require_declared()
            for i, bound in zip(chosen, self._bounds(weights, [nodes[i] for i in chosen]), strict=True):
                best[i] = bound
        return best

    def _bounds(self, weights: tuple[float | None, ...], nodes: Sequence[Node]) -> Sequence[float]:
        """The bounds of unfinished nodes with these weights."""
        bounds, folding = self.bounds_under(weights), self.folding_under(weights)
        declared = {k: weight for k, weight, _ in bounds.own}

        @cache
        def own(k: int) -> Sequence[float]:
            return self._own_bounds(k, declared[k], nodes)

        def sums() -> list[float]:
            columns = list(map(own, declared))
            rows = zip(*columns, strict=True) if columns else repeat(())
            return [bounds.together(node, remaining) for node, remaining in zip(nodes, rows, strict=False)]

        if not folding.helps:
            return sums()
        states = [self.states(k, nodes) if k in folding.reads else () for k in range(len(weights))]
        sources = [node.source for node in nodes]
        return folding.bounds(states, [_tokens_left(node) for node in nodes], own, sums, sources)

    def _own_bounds(self, k: int, weight: float, nodes: Sequence[Node]) -> Sequence[float]:
        """The bounds of these nodes by predictor k, which declares one for each state."""
        ability = bound_of(weight)
        return bounds_given(self.names[k], ability, self.members[k].ask(ability, self.states(k, nodes)))

    def bounds_used(self, root: Node) -> BoundsUsed:
        """Whether product bounds have been computed for the sentence of this root, under its weights."""
        folding = self.folding_under(root.weights)
        states = [self.states(k, [root]) if k in folding.reads else () for k in range(len(self.members))]
        return "product" if folding.has_product(states) else "sum"

    def summary(self) -> str | None:
        """The cost of product bounds, in one line; None if none were computed."""
        return self._products.line()

    def require_end(self, nodes: Sequence[Node]) -> None:
        """Raise UsageError if totals after a node can grow without end: no length limit and no finite bound."""
        unlimited = [node for node in nodes if node.source.max_length is None]
        for weights, chosen in _by_weights(unlimited).items():
            bounds = self.bounds_under(weights)
            asked = [unlimited[i] for i in chosen]
            for node, bound in zip(asked, self._bounds(weights, asked), strict=True):
                if bound == math.inf:
                    bounds.require_end(node, [self._own_bounds(k, weight, [node])[0] for k, weight, _ in bounds.own])

    def keys(self, nodes: Sequence[Node], ranking: Ranking) -> list[Hashable]:
        """Recombination keys: nodes with equal keys have the same continuations with the same scores.

        A finished node has a unique key, and so has a node that consults a predictor without `state_key`.
        """
        automaton = None if ranking.uses_coverage else self._automaton_of(nodes)
        if automaton is not None:
            return automaton.keys(nodes, ranking)
        methods = [ability(predictor, "state_key") for predictor in self.predictors]
        keys: list[Hashable] = [object() for _ in nodes]
        known = [
            i
            for i, node in enumerate(nodes)
            if not node.finished
            and all(
                method is not None or weight is None for method, weight in zip(methods, node.weights, strict=True)
            )
        ]
        parts: dict[int, list[Hashable]] = {}
        for i in known:
            node = nodes[i]
            timed = ranking.uses_length or node.source.max_length is not None
            covered = node.coverage if ranking.uses_coverage else ()
            seen = tuple(None if row is None else row.tobytes() for row in covered)
            parts[i] = [node.weights, node.length if timed else None, seen]
        for k, method in enumerate(methods):
            chosen = [i for i in known if nodes[i].weights[k] is not None]
            if method is not None and chosen:
                found = self.members[k].ask("state_key", self.states(k, [nodes[i] for i in chosen]))
                require_hashable(self.names[k], found)
                for i, key in zip(chosen, found, strict=True):
                    parts[i].append(key)
        for i, part in parts.items():
            keys[i] = tuple(part)
        return keys

    def _no_attention(self, weights: Sequence[float | None], beta: str) -> UsageError:
        consulted = [name for name, weight in zip(self.names, weights, strict=True) if weight is not None]
        return UsageError(
            f"a coverage penalty ({beta}) needs a predictor with attention; none of {', '.join(consulted)} has it: "
            "set beta to 0, or add an nmt model (with weight 0 it contributes only its attention)."
        )

    def _bounds_under(self, weights: tuple[float | None, ...]) -> Bounds:
        return Bounds(self.names, self.predictors, weights)

    def _folding_under(self, weights: tuple[float | None, ...]) -> Folding:
        bounds = self.bounds_under(weights)
        return Folding(self.names, self.predictors, weights, bounds, self.bounds_kind, self._products)

    def _joint_automaton(self) -> JointAutomaton | None:
        """The intersection of all predictors, or None unless each is an automaton with a weight."""
        steps = self._automata("steps")
        if steps is None:
            return None
        bounds, folding = self.bounds_under(self.weights), self.folding_under(self.weights)
        return JointAutomaton(self.names, self.weights, steps, bounds, folding, self.vocab_size)

    def _product(self) -> Product | None:
        """The same for many prefixes at once."""
        arcs = self._automata("arcs")
        return None if arcs is None else Product(self.names, self.weights, arcs, self.vocab_size)

    def _automata(self, ability: str) -> list[tuple[int, Any]] | None:
        """Each predictor's number and its method of this name, in call order, the first one listing tokens.

        None unless each predictor has the method and a weight, and one of them can list.
        """
        order = sorted(self._first, key=lambda k: not self.predictors[k].restricts) + self._on_demand
        methods = [(k, getattr(self.predictors[k], ability, None)) for k in order]
        lists = bool(self._first) and self.predictors[order[0]].restricts
        return methods if lists and None not in self.weights and all(method for _, method in methods) else None

    def _automaton_of(self, nodes: Sequence[Node]) -> JointAutomaton | None:
        """The joint automaton if it covers these nodes and none of them is traced, else None."""
        if self.automaton is None or self.observer.follows(nodes):
            return None
        return self.automaton if self.automaton.covers(nodes) else None

    def _answers_of(self, name: str, nodes: Sequence[Node]) -> list[dict[str, Any]]:
        """For each node the answers of the predictors that it consults and that have this ability, by their names."""
        answers: list[dict[str, Any]] = [{} for _ in nodes]
        for k, predictor in enumerate(self.predictors):
            chosen = [i for i, node in enumerate(nodes) if node.weights[k] is not None]
            if chosen and ability(predictor, name) is not None:
                found = self.members[k].ask(name, self.states(k, [nodes[i] for i in chosen]))
                for i, answer in zip(chosen, found, strict=True):
                    answers[i][self.names[k]] = answer
        return answers

    def _ask(self, k: int, nodes: Sequence[Node], candidates: Sequence[Candidates | None] | None) -> Column:
        """Predictor k's answer about these nodes, or about ``candidates`` of each node if these are given."""
        name = self.members[k].name
        weights = [node.family.weights[k] for node in nodes]
        chosen: Sequence[int] = range(len(nodes))
        places: Sequence[int | None] = chosen
        if None in weights:
            chosen = [i for i in chosen if weights[i] is not None]
            place_of = {i: place for place, i in enumerate(chosen)}
            places = [place_of.get(i) for i in range(len(nodes))]
            nodes = [nodes[i] for i in chosen]
            candidates = None if candidates is None else [candidates[i] for i in chosen]
        if not chosen:
            return Column(name, SparseScores([]), places, weights)
        scores = self.members[k].predict(self.states(k, nodes), candidates)
        return Column(name, scores, places, weights)


def _tokens_left(node: Node) -> float:
    """The number of tokens that can still follow, ``</s>`` included."""
    limit = node.source.max_length
    return math.inf if limit is None else limit + 1 - node.length


def _by_weights(nodes: Sequence[Node]) -> dict[tuple[float | None, ...], list[int]]:
    """The positions of the unfinished nodes, grouped by the weights of the nodes."""
    places: dict[tuple[float | None, ...], list[int]] = {}
    for i, node in enumerate(nodes):
        if not node.finished:
            places.setdefault(node.weights, []).append(i)
    return places
