"""The promise: distances that are computed for several sentences at once are those of each sentence alone.

So neither bounds nor expansions depend on which sentences begin together, and no sentence has the errors of another.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sgdec_decoders.astar import AStarDecoder
from sgdec_decoders.dfs import DfsDecoder
from sgdec_predictors.ngram import NGram

import sgdec.search.bounds.folding
from sgdec import EOS, Context, Source
from sgdec.arcs import Automaton, joined
from sgdec.arrays import Floats, Ints
from sgdec.decoder import Decoder
from sgdec.estimation.kneser_ney import estimate, join
from sgdec.io.arpa import write_arpa
from sgdec.protocol import BatchPredictor
from sgdec.search.bounds.distances import Distances
from sgdec.search.bounds.relaxed import Relaxed
from sgdec.search.bounds.relaxed_product import TooLarge
from sgdec.search.constellation import Constellation
from sgdec.search.outcome import Outcome
from sgdec.search.scheduler import Scheduler
from tests.helpers.relaxing import LastToken, Trigrams, WholeLattice, random_automaton

V = 7


class Forgetful(LastToken):
    """The same, but its relaxed states are followed from the start."""

    memory = None


def automata(seed: int, number: int, *, cyclic: bool) -> list[Automaton]:
    rng = np.random.default_rng(seed)
    return [random_automaton(rng, int(rng.integers(2, 9)), V, cyclic) for _ in range(number)]


@given(st.integers(0, 2**32), st.integers(2, 5), st.booleans(), st.sampled_from([LastToken, Forgetful]))
def test_each_distance_is_that_of_its_automaton_alone_to_the_last_bit(
    seed: int, number: int, cyclic: bool, kind: type[LastToken]
) -> None:
    lattices = automata(seed, number, cyclic=cyclic)
    table = np.random.default_rng(seed).normal(size=(V, V, V)) - 3.0 * cyclic
    relaxed = [Relaxed(0.7, kind(table))]
    together = Distances(lattices, 1.3, relaxed, -0.1, 1 << 20)
    try:
        together.settle([(0, [1])] * number)
    except TooLarge:
        assert cyclic
        return
    for i, lattice in enumerate(lattices):
        alone, part = Distances([lattice], 1.3, relaxed, -0.1, 1 << 20), together.part(i)
        for state, last in follow(lattice):
            for tokens in (3.0, float("inf")):
                assert part.of(state, [last], tokens) == alone.of(state, [last], tokens)


def follow(lattice: Automaton) -> set[tuple[int, int]]:
    """All states with the tokens before them that can be reached after the first token."""
    found, new = set(), {(0, 1)}
    while new:
        found |= new
        new = {
            (int(lattice.after[arc]), int(lattice.tokens[arc]))
            for state, _ in new
            for arc in range(lattice.offsets[state], lattice.offsets[state + 1])
            if lattice.tokens[arc] != EOS
        } - found
    return found


@given(st.integers(0, 2**32), st.integers(1, 4))
def test_joined_automata_have_the_arcs_of_each(seed: int, number: int) -> None:
    lattices = automata(seed, number, cyclic=bool(seed % 2))
    together, starts = joined(lattices)
    assert together.states == sum(lattice.states for lattice in lattices)
    for lattice, start in zip(lattices, starts, strict=True):
        for state in range(lattice.states):
            assert arcs(together, start + state) == [
                (token, score, after if after < 0 else after + start) for token, score, after in arcs(lattice, state)
            ]


def arcs(automaton: Automaton, state: int) -> list[tuple[int, float, int]]:
    chosen = slice(automaton.offsets[state], automaton.offsets[state + 1])
    columns = (getattr(automaton, name)[chosen].tolist() for name in ("tokens", "scores", "after"))
    return list(zip(*columns, strict=True))


def outcomes(
    lattices: Sequence[Automaton], model: BatchPredictor, decoder: Decoder, batch_size: int, limit: int = 7
) -> list[Outcome]:
    constellation = Constellation.of({"lattice": WholeLattice(lattices), "lm": model}, vocab_size=V)
    sources = [Source(number, (3,), max_length=limit) for number in range(1, len(lattices) + 1)]
    return list(Scheduler(constellation, decoder, batch_size=batch_size, nbest=3).run(sources))


def language_model(order: int, path: Path) -> NGram:
    """An n-gram model of random text."""
    rng = random.Random(order)
    text = [[str(rng.randrange(3, V)) for _ in range(rng.randint(1, 9))] for _ in range(40)]
    words = ["<unk>", "<s>", "</s>", *map(str, range(3, V))]
    numbers = join([words.index(word) for word in line] for line in text)
    write_arpa(path, estimate(numbers, words, order=order, fallback=True).model)
    return NGram(str(path), context=Context(vocab_size=V))


def summary(outcome: Outcome) -> object:
    found = [(each.tokens, each.score) for each in outcome.result.hypotheses]
    return found, outcome.result.expansions, outcome.result.proven, outcome.result.bounds, str(outcome.error)


@pytest.mark.slow
@pytest.mark.parametrize(
    "decoder",
    [AStarDecoder(), DfsDecoder(), AStarDecoder(recombine=True)],
    ids=["astar", "dfs", "recombining"],
)
@pytest.mark.parametrize("order", [None, 2, 3, 4])
@pytest.mark.parametrize("cyclic", [False, True])
def test_expansions_do_not_depend_on_which_sentences_begin_together(
    decoder: Decoder, order: int | None, cyclic: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model: BatchPredictor = Trigrams(np.random.default_rng(1).normal(size=(V, V, V)) - 2.0)
    if order is not None:
        model = language_model(order, tmp_path / "lm.arpa")
    lattices = automata(order or 0, 12, cyclic=cyclic)
    expected = list(map(summary, outcomes(lattices, model, decoder, 1)))
    for batch_size in (5, 12):
        assert list(map(summary, outcomes(lattices, model, decoder, batch_size))) == expected
    monkeypatch.setattr(sgdec.search.bounds.folding, "SMALL", 0)
    assert list(map(summary, outcomes(lattices, model, decoder, 12))) == expected


def test_a_sentence_whose_cycles_gain_does_not_slow_others_down_or_loosen_their_bounds() -> None:
    lattices = automata(3, 4, cyclic=False)
    gaining = Automaton(np.array([0, 2]), np.array([EOS, 4]), np.array([-1.0, 5.0]), np.array([-1, 0]))
    model = Trigrams(np.zeros((V, V, V)))
    expected = list(map(summary, outcomes(lattices, model, AStarDecoder(), 1)))
    found = list(map(summary, outcomes([*lattices, gaining], model, AStarDecoder(), 5)))
    assert found[:4] == expected
    assert found[4] == summary(outcomes([gaining], model, AStarDecoder(), 1)[0])


def test_weights_of_one_search_fill_no_tables_of_other_sentences() -> None:
    """Each automaton keeps distances for a few weights, so bounds would depend on what other searches ask for."""
    lattices = automata(3, 4, cyclic=False)
    model = Trigrams(np.random.default_rng(1).normal(size=(V, V, V)))
    constellation = Constellation.of({"lattice": WholeLattice(lattices), "lm": model}, vocab_size=V)
    roots = constellation.roots([Source(number, (3,), max_length=7) for number in range(1, 5)])
    tables = constellation._products.tables
    constellation.bounds([roots[0].with_weights((1.0, 0.5))])
    assert [len(tables.get(lattice, {})) for lattice in lattices] == [1, 0, 0, 0]
    constellation.bounds([roots[0]])
    assert [len(tables.get(lattice, {})) for lattice in lattices] == [2, 1, 1, 1]


def lattices_with_a_token(token: int) -> list[Automaton]:
    """Four lattices without this token, and one with it, the third."""
    chain = [
        Automaton(np.array([0, 1, 2]), np.array([each, EOS]), np.array([-1.0, -1.0]), np.array([1, -1]))
        for each in (3, 4, token, 3, 4)
    ]
    return chain


def changed(wrong: Callable[[Ints, Floats], Floats]) -> Trigrams:
    table = np.zeros((V, V, V))

    class Wrong(LastToken):
        def highest(self, states: Ints, tokens: Ints) -> Floats:
            return wrong(tokens, super().highest(states, tokens))

    return Trigrams(table, [Wrong(table)])


def raising(tokens: Ints, scores: Floats) -> Floats:
    if (tokens == 5).any():
        raise KeyError("five")
    return scores


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        (lambda tokens, scores: np.where(tokens == 5, np.nan, scores), "NaN for token 5"),
        (raising, "five"),
    ],
)
def test_only_the_sentence_with_an_error_fails(wrong: Callable[[Ints, Floats], Floats], expected: str) -> None:
    found = outcomes(lattices_with_a_token(5), changed(wrong), AStarDecoder(), 5)
    assert [outcome.error is None for outcome in found] == [True, True, False, True, True]
    assert expected in str(found[2].error)


def test_only_the_sentence_with_a_malformed_automaton_fails() -> None:
    lattices = lattices_with_a_token(5)
    lattices[2].after = np.array([3, -1])  # together, this would be a state of the next lattice, and a way to its end
    found = outcomes(lattices, Trigrams(np.zeros((V, V, V))), AStarDecoder(), 5)
    assert [outcome.error is None for outcome in found] == [True, True, False, True, True]
