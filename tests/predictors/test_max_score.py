"""The promise: no score is above what a predictor says is its highest, and proofs made of that hold.

The oracles are the definition of a back-off model, word by word in float64, and enumeration.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sgdec_decoders.astar import AStarDecoder
from sgdec_decoders.beam import BeamDecoder
from sgdec_decoders.bucket import BucketDecoder
from sgdec_decoders.dfs import DfsDecoder
from sgdec_decoders.lendfs import LenDfsDecoder
from sgdec_decoders.restarting import RestartingDecoder
from sgdec_decoders.vanilla import VanillaDecoder
from sgdec_predictors.ngram import NGram
from sgdec_predictors.ngrams.backoff import BackoffTable

from sgdec import EOS, Context, Decoder, Source, UsageError
from sgdec.errors import SgdecError
from sgdec.io.arpa import LN_10, Arpa, NGrams, read_arpa, write_arpa
from sgdec.lifting import lift
from sgdec.plugins.host import Host
from sgdec.protocol import BatchPredictor
from sgdec.search.bounds.declared import most_of
from sgdec.search.constellation import Constellation
from sgdec.settings import BoundsKind
from sgdec.testing import BatchTable, Lattice, Table, enumerate_space
from sgdec.testing.random_spaces import CappedTable
from sgdec.testing.reading import read_row
from sgdec.testing.tiny_spaces import LATTICE, TinySpace
from tests.helpers.breadth import examples
from tests.helpers.lattice_files import write_automaton, write_paths
from tests.helpers.oracles import open_nodes, opened, tiny
from tests.helpers.places import DATA
from tests.helpers.random_spaces import expect_the_nbest, search

EXACT: dict[str, Callable[[], Decoder]] = {
    "dfs": DfsDecoder,
    "astar": AStarDecoder,
    "restarting": RestartingDecoder,
    "bucket": BucketDecoder,
    "lendfs": LenDfsDecoder,
    "beam": lambda: BeamDecoder(size=1000, stop="proven"),
    "vanilla": lambda: VanillaDecoder(size=1000, stop="proven"),
}
every_exact = pytest.mark.parametrize("make", EXACT.values(), ids=EXACT)
WORDS = ["</s>", "<s>", "<unk>", "3", "4"]
"""Those of random models; token 5, and every other, is <unk>."""
V = 6

Grams = dict[tuple[str, ...], tuple[float, float]]
"""By n-gram ln p and ln of the back-off weight."""


@st.composite
def models(draw: st.DrawFn) -> Grams:
    """Of order 1 to 4, with back-off weights that are often positive, and probabilities up to one."""
    levels = [[(word,) for word in WORDS]]
    for _ in range(draw(st.integers(0, 3))):
        longer = [(*gram, word) for gram in levels[-1] if gram[-1] != "</s>" for word in WORDS if word != "<s>"]
        if not longer:
            break
        levels.append(draw(st.lists(st.sampled_from(longer), min_size=1, max_size=8, unique=True)))
    found: Grams = {}
    for n, level in enumerate(levels, 1):
        for gram in level:
            is_history = n < len(levels) and gram[-1] != "</s>"
            backoff = draw(st.sampled_from([0.0, -0.5, 0.25, 1.0, 2.0])) if is_history else 0.0
            score = -99.0 if gram == ("<s>",) else draw(st.sampled_from([-4.0, -2.0, -1.0, -0.5, -0.25, 0.0]))
            found[gram] = score, backoff
    return found


def arpa(grams: Grams) -> Arpa:
    words = [gram[0] for gram in grams if len(gram) == 1]
    place = {word: i for i, word in enumerate(words)}
    orders = []
    for n in range(1, 1 + max(map(len, grams))):
        level = [gram for gram in grams if len(gram) == n]
        ids = np.array([[place[word] for word in gram] for gram in level], np.int32)
        orders.append(NGrams(ids, *(np.array(column) for column in zip(*(grams[g] for g in level), strict=True))))
    return Arpa(words, orders)


def ngram(grams: Grams, folder: Path, size: int = V) -> NGram:
    path = folder / "lm.arpa"
    write_arpa(path, arpa(grams))
    return NGram(str(path), context=Context(vocab_size=size))


def score(grams: Grams, history: tuple[str, ...], word: str) -> float:
    """ln p(word | history), by the definition (Katz 1987)."""
    if (*history, word) in grams:
        return grams[*history, word][0]
    if not history:
        raise KeyError(word)
    backoff = grams[history][1] if history in grams else 0.0
    return backoff + score(grams, history[1:], word)


def highest(grams: Grams) -> float:
    """Of any word after any history."""
    order = max(map(len, grams))
    inner = [word for word in WORDS if word != "</s>"]
    histories = [("<s>", *rest) for n in range(order) for rest in itertools.product(inner, repeat=n)]
    return max(score(grams, history[-order:], word) for history in histories for word in WORDS)


@settings(max_examples=examples(60))
@given(models())
def test_the_highest_score_of_a_back_off_model_is_worked_out_exactly(grams: Grams) -> None:
    table = BackoffTable(arpa(grams), ["5", "<s>", "</s>", "3", "4"])
    assert table.highest_score() == pytest.approx(highest(grams), abs=1e-5)


@st.composite
def normalised_models(draw: st.DrawFn) -> Grams:
    """Bigrams whose back-off weights make the probabilities after each history sum to one; some are positive."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    words = [word for word in WORDS if word != "<s>"]
    lower = dict(zip(words, rng.dirichlet(np.full(len(words), 0.5)).tolist(), strict=True))
    found: Grams = {("<s>",): (-99.0, 0.0)} | {(word,): (math.log(max(p, 1e-30)), 0.0) for word, p in lower.items()}
    for history in ("<s>", "<unk>", "3", "4"):
        listed = [word for word in words if rng.random() < 0.5][:-1]
        *own, left = rng.dirichlet(np.full(len(listed) + 1, 0.5)).tolist()
        below = sum(p for word, p in lower.items() if word not in listed)
        found[history,] = found[history,][0], math.log(max(left, 1e-30) / max(below, 1e-30))
        found |= {(history, word): (math.log(max(p, 1e-30)), 0.0) for word, p in zip(listed, own, strict=True)}
    return found


@given(normalised_models())
def test_the_highest_score_of_a_normalised_model_is_no_gain(grams: Grams) -> None:
    """So that searches are no looser because some back-off weights are positive."""
    assert BackoffTable(arpa(grams), ["5", "<s>", "</s>", "3", "4"]).highest_score() <= 1e-6


@pytest.mark.parametrize("name", ["moses_lm.en.arpa.gz", "ucam_trivial.ids.arpa.gz"])
def test_real_models_have_positive_back_offs_and_gain_nothing(data_folder: Path, name: str) -> None:
    model = read_arpa(data_folder / "data" / "lm" / name)
    assert max(ngrams.backoffs.max() for ngrams in model.orders) > 0.5
    assert -0.1 < BackoffTable(model, model.words).highest_score() <= 0.0


FALSE_PROOF: Grams = {
    ("<s>",): (-99 * LN_10, 0.0),
    ("</s>",): (-LN_10, 0.0),
    ("7",): (-1.2 * LN_10, 2 * LN_10),
    ("7", "</s>"): (-LN_10, 0.0),
}
"""After 7, another 7 gains: ``7 7 7 </s>`` has -1.2 + 0.8 + 0.8 - 1 = -0.6."""


@every_exact
def test_a_model_whose_back_offs_gain_is_searched_to_the_end(make: Callable[[], Decoder], tmp_path: Path) -> None:
    decoder = make()
    result, _ = search(decoder, tiny(3, vocab_size=8, lm=ngram(FALSE_PROOF, tmp_path, 8)))
    (best,) = result.hypotheses
    assert best.tokens == (7, 7, 7) and best.score == pytest.approx(-0.6 * LN_10)
    assert result.proven in (True, None)  # None of beams, which may be too narrow


@pytest.mark.slow
@every_exact
@settings(max_examples=examples(25))
@given(grams=models(), limit=st.integers(0, 3), weight=st.sampled_from([1.0, 0.5]), nbest=st.integers(1, 3))
def test_proofs_hold_for_any_back_off_model(
    make: Callable[[], Decoder], tmp_path_factory: Any, grams: Grams, limit: int, weight: float, nbest: int
) -> None:
    decoder = make()
    nbest = 1 if isinstance(decoder, LenDfsDecoder) else nbest  # of each length it lists but the best
    lm = ngram(grams, tmp_path_factory.mktemp("lm"))
    result, _ = search(decoder, tiny(limit, [weight], V, lm=lm), nbest)
    expect_the_nbest(result, tiny(limit, [weight], V, lm=lm), decoder, nbest)


@settings(max_examples=examples(25))
@given(grams=models(), limit=st.sampled_from([None, 2, 3, 4]), weights=st.sampled_from([(1.0, 1.0), (0.5, 2.0)]))
def test_proofs_hold_for_a_lattice_and_any_back_off_model(
    tmp_path_factory: Any, grams: Grams, limit: int | None, weights: tuple[float, float]
) -> None:
    """As automata followed together (`sgdec.search.automata`): arcs and their bounds are kept for all lengths."""
    from sgdec_predictors.fst import FstPredictor

    folder = tmp_path_factory.mktemp("lattice")
    paths = [([3, 4, 5, EOS], 0.5), ([4, 4, EOS], 1.0), ([3, 3, EOS], -0.5), ([4, 5, 3, EOS], 2.0)]
    write_paths(folder / "all.fst", paths)
    predictors = {"fst": FstPredictor(str(folder / "all.fst")), "lm": ngram(grams, folder)}
    kinds: tuple[BoundsKind, ...] = ("sum", "product")
    for kind, make in itertools.product(kinds, (DfsDecoder, AStarDecoder)):
        constellation = partial(Constellation.of, predictors, weights=weights, vocab_size=V, bounds=kind)
        space = TinySpace(kind, constellation, Source(1, (3, 4, 3), max_length=limit))
        decoder: Decoder = make()
        if kind == "sum" and limit is None and constellation().bounds_under(weights).per_token > 0:
            with pytest.raises(UsageError, match=r"'lm' can add to a score without end.*--max-length"):
                search(decoder, space, 3)
        else:
            result, _ = search(decoder, space, 3)
            expect_the_nbest(result, space, decoder, 3)
            assert result.proven


@pytest.mark.parametrize("make", [DfsDecoder, AStarDecoder, BucketDecoder, RestartingDecoder, LenDfsDecoder])
def test_a_gain_that_comes_late_is_not_cut(make: Callable[[], Decoder], tmp_path: Path) -> None:
    """In a lattice, with an n-gram model whose back-offs gain: ``5`` looks better for long."""
    from sgdec_predictors.fst import FstPredictor

    write_paths(tmp_path / "all.fst", [((7,) * 6 + (EOS,), 0.0), ((5, EOS), -2.2 * LN_10)])
    lm = ngram({**FALSE_PROOF, ("5",): (-0.7 * LN_10, 0.0)}, tmp_path, 8)
    result, _ = search(make(), tiny(9, fst=FstPredictor(str(tmp_path / "all.fst")), lm=lm))
    assert result.proven and result.hypotheses[0].tokens == (7,) * 6
    assert result.hypotheses[0].score == pytest.approx((-1.2 + 5 * 0.8 - 1.0) * LN_10)


# Bounds made of max_score.


@settings(max_examples=examples(40))
@given(
    seed=st.integers(0, 2**32),
    shifts=st.lists(st.sampled_from([-3.0, -1.0, 0.0, 2.0]), min_size=2, max_size=2),
    weights=st.lists(st.sampled_from([1.0, 0.5, 0.0, None]), min_size=2, max_size=2),
    limit=st.integers(0, 3),
)
def test_no_completion_beats_a_bound_made_of_the_highest_scores(
    seed: int, shifts: list[float], weights: list[float | None], limit: int
) -> None:
    tables = [np.random.default_rng(seed).normal(shift, 1.0, (5, 5)) for shift in shifts]
    capped = {"a": CappedTable(tables[0]), "b": CappedTable(tables[1])}
    space = opened(tiny(limit, [*weights, 1.0], 5, **capped, c=Lattice(LATTICE)))
    paths = enumerate_space(space.constellation, space.source)
    for node in open_nodes(space):
        reached = [path.total for path in paths if path.tokens[: node.length] == node.tokens]
        assert node.total + space.bound([node])[0] >= max(reached, default=-math.inf) - 1e-9


@pytest.mark.parametrize(
    ("score", "limit", "bound"), [(0.5, 3, 2.0), (-0.5, 3, -0.5), (0.0, None, 0.0), (-0.5, None, -0.5)]
)
def test_a_bound_made_of_the_highest_scores_is_reached(score: float, limit: int | None, bound: float) -> None:
    """Where every token has the highest score: as many as the limit allows if it gains, </s> alone if it costs."""
    space = opened(tiny(limit, a=CappedTable(np.full((4, 4), score))))
    assert space.bound([space.root]) == [bound]
    if limit is not None:
        assert enumerate_space(space.constellation, space.source)[0].total == pytest.approx(bound)


def test_at_the_limit_only_the_end_is_left() -> None:
    assert most_of(0.5, longest=3, length=3) == 0.5 and most_of(0.5, longest=None, length=3) == math.inf


def test_what_gains_and_what_costs_more_add_up_token_by_token() -> None:
    """So no length limit is needed."""
    gains, costs = CappedTable(np.full((4, 4), 0.25)), CappedTable(np.full((4, 4), -1.0))
    space = opened(tiny(None, a=gains, b=costs))
    assert space.bound([space.root]) == [-0.75] and space.never_rises


def test_bounds_count_the_tokens_that_are_left_on_whole_arrays_too() -> None:
    """So `vanilla` drops what `beam` drops, as early."""
    for seed in range(20):
        table = np.random.default_rng(seed).normal(-1.0, 1.0, (5, 5))
        ways = [
            search(make(size=3, stop="proven"), tiny(5, a=CappedTable(table)))
            for make in (BeamDecoder, VanillaDecoder)
        ]
        assert ways[0][0].hypotheses == ways[1][0].hypotheses
        assert ways[0][1].expansions == ways[1][1].expansions


# Wrappers.

TOKENS = 5


class CappedRows(BatchTable):
    """In the batch form, without bounds of its own."""

    best_remaining = worst_remaining = None  # type: ignore[assignment]

    def __init__(self, table: npt.NDArray[np.float64]) -> None:
        super().__init__(table)
        self.max_score = float(table.max())


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "idxmap", "altsrc", "rank", "maskvocab", "skipvocab", "word2char", "fsttok", "temperature", "repetition",
        "rewarded repetition",
    ],
)  # fmt: skip
@settings(max_examples=examples(20))
@given(seed=st.integers(0, 2**32), shift=st.sampled_from([-4.0, 0.0, 3.0]))
def test_no_score_of_a_wrapper_is_above_what_it_says(
    tmp_path_factory: Any, name: str, seed: int, shift: float
) -> None:
    rng = np.random.default_rng(seed)
    inner = CappedRows(rng.uniform(shift - 1.0, shift + 1.0, (9, 9)))
    wrapper = Host(autoload=False).load("predictor", name.split()[-1])
    wrapped = wrapper(inner, **wrapper_options(tmp_path_factory.mktemp("w"), rng)[name])
    rows = [row for source in (Source(1, (3,)),) for row in all_rows(wrapped, source, depth=3)]
    highest = max(row.max() for row in rows)
    assert highest <= wrapped.max_score + 1e-9
    if name in ("idxmap", "altsrc"):
        assert wrapped.max_score == inner.max_score
    unknown = wrapper(lift(Table(np.ones((9, 9)))), **wrapper_options(tmp_path_factory.mktemp("w"), rng)[name])
    assert unknown.max_score == {"rank": -1.0, "temperature": 0.0}.get(name, math.inf)


def wrapper_options(folder: Path, rng: np.random.Generator) -> dict[str, dict[str, Any]]:
    (folder / "map").write_text("\n".join(f"{i} {i}" for i in range(9)))
    (folder / "other").write_text("4\n")
    (folder / "words").write_text("7 3\n8 3 4\n6 4\n")
    end, *costs = rng.uniform(-1, 1, 6).tolist()
    labels = [(0, (3, 7), 0), (0, (0, 8), 1), (1, (0, 6), 2), (2, (4, 5), 0), (1, (3, 0), 0)]
    arcs = [(*leaving, cost, target) for (*leaving, target), cost in zip(labels, costs, strict=True)]
    write_automaton(folder / "t.fst", arcs, {0: end})
    return {
        "idxmap": {"path": str(folder / "map")},
        "altsrc": {"path": str(folder / "other")},
        "rank": {},
        "temperature": {"value": float(rng.choice([0.3, 4.0]))},
        "repetition": {"penalty": 1.5},
        "rewarded repetition": {"penalty": 0.5},
        "maskvocab": {"tokens": "4"},
        "skipvocab": {"tokens": "4,6", "max_skips": 2, "size": 0},
        "word2char": {"path": str(folder / "words")},
        "fsttok": {"path": str(folder / "t.fst")},
    }


def all_rows(predictor: BatchPredictor, source: Source, depth: int) -> list[npt.NDArray[np.float64]]:
    """The rows after all prefixes of up to ``depth`` tokens that it allows."""
    states = predictor.initialize_batch([source])
    found = []
    for _ in range(depth):
        scores = predictor.predict_batch(states)
        rows = [read_row(scores, i, 9) for i in range(len(states))]
        found += rows
        follow = [(s, t) for s, row in zip(states, rows, strict=True) for t in (3, 4, 5) if row[t] > -math.inf]
        if not follow:
            break
        states = predictor.consume_batch([s for s, _ in follow], [t for _, t in follow])
    return found


# A KenLM binary does not list its n-grams.

BINARY = str(DATA / "tiny.kenlm")


def test_a_binary_proves_nothing_until_its_highest_score_is_given() -> None:
    lm = NGram(BINARY, context=Context(vocab_size=8))
    assert lm.max_score == math.inf
    with pytest.raises(
        UsageError, match=r"'lm' does not declare best_remaining or max_score.*--lm.max_score"
    ) as error:
        search(DfsDecoder(), tiny(3, vocab_size=8, lm=lm))
    assert "\n" not in str(error.value)


def test_a_score_above_the_one_that_was_given_is_an_error_that_names_it() -> None:
    for asked in (None, [[3, 4]]):
        given_one = NGram(BINARY, max_score=-1.0, context=Context(vocab_size=8))
        states = given_one.initialize_batch([Source(1, (3,))])
        with pytest.raises(SgdecError, match=r"^ngram: the token '3' scores -0.921\d*, .* max_score, -1\."):
            given_one.predict_batch(states, asked)


def test_a_highest_score_that_holds_changes_no_score() -> None:
    free, held = (NGram(BINARY, max_score=given, context=Context(vocab_size=8)) for given in (None, 0.0))
    states = free.initialize_batch([Source(1, (3,))])
    assert held.max_score == 0.0
    for asked in (None, [[0, 3, 4]]):
        first, second = (read_row(lm.predict_batch(states, asked), 0, 8) for lm in (free, held))
        assert (first == second).all()


def test_the_highest_score_of_an_arpa_file_is_not_asked_for() -> None:
    with pytest.raises(UsageError, match=r"max_score is known .*KenLM binaries"):
        NGram(str(DATA / "tiny.arpa"), max_score=0.0)
