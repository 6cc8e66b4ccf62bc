"""Automata as arrays: many of them as one, while sentences come and go."""

from __future__ import annotations

import random
import tracemalloc

import numpy as np
import pytest

from sgdec.arcs import DEAD, Automata, Automaton, Numbers, spread

TOKENS = 40


def drawn(rng: random.Random) -> tuple[Automaton, list[dict[int, tuple[float, int]]]]:
    """A random automaton, and its arcs as plain values: for each state token -> (score, state after it)."""
    states = rng.randint(1, 12)
    plain = [
        {
            token: (rng.uniform(-3, 3), rng.choice([-2, DEAD, *range(states)]))
            for token in sorted(rng.sample(range(TOKENS), rng.choice([0, 0, 1, 3, 8])))
        }
        for _ in range(states)
    ]
    arcs = [(token, *ways[token]) for ways in plain for token in ways]
    offsets = np.cumsum([0, *map(len, plain)])
    tokens, scores, after = ([arc[i] for arc in arcs] for i in range(3))
    return Automaton(offsets, np.array(tokens, np.int32), np.array(scores, float), np.array(after, np.int64)), plain


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_states_have_the_arcs_of_their_automata_while_others_come_and_go(seed: int) -> None:
    rng = random.Random(seed)
    automata = Automata[Automaton]()
    plain: dict[int, list[dict[int, tuple[float, int]]]] = {}
    for _ in range(150):
        if rng.random() < 0.55 or not plain:
            automaton, ways = drawn(rng)
            plain[automata.add(automaton)] = ways
        else:
            start = rng.choice(list(plain))
            automata.release(start + rng.randrange(len(plain.pop(start))))  # any of its states
        if plain and rng.random() < 0.6:
            every = {start + i: (start, arcs) for start, ways in plain.items() for i, arcs in enumerate(ways)}
            every |= {state: (0, {}) for state in (DEAD, -2)}
            check(automata, {state: shifted(*of) for state, of in every.items()}, rng)


def shifted(start: int, arcs: dict[int, tuple[float, int]]) -> dict[int, tuple[float, int]]:
    return {token: (score, to if to < 0 else to + start) for token, (score, to) in arcs.items()}


def check(
    automata: Automata[Automaton], expected: dict[int, dict[int, tuple[float, int]]], rng: random.Random
) -> None:
    states = rng.choices(list(expected), k=rng.randint(0, 30))
    offsets, tokens, scores, after = automata.arcs(np.array(states, np.int64), None)
    assert len(offsets) == len(states) + 1
    for i, state in enumerate(states):
        row = slice(offsets[i], offsets[i + 1])
        found = list(zip(tokens[row].tolist(), scores[row].tolist(), after[row].tolist(), strict=True))
        assert found == [(token, *way) for token, way in expected[state].items()]
    wanted = [sorted(rng.sample(range(TOKENS + 5), rng.choice([0, 1, 20]))) for _ in states]
    candidates = np.cumsum([0, *map(len, wanted)]), np.array([t for row in wanted for t in row], np.int64)
    offsets, tokens, scores, after = automata.arcs(np.array(states, np.int64), candidates)
    assert (offsets.tolist(), tokens.tolist()) == tuple(part.tolist() for part in candidates)
    answers = list(zip(scores.tolist(), after.tolist(), strict=True))
    asked = [(state, token) for state, row in zip(states, wanted, strict=True) for token in row]
    assert answers == [expected[state].get(token, (-np.inf, DEAD)) for state, token in asked]


def test_an_automaton_and_its_place_are_found_by_any_of_its_states() -> None:
    rng = random.Random(1)
    automata = Automata[Automaton]()
    for automaton, _ in (drawn(rng) for _ in range(5)):
        start = automata.add(automaton)
        assert automata.find(start + automaton.states - 1) == (automaton, start)


def test_no_number_is_used_twice() -> None:
    numbers = Numbers()
    taken = set()
    for size in (3, 1, 5, 2):
        start = numbers.take(size)
        assert not taken & {*range(start, start + size)}
        taken |= {*range(start, start + size)}
        numbers.release(start)
    assert numbers.starts == []


@pytest.mark.slow
def test_memory_is_that_of_the_automata_in_use() -> None:
    rng = random.Random(2)
    automata = Automata[Automaton]()
    flying: list[int] = []

    def pass_through(number: int) -> int:
        tracemalloc.start()
        for _ in range(number):
            flying.append(automata.add(drawn(rng)[0]))
            if len(flying) > 10:
                automata.release(flying.pop(0))
            automata.arcs(np.array(flying), None)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    first = pass_through(300)
    assert pass_through(1200) < 2 * first


def test_ranges_may_be_empty() -> None:
    none = np.zeros(0, np.int64)
    assert [part.tolist() for part in spread(none, none)] == [[0], []]
    assert [part.tolist() for part in spread(np.array([4, 7]), np.array([0, 1]))] == [[0, 0, 1], [7]]
