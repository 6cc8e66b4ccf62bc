"""Lattice rescoring: the arcs of a deterministic weighted acceptor (Stahlberg et al. 2017, Table 1).

Score of token w at state q: minus the cost of q's arc with label w; whatever has no arc is forbidden. A
leading ``<s>`` arc is taken silently, and the first token bears its score too. Score of ``</s>``: the better
of minus (cost of q's ``</s>`` arc + final cost of its target) and minus (q's own final cost). So a total is
minus the cost of a path.

State: a state of the lattice, or one of three more: before the first token, after ``</s>``, off the lattice.
Cost: all rows are made when a lattice is loaded, in time linear in its arcs; then a look-up a prefix.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Annotated

from pydantic import Field

import sgdec
from sgdec import BOS, EOS, Context, Predictor, Scores, SgdecError, Source
from sgdec.io.lattice import Lattice, LatticeError, read_lattice
from sgdec.protocol import FORBIDDEN, Candidates


class FstPredictor(Predictor):
    """Scores along the paths of one lattice a sentence; only what the lattice allows can follow.

    >>> import pynini, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pynini.accep("[1][7][2]", weight=0.5).write(f"{folder}/1.fst")
    ...     predictor = FstPredictor(folder + "/{id}.fst")
    ...     predictor.initialize(Source(id=1, tokens=()))
    >>> predictor.consume(7)
    >>> predictor.predict_next().rows
    [SparseRow({2: -0.5}, default=-inf)]
    """

    def __init__(
        self,
        path: Annotated[str, Field(description="lattice, .fst or .fst.gz; {id} is the sentence number")],
        use_weights: Annotated[bool, Field(description="false: every arc scores 0")] = True,
        normalize: Annotated[
            bool, Field(description="log-softmax at each state, over its arcs and its end together")
        ] = False,
        context: Context | None = None,
    ) -> None:
        """A path without ``{id}`` is the lattice of all sentences, and is read at once."""
        self._path = path
        self._use_weights = use_weights
        self._normalize = normalize
        self._vocab_size = context.vocab_size if context else None
        self._graph: _Graph
        self._state = 0
        if "{id}" not in path:
            self._graph = self._load(path, "")

    def initialize(self, source: Source) -> None:
        """Raises SgdecError for a lattice that cannot be read or used."""
        if "{id}" in self._path:
            path = self._path.replace("{id}", str(source.id))
            self._graph = self._load(path, f" (sentence {source.id})")
        self._state = self._graph.root

    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        return self._graph.rows[self._state]

    def consume(self, token: int) -> None:
        graph = self._graph
        self._state = graph.targets[self._state].get(token, graph.dead)

    def get_state(self) -> int:
        return self._state

    def set_state(self, state: int) -> None:
        self._state = state

    def best_remaining(self, states: Sequence[int]) -> list[float]:
        """The score of the best way to the end, exactly; infinite where a cycle adds without limit."""
        return [self._graph.best[state] for state in states]

    def worst_remaining(self, states: Sequence[int]) -> list[float]:
        return [self._graph.worst[state] for state in states]

    def state_key(self, states: Sequence[int]) -> list[Hashable]:
        return list(states)

    def _load(self, path: str, sentence: str) -> _Graph:
        try:
            lattice = read_lattice(path)
            _require_deterministic(lattice, path, self._vocab_size)
            return _Graph(lattice, path, self._use_weights, self._normalize)
        except LatticeError as error:
            way_out = error.way_out or "Give --fst.path a pattern such as 'lattices/{id}.fst'."
            raise SgdecError(f"fst: {path}: {error.what}{sentence}. {way_out}") from None


class _Graph:
    """A deterministic lattice as scores, ready to be walked; all prefixes of a sentence share it."""

    def __init__(self, lattice: Lattice, path: str, use_weights: bool, normalize: bool) -> None:
        """Raises LatticeError for a lattice without any path, or with some paths that begin with ``<s>``."""
        empty = LatticeError(path, "is empty: no path leads to a final state", "Check how it was made.")
        if lattice.start < 0:
            raise empty
        size = len(lattice.arcs)
        self.root, self.ended, self.dead = size, size + 1, size + 2
        scores = [_scores(lattice, state, use_weights, normalize) for state in range(size)]
        targets = [
            {arc.label: arc.target for arc in arcs if arc.label in row} | ({EOS: self.ended} if EOS in row else {})
            for arcs, row in zip(lattice.arcs, scores, strict=True)
        ]
        first, bonus = lattice.start, 0.0
        if BOS in scores[first]:
            if len(scores[first]) > 1:
                raise LatticeError(
                    path, "has paths with and without <s> (label 1)", "Begin all paths with <s>, or none."
                )
            first, bonus = targets[first][BOS], scores[first][BOS]
        begin = {token: bonus + score for token, score in scores[first].items()}
        self.targets = [*targets, targets[first], {}, {}]
        self._scores = [*scores, begin, {}, {}]
        self.rows = [Scores.sparse(tuple(row), tuple(row.values())) for row in self._scores]
        self._order = list(self._children_first())
        if self.best[self.root] == FORBIDDEN:
            raise empty

    @cached_property
    def best(self) -> list[float]:
        """By state: the highest score of any way from here to the end; -inf = there is none."""
        return self._extreme(1.0)

    @cached_property
    def worst(self) -> list[float]:
        """By state: the lowest score of any way from here to the end; +inf = there is none."""
        return [-score for score in self._extreme(-1.0)]

    def _extreme(self, sign: float) -> list[float]:
        """By state the highest sum of ``sign`` x score to the end: Bellman-Ford, children first.

        One sweep settles an acyclic lattice. Each arc that goes back in that order costs one sweep more, and
        a way that visits no state twice has at most one from each state. What still gains after that gains on
        a cycle, for ever.
        """
        place = {state: i for i, state in enumerate(self._order)}
        edges = [
            (state, [(sign * score, self.targets[state][token]) for token, score in self._scores[state].items()])
            for state in self._order
        ]
        going_back = sum(any(place[target] >= place[state] for _, target in ways) for state, ways in edges)
        found = [FORBIDDEN] * len(self.rows)
        found[self.ended] = 0.0
        sweep, gained = 0, True
        while gained:
            gained = False
            for state, ways in edges:
                score = max([score + found[target] for score, target in ways], default=FORBIDDEN)
                if score > found[state]:
                    found[state] = score if sweep <= going_back else math.inf
                    gained = going_back > 0
            sweep += 1
        return found

    def _children_first(self) -> Iterator[int]:
        """The states that can be reached, each after those that its arcs lead to, as far as cycles allow."""
        seen = {self.root}
        stack = [(self.root, iter(self.targets[self.root].values()))]
        while stack:
            state, targets = stack[-1]
            for target in targets:
                if target not in seen:
                    seen.add(target)
                    stack.append((target, iter(self.targets[target].values())))
                    break
            else:
                stack.pop()
                yield state


def _scores(lattice: Lattice, state: int, use_weights: bool, normalize: bool) -> dict[int, float]:
    """What can follow a state, by ascending token; ``</s>`` is there if the state can be an end."""
    scores = {arc.label: -arc.cost for arc in lattice.arcs[state] if arc.cost < math.inf}
    by_arc = [-arc.cost - lattice.final[arc.target] for arc in lattice.arcs[state] if arc.label == EOS]
    scores[EOS] = max([-lattice.final[state], *by_arc])
    if scores[EOS] == FORBIDDEN:
        del scores[EOS]
    if not use_weights:
        scores = dict.fromkeys(scores, 0.0)
    if normalize and scores:
        highest = max(scores.values())
        total = highest + math.log(math.fsum(math.exp(score - highest) for score in scores.values()))
        scores = {token: score - total for token, score in scores.items()}
    return dict(sorted(scores.items()))


def _require_deterministic(lattice: Lattice, path: str, vocab_size: int | None) -> None:
    """Raises LatticeError for two arcs of one label, for epsilon, and for labels outside the vocabulary."""
    for state, arcs in enumerate(lattice.arcs):
        labels = [arc.label for arc in arcs]  # ascending
        if labels and labels[0] == 0:
            raise LatticeError(
                path,
                f"state {state} has an epsilon arc (label 0)",
                "Use nfst, which follows them, or remove them with pynini.rmepsilon.",
            )
        if len(set(labels)) < len(labels):
            twice = next(a for a, b in pairwise(labels) if a == b)
            raise LatticeError(
                path,
                f"not deterministic: state {state} has two arcs with label {twice}",
                "Use nfst, which follows both, or pynini.determinize.",
            )
        if labels and vocab_size is not None and labels[-1] >= vocab_size:
            raise LatticeError(
                path,
                f"state {state} has an arc with label {labels[-1]}, but there are {vocab_size} target tokens",
                "Lattices and models must share one vocabulary.",
            )


@sgdec.hookimpl
def sgdec_predictors() -> dict[str, type[Predictor]]:
    return {"fst": FstPredictor}
