"""The checks that grade assignment ``bag``. The formulas are computed from the whole prefix, without any state."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import permutations

import numpy as np
from grader.assignment import Assignment, Make
from sgdec_decoders.astar import AStarDecoder
from sgdec_decoders.beam import BeamDecoder

from sgdec import BOS, EOS, Constellation, Decoder, Predictor, Source, UsageError
from sgdec.lifting import lift
from sgdec.protocol import FORBIDDEN, ability
from sgdec.testing import PredictorContract, Table, TinySpace
from sgdec.testing.reading import Row, ask, where

V = 8
"""The number of tokens; those of the bags begin at 3."""
ASSIGNMENT = Assignment("predictor", "mybag")


def random_sources(rng: np.random.Generator, count: int, longest: int = 5) -> list[Source]:
    """Different sentences with repeated tokens; some have a length limit."""
    found = []
    for number in range(1, count + 1):
        tokens = rng.integers(3, 6, rng.integers(1, longest + 1)).tolist()
        found.append(Source(number, tuple(tokens), max_length=None if number % 3 else len(tokens)))
    return found


class BagContract(PredictorContract):
    """sgdec's own contract, with random bags.

    Its promises are kept by a predictor that lets what is in the bag follow, and knows what has been taken.
    """

    vocab_size = V

    def __init__(self, make: Make, rng: np.random.Generator) -> None:
        self._make = make
        self.sources = random_sources(rng, 5)
        predictor = self.make()
        predictor.initialize(Source(1, (3, 4, 4, 5)))
        full = ask(predictor, V)
        assert all(full[token] != FORBIDDEN for token in (3, 4, 5)), "what is in the bag must be able to follow"
        predictor.consume(3)
        assert not np.array_equal(full, ask(predictor, V)), "scores must change if a token is taken"

    def make(self) -> Predictor:
        predictor: Predictor = self._make()
        return predictor


def formula(source: Source, prefix: tuple[int, ...], subsets: bool) -> dict[int, float]:
    """Formulas (1) and (2) of the handout: the tokens that can follow a prefix, with their scores."""
    left = Counter(source.tokens) - Counter(prefix)
    balls = left.total() + subsets
    row = {token: math.log(count / balls) for token, count in left.items()}
    if subsets or not left:
        row[EOS] = -math.log(balls or 1)
    return row


def visits(
    make: Make, rng: np.random.Generator, subsets: bool = False
) -> Iterator[tuple[Source, tuple[int, ...], Row]]:
    """Yields each prefix of a few orders of each bag, with the predictor's row after it."""
    for source in random_sources(rng, 12, longest=7):
        for order in [rng.permutation(source.tokens).tolist() for _ in range(3)]:
            predictor = make(subsets=subsets)
            predictor.initialize(source)
            for length in range(len(order) + 1):
                yield source, tuple(order[:length]), ask(predictor, V)
                if length < len(order):
                    predictor.consume(order[length])


def compare_scores(make: Make, rng: np.random.Generator, subsets: bool) -> None:
    """Compare the scores of the tokens that are left in the bag with the formula."""
    for source, prefix, row in visits(make, rng, subsets):
        for token, expected in formula(source, prefix, subsets).items():
            assert token == EOS or math.isclose(row[token], expected, abs_tol=1e-9), (
                f"token {token} must score {expected:.4f}, not {row[token]:.4f}, in the bag {source.tokens} "
                f"{where(source, prefix)}"
            )


@ASSIGNMENT.check("scores are those of formula (1)", points=3)
def _(make: Make, rng: np.random.Generator) -> None:
    compare_scores(make, rng, subsets=False)


@ASSIGNMENT.check("only what is left in the bag can follow", points=2)
def _(make: Make, rng: np.random.Generator) -> None:
    for source, prefix, row in visits(make, rng):
        allowed = {token for token in range(V) if row[token] != FORBIDDEN} - {EOS}
        expected = set(formula(source, prefix, subsets=False)) - {EOS}
        note = " (1 is <s>, which never follows)" if BOS in allowed else ""
        assert allowed == expected, (
            f"what can follow must be {sorted(expected)}, not {sorted(allowed)}{note}, in the bag {source.tokens} "
            f"{where(source, prefix)}"
        )


@ASSIGNMENT.check("</s> follows an empty bag, with score 0, and no other", points=2)
def _(make: Make, rng: np.random.Generator) -> None:
    for source, prefix, row in visits(make, rng):
        expected = 0.0 if len(prefix) == len(source.tokens) else FORBIDDEN
        assert row[EOS] == expected, (
            f"</s> (token {EOS}) must score {expected:g}, not {row[EOS]:.4f}, in the bag {source.tokens} "
            f"{where(source, prefix)}"
        )


@ASSIGNMENT.check("with subsets the scores are those of formula (2)", points=2)
def _(make: Make, rng: np.random.Generator) -> None:
    compare_scores(make, rng, subsets=True)
    for source, prefix, row in visits(make, rng, subsets=True):
        expected = formula(source, prefix, subsets=True)[EOS]
        assert math.isclose(row[EOS], expected, abs_tol=1e-9), (
            f"with subsets </s> must score {expected:.4f}, not {row[EOS]:.4f}, in the bag {source.tokens} "
            f"{where(source, prefix)}"
        )


ASSIGNMENT.contract(
    BagContract,
    points={
        "predict next may be called never once or often": 1,
        "restoring a state restores its scores": 1,
        "a state is a value that later calls leave alone": 1,
        "initialize starts a sentence afresh": 1,
        "sentences in flight do not disturb each other": 1,
        "equal state keys have equal futures": 1,
    },
)


@ASSIGNMENT.check("prefixes that leave the same bag share a state key", points=2)
def _(make: Make, rng: np.random.Generator) -> None:
    for source in random_sources(rng, 10):
        predictor = lift(make())
        state_key = ability(predictor, "state_key")
        assert state_key is not None, "a predictor must have state_key, so that searches can recombine"
        prefix = list(source.tokens[: rng.integers(0, len(source.tokens) + 1)])
        states = []
        for order in (prefix, rng.permutation(prefix).tolist(), prefix[::-1]):
            state = predictor.initialize_batch([source])
            for token in order:
                state = predictor.consume_batch(state, [int(token)])
            states += state
        keys = state_key(states)
        (full,) = state_key(predictor.initialize_batch([source]))
        assert not prefix or keys[0] != full, f"a bag must have another key than before {prefix} were taken, {full!r}"
        assert len(set(keys)) == 1, (
            f"in whatever order {sorted(prefix)} were taken, the key must be one, not {keys[0]!r} and {keys[-1]!r}"
        )


def find_the_best_order(make: Make, rng: np.random.Generator, decoder: Decoder) -> None:
    """The decoder has to find the best of all orders of a bag, under a random bigram table."""
    for unlimited in random_sources(rng, 6):
        source = replace(unlimited, max_length=2 * len(unlimited.tokens))
        table = rng.normal(-1.0, 1.0, (V, V))
        predictors = {"mybag": make(), "table": Table(table)}
        space = TinySpace("bag and table", partial(Constellation.of, predictors), source)
        result = decoder.decode(space.open(most=500))
        found = [(hypothesis.tokens, hypothesis.score) for hypothesis in result.hypotheses]
        expected, score = best_order(source, table)
        assert found and math.isclose(found[0][1], score, abs_tol=1e-9), (
            f"with a bigram table the best order of {source.tokens} is {expected} with {score:.4f}, "
            f"but the search found {f'{found[0][0]} with {found[0][1]:.4f}' if found else 'nothing'}"
        )


def best_order(source: Source, table: Row) -> tuple[tuple[int, ...], float]:
    """The best order, found by trying all: every order of a bag has the same probability, 1 / the number of
    orders."""
    orders = sorted(set(permutations(source.tokens)))
    steps = [list(zip((BOS, *order), (*order, EOS), strict=True)) for order in orders]
    totals = [sum(table[step] for step in path) for path in steps]
    best = int(np.argmax(totals))
    return orders[best], float(totals[best]) - math.log(len(orders))


@ASSIGNMENT.check("beam search with another predictor finds the best order", points=2)
def _(make: Make, rng: np.random.Generator) -> None:
    find_the_best_order(make, rng, BeamDecoder(size=1000, stop="full"))


@ASSIGNMENT.check("A* accepts it: no score is above 0, and it says so", points=1)
def _(make: Make, rng: np.random.Generator) -> None:
    try:
        find_the_best_order(make, rng, AStarDecoder())
    except UsageError as error:
        raise AssertionError(f"A* must have a bound: {error}") from None
