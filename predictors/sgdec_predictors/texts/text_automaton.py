"""Predictors that allow the texts of an automaton: what `regex` and `wordlist` have in common.

Score of token w after prefix p: 0 if the text of p w begins a text of the language that the vocabulary can spell to
its end, otherwise forbidden. Score of ``</s>``: 0 if the text of p is in the language, otherwise forbidden. So every
tokenisation of an allowed text is allowed, and nothing else.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import cached_property
from typing import Generic, TypeVar

import numpy as np

from sgdec import BatchPredictor, Context, Scores, SgdecError, Source, UsageError
from sgdec.arcs import DEAD, Automaton, Numbers
from sgdec.arrays import Flags, Ints
from sgdec.protocol import FORBIDDEN, Arcs, Candidates, Listed, Steps
from sgdec_predictors.texts.spelling import Spelling
from sgdec_predictors.texts.token_automata import NOWHERE, TokenAutomaton, TokenWays

T = TypeVar("T", bound=Hashable)
State = int
LISTED = 1 / 16
"""If all rows of a batch allow at most this share of the vocabulary, they are lists of tokens, otherwise marks."""
MARKS = 1 << 26
"""The bytes of all rows of marks that are kept."""
WHOLE = 1 << 22
"""The most arcs of an automaton that is given as a whole."""
KEPT = 256
"""The number of automata that are kept for later sentences, if they are small."""
IN_USE = 1 << 19
"""The most states of text of all automata of the sentences in flight, and of those that are kept: 512 MiB each."""
FEW = 16
"""Up to this many candidates are followed one by one, which needs no row."""


class Kept(Generic[T]):
    """The automata of earlier sentences: the last ones that were used."""

    def __init__(self, build: Callable[[T], TokenAutomaton]) -> None:
        self._build = build
        self._kept: OrderedDict[T, TokenAutomaton] = OrderedDict()

    def __call__(self, language: T) -> TokenAutomaton:
        """The automaton of a language. Raises what ``build`` raises."""
        found = self._kept.pop(language, None)
        self._kept[language] = found = found or self._build(language)
        while len(self._kept) > KEPT or _states(self._kept.values()) > IN_USE:
            self._kept.popitem(last=False)
        return found


def _states(automata: Iterable[TokenAutomaton]) -> int:
    """The states of text of different automata together."""
    return sum(automaton.letters.states for automaton in set(automata))


class InUse:
    """An automaton, and what has been computed for searches with it."""

    def __init__(self, automaton: TokenAutomaton, width: int) -> None:
        """``width``: V, the length of rows of marks."""
        self.automaton = automaton
        self.sentences = 0
        """The number of sentences in flight that have it."""
        self._width = width
        self._marks: dict[int, Flags] = {}

    def marks(self, state: int) -> Flags:
        """``[V]``: the tokens that can follow a state of the automaton."""
        found = self._marks.get(state)
        if found is None:
            if len(self._marks) * self._width >= MARKS:
                self._marks.clear()
            found = self._marks[state] = np.zeros(self._width, bool)
            found[self.automaton.ways(state).tokens] = True
        return found

    @cached_property
    def whole(self) -> Automaton | None:
        return self.automaton.whole(WHOLE)


class TextAutomatonPredictor(BatchPredictor):
    """Allows the texts of one automaton, or of one automaton for each sentence.

    State: the number of a state of the automaton; -1 after a token that cannot follow, -2 after ``</s>``. All
    sentences with one automaton share its numbers. Bounds: 0.
    """

    max_score = 0.0
    independent_rows = True
    name: str
    shared: TokenAutomaton | None = None
    """The automaton of all sentences, if there is one; it is never released."""

    def __init__(self, context: Context | None) -> None:
        """Raises UsageError without a target vocabulary, SgdecError if its tokens cannot be spelled."""
        vocabulary = context.vocabularies.target if context else None
        if context is None or vocabulary is None:
            raise UsageError(
                f"{self.name}: it is about text, and this run has no target vocabulary: add a model that has one, or "
                "give --tokenizer FILE."
            )
        try:
            self.spelling = Spelling.of(vocabulary)
        except SgdecError as error:
            raise SgdecError(f"{self.name}: {error}") from None
        self._width = max(vocabulary.size, context.vocab_size or 0)
        self._numbers = Numbers()
        self._automata: list[InUse] = []
        """Those of the ranges of numbers in use, in their order."""

    @abstractmethod
    def automaton_of(self, sentence: int) -> TokenAutomaton:
        """The automaton of a sentence: the same object for equal languages. Raises SgdecError."""

    def initialize_batch(self, sources: Sequence[Source]) -> list[State]:
        """Raises SgdecError if a sentence has no automaton, or its shortest text is longer than the length limit."""
        found: list[TokenAutomaton] = []
        in_use = [used.automaton for used in self._automata]
        for source in sources:
            found.append(automaton := self.automaton_of(source.id))
            if _states([*in_use, *found]) > IN_USE:
                raise SgdecError(
                    f"{self.name}: the automata of the sentences in flight have more than {IN_USE:,} states. Give a "
                    "smaller --batch-size."
                )
            if source.max_length is not None and automaton.least - 1 > source.max_length:
                raise SgdecError(
                    f"{self.name}: the shortest output that is allowed has {automaton.least - 1} tokens, and the "
                    f"length limit of sentence {source.id} is {source.max_length}. Give a larger --max-length."
                )
        return [self._begin(automaton) for automaton in found]

    def predict_batch(self, states: Sequence[State], candidates: Sequence[Candidates | None] | None = None) -> Scores:
        self._prepare(states)
        rows = [self._ways(state) for state in states]
        counts = [len(row.tokens) for row in rows]
        if max(counts, default=0) <= LISTED * self._width:
            tokens = np.concatenate([row.tokens for row in rows]) if rows else np.zeros(0, np.int64)
            return Scores.listed(np.cumsum([0, *counts]), tokens, np.zeros(len(tokens)))
        allowed = np.zeros((len(states), self._width), bool)
        for row, state in zip(allowed, states, strict=True):
            if state >= 0:
                used, begin = self._find(state)
                row[:] = used.marks(state - begin)
        return Scores.allowing(allowed)

    def consume_batch(self, states: Sequence[State], tokens: Sequence[int]) -> list[State]:
        return list(map(self._next, states, tokens))

    def arcs(self, states: Ints, candidates: Listed | None) -> Arcs:
        listed = states.tolist()
        self._prepare(listed)
        ways = [self._ways(state) for state in listed]
        if candidates is None:
            counts = [len(way.tokens) for way in ways]
            tokens, after = (
                np.concatenate([np.zeros(0, np.int64), *(way[part] for way in ways)]) for part in range(2)
            )
            return np.cumsum([0, *counts]), tokens, np.zeros(len(tokens)), after
        offsets, wanted = candidates
        scores, after = np.full(len(wanted), FORBIDDEN), np.full(len(wanted), DEAD)
        for way, begin, end in zip(ways, offsets.tolist(), offsets[1:].tolist(), strict=False):
            if len(way.tokens):
                asked = wanted[begin:end]
                place = np.minimum(way.tokens.searchsorted(asked), len(way.tokens) - 1)
                follows = way.tokens[place] == asked
                scores[begin:end][follows] = 0.0
                after[begin:end][follows] = way.after[place[follows]]
        return offsets, wanted, scores, after

    def steps(self, state: State, candidates: Candidates | None) -> Steps:
        if candidates is not None and len(candidates) <= FEW:
            after = [self._next(state, token) for token in candidates]
            return candidates, [FORBIDDEN if each == DEAD else 0.0 for each in after], after
        asked = None if candidates is None else (np.array([0, len(candidates)]), np.array(candidates, np.int64))
        _, tokens, scores, states = self.arcs(np.array([state]), asked)
        return tokens.tolist(), scores.tolist(), states.tolist()

    def best_remaining(self, states: Sequence[State]) -> list[float]:
        """0; -inf after a token that cannot follow."""
        return [FORBIDDEN if state == DEAD else 0.0 for state in states]

    def worst_remaining(self, states: Sequence[State]) -> list[float]:
        return [-FORBIDDEN if state == DEAD else 0.0 for state in states]

    def state_key(self, states: Sequence[State]) -> list[Hashable]:
        return list(states)

    def whole(self, state: State) -> tuple[Automaton, int] | None:
        used, begin = self._find(state)
        return None if used.whole is None else (used.whole, begin)

    def release(self, roots: Sequence[State]) -> None:
        for root in roots if self.shared is None else ():
            place = self._numbers.place(root)
            self._automata[place].sentences -= 1
            if not self._automata[place].sentences:
                self._numbers.release(root)
                del self._automata[place]

    def _begin(self, automaton: TokenAutomaton) -> State:
        """The state of the empty prefix of a new sentence."""
        place = next((place for place, used in enumerate(self._automata) if used.automaton is automaton), None)
        if place is None:
            self._numbers.take(automaton.states)
            self._automata.append(InUse(automaton, self._width))
            place = -1
        self._automata[place].sentences += 1
        return self._numbers.starts[place]

    def _find(self, state: State) -> tuple[InUse, int]:
        """The automaton of a state that is not negative, and the number of its state 0."""
        place = self._numbers.place(state) if len(self._automata) > 1 else 0
        return self._automata[place], self._numbers.starts[place]

    def _ways(self, state: State) -> TokenWays:
        """The tokens that can follow, and the numbers of the states after them."""
        if state < 0:
            return NOWHERE
        used, begin = self._find(state)
        tokens, after = used.automaton.ways(state - begin)
        return TokenWays(tokens, after + begin * (after >= 0) if begin else after)

    def _next(self, state: State, token: int) -> State:
        if state < 0:
            return DEAD
        used, begin = self._find(state)
        after = used.automaton.after(state - begin, token)
        return after + begin if after >= 0 else after

    def _prepare(self, states: Sequence[State]) -> None:
        """Compute the rows of states together, automaton by automaton."""
        asked: dict[int, list[int]] = {}
        for state in states:
            if state >= 0:
                asked.setdefault(self._numbers.place(state), []).append(state)
        for place, members in asked.items():
            begin = self._numbers.starts[place]
            self._automata[place].automaton.prepare([state - begin for state in members])
