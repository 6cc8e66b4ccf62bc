"""Lattice rescoring: the arcs of a deterministic weighted acceptor (Stahlberg et al. 2017, Table 1).

Score of token w at state q: minus the cost of q's arc with label w; tokens without an arc are forbidden. A leading
``<s>`` arc consumes no token, and its score is added to that of the first token. Score of ``</s>``: the better of
minus (cost of q's ``</s>`` arc + final cost of its target) and minus (q's own final cost). So a total is minus the
cost of a path.

State: the lattice, and the number of one of its states, or one of three additional states: before the first token,
after ``</s>``, off the lattice. Cost: a lattice is read as arrays; the arcs of a state are extracted on its first
visit; after that each prefix is a look-up. Bounds take time linear in the arcs, once per lattice.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterator, Sequence
from functools import cached_property
from typing import Annotated, NamedTuple, TypeAlias

import numpy as np
from pydantic import Field

import sgdec
from sgdec import BOS, EOS, BatchPredictor, Context, Scores, SgdecError, Source
from sgdec.io.lattice import Lattice, read_lattice, require_ends
from sgdec.io.openfst import LatticeError
from sgdec.protocol import FORBIDDEN, Candidates, SparseRow, Steps

ROOT, ENDED, DEAD = -1, -2, -3
"""The states that are not in the file: before the first token, after ``</s>``, off the lattice."""

State: TypeAlias = "tuple[_Graph, int]"


class Ways(NamedTuple):
    """The arcs of a state: ascending tokens, their scores, and the states after them."""

    tokens: list[int]
    scores: list[float]
    targets: list[int]

    def target(self, token: int) -> int:
        """The state after one token."""
        place = bisect_left(self.tokens, token)
        return self.targets[place] if self.tokens[place : place + 1] == [token] else DEAD

    def among(self, candidates: Candidates) -> Ways:
        """The same for these tokens, including those that cannot follow."""
        listed = dict(zip(self.tokens, zip(self.scores, self.targets, strict=True), strict=True))
        found = [listed.get(token, (FORBIDDEN, DEAD)) for token in candidates]
        return Ways(list(candidates), [score for score, _ in found], [target for _, target in found])


class FstPredictor(BatchPredictor):
    """Scores along the paths of one lattice per sentence; all tokens without an arc are forbidden.

    >>> import pynini, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pynini.accep("[1][7][2]", weight=0.5).write(f"{folder}/1.fst")
    ...     predictor = FstPredictor(folder + "/{id}.fst")
    ...     states = predictor.initialize_batch([Source(id=1, tokens=())])
    >>> predictor.predict_batch(predictor.consume_batch(states, [7])).rows
    [SparseRow({2: -0.5}, default=-inf)]
    """

    independent_rows = True

    def __init__(
        self,
        path: Annotated[str, Field(description="lattice, .fst or .fst.gz; {id} is the sentence number")],
        use_weights: Annotated[
            bool, Field(description="use the costs of the arcs; false: every arc scores 0")
        ] = True,
        normalize: Annotated[
            bool, Field(description="apply log-softmax at each state, over its arcs and its end")
        ] = False,
        context: Context | None = None,
    ) -> None:
        """A path without ``{id}`` is the lattice of all sentences, and is read at once."""
        self._path = path
        self._use_weights = use_weights
        self._normalize = normalize
        self._vocab_size = context.vocab_size if context else None
        self._shared = None if "{id}" in path else self._load(path, "")

    def initialize_batch(self, sources: Sequence[Source]) -> list[State]:
        """Raises SgdecError if a lattice cannot be read or used."""
        return [(self._shared or self._load_for(source), ROOT) for source in sources]

    def predict_batch(
        self, states: Sequence[State], candidates: Sequence[Candidates | None] | None = None
    ) -> Scores:
        return Scores(rows=[graph.rows[state] for graph, state in states])

    def consume_batch(self, states: Sequence[State], tokens: Sequence[int]) -> list[State]:
        return [
            (graph, graph.ways[state].target(token)) for (graph, state), token in zip(states, tokens, strict=True)
        ]

    def steps(self, state: State, candidates: Candidates | None) -> Steps:
        graph, place = state
        ways = graph.ways[place]
        tokens, scores, targets = ways if candidates is None else ways.among(candidates)
        return tokens, scores, [(graph, target) for target in targets]

    def best_remaining(self, states: Sequence[State]) -> list[float]:
        """The exact score of the best path to the end; infinite if a cycle adds without limit."""
        return [graph.best[state] for graph, state in states]

    def worst_remaining(self, states: Sequence[State]) -> list[float]:
        return [graph.worst[state] for graph, state in states]

    def state_key(self, states: Sequence[State]) -> list[Hashable]:
        return [state for _, state in states]

    def _load_for(self, source: Source) -> _Graph:
        return self._load(self._path.replace("{id}", str(source.id)), f" (sentence {source.id})")

    def _load(self, path: str, sentence: str) -> _Graph:
        try:
            lattice = read_lattice(path)
            require_ends(lattice, path)
            _require_deterministic(lattice, path, self._vocab_size)
            return _Graph(lattice, path, self._use_weights, self._normalize)
        except LatticeError as error:
            way_out = error.way_out or (
                "Expected one lattice for each input line (--fst.path)."
                if sentence
                else "Give --fst.path a pattern such as 'lattices/{id}.fst': {id} is the number of the input line."
            )
            raise SgdecError(f"fst: {path}: {error.what}{sentence}. {way_out}") from None


class _Graph:
    """A deterministic lattice as scores, ready to be walked; all prefixes of a sentence share it."""

    def __init__(self, lattice: Lattice, path: str, use_weights: bool, normalize: bool) -> None:
        """Raises LatticeError for a lattice without paths, or if only some paths begin with ``<s>``."""
        self.ways = _AllWays(lattice, use_weights, normalize)
        """By state."""
        self.rows = _Rows(self.ways)
        """By state: the scores of the tokens that can follow."""
        if lattice.start < 0 or not self._has_path():
            raise LatticeError(path, "is empty: no path leads to a final state", "Check how it was made.")
        begin = self.ways[lattice.start].tokens
        if BOS in begin and len(begin) > 1:
            raise LatticeError(path, "has paths with and without <s> (label 1)", "Begin all paths with <s>, or none.")

    @cached_property
    def best(self) -> dict[int, float]:
        """By state: the highest score of any path to the end; -inf = there is none."""
        return self._extreme(1.0)

    @cached_property
    def worst(self) -> dict[int, float]:
        """By state: the lowest score of any path to the end; +inf = there is none."""
        return {state: -score for state, score in self._extreme(-1.0).items()}

    def _has_path(self) -> bool:
        return any(state == ENDED for state in self._children_first())

    def _extreme(self, sign: float) -> dict[int, float]:
        """By state the highest sum of ``sign`` x score to the end. Children come first, so one visit per state
        suffices."""
        order = [state for state in self._children_first() if state != ENDED]
        found = {ENDED: 0.0, DEAD: FORBIDDEN}
        try:
            for state in order:
                best = FORBIDDEN
                _, scores, targets = self.ways[state]
                for score, target in zip(scores, targets, strict=True):
                    best = max(best, sign * score + found[target])
                found[state] = best
        except KeyError:  # a child is not before its parent: there is a cycle
            return self._extreme_of_cyclic(sign, order)
        return found

    def _extreme_of_cyclic(self, sign: float, order: Sequence[int]) -> dict[int, float]:
        """The same by Bellman-Ford.

        Each arc against the order of states needs one more sweep. A path that visits no state twice has at most one
        such arc from each state, so any later gain comes from a cycle and is unlimited.
        """
        place = {state: i for i, state in enumerate([ENDED, DEAD, *order])}
        edges = [
            (state, [(sign * score, target) for score, target in zip(*self.ways[state][1:], strict=True)])
            for state in order
        ]
        going_back = sum(any(place[target] >= place[state] for _, target in ways) for state, ways in edges)
        found = {**dict.fromkeys(order, FORBIDDEN), ENDED: 0.0, DEAD: FORBIDDEN}
        sweep, gained = 0, True
        while gained:
            gained = False
            for state, ways in edges:
                score = max([score + found[target] for score, target in ways], default=FORBIDDEN)
                if score > found[state]:
                    found[state] = score if sweep <= going_back else math.inf
                    gained = True
            sweep += 1
        return found

    def _children_first(self) -> Iterator[int]:
        """The reachable states, each after the targets of its arcs, as far as cycles allow."""
        seen = {ROOT}
        stack = [(ROOT, iter(self.ways[ROOT].targets))]
        while stack:
            state, targets = stack[-1]
            for target in targets:
                if target not in seen:
                    seen.add(target)
                    stack.append((target, iter(self.ways[target].targets)))
                    break
            else:
                stack.pop()
                yield state


class _AllWays(dict[int, Ways]):
    """The arcs of each state of a lattice, computed on first use."""

    def __init__(self, lattice: Lattice, use_weights: bool, normalize: bool) -> None:
        nothing = Ways([], [], [])
        super().__init__({ENDED: nothing, DEAD: nothing})
        first, labels, costs, targets = lattice.first, lattice.labels, lattice.costs, lattice.targets
        possible = costs < math.inf
        if not possible.all():
            first = np.append(0, np.cumsum(possible))[first]
            labels, costs, targets = labels[possible], costs[possible], targets[possible]
        self._start = lattice.start
        self._first: list[int] = first.tolist()
        self._tokens: list[int] = labels.tolist()
        self._scores: list[float] = (0.0 - costs).tolist()  # not -costs: a cost of 0 would become -0.0
        self._targets: list[int] = targets.tolist()
        self._final: list[float] = (0.0 - lattice.final).tolist()
        self._use_weights = use_weights
        self._normalize = normalize

    def __missing__(self, state: int) -> Ways:
        ways = self[state] = self._from_root() if state == ROOT else self._from(state)
        return ways

    def _from(self, state: int) -> Ways:
        begin, end = self._first[state], self._first[state + 1]
        tokens, scores, targets = self._tokens[begin:end], self._scores[begin:end], self._targets[begin:end]
        if EOS in tokens or self._final[state] != FORBIDDEN:
            self._end(state, tokens, scores, targets)
        if not self._use_weights:
            scores = [0.0] * len(tokens)
        if self._normalize and tokens:
            scores = _log_softmax(scores)
        return Ways(tokens, scores, targets)

    def _end(self, state: int, tokens: list[int], scores: list[float], targets: list[int]) -> None:
        """Replace the ``</s>`` arc, which may lead to a dead end, by the better way to end."""
        arc = slice(bisect_left(tokens, EOS), bisect_right(tokens, EOS))  # none or one
        by_arc = [score + self._final[target] for score, target in zip(scores[arc], targets[arc], strict=True)]
        score = max([self._final[state], *by_arc])
        ends = score != FORBIDDEN
        tokens[arc], scores[arc], targets[arc] = [EOS] * ends, [score] * ends, [ENDED] * ends

    def _from_root(self) -> Ways:
        """The arcs of the first state, or those after its ``<s>``."""
        ways = self[self._start]
        if ways.tokens != [BOS]:
            return ways
        (bonus,), (target,) = ways.scores, ways.targets
        tokens, scores, targets = self[target]
        return Ways(tokens, [bonus + score for score in scores], targets)


class _Rows(dict[int, SparseRow]):
    """The same arcs as rows of scores, each computed on first use."""

    def __init__(self, ways: _AllWays) -> None:
        super().__init__()
        self._ways = ways

    def __missing__(self, state: int) -> SparseRow:
        row = self[state] = SparseRow(*self._ways[state][:2])
        return row


def _log_softmax(scores: Sequence[float]) -> list[float]:
    highest = max(scores)
    total = highest + math.log(math.fsum(math.exp(score - highest) for score in scores))
    return [score - total for score in scores]


def _require_deterministic(lattice: Lattice, path: str, vocab_size: int | None) -> None:
    """Raises LatticeError for epsilon, for two arcs of one label, and for labels outside the vocabulary."""
    labels = lattice.labels
    if not labels.all():
        raise LatticeError(
            path,
            f"state {lattice.state_of(int(labels.argmin()))} has an epsilon arc (label 0)",
            "Use nfst, which follows them, or remove them with pynini.rmepsilon.",
        )
    repeats = labels[1:] == labels[:-1]
    if repeats.any():
        repeats[lattice.first[(lattice.first > 0) & (lattice.first < len(labels))] - 1] = False  # of another state
    if repeats.any():
        arc = int(repeats.argmax())
        raise LatticeError(
            path,
            f"not deterministic: state {lattice.state_of(arc)} has two arcs with label {labels[arc]}",
            "Use nfst, which follows both, or pynini.determinize.",
        )
    if vocab_size is not None and (labels >= vocab_size).any():
        arc = int((labels >= vocab_size).argmax())
        raise LatticeError(
            path,
            f"state {lattice.state_of(arc)} has an arc with label {labels[arc]}, "
            f"but there are {vocab_size} target tokens",
            "Lattices and models must share one vocabulary.",
        )


@sgdec.hookimpl
def sgdec_predictors() -> dict[str, type[BatchPredictor]]:
    return {"fst": FstPredictor}
