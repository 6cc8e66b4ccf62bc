"""Tests of predictors that are automata: `steps`, `arcs`, and the trait `restricts` (`sgdec.protocol`).

A test passes if the predictor does not have the ability.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from itertools import zip_longest
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from sgdec.context import EOS
from sgdec.lifting import lift
from sgdec.protocol import FORBIDDEN, Arcs, BatchPredictor, Candidates, Listed, Source, State
from sgdec.testing.reading import read_row, require_hashable, sparse_rows, where
from sgdec.testing.snapshot import snapshot
from sgdec.testing.subject import TestSubject

PARTS = (("offsets", np.int64), ("tokens", np.int64), ("scores", np.float64), ("states after the tokens", np.int64))
"""The parts of a result of `arcs`, with their types."""

Request: TypeAlias = Sequence[Candidates] | None
"""Candidates for each prefix of a call; None = all tokens that can follow."""


class CheckedPlace(NamedTuple):
    """A prefix of a sentence, with its state."""

    source: Source
    prefix: tuple[int, ...]
    state: State

    def __str__(self) -> str:
        return where(self.source, self.prefix)


class AutomatonChecks(TestSubject):
    """The part of `PredictorContract` that compares the forms of an automaton."""

    def test_an_automaton_that_lists_what_can_follow_has_no_open_row(self) -> None:
        predictor = lift(self.make())
        if not _lists(predictor):
            return
        for place in self._places(predictor):
            for row in sparse_rows(predictor.predict_batch([place.state])):
                assert row.default == FORBIDDEN, (
                    "a predictor with steps or arcs and with open rows must set restricts = False: "
                    f"the default of a row is {row.default:g} {place}"
                )

    def test_steps_are_what_predicting_and_consuming_say(self) -> None:
        """Asked with all tokens, with ``</s>`` alone, and without candidates if the predictor lists tokens."""
        predictor = lift(self.make())
        steps = getattr(predictor, "steps", None)
        if steps is None:
            return
        everything = list(range(self.vocab_size))
        for source, prefix, state in self._places(predictor):
            row = read_row(predictor.predict_batch([state]), 0, self.vocab_size)
            for candidates in (everything, [EOS], *([None] if _lists(predictor) else [])):
                tokens, scores, after = steps(state, candidates)
                assert list(tokens) == (sorted(tokens) if candidates is None else candidates), (
                    f"steps must be among the candidates, in order: {tokens} {where(source, prefix)}"
                )
                said = np.full(self.vocab_size, -np.inf)
                said[list(tokens)] = scores
                what = "steps must give the scores that predicting gives"
                self._same(row, said, what, source, prefix, candidates)
                for token, found in zip(tokens, after, strict=True):
                    if row[token] > -np.inf and token != EOS:
                        require_hashable(found, "steps must give states", where(source, (*prefix, token)))
                        both = [*predictor.consume_batch([state], [token]), found]
                        first, second = (read_row(predictor.predict_batch([s]), 0, self.vocab_size) for s in both)
                        what = f"steps must give the state that consuming {token} gives"
                        self._same(first, second, what, source, (*prefix, token))

    def test_arcs_are_what_predicting_and_consuming_say(self) -> None:
        """Asked about each prefix alone, about many of all sentences together, and about none."""
        predictor: Any = lift(self.make())
        if not hasattr(predictor, "arcs"):
            return
        for places, request in self._calls(predictor):
            found = call_arcs(predictor, places, request)
            self._check_tokens_and_scores(predictor, places, request, found)
            self._check_states_after(predictor, places, found)
        for source, prefix in self._prefixes:
            (state,) = consumed = predictor.initialize_batch([source])
            for t, token in enumerate(prefix, 1):
                (state,) = call_arcs(predictor, [CheckedPlace(source, prefix[: t - 1], state)], [[token]])[3]
                consumed = predictor.consume_batch(consumed, [token])
                first, second = (
                    read_row(predictor.predict_batch(at), 0, self.vocab_size) for at in (consumed, [int(state)])
                )
                what = "a walk along arcs must lead to the states that consuming gives"
                self._same(first, second, what, source, prefix[:t])

    def test_arcs_change_neither_their_arguments_nor_earlier_results(self) -> None:
        predictor: Any = lift(self.make())
        if not hasattr(predictor, "arcs"):
            return
        earlier = []
        for places, request in self._calls(predictor):
            given = np.array([place.state for place in places], np.int64), listed_arrays(request)
            before = snapshot(given)
            found = predictor.arcs(*given)
            assert snapshot(given) == before, f"arcs must not change the arrays that it is given {_at(places)}"
            earlier.append((places, found, snapshot(found)))
        for places, found, before in earlier:
            assert snapshot(found) == before, f"a later call of arcs must not change an earlier result {_at(places)}"

    def test_arcs_of_tensors_are_those_of_arrays(self) -> None:
        """For a predictor with the trait `arcs_of_tensors`, if torch is installed.

        Asked about many prefixes of all sentences together, and about none. On the CPU, and on a GPU if there is one;
        again when all sentences have ended and others have begun.
        """
        predictor: Any = lift(self.make())
        if not hasattr(predictor, "arcs") or not predictor.arcs_of_tensors or find_spec("torch") is None:
            return
        import torch

        for device in ("cpu", "cuda")[: 1 + torch.cuda.is_available()]:
            for _ in range(2):
                roots: dict[Source, State] = {}
                for places, request in self._calls(predictor):
                    if len(places) != 1:
                        _check_tensors(predictor, places, request, device)
                    roots |= {place.source: place.state for place in places if place.prefix == ()}
                if hasattr(predictor, "release"):
                    predictor.release(list(roots.values()))

    # Helpers.

    def _places(self, predictor: BatchPredictor) -> list[CheckedPlace]:
        return [CheckedPlace(source, *found) for source in self.sources for found in self._states(predictor, source)]

    def _calls(self, predictor: BatchPredictor) -> Iterator[tuple[list[CheckedPlace], Request]]:
        """Prefixes for one call of `arcs`, with candidates: one, many in any order and more than once, and none."""
        rng = self._rng()
        places = self._places(predictor)
        for place in places:
            assert isinstance(place.state, int | np.integer), (
                f"the states of a predictor with arcs must be integers, not {place.state!r} {place}"
            )
        many = [places[i] for i in rng.integers(len(places), size=2 * len(places))]
        everything: Candidates = list(range(self.vocab_size))
        for asked in (*([place] for place in places), many, []):
            shares = rng.choice([0.0, 0.3, 0.8], len(asked))
            some: Request = [np.flatnonzero(rng.random(self.vocab_size) < share).tolist() for share in shares]
            yield asked, [everything] * len(asked)
            yield asked, [[EOS]] * len(asked)
            yield asked, some
            if _lists(predictor):
                yield asked, None

    def _check_tokens_and_scores(
        self, predictor: Any, places: Sequence[CheckedPlace], request: Request, found: Arcs
    ) -> None:
        offsets, tokens, scores, after = found
        for i, place in enumerate(places):
            candidates = None if request is None else request[i]
            row = slice(offsets[i], offsets[i + 1])
            listed = tokens[row].tolist()
            if candidates is None:
                in_order = listed == sorted(set(listed)) and set(listed) <= set(range(self.vocab_size))
                assert in_order, f"the tokens of arcs must be in ascending order, each once: {listed} {place}"
            else:
                assert listed == list(candidates), (
                    f"arcs must be those of the candidates {candidates}, not of {listed} {place}"
                )
            said = np.full(self.vocab_size, FORBIDDEN)
            said[listed] = scores[row]
            asked = None if candidates is None else [candidates]
            expected = read_row(predictor.predict_batch([place.state], asked), 0, self.vocab_size)
            for token in range(self.vocab_size) if candidates is None else candidates:
                assert said[token] == expected[token], (
                    f"arcs must give the scores that predicting gives, bit for bit: token {token} scores "
                    f"{float(expected[token])!r}, but {float(said[token])!r} in arcs {place}"
                )
            if hasattr(predictor, "steps"):
                ours = _with_states(listed, scores[row].tolist(), after[row].tolist())
                stepped = _with_states(*predictor.steps(place.state, candidates))
                for one, other in zip_longest(ours, stepped):
                    assert one == other, f"arcs must be what steps returns: {one}, but {other} in steps {place}"

    def _check_states_after(self, predictor: Any, places: Sequence[CheckedPlace], found: Arcs) -> None:
        """Compare the states after all tokens that can follow with those that consuming gives."""
        offsets, tokens, scores, after = found
        rows = np.repeat(np.arange(len(places)), np.diff(offsets))
        possible = (scores > FORBIDDEN) & (tokens != EOS)
        arcs = zip(rows[possible].tolist(), tokens[possible].tolist(), after[possible].tolist(), strict=True)
        steps = dict.fromkeys((places[row], token, state) for row, token, state in arcs)
        if not steps:
            return
        before, consumed = [place.state for place, _, _ in steps], [token for _, token, _ in steps]
        reached = predictor.consume_batch(before, consumed)
        at = [CheckedPlace(place.source, (*place.prefix, token), state) for place, token, state in steps]
        expected = [there._replace(state=int(state)) for there, state in zip(at, reached, strict=True)]
        first, second = (predictor.predict_batch([there.state for there in each]) for each in (expected, at))
        for i, there in enumerate(at):
            one, other = (read_row(scores, i, self.vocab_size) for scores in (first, second))
            what = f"arcs must give the state that consuming {there.prefix[-1]} gives"
            self._same(one, other, what, there.source, there.prefix)
        everything: Request = [range(self.vocab_size)] * len(at)
        self._check_tokens_and_scores(predictor, at, everything, call_arcs(predictor, at, everything))


def _lists(predictor: Any) -> bool:
    """Whether this is an automaton that may be asked without candidates."""
    is_automaton = hasattr(predictor, "steps") or hasattr(predictor, "arcs")
    return is_automaton and predictor.restricts and not predictor.on_demand


def listed_arrays(request: Request) -> Listed | None:
    """Candidates as the arrays that `arcs` receives."""
    if request is None:
        return None
    offsets = np.cumsum([0, *map(len, request)], dtype=np.int64)
    return offsets, np.array([token for row in request for token in row], np.int64)


def call_arcs(predictor: Any, places: Sequence[CheckedPlace], request: Request) -> Arcs:
    """Call `arcs` and check the form of its result."""
    states, at = np.array([place.state for place in places], np.int64), _at(places)
    asked = "without candidates" if request is None else "with candidates"
    try:
        found = predictor.arcs(states, listed_arrays(request))
    except Exception as error:
        raise AssertionError(f"arcs must answer {asked}; it raised {error!r} {at}") from error
    assert isinstance(found, tuple) and len(found) == len(PARTS), (
        f"arcs must return offsets, tokens, scores and states, not {found!r} {at}"
    )
    for (name, kind), part in zip(PARTS, found, strict=True):
        described = f"an array {part.dtype}{list(part.shape)}" if isinstance(part, np.ndarray) else repr(part)
        assert isinstance(part, np.ndarray) and part.dtype == kind and part.ndim == 1, (
            f"arcs must return the {name} as an array {kind.__name__}[...], not {described} {at}"
        )
    offsets, *columns = found
    lengths = list(map(len, columns))
    assert len(offsets) == len(places) + 1 and offsets[0] == 0 and (np.diff(offsets) >= 0).all(), (
        f"the offsets of arcs must begin with 0, rise, and be one more than the states: {offsets.tolist()} {at}"
    )
    assert lengths == [offsets[-1]] * 3, (
        f"arcs must return one token, one score and one state for each arc: the last offset is {offsets[-1]}, and "
        f"there are {lengths[0]} tokens, {lengths[1]} scores and {lengths[2]} states {at}"
    )
    return found


def _check_tensors(predictor: Any, places: Sequence[CheckedPlace], request: Request, device: str) -> None:
    """Compare the answer for tensors with that for arrays."""
    import torch

    expected, at = call_arcs(predictor, places, request), _at(places)
    states, listed = np.array([place.state for place in places], np.int64), listed_arrays(request)
    candidates = None if listed is None else tuple(torch.tensor(part, device=device) for part in listed)
    try:
        found = predictor.arcs(torch.tensor(states, device=device), candidates)
    except Exception as error:
        raise AssertionError(f"arcs must answer for tensors if arcs_of_tensors is set: {error!r} {at}") from error
    for (name, kind), array, tensor in zip(PARTS, expected, found, strict=True):
        assert isinstance(tensor, torch.Tensor) and tensor.device.type == device, (
            f"for tensors on {device}, arcs must return the {name} as a tensor on {device}, not {tensor!r} {at}"
        )
        values = tensor.cpu().numpy()
        assert values.dtype == kind and values.tobytes() == array.tobytes(), (
            f"for tensors, arcs must return the {name} that it returns for arrays, bit for bit: {kind.__name__} "
            f"{array.tolist()}, not {values.dtype} {values.tolist()} {at}"
        )


def _with_states(
    tokens: Sequence[int], scores: Sequence[float], after: Sequence[State]
) -> list[tuple[int, float, State]]:
    """Token, score and state of each arc; a state that no search needs is None."""
    return [
        (token, score, state if score > FORBIDDEN and token != EOS else None)
        for token, score, state in zip(tokens, scores, after, strict=True)
    ]


def _at(places: Sequence[CheckedPlace]) -> str:
    """The prefixes of a call, for an error message."""
    if len(places) == 1:
        return str(places[0])
    return f"({len(places)} prefixes{f', the first one {places[0]}' if places else ''})"
