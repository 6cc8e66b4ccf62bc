"""The smallest automaton of a table, against one that is found by comparing the futures of all states."""

from __future__ import annotations

from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from sgdec_predictors.texts.byte_automata import BYTES, FAR, ByteAutomaton, heights

from sgdec.arcs import DEAD

LETTERS = b"abc"


@given(st.integers(1, 5), st.booleans(), st.data())
def test_it_has_the_language_of_the_table_and_no_other_states(states: int, cycles: bool, data: st.DataObject) -> None:
    table = np.full((states, BYTES), DEAD)
    for state in range(states):
        targets = st.integers(DEAD if cycles else state, states - 1)
        after = data.draw(st.lists(targets, min_size=3, max_size=3))
        table[state, list(LETTERS)] = [target if cycles or target != state else DEAD for target in after]
    ends = np.array(data.draw(st.lists(st.booleans(), min_size=states, max_size=states)))
    texts = [bytes(text) for length in range(2 * states) for text in product(LETTERS[:2], repeat=length)]

    def language(state: int) -> tuple[bool, ...]:
        whole = ByteAutomaton(table.astype(np.int32), ends)
        after = (whole.after(state, text) for text in texts)
        return tuple(place != DEAD and bool(ends[place]) for place in after)

    table[:, LETTERS[2]] = table[:, LETTERS[1]]  # two bytes that lead to the same
    found = ByteAutomaton.trimmed(table, ends)
    assert [found.accepts(text) for text in texts] == list(language(0))
    reached = {0}
    while more := set(table[sorted(reached)].ravel().tolist()) - reached - {DEAD}:
        reached |= more
    assert found.states == len({language(state) for state in reached} - {(False,) * len(texts)})


def test_heights_are_the_longest_ways_and_cycles_have_none() -> None:
    arcs = np.array([[0, 1], [0, 2], [1, 2], [3, 4], [4, 3], [3, 0]])
    assert heights(arcs[:, 0], arcs[:, 1], 6).tolist() == [2, 1, 0, FAR, FAR, 0]
