"""Tests of `relaxations` and `whole`, the abilities behind bounds of several predictors (`sgdec.relaxations`).

A test passes if the predictor does not have the ability. Scores are compared without tolerance, because a bound that
is below a score by a rounding error can cut the optimum off.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from sgdec.arcs import Automaton
from sgdec.context import EOS
from sgdec.lifting import lift
from sgdec.protocol import FORBIDDEN, BatchPredictor, Source, State
from sgdec.relaxations import Relaxation
from sgdec.testing.reading import Row, read_row, where
from sgdec.testing.subject import TestSubject

MOST_PREFIXES = 150
"""At most this many short prefixes of a sentence are tested, the shortest first."""
MOST_WORDS = 2_000
"""At most this many sequences are tested from each relaxed state."""
LONGEST = 4
"""The length of the longest of them."""


class SeenRelaxations(NamedTuple):
    """A prefix of a sentence, with the predictor's state and scores after it."""

    source: Source
    prefix: tuple[int, ...]
    state: State
    row: Row

    def __str__(self) -> str:
        return f"{where(self.source, self.prefix)}, in state {str(self.state)[:200]}"


class RelaxationChecks(TestSubject):
    """The part of `PredictorContract` that tests relaxations and whole automata."""

    def test_relaxations_are_the_same_objects_in_all_states_of_a_sentence(self) -> None:
        """They are parts of keys: others would be folded into the bounds again and again."""
        for seen, relaxations, predictor in self._relaxed():
            again = predictor.relaxations(seen.state)
            assert len(again) == len(relaxations) and all(map(_is, again, relaxations)), (
                f"{_name(self)}: relaxations must be the same objects in all states of a sentence {seen}"
            )

    def test_relaxations_get_coarser(self) -> None:
        for seen, relaxations, _ in self._relaxed():
            sizes = [each.size for each in relaxations]
            assert sizes and min(sizes) >= 1 and sizes == sorted(sizes, reverse=True), (
                f"{_name(self)}: there must be relaxations, with ever fewer states, at least one: "
                f"their sizes are {sizes} {seen}"
            )

    def test_relaxed_states_follow_the_tokens(self) -> None:
        """``of(consume(s, t)) == after(of(s), t)`` for each token t with a finite score."""
        for seen, relaxations, predictor in self._relaxed():
            tokens = _finite(seen.row)
            tokens = tokens[tokens != EOS]
            states = predictor.consume_batch([seen.state] * len(tokens), tokens.tolist())
            for level, each in enumerate(relaxations):
                (here,) = each.of([seen.state])
                expected, found = each.of(states), each.after(np.full(len(tokens), here), tokens).tolist()
                for token, own, after in zip(tokens.tolist(), expected, found, strict=True):
                    assert own == after, (
                        f"{_name(self)}: relaxation {level} must follow the predictor: token {token} leads from "
                        f"relaxed state {here} to {after}, but the state after it is relaxed to {own} {seen}"
                    )

    def test_relaxed_states_are_numbers_below_the_size(self) -> None:
        for seen, relaxations, _ in self._relaxed():
            for level, each in enumerate(relaxations):
                (here,) = each.of([seen.state])
                tokens = _finite(seen.row)
                tokens = tokens[tokens != EOS]
                for state in [here, *each.after(np.full(len(tokens), here), tokens).tolist()]:
                    assert isinstance(state, int | np.integer) and 0 <= state < each.size, (
                        f"{_name(self)}: the states of relaxation {level} must be 0 to {each.size - 1}, "
                        f"not {state!r} {seen}"
                    )

    def test_no_score_is_outside_its_relaxation(self) -> None:
        """``</s>`` included."""
        for seen, relaxations, _ in self._relaxed():
            tokens = _finite(seen.row)
            for level, each in enumerate(relaxations):
                states = np.full(len(tokens), each.of([seen.state])[0])
                bounds = each.lowest(states, tokens), each.highest(states, tokens)
                rows = (tokens.tolist(), seen.row[tokens].tolist(), *(bound.tolist() for bound in bounds))
                for token, score, lowest, highest in zip(*rows, strict=True):
                    assert lowest <= score <= highest, (
                        f"{_name(self)}: relaxation {level} must bound each score: token {token} scores {score!r}, "
                        f"not between {lowest!r} and {highest!r} {seen}"
                    )

    def test_relaxed_states_depend_on_the_last_tokens_alone(self) -> None:
        """On as many as the relaxation remembers, if it says so: they lead to the same state from everywhere."""
        tokens = np.array([token for token in range(self.vocab_size) if token != EOS])
        for relaxations in {id(found): found for _, found, _ in self._relaxed()}.values():
            for level, each in enumerate(relaxations):
                if each.memory is None:
                    continue
                words = _words(tokens, each.memory)
                states = np.unique(np.linspace(0, each.size - 1, 20).astype(np.int64))
                reached = np.repeat(states[:, None], len(words), axis=1)
                for column in words.T:
                    reached = each.after(reached.ravel(), np.tile(column, len(states))).reshape(reached.shape)
                for row, word in np.argwhere(reached != reached[0]):
                    raise AssertionError(
                        f"{_name(self)}: relaxation {level} has memory {each.memory}, so the state after this many "
                        "tokens must not depend on the state before: tokens "
                        f"{' '.join(map(str, words[word]))} lead elsewhere from states 0 and {states[row]}"
                    )

    def test_a_whole_automaton_is_what_predicting_and_consuming_say(self) -> None:
        predictor: Any = lift(self.make())
        if getattr(predictor, "whole", None) is None:
            return
        for seen in self._seen(predictor):
            if seen.state < 0:
                assert not len(_finite(seen.row)), f"{_name(self)}: nothing must follow a negative state {seen}"
                continue
            automaton, first = predictor.whole(seen.state)
            assert isinstance(automaton, Automaton), f"{_name(self)}: whole must give an Automaton, not {automaton!r}"
            assert predictor.whole(seen.state)[0] is automaton, (
                f"{_name(self)}: whole must give the same object again {seen}"
            )
            state = seen.state - first
            assert 0 <= state < automaton.states, (
                f"{_name(self)}: the whole automaton must have the state: it has {first} to "
                f"{first + automaton.states - 1} {seen}"
            )
            arcs = slice(automaton.offsets[state], automaton.offsets[state + 1])
            tokens, scores, after = (part[arcs] for part in (automaton.tokens, automaton.scores, automaton.after))
            assert (np.diff(tokens) > 0).all(), (
                f"{_name(self)}: arcs must have ascending tokens, each once: {tokens.tolist()} {seen}"
            )
            said = np.full(self.vocab_size, FORBIDDEN)
            said[tokens] = scores
            for token in np.flatnonzero(said != seen.row).tolist():
                raise AssertionError(
                    f"{_name(self)}: the whole automaton must have the arcs of the predictor: token {token} scores "
                    f"{float(seen.row[token])!r}, but {float(said[token])!r} on its arc {seen}"
                )
            follow = (tokens != EOS) & (scores > FORBIDDEN)
            states = predictor.consume_batch([seen.state] * int(follow.sum()), tokens[follow].tolist())
            for token, own, target in zip(tokens[follow].tolist(), states, after[follow].tolist(), strict=True):
                expected = own - first if own >= 0 else -1
                assert max(target, -1) == expected, (
                    f"{_name(self)}: the arcs of the whole automaton must lead to the predictor's states: token "
                    f"{token} leads to {expected}, but its arc leads to {target} {seen}"
                )

    # Helpers.

    def _relaxed(self) -> Iterator[tuple[SeenRelaxations, tuple[Relaxation, ...], Any]]:
        """Prefixes with the relaxations that the empty prefix of the sentence has, and the predictor."""
        predictor: Any = lift(self.make())
        if getattr(predictor, "relaxations", None) is None:
            return
        relaxations: tuple[Relaxation, ...] = ()
        for seen in self._seen(predictor):
            if seen.prefix == ():
                relaxations = tuple(predictor.relaxations(seen.state))
            yield seen, relaxations, predictor

    def _seen(self, predictor: BatchPredictor) -> Iterator[SeenRelaxations]:
        """For each sentence the empty prefix, other short ones, and the prefixes of random walks and ``extremes``."""
        for source in self.sources:
            (root,) = predictor.initialize_batch([source])
            limit = LONGEST if source.max_length is None else min(LONGEST, source.max_length)
            level: list[tuple[tuple[int, ...], State]] = [((), root)]
            count = 0
            while level and count < MOST_PREFIXES:
                found = list(self._read(predictor, source, level[: MOST_PREFIXES - count]))
                yield from found
                count += len(found)
                level = [
                    ((*seen.prefix, token), state)
                    for seen in found
                    if len(seen.prefix) < limit
                    for tokens in [[token for token in _finite(seen.row).tolist() if token != EOS]]
                    for token, state in zip(
                        tokens, predictor.consume_batch([seen.state] * len(tokens), tokens), strict=True
                    )
                ]
            yield from self._along(predictor, source, root)

    def _along(self, predictor: BatchPredictor, source: Source, root: State) -> Iterator[SeenRelaxations]:
        """The prefixes of random walks and ``extremes``, as far as their tokens are not forbidden."""
        for whole in [*self._prefixes_of(source, self.walks), *self.extremes]:
            state = root
            for t, token in enumerate(whole[: source.max_length]):
                (seen,) = self._read(predictor, source, [(whole[:t], state)])
                if seen.row[token] == FORBIDDEN:
                    break
                (state,) = predictor.consume_batch([state], [token])
                yield from self._read(predictor, source, [(whole[: t + 1], state)])

    def _read(
        self, predictor: BatchPredictor, source: Source, prefixes: list[tuple[tuple[int, ...], State]]
    ) -> Iterator[SeenRelaxations]:
        scores = predictor.predict_batch([state for _, state in prefixes])
        for place, (prefix, state) in enumerate(prefixes):
            yield SeenRelaxations(source, prefix, state, read_row(scores, place, self.vocab_size))


def _words(tokens: np.ndarray, length: int) -> np.ndarray:
    """``[n, length]``: all sequences of this length, or some of them."""
    if len(tokens) ** length <= MOST_WORDS:
        found = list(itertools.product(tokens, repeat=length))
        return np.array(found, np.int64).reshape(len(found), length)
    return np.random.default_rng(1).choice(tokens, (MOST_WORDS, length))


def _finite(row: Row) -> np.ndarray:
    return np.flatnonzero(row > FORBIDDEN)


def _is(one: object, other: object) -> bool:
    return one is other


def _name(subject: TestSubject) -> str:
    return type(subject.make()).__name__
