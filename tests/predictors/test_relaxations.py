"""The promise: the relaxations of the bundled predictors bound every score after every short prefix, and those that
are documented as exact are exact: with a lattice, the product bound is the score of the best completion."""

from __future__ import annotations

import gc
import itertools
import math
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from sgdec.context import EOS
from sgdec.lifting import lift
from sgdec.protocol import BatchPredictor, Source, State
from sgdec.search.constellation import Constellation
from sgdec.search.space import SearchSpace
from sgdec.testing import enumerate_space
from sgdec.wrapping import Wrapper
from tests.helpers.breadth import examples
from tests.helpers.contracts import HOST
from tests.helpers.relaxing import Trigrams, WholeLattice, random_automaton

V = 6
DEEPEST = 4
INF = math.inf
SOURCES = (Source(1, (3, 0, 4), max_length=5, text="a b, c"), Source(2, (4, 0), text="d e"))
WEIGHTS = (1.0, 0.5, -1.0)

Options = dict[str, Any]
Reached = tuple[State, dict[int, float], dict[int, State]]
"""A state, its finite scores by token, and the states after the tokens."""


class Case(NamedTuple):
    plugin: str
    options: Callable[[Path], Options]
    exact: bool = True


def file_of(text: str, name: str = "given") -> Callable[[Path], Options]:
    def write(folder: Path) -> Options:
        (folder / name).write_text(text)
        return {"path": str(folder / name)}

    return write


BAGS = file_of("3 4 4 5\n5 5\n")
NBEST = file_of(
    "1 ||| 3 0 4 ||| ||| -1\n1 ||| 3 4 ||| ||| -3\n1 ||| 0 4 4 ||| ||| 0.5\n1 ||| ||| ||| -9\n2 ||| 0 0 ||| ||| 1\n"
)
NGRAMS = file_of("3 : 0.3\n3 4 : 0.1\n4 3 4 : -0.7\n4 : 0.2\n1 3 : 0.6\n4 2 : 1.1\n2 : -0.4\n5 3 4 : 0.7\n3 1 : 9\n")
OPPOSED = file_of("4 : -5\n3 4 : 1\n5 3 4 : 1\n5 : 5\n3 5 : -1\n4 3 5 : -1\n")
"""After 4 5 3 the first is used up, so 4 scores more than the sum of its three; and 5 after 5 4 3 scores less."""
LENGTH = (0.0,) * 10 + (1.0, 0.2)
CASES = {
    "wc": Case("wc", lambda _: {}),
    "wc of a token": Case("wc", lambda _: {"token": 4}),
    "wc of the end": Case("wc", lambda _: {"token": EOS}),
    "unkc": Case("unkc", lambda _: {"lambdas": (0.3, 2.5)}),
    "length": Case("length", lambda _: {"weights": LENGTH}),
    "length at once": Case("length", lambda _: {"weights": LENGTH, "point": True, "offset": 2}),
    "extlength": Case("extlength", file_of("1:-0.5 4:1.25 3\n0:0.5 2:-2\n")),
    "minlength": Case("minlength", lambda _: {"tokens": 2}),
    "maxlength": Case("maxlength", lambda _: {"tokens": 3}),
    "norepeat": Case("norepeat", lambda _: {"order": 2}, exact=False),
    "bow": Case("bow", BAGS),
    "bow with subsets": Case("bow", lambda folder: {**BAGS(folder), "accept_subsets": True}),
    "bow with duplicates": Case("bow", lambda folder: {**BAGS(folder), "accept_duplicates": True}),
    "forcedlst": Case("forcedlst", lambda folder: {**NBEST(folder), "match_unk": True}),
    "ngramc": Case("ngramc", NGRAMS),
    "discounted ngramc": Case("ngramc", lambda folder: {**NGRAMS(folder), "discount": 0.3}, exact=False),
    "opposed ngramc once": Case("ngramc", lambda folder: {**OPPOSED(folder), "discount": 0.0}, exact=False),
    "ngramc once": Case("ngramc", lambda folder: {**NGRAMS(folder), "discount": 0.0}, exact=False),
}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


def made(case: Case, folder: Path) -> Any:
    return lift(HOST.load("predictor", case.plugin)(**case.options(folder)))


def reachable(predictor: BatchPredictor, source: Source) -> Iterator[Reached]:
    """All prefixes of at most `DEEPEST` tokens that are not forbidden."""
    waiting: list[tuple[State, int]] = [(predictor.initialize_batch([source])[0], 0)]
    while waiting:
        state, length = waiting.pop()
        (row,) = predictor.predict_batch([state]).rows
        finite = {token: row.get(token) for token in range(V) if row.get(token) > -INF}
        going_on = length < min(DEEPEST, INF if source.max_length is None else source.max_length)
        after = {
            token: predictor.consume_batch([state], [token])[0] for token in finite if token != EOS and going_on
        }
        yield state, finite, after
        waiting += [(each, length + 1) for each in after.values()]


def best_totals(constellation: Constellation, source: Source) -> dict[tuple[int, ...], float]:
    """By enumeration: the best total of the hypotheses that begin with each prefix."""
    best: dict[tuple[int, ...], float] = {}
    for path in enumerate_space(constellation, source):
        for length in range(len(path.tokens) + 1):
            prefix = path.tokens[:length]
            best[prefix] = max(path.total, best.get(prefix, -INF))
    return best


@pytest.mark.slow
@pytest.mark.parametrize("source", SOURCES, ids=["limited", "unlimited"])
def test_every_relaxation_bounds_every_score_and_follows_every_token(
    case: Case, source: Source, tmp_path: Path
) -> None:
    predictor = made(case, tmp_path)
    found = list(reachable(predictor, source))
    relaxations = predictor.relaxations(found[0][0])
    assert relaxations[-1].size == 1 and relaxations[-1].memory == 0
    states = [state for state, finite, _ in found for _ in finite]
    tokens = np.array([token for _, finite, _ in found for token in finite])
    scores = np.array([score for _, finite, _ in found for score in finite.values()])
    goes_on = np.array([token in after for _, finite, after in found for token in finite])
    following = [after[token] for _, finite, after in found for token in finite if token in after]
    for relaxation in relaxations:
        here = np.array(relaxation.of(states))
        assert ((here >= 0) & (here < relaxation.size)).all()
        assert (relaxation.lowest(here, tokens) <= scores).all()
        assert (relaxation.highest(here, tokens) >= scores).all()
        assert relaxation.after(here[goes_on], tokens[goes_on]).tolist() == list(relaxation.of(following))


@pytest.mark.slow
@pytest.mark.parametrize("source", SOURCES, ids=["limited", "unlimited"])
def test_an_exact_relaxation_gives_the_scores_themselves(case: Case, source: Source, tmp_path: Path) -> None:
    if not case.exact:
        return
    predictor = made(case, tmp_path)
    relaxation = predictor.relaxations(predictor.initialize_batch([source])[0])[0]
    for state, finite, _ in reachable(predictor, source):
        at = np.full(V, relaxation.of([state])[0]), np.arange(V)
        highest, lowest = relaxation.highest(*at), relaxation.lowest(*at)
        assert highest.tolist() == [finite.get(token, -INF) for token in range(V)]
        # The lowest of no finite score bounds nothing, and must not: with a negative weight it would allow the token.
        assert all(lowest[token] == finite.get(token, lowest[token]) for token in range(V))


@pytest.mark.slow
@pytest.mark.parametrize("weight", WEIGHTS)
@pytest.mark.parametrize("source", SOURCES, ids=["limited", "unlimited"])
def test_with_a_lattice_the_product_bound_is_exact(
    case: Case, source: Source, weight: float, tmp_path: Path
) -> None:
    """At every prefix, against enumeration. In a cyclic lattice, and with a discount, it is only a bound."""
    for seed in range(examples(8)):
        rng = np.random.default_rng(seed)
        cyclic = source.max_length is not None and seed % 2 == 1
        lattices = [random_automaton(rng, 5, V, cyclic) for _ in SOURCES]
        predictors = {"lattice": WholeLattice(lattices), "other": made(case, tmp_path)}
        constellation = Constellation.of(predictors, weights=(1.0, weight), vocab_size=V, bounds="product")
        space = SearchSpace(constellation, constellation.roots([source])[0])
        reachable_from = best_totals(constellation, source)
        waiting = [space.root]
        while waiting:
            node = waiting.pop()
            reached = reachable_from.get(node.tokens, -INF)
            bound = node.total + space.bound([node])[0]
            assert bound >= reached
            if case.exact and not cyclic:
                assert bound == pytest.approx(reached)
            waiting += [child for child in space.expand([node])[0] if not child.finished]


def test_sentences_of_equal_means_share_the_relaxations_of_unkc() -> None:
    predictor = HOST.load("predictor", "unkc")(lambdas=(0.5, 2.0))
    none, also, some = predictor.initialize_batch([Source(1, (3,)), Source(2, (4, 5)), Source(3, (0,))])
    assert predictor.relaxations(none) is predictor.relaxations(also)
    assert predictor.relaxations(none) is not predictor.relaxations(some)


@pytest.mark.slow
@pytest.mark.parametrize("plugin", ["unkc", "length", "extlength", "minlength", "maxlength"])
def test_counts_end_where_prefixes_are_longest(plugin: str, tmp_path: Path) -> None:
    """Far beyond the counts that are distinguished, scores are still bounded, and states still follow."""
    (tmp_path / "lengths").write_text("3:-1 700:2.5 900:-7\n")
    options = {
        "unkc": {"lambdas": (600.0,)},
        "length": {"weights": "0,200,0,0,0,0,0,0,0,0"},
        "extlength": {"path": str(tmp_path / "lengths")},
        "minlength": {"tokens": 900},
        "maxlength": {"tokens": 900},
    }
    predictor = HOST.load("predictor", plugin)(**options[plugin])
    (state,) = predictor.initialize_batch([Source(1, (3, 4, 5), text="three source words")])
    relaxation = predictor.relaxations(state)[0]
    assert relaxation.size <= 1 << 10
    for length in range(1000):
        (here,) = relaxation.of([state])
        (row,) = predictor.predict_batch([state]).rows
        tokens = np.array([0, EOS, 5])
        scores = np.array(row.at(tokens.tolist()))
        states, finite = np.full(3, here), scores > -INF
        assert (relaxation.highest(states, tokens) >= scores).all()
        assert (relaxation.lowest(states, tokens)[finite] <= scores[finite]).all()
        if length < 899:
            (state,) = predictor.consume_batch([state], [0])
            assert relaxation.after(states, tokens)[0] == relaxation.of([state])[0]


def test_a_bag_that_is_too_large_for_numbers_keeps_its_words(tmp_path: Path) -> None:
    words = range(3, 43)
    predictor = made(Case("bow", file_of(" ".join(map(str, words)) + "\n")), tmp_path)
    (state,) = predictor.initialize_batch([Source(1, ())])
    (relaxation,) = predictor.relaxations(state)
    highest = relaxation.highest(np.zeros(50, np.int64), np.arange(50))
    assert [token for token in range(50) if highest[token] == 0.0] == [EOS, *words]


def test_a_list_with_too_many_sets_of_matches_keeps_a_constant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sgdec_predictors.automata.prefix_tree.MOST_SETS", 3)
    predictor = made(CASES["forcedlst"], tmp_path)
    (state,) = predictor.initialize_batch([SOURCES[0]])
    (relaxation,) = predictor.relaxations(state)
    at = np.array([0]), np.array([EOS])
    assert (relaxation.lowest(*at)[0], relaxation.highest(*at)[0]) == (-9.0, 0.5)


# Wrappers.

MAP = [0, 1, 2, 5, 3, 4]
"""The inner token of each outer one."""


def written_map(folder: Path) -> str:
    (folder / "map").write_text("".join(f"{outer} {inner}\n" for outer, inner in enumerate(MAP)))
    return str(folder / "map")


def wrapped(name: str, inner: BatchPredictor, folder: Path) -> Any:
    (folder / "other.ids").write_text("5 5\n3\n")
    options: Options = {
        "idxmap": {"path": written_map(folder)},
        "maskvocab": {"tokens": "4"},
        "altsrc": {"path": str(folder / "other.ids")},
    }[name]
    return HOST.load("predictor", name)(inner, **options)


def language_model(rng: np.random.Generator) -> Trigrams:
    table = rng.normal(size=(V, V, V))
    table[rng.random(table.shape) < 0.1] = -INF
    table[:, :, EOS] = rng.normal(size=(V, V))
    return Trigrams(table)


@pytest.mark.parametrize("name", ["idxmap", "maskvocab", "altsrc"])
def test_a_wrapper_passes_relaxations_on(name: str, tmp_path: Path) -> None:
    """Compared with the inner ones, token by token."""
    inner = language_model(np.random.default_rng(1))
    outer = wrapped(name, inner, tmp_path)
    (state,) = outer.initialize_batch([SOURCES[0]])
    assert all(map(lambda one, other: one is other, outer.relaxations(state), outer.relaxations(state)))
    masked = name == "maskvocab"
    for relaxation, of_inner in zip(outer.relaxations(state), inner.relaxations(state), strict=True):
        assert relaxation.size == of_inner.size and relaxation.of([state]) == of_inner.of([state])
        assert relaxation.memory == (None if masked and of_inner.size > 1 else of_inner.memory)
        for here, token in itertools.product(range(of_inner.size), range(V)):
            at = np.array([here]), np.array([token])
            of_inner_at = np.array([here]), np.array([MAP[token] if name == "idxmap" else token])
            expected: tuple[Any, ...] = (
                of_inner.after(*of_inner_at)[0], of_inner.highest(*of_inner_at)[0], of_inner.lowest(*of_inner_at)[0]
            )  # fmt: skip
            if masked and token == 4:
                expected = here, 0.0, 0.0
            assert (relaxation.after(*at)[0], relaxation.highest(*at)[0], relaxation.lowest(*at)[0]) == expected


@pytest.mark.parametrize("name", ["idxmap", "maskvocab", "altsrc"])
@pytest.mark.parametrize("seed", range(4))
def test_a_wrapped_model_is_folded_in(name: str, seed: int, tmp_path: Path) -> None:
    """No bound is below the best completion, and none is above the plain sum of a lattice that knows nothing."""
    rng = np.random.default_rng(seed)
    predictors = {
        "lattice": WholeLattice([random_automaton(rng, 5, V, cyclic=True)]),
        "lm": wrapped(name, language_model(rng), tmp_path),
    }
    check_bounds(predictors, WEIGHTS[seed % 3])


@pytest.mark.parametrize("name", ["idxmap", "altsrc"])
@pytest.mark.parametrize("seed", range(4))
def test_a_wrapped_lattice_is_folded_into(name: str, seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    lattice = WholeLattice([random_automaton(rng, 5, V, cyclic=True)])
    check_bounds({"lattice": wrapped(name, lattice, tmp_path), "lm": language_model(rng)}, WEIGHTS[seed % 3])


class TooLarge(WholeLattice):
    """An automaton that is too large to be known as a whole."""

    def whole(self, state: State) -> Any:
        return None


@pytest.mark.parametrize("name", ["idxmap", "altsrc"])
def test_a_wrapped_automaton_that_is_too_large_stays_so(name: str, tmp_path: Path) -> None:
    outer = wrapped(name, TooLarge([random_automaton(np.random.default_rng(1), 5, V, cyclic=True)]), tmp_path)
    (state,) = outer.initialize_batch([Source(1, (3,))])
    assert outer.whole(state) is None


def check_bounds(predictors: dict[str, BatchPredictor], weight: float) -> None:
    source = Source(1, (3,), max_length=4)
    constellation = Constellation.of(predictors, weights=(1.0, weight), vocab_size=V, bounds="product")
    space = SearchSpace(constellation, constellation.roots([source])[0])
    assert constellation.folding_under(constellation.weights).helps
    reachable_from = best_totals(constellation, source)
    waiting = [space.root]
    while waiting:
        node = waiting.pop()
        reached = reachable_from.get(node.tokens, -INF)
        (bound,) = space.bound([node])
        assert reached <= node.total + bound < 1e5
        waiting += [child for child in space.expand([node])[0] if not child.finished]


@pytest.mark.slow
def test_an_automaton_is_renumbered_once_and_dies_with_its_sentence(tmp_path: Path) -> None:
    outer = wrapped("idxmap", made(Case("forced", file_of("3 4\n")), tmp_path), tmp_path)
    (state,) = outer.initialize_batch([Source(1, (3,))])
    renumbered = weakref.ref(outer.whole(state)[0])
    assert outer.whole(state + 1)[0] is renumbered()
    outer.release([state])
    gc.collect()
    assert renumbered() is None


@pytest.mark.parametrize("name", ["rank", "skipvocab"])
def test_other_wrappers_pass_nothing_on(name: str) -> None:
    options: Options = {"rank": {}, "skipvocab": {"tokens": "4"}}[name]
    outer = HOST.load("predictor", name)(language_model(np.random.default_rng(1)), **options)
    assert not hasattr(outer, "relaxations") and not hasattr(outer, "whole")


def test_a_wrapper_of_a_plugin_passes_on_what_it_lists() -> None:
    class Listing(Wrapper):
        forwards = ("relaxations", "whole")

    model, lattice = language_model(np.random.default_rng(1)), WholeLattice([])
    assert not hasattr(Wrapper(model), "relaxations")
    assert hasattr(Listing(model), "relaxations") and not hasattr(Listing(model), "whole")
    assert hasattr(Listing(lattice), "whole") and not hasattr(Listing(lattice), "relaxations")
