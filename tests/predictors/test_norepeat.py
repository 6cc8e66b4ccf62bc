"""`norepeat` forbids exactly the tokens that would complete an n-gram of the prefix.

Oracle: the list of all windows of a sequence.
"""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sgdec_predictors.norepeat import NoRepeat

from sgdec import EOS, Context, Source, UsageError
from sgdec.plugins.options import configure
from sgdec.search.constellation import Constellation
from sgdec.search.space import SearchSpace
from sgdec.testing import enumerate_space
from tests.helpers.contracts import HOST, PluginContract, SearchContract
from tests.helpers.relaxing import Trigrams, WholeLattice, random_automaton

V = 6
TOKENS = st.lists(st.integers(0, V - 1).filter(lambda token: token != EOS), max_size=9)


def repeats(tokens: tuple[int, ...], order: int) -> bool:
    """Whether some window of this width occurs twice."""
    windows = [tokens[i : i + order] for i in range(len(tokens) - order + 1)]
    return len(windows) > len(set(windows))


def forbidden_after(predictor: NoRepeat, tokens: list[int], prompt: tuple[int, ...] = ()) -> set[int]:
    states = predictor.initialize_batch([Source(1, prompt)])
    for token in tokens:
        states = predictor.consume_batch(states, [token])
    (row,) = predictor.predict_batch(states).rows
    assert {row.get(token) for token in range(V)} <= {0.0, -math.inf}
    return {token for token in range(V) if row.get(token) == -math.inf}


@given(TOKENS, st.integers(1, 4))
def test_a_token_is_forbidden_if_it_completes_an_ngram_that_is_there(tokens: list[int], order: int) -> None:
    windows = [tuple(tokens[i : i + order]) for i in range(len(tokens) - order + 1)]
    expected = {w for w in range(V) if w != EOS and (*tokens, w)[-order:] in windows}
    assert forbidden_after(NoRepeat(order), tokens) == expected


@given(TOKENS, TOKENS, st.integers(1, 4))
def test_a_prompt_counts_as_the_beginning_if_it_is_to_count(prompt: list[int], tokens: list[int], order: int) -> None:
    given = tuple(prompt)
    assert forbidden_after(NoRepeat(order, True), tokens, given) == forbidden_after(NoRepeat(order), prompt + tokens)
    assert forbidden_after(NoRepeat(order), tokens, given) == forbidden_after(NoRepeat(order), tokens)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_the_space_is_all_sequences_without_repetition(order: int) -> None:
    constellation = Constellation.of({"norepeat": NoRepeat(order)}, vocab_size=4)
    paths = enumerate_space(constellation, Source(1, (), max_length=5))
    possible = [tokens for n in range(6) for tokens in itertools.product((0, 1, 3), repeat=n)]
    assert {path.tokens for path in paths} == {tokens for tokens in possible if not repeats(tokens, order)}
    assert {path.total for path in paths} == {0.0}


@pytest.mark.slow
@pytest.mark.parametrize("bounds", ["sum", "product"])
@pytest.mark.parametrize("name", ["astar", "dfs", "beam"])
def test_the_best_path_of_a_lattice_and_a_model_without_repetition_is_found(name: str, bounds: str) -> None:
    """The oracle enumerates the space without `norepeat` and drops what repeats an n-gram."""
    options = {"size": 10_000, "stop": "proven"} if name == "beam" else {"recombine": True}
    changed = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        lattice = WholeLattice([random_automaton(rng, 3, V, cyclic=True)])
        model = Trigrams(-rng.exponential(2.0, (V, V, V)))
        model.max_score = 0.0
        others = {"lattice": lattice, "model": model}
        source, order = Source(1, (), max_length=4), 1 + seed % 2
        plain = Constellation.of(others, weights=(1.0, 0.5), vocab_size=V)
        paths = sorted(enumerate_space(plain, source), key=lambda path: -path.total)
        kept = [path for path in paths if not repeats(path.tokens, order)]
        mix = Constellation.of(
            {**others, "norepeat": NoRepeat(order)}, weights=(1.0, 0.5, 1.0), vocab_size=V, bounds=bounds
        )
        result = HOST.load("decoder", name)(**options).decode(SearchSpace(mix, mix.roots([source])[0]))
        assert [found.tokens for found in result.hypotheses] == [path.tokens for path in kept[:1]]
        assert not kept or result.hypotheses[0].score == pytest.approx(kept[0].total)
        changed += bool(kept) and kept[0] is not paths[0]
    assert changed > 2


def test_tokens_of_the_prompt_outside_the_target_vocabulary_are_no_candidates() -> None:
    predictor = NoRepeat(1, True, Context(vocab_size=5))
    (row,) = predictor.predict_batch(predictor.initialize_batch([Source(1, (4, 5, 9))])).rows
    assert list(row.tokens) == [4]


def test_prefixes_with_the_same_ngrams_and_last_tokens_are_one() -> None:
    """Their futures are equal, so exact searches merge them; those with the same n-grams alone they must not."""
    predictor = NoRepeat(2)

    def key(*tokens: int) -> Any:
        states = predictor.initialize_batch([Source(1, ())])
        for token in tokens:
            states = predictor.consume_batch(states, [token])
        return predictor.state_key(states)[0]

    assert key(3, 4, 5, 3, 5, 4, 3) == key(3, 5, 4, 3, 4, 5, 3)
    assert key(3, 4, 5, 3) != key(4, 5, 3, 4)


@pytest.mark.parametrize("option", ["order=0", "order=-1", "order=1.5", "order=x", "prompt=3x"])
def test_a_wrong_option_is_one_line_that_names_it(option: str) -> None:
    name, value = option.split("=")
    with pytest.raises(UsageError, match=rf"^--norepeat\.{name}: .*{value}") as error:
        configure(NoRepeat, {"order": "2", name: value}, name="norepeat")
    assert "\n" not in str(error.value)


def test_the_order_must_be_given() -> None:
    with pytest.raises(UsageError, match=r"--norepeat\.order"):
        configure(NoRepeat, {}, name="norepeat")


class TestNoRepeat(PluginContract):
    plugin = "norepeat"
    prefixes = ((3, 4, 3), (3, 3), (5, 4, 5, 4), (3, 4, 5, 3, 4))

    def prepare(self, folder: Path) -> dict[str, Any]:
        return {"order": 2}


class TestNoRepeatOfThePrompt(TestNoRepeat):
    def prepare(self, folder: Path) -> dict[str, Any]:
        return {"order": 1, "prompt": True}


class TestNoRepeatInSearch(SearchContract):
    vocab_size = 4
    limits = (4, 3, 1, 0)

    def draw(self, rng: np.random.Generator) -> NoRepeat:
        return NoRepeat(int(rng.integers(1, 4)), bool(rng.integers(2)), Context(vocab_size=self.vocab_size))
