"""The promise: predictors that are automata say by ``steps`` what they say by their verbs, and the space is the same.

The oracle for a space is the same constellation behind wrappers that do not have the ability, so that
`sgdec.search.combining` serves it.
"""

from __future__ import annotations

import builtins
import itertools
import math
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sgdec_predictors.fst import FstPredictor
from sgdec_predictors.ngram import NGram

from sgdec.arrays import Ints
from sgdec.context import EOS
from sgdec.errors import SgdecError
from sgdec.io.arpa import Arpa, NGrams, write_arpa
from sgdec.protocol import Arcs, BatchPredictor, Candidates, Listed, Scores, Source, SparseRow, State, Steps
from sgdec.ranking import Ranking
from sgdec.rows import HypothesisRows
from sgdec.search.constellation import Constellation
from sgdec.search.member import Member
from sgdec.search.node import Node
from sgdec.search.requests import Request, answer
from sgdec.search.space import SearchSpace
from sgdec.settings import BoundsKind
from sgdec.testing import PassThrough, Table
from tests.helpers.lattice_files import write_automaton

SEEDS = range(6)
LIMITS = (None, 0, 3)
NAMES = ("fst", "other", "ngram")
WEIGHTS = ((1.0, None, 1.0), (0.5, 1.0, 2.0), (1.0, 0.0, 0.0), (-1.0, 0.5, 1.0))
WORDS = range(3, 8)
every_seed = pytest.mark.parametrize("seed", SEEDS)


@pytest.fixture(scope="module")
def predictors(tmp_path_factory: pytest.TempPathFactory) -> dict[str, BatchPredictor]:
    """A lattice per sentence, a lattice of all sentences that allows more, and a trigram model."""
    folder = tmp_path_factory.mktemp("automata")
    for seed in SEEDS:
        write_lattice(folder / f"{seed}.fst", seed, states=6, density=0.5)
    write_lattice(folder / "all.fst", 99, states=3, density=0.9)
    write_model(folder / "lm.arpa")
    return {
        "fst": FstPredictor(str(folder / "{id}.fst")),
        "other": FstPredictor(str(folder / "all.fst")),
        "ngram": NGram(str(folder / "lm.arpa"), words=write_words(folder / "words")),
    }


def write_lattice(path: Path, seed: int, states: int, density: float) -> None:
    """Deterministic, with cycles and dead ends, some costs negative."""
    rng = random.Random(seed)
    arcs = []
    for state in range(states):
        for label in (EOS, *WORDS):
            if rng.random() < density or label == 3:  # 3 leads to the end
                target = {EOS: states - 1, 3: min(state + 1, states - 1)}.get(label, rng.randrange(states))
                arcs.append((state, label, rng.uniform(-1, 3), target))
    write_automaton(path, arcs, {states - 1: 0.5})


def write_model(path: Path) -> None:
    words = ["</s>", "<s>", *map(str, WORDS)]
    rng = random.Random(7)
    grams: list[list[tuple[int, ...]]] = [[(word,) for word in range(len(words))]]
    for _ in range(2):
        longer = [(*gram, word) for gram in grams[-1] if gram[-1] for word in range(len(words)) if word != 1]
        grams.append(rng.sample(longer, 9))
    write_arpa(path, Arpa(words, [n_grams(rng, level, last=n == 3) for n, level in enumerate(grams, 1)]))


def n_grams(rng: random.Random, grams: list[tuple[int, ...]], last: bool) -> NGrams:
    scores, backoffs = [rng.uniform(-6, -0.1) for _ in grams], [0.0 if last else rng.uniform(-1, 0) for _ in grams]
    return NGrams(np.array(grams, np.int32), np.array(scores), np.array(backoffs))


def write_words(path: Path) -> str:
    path.write_text("".join(f"{word} {word}\n" for word in WORDS))
    return str(path)


def opened(
    predictors: dict[str, BatchPredictor],
    seed: int,
    weights: tuple[float | None, ...] = WEIGHTS[0],
    limit: int | None = 3,
    *,
    composed: bool = True,
    ranking: Ranking | None = None,
    bounds: BoundsKind = "auto",
) -> SearchSpace:
    """Predictors of weight None are left out."""
    members = [
        Member(name, predictors[name] if composed else PassThrough(predictors[name]), weight)
        for name, weight in zip(NAMES, weights, strict=True)
        if weight is not None
    ]
    constellation = Constellation(members, bounds=bounds)
    assert (constellation.automaton is not None) is composed
    (root,) = constellation.roots([Source(seed, (3, 4), max_length=limit)])
    return SearchSpace(constellation, root, ranking=ranking)


def nodes_of(space: SearchSpace, depth: int = 4) -> Iterator[Node]:
    waiting = [space.root]
    while waiting:
        node = waiting.pop()
        yield node
        if not node.finished and node.length < depth:
            waiting += space.expand([node])[0]


# One predictor.


@every_seed
@pytest.mark.parametrize("name", NAMES)
def test_steps_are_what_predicting_and_consuming_say(
    predictors: dict[str, BatchPredictor], name: str, seed: int
) -> None:
    rng = random.Random(seed)
    predictor: Any = predictors[name]
    (state,) = predictor.initialize_batch([Source(seed, (3,))])
    for _ in range(12):
        some = sorted(rng.sample(range(2, 10), 4))
        asked: list[Candidates | None] = [some, [EOS], [], *([] if predictor.on_demand else [None])]
        for candidates in asked:
            tokens, scores, after = predictor.steps(state, candidates)
            row = predictor.predict_batch([state], [candidates]).rows[0]
            assert list(tokens) == (list(row.candidates) if candidates is None else candidates)
            assert list(scores) == [row.get(token) for token in tokens]
            assert list(after) == predictor.consume_batch([state] * len(tokens), list(tokens))
            assert len({*after, state}) <= len(tokens) + 1, "states must be hashable"
        tokens, scores, after = predictor.steps(state, some if predictor.on_demand else None)
        if not tokens:
            return
        state = rng.choice(after)


def test_a_model_that_lists_nothing_takes_steps_among_candidates_only(
    predictors: dict[str, BatchPredictor],
) -> None:
    ngram: Any = predictors["ngram"]
    with pytest.raises(ValueError, match="among candidates only"):
        ngram.steps(ngram.initialize_batch([Source(1, ())])[0], None)


# Spaces.


@pytest.mark.slow
@every_seed
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("limit", LIMITS)
def test_the_space_is_the_one_that_combination_makes(
    predictors: dict[str, BatchPredictor], seed: int, weights: tuple[float | None, ...], limit: int | None
) -> None:
    fast, slow = (opened(predictors, seed, weights, limit, composed=composed) for composed in (True, False))
    for node, same in itertools.zip_longest(nodes_of(fast), nodes_of(slow)):
        assert (node.tokens, node.total, node.steps()) == (same.tokens, same.total, same.steps())
        assert node.weights == same.weights and node.length == same.length


@pytest.mark.slow
@every_seed
@pytest.mark.parametrize("weights", WEIGHTS)
def test_bounds_that_come_with_children_are_those_that_one_asks_for(
    predictors: dict[str, BatchPredictor], seed: int, weights: tuple[float | None, ...]
) -> None:
    fast, slow = (opened(predictors, seed, weights, composed=composed, bounds="sum") for composed in (True, False))
    if weights[-1] is not None and weights[-1] < 0:
        return
    for node, same in zip(nodes_of(fast), nodes_of(slow), strict=True):
        if not node.finished:
            children, others = list(fast.expand([node], bounded=True)[0]), list(slow.expand([same], bounded=True)[0])
            assert all(child.bound is not None for child in children)
            assert fast.bound(children) == pytest.approx(slow.bound(others))


@pytest.mark.slow
@every_seed
@pytest.mark.parametrize("ranking", [Ranking(), Ranking(alpha=0.6)])
@pytest.mark.parametrize("limit", LIMITS)
def test_keys_tell_the_same_nodes_apart(
    predictors: dict[str, BatchPredictor], seed: int, limit: int | None, ranking: Ranking
) -> None:
    def classes(space: SearchSpace) -> list[int]:
        seen: dict[object, int] = {}
        return [seen.setdefault(key, len(seen)) for key in space.keys(list(nodes_of(space)))]

    fast, slow = (opened(predictors, seed, limit=limit, composed=c, ranking=ranking) for c in (True, False))
    assert classes(fast) == classes(slow)


@every_seed
def test_answers_to_requests_are_those_of_the_space(predictors: dict[str, BatchPredictor], seed: int) -> None:
    space = opened(predictors, seed)
    for node in nodes_of(space):
        if not node.finished:
            for limit, above in [(None, -math.inf), (2, -math.inf), (None, node.total - 2.0), (1, node.total - 2.0)]:
                request = Request("children", [node], ([limit], [above]), (False, False))
                ((children,),) = answer(space.constellation.perform, [request])
                (expected,) = space.expand([node], limit, above)
                assert [(c.last, c.total) for c in children] == [(c.last, c.total) for c in expected]


def test_only_what_a_batch_can_answer_sooner_waits_for_one(predictors: dict[str, BatchPredictor]) -> None:
    own = opened(predictors, 1)
    asked: list[Request] = []

    def ask(request: Request) -> list[object]:
        asked.append(request)
        (found,) = answer(own.constellation.perform, [request])
        return found

    space = SearchSpace(own.constellation, own.root, ask=ask)
    for node in nodes_of(space):
        space.keys([node])
    assert not asked
    other = space.root.with_weights([2.0 for _ in space.weights])
    assert [c.total for c in space.expand([other], limit=9)[0]] == [c.total for c in own.expand([other], limit=9)[0]]
    space.keys([other])
    assert [request.question for request in asked] == ["children", "keys"]


def test_what_needs_coverage_waits_for_a_batch(predictors: dict[str, BatchPredictor]) -> None:
    own = opened(predictors, 1)
    asked: list[Request] = []
    space = SearchSpace(own.constellation, own.root, ask=lambda request: asked.append(request) or [])
    space._uses_coverage = True  # as with a ranking with beta > 0, which these predictors refuse: none has attention
    space.expand([space.root], 9)
    space.keys([space.root])
    assert [request.question for request in asked] == ["children", "keys"]


def test_nodes_with_other_weights_are_served_as_well(predictors: dict[str, BatchPredictor]) -> None:
    fast, slow = (opened(predictors, 1, composed=composed) for composed in (True, False))
    for weights in [(2.0, 1.0), (1.0, None), fast.weights]:
        first, second = ([node.with_weights(weights) for node in nodes_of(space)] for space in (fast, slow))
        first, second = ([node for node in nodes if not node.finished] for nodes in (first, second))
        found, expected = fast.expand(first, limit=9), slow.expand(second, limit=9)
        for some, same in zip(found, expected, strict=True):
            assert [(c.last, c.total) for c in some] == [(c.last, c.total) for c in same]
            if None in weights:  # for all descendants
                continue
            again, as_well = (
                [node.with_weights((1.0, 0.5)) for node in nodes if not node.finished] for nodes in (some, same)
            )
            assert [[c.total for c in children] for children in fast.expand(again, limit=9)] == [
                [c.total for c in children] for children in slow.expand(as_well, limit=9)
            ]


# What is asked, and what goes wrong.


class Chain(BatchPredictor):
    """Allows 3 with a given score, and the end; the state is how often 3 came. Notes what it is asked."""

    def __init__(self, score: float) -> None:
        self.score = score
        self.asked: list[tuple[int, Candidates | None]] = []

    def initialize_batch(self, sources: Any) -> list[State]:
        return [0] * len(sources)

    def predict_batch(self, states: Any, candidates: Any = None) -> Any:
        raise AssertionError("steps say it all")

    def consume_batch(self, states: Any, tokens: Any) -> Any:
        raise AssertionError("steps say it all")

    def steps(self, state: int, candidates: Candidates | None) -> Steps:
        self.asked.append((state, candidates))
        tokens = [EOS, 3] if candidates is None else candidates
        return tokens, [-1.0 if token == EOS else self.score for token in tokens], [state + 1] * len(tokens)


def test_prefixes_with_the_same_states_are_asked_about_once_but_for_the_limit() -> None:
    chain = Chain(-0.5)
    constellation = Constellation.of({"chain": chain})
    for sentence in (1, 2):
        (root,) = constellation.roots([Source(sentence, (), max_length=2)])
        space = SearchSpace(constellation, root)
        assert [node.tokens for node in nodes_of(space) if node.finished] == [(EOS,), (3, EOS), (3, 3, EOS)]
    assert [state for state, candidates in chain.asked if candidates is None] == [0, 1]
    assert [list(candidates) for _, candidates in chain.asked if candidates is not None] == [[EOS], [EOS]]


def test_nan_names_the_predictor() -> None:
    broken = Constellation.of({"good": Chain(-1.0), "bad": Chain(math.nan)})
    (root,) = broken.roots([Source(1, ())])
    with pytest.raises(SgdecError, match="'bad' gave NaN as the score of token 3"):
        SearchSpace(broken, root).expand([root])
    infinite = Constellation.of({"up": Chain(math.inf), "down": Chain(math.inf)}, weights=[1.0, -1.0])
    (root,) = infinite.roots([Source(1, ())])
    with pytest.raises(SgdecError, match="'up' gave inf as the score of token 3"):
        SearchSpace(infinite, root).expand([root])


def test_one_predictor_that_is_no_automaton_and_all_are_combined() -> None:
    table = Table(np.zeros((5, 5)))
    assert Constellation.of({"chain": Chain(-1.0), "table": table}).automaton is None
    assert Constellation.of({"table": table}).automaton is None


def test_a_bound_that_is_missing_is_refused_as_ever() -> None:
    constellation = Constellation.of({"chain": Chain(-1.0)})
    (root,) = constellation.roots([Source(1, (), max_length=2)])
    space = SearchSpace(constellation, root)
    (children,) = space.expand([root], limit=2, bounded=True)
    with pytest.raises(SgdecError, match="'chain' does not declare best_remaining"):
        space.bound(children)


# Sums.


class Fixed(BatchPredictor):
    """Allows token 3 with one score, in all forms."""

    independent_rows = True

    def __init__(self, score: float) -> None:
        self.score = score

    def initialize_batch(self, sources: Sequence[Source]) -> list[State]:
        return [0 for _ in sources]

    def predict_batch(self, states: Sequence[State], candidates: Sequence[Candidates | None] | None = None) -> Scores:
        return Scores(rows=[SparseRow([3], [self.score]) for _ in states])

    def consume_batch(self, states: Sequence[State], tokens: Sequence[int]) -> list[State]:
        return [state + 1 for state in states]

    def steps(self, state: State, candidates: Candidates | None) -> Steps:
        tokens = [3] if candidates is None else candidates
        return tokens, [self.score if token == 3 else -math.inf for token in tokens], [state + 1 for _ in tokens]

    def arcs(self, states: Ints, candidates: Listed | None) -> Arcs:
        offsets, tokens = candidates or (np.arange(len(states) + 1), np.full(len(states), 3))
        return offsets, tokens, np.where(tokens == 3, self.score, -math.inf), np.ones(len(tokens), np.int64)


def compensated(items: Iterable[Any], start: Any = 0) -> Any:
    """`sum` as it is from Python 3.12 on: floats are added up without rounding errors."""
    listed = list(items)
    floats = any(isinstance(item, float) for item in listed) and all(map(math.isfinite, listed))
    return start + math.fsum(listed) if floats else BUILTIN_SUM(listed, start)


BUILTIN_SUM = sum


@pytest.mark.parametrize(
    ("scores", "left_to_right"),
    [
        ((-0.1,), -0.1),
        ((-0.1, -0.2), -0.30000000000000004),
        ((-0.1, -0.2, -0.3), -0.6000000000000001),
        ((1e16, -1.0, -1e16), 0.0),
        ((-0.3, -0.3, -0.3, -0.3), -1.2),
        ((1e16, 1.0, 1.0, -1e16), 0.0),
        ((0.1, 0.2, 0.3, -0.6, 1e-20), 1.1103230246251565e-16),
    ],
)
def test_scores_are_added_from_left_to_right_in_all_forms(
    scores: tuple[float, ...], left_to_right: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever Python's own sum does."""
    monkeypatch.setattr(builtins, "sum", compensated)
    fixed = {f"p{k}": Fixed(score) for k, score in enumerate(scores)}
    bare = opened_with(fixed)
    assert bare.constellation.automaton is not None and bare.constellation.product is not None
    rows = HypothesisRows([bare]).best_together(np.zeros(1, np.int64), np.zeros(1), 2, np.zeros(1, dtype=bool))
    found = rows.total.tolist()
    for space in (bare, opened_with({name: PassThrough(predictor) for name, predictor in fixed.items()})):
        found += [node.total for node in space.expand([space.root])[0]]
        found += [node.total for node in space.best_children([space.root], 2)]
    assert found == [left_to_right] * 5


@every_seed
def test_rows_grow_by_the_best_children_of_each_whatever_the_predictors_are(
    predictors: dict[str, BatchPredictor], seed: int
) -> None:
    found = []
    for composed in (True, False):
        space = opened(predictors, seed, composed=composed)
        rows = HypothesisRows([space])
        assert (space.constellation.product is not None) is composed
        totals, path = np.zeros(1), []
        for length in range(4):
            children = rows.best_children(2, np.array([length == 3]))
            totals = rows.totals(totals, children)
            path.append((children.tokens.tolist(), totals.tolist()))
            token, totals = children.tokens[:, 0], totals[:, 0]
            if token[0] == EOS or not math.isfinite(totals[0]):
                break
            rows.consume(np.zeros(1, np.int64), token)
        found.append(path)
    assert found[0] == found[1]


@pytest.mark.parametrize("composed", [True, False])
def test_at_the_length_limit_a_search_with_banks_gets_ends_only(
    predictors: dict[str, BatchPredictor], composed: bool
) -> None:
    """The best token of a row, whatever it is, is among the children of a search with banks."""
    met = 0
    for seed in SEEDS:
        space = opened(predictors, seed, composed=composed)
        rows = HypothesisRows([space])
        for ending in (False, True):
            found = rows.best_together(np.zeros(1, np.int64), np.zeros(1), 3, np.array([ending]), advancing=True)
            assert len(found.token) or ending
            assert not ending or set(found.token.tolist()) <= {EOS}
            met += ending and space.expand([space.root], limit=1)[0][0].last != EOS
    assert met, "in some row another token is better than </s>"


def opened_with(predictors: Mapping[str, BatchPredictor]) -> SearchSpace:
    constellation = Constellation.of(predictors)
    (root,) = constellation.roots([Source(1, (3,), max_length=2)])
    return SearchSpace(constellation, root)
