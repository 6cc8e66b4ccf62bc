"""A lattice that is known as a whole, and language models with relaxations, both made of random numbers."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from sgdec.arcs import DEAD, Automata, Automaton
from sgdec.arrays import Floats, Ints
from sgdec.context import BOS, EOS
from sgdec.protocol import FORBIDDEN, BatchPredictor, Candidates, Scores, Source, SparseRow, State, Steps
from sgdec.relaxations import Constant, Relaxation


def random_automaton(rng: np.random.Generator, states: int, vocab_size: int, cyclic: bool) -> Automaton:
    """Deterministic, with arcs to later states, or to any; some states can end."""
    offsets, tokens, scores, after = [0], [], [], []
    for state in range(states):
        last = state == states - 1
        wanted = rng.permutation(np.arange(3, vocab_size))[: int(rng.integers(1, 4))]
        labels = [] if last and not cyclic else sorted(wanted.tolist())
        if last or rng.random() < 0.3:
            labels = [EOS, *labels]
        for label in labels:
            tokens.append(label)
            scores.append(float(rng.normal()) - 1.0)
            low = 0 if cyclic else state + 1
            after.append(DEAD if label == EOS else int(rng.integers(low, states)))
        offsets.append(len(tokens))
    return Automaton(np.array(offsets), np.array(tokens, np.int64), np.array(scores), np.array(after, np.int64))


class WholeLattice(BatchPredictor):
    """One automaton per sentence. Its own bounds know nothing but dead ends: products have to be better."""

    independent_rows = True

    def __init__(self, automata: Sequence[Automaton], exact: bool = False) -> None:
        self._given = automata
        self._automata = Automata[Automaton]()

    def initialize_batch(self, sources: Sequence[Source]) -> list[State]:
        return [self._automata.add(self._given[source.id - 1]) for source in sources]

    def steps(self, state: State, candidates: Candidates | None) -> Steps:
        if state < 0:
            listed = () if candidates is None else candidates
            return listed, [FORBIDDEN] * len(listed), [DEAD] * len(listed)
        automaton, first = self._automata.find(state)
        arcs = slice(automaton.offsets[state - first], automaton.offsets[state - first + 1])
        tokens, scores = automaton.tokens[arcs].tolist(), automaton.scores[arcs].tolist()
        after = [first + target if target >= 0 else target for target in automaton.after[arcs].tolist()]
        if candidates is None:
            return tokens, scores, after
        found = dict(zip(tokens, zip(scores, after, strict=True), strict=True))
        ways = [found.get(token, (FORBIDDEN, DEAD)) for token in candidates]
        return candidates, [score for score, _ in ways], [target for _, target in ways]

    def predict_batch(self, states: Sequence[State], candidates: Any = None) -> Scores:
        return Scores(rows=[SparseRow(*self.steps(state, None)[:2]) for state in states])

    def consume_batch(self, states: Sequence[State], tokens: Sequence[int]) -> list[State]:
        return [self.steps(state, [token])[2][0] for state, token in zip(states, tokens, strict=True)]

    def whole(self, state: State) -> tuple[Automaton, int]:
        return self._automata.find(state)

    def best_remaining(self, states: Sequence[State]) -> list[float]:
        return [FORBIDDEN if state < 0 else 1e6 for state in states]

    def worst_remaining(self, states: Sequence[State]) -> list[float]:
        return [-FORBIDDEN if state < 0 else -1e6 for state in states]

    def state_key(self, states: Sequence[State]) -> list[Hashable]:
        return list(states)

    def release(self, roots: Sequence[State]) -> None:
        for root in roots:
            self._automata.release(root)


class Trigrams(BatchPredictor):
    """A trigram model. ``table``: ``[V, V, V]``, scores by the last token but one, the last token, the next."""

    independent_rows = True
    on_demand = True

    def __init__(self, table: Floats, relaxations: Sequence[Relaxation] | None = None) -> None:
        self.table = table
        self._relaxations = [LastToken(table), Constant(float(_lowest(table)), float(table.max()))]
        if relaxations is not None:
            self._relaxations = list(relaxations)  # type: ignore[arg-type]

    def initialize_batch(self, sources: Sequence[Source]) -> list[State]:
        return [(BOS, BOS)] * len(sources)

    def predict_batch(self, states: Sequence[State], candidates: Any = None) -> Scores:
        return Scores.dense(np.array([self.table[state] for state in states]))

    def consume_batch(self, states: Sequence[State], tokens: Sequence[int]) -> list[State]:
        return [(last, token) for (_, last), token in zip(states, tokens, strict=True)]

    def steps(self, state: State, candidates: Candidates | None) -> Steps:
        assert candidates is not None
        scores = [float(self.table[state][token]) for token in candidates]
        possible = [score > FORBIDDEN for score in scores]  # no relaxation knows a state after another token
        after = [(state[1], token) if ok else None for token, ok in zip(candidates, possible, strict=True)]
        return candidates, scores, after

    def state_key(self, states: Sequence[State]) -> list[Hashable]:
        return list(states)

    def relaxations(self, state: State) -> Sequence[Relaxation]:
        return self._relaxations


class LastToken(Relaxation):
    """The best and the worst that the token before the last one can make of a trigram model."""

    memory = 1

    def __init__(self, table: Floats) -> None:
        self.size = len(table)
        self._highest = table.max(axis=0)
        self._lowest = np.where(table > FORBIDDEN, table, np.inf).min(axis=0)

    def of(self, states: Sequence[State]) -> list[int]:
        return [last for _, last in states]

    def after(self, states: Ints, tokens: Ints) -> Ints:
        return tokens

    def highest(self, states: Ints, tokens: Ints) -> Floats:
        found: Floats = self._highest[states, tokens]
        return found

    def lowest(self, states: Ints, tokens: Ints) -> Floats:
        found: Floats = self._lowest[states, tokens]
        return found


class Counter(BatchPredictor):
    """Scores a token by the number of tokens before it: a relaxation that counts is exact."""

    independent_rows = True

    def __init__(self, scores: Sequence[float]) -> None:
        """``scores``: by the number of tokens so far; the last one for all further tokens."""
        self._scores = np.array(scores)
        self._relaxation = Counting(self._scores)

    def initialize_batch(self, sources: Sequence[Source]) -> list[State]:
        return [0] * len(sources)

    def predict_batch(self, states: Sequence[State], candidates: Any = None) -> Scores:
        return Scores(rows=[SparseRow((), (), default=float(self._score(state))) for state in states])

    def consume_batch(self, states: Sequence[State], tokens: Sequence[int]) -> list[State]:
        return [state + 1 for state in states]

    def state_key(self, states: Sequence[State]) -> list[Hashable]:
        return list(states)

    def relaxations(self, state: State) -> Sequence[Relaxation]:
        return [self._relaxation]

    def _score(self, state: int) -> float:
        return float(self._scores[min(state, len(self._scores) - 1)])


class Counting(Relaxation):
    def __init__(self, scores: Floats) -> None:
        self._scores = scores
        self.size = len(scores)

    def of(self, states: Sequence[State]) -> list[int]:
        return [min(state, self.size - 1) for state in states]

    def after(self, states: Ints, tokens: Ints) -> Ints:
        return np.minimum(states + 1, self.size - 1)

    def highest(self, states: Ints, tokens: Ints) -> Floats:
        return self._scores[states]

    def lowest(self, states: Ints, tokens: Ints) -> Floats:
        return self._scores[states]


def _lowest(table: Floats) -> float:
    return float(table[table > FORBIDDEN].min())
