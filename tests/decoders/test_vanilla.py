"""The promise of `vanilla`: all that `beam` finds, in whole arrays: tokens, order, scores, ledgers, expansions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sgdec_decoders.beam import BeamDecoder
from sgdec_decoders.vanilla import VanillaDecoder
from sgdec_predictors.ngram import NGram
from sgdec_predictors.nmt import NmtPredictor
from sgdec_predictors.unkc import UnkCount
from sgdec_predictors.wc import WordCount

from sgdec import EOS, Context, Predictor, Scores, SgdecError, Source, UsageError
from sgdec.protocol import FORBIDDEN, BatchPredictor, Candidates, State
from sgdec.search.constellation import Constellation
from sgdec.search.scheduler import Scheduler
from sgdec.testing.toys import BatchTable, Bonus, Lattice, OnDemandTable, PassThrough, Table
from tests.helpers.both_beams import OPTIONS, SOURCES, WITH_COVERAGE, V, compare, opened, options
from tests.helpers.breadth import examples, some
from tests.helpers.tiny_models import write_checkpoint

Predictors: TypeAlias = dict[str, Predictor | BatchPredictor]
def random_table(seed: int, forbid: float = 0.0, size: int = V) -> Any:
    rng = np.random.default_rng(seed)
    return np.where(rng.random((size, size)) < forbid, FORBIDDEN, rng.normal(-0.9, 1.0, (size, size)))


# Toys.

TOYS: dict[str, Callable[[], Constellation]] = {
    "one table": lambda: Constellation.of({"a": Table(random_table(1))}),
    "both forms": lambda: Constellation.of(
        {"a": Table(random_table(2)), "b": BatchTable(random_table(3))}, weights=[0.6, 0.4]
    ),
    "on demand and a wrapper": lambda: Constellation.of(
        {"a": OnDemandTable(random_table(4)), "b": PassThrough(BatchTable(random_table(5)))}
    ),
    "negative, zero, none": lambda: Constellation.of(
        {"a": Table(random_table(6)), "b": Table(random_table(7, 0.2)), "c": Table(random_table(8, 0.2)),
         "d": Table(random_table(9, 0.5))},
        weights=[1.0, -0.7, 0.0, None],
    ),
    "word count": lambda: Constellation.of({"a": Table(random_table(10)), "wc": WordCount()}, weights=[1.0, -0.8]),
    "open rows with a gap": lambda: Constellation.of(
        {"open": Bonus({3: FORBIDDEN, 4: 0.5, EOS: -0.1}, default=-0.3), "a": Table(random_table(11)),
         "zero": Bonus({5: FORBIDDEN, 6: -1.0}), "free": WordCount(token=4)},
        weights=[0.9, 1.0, 0.0, 0.0],
    ),
    "open rows alone": lambda: Constellation.of(
        {"open": Bonus({3: 0.5, 4: -1.0}, default=-0.3), "wc": WordCount()}, weights=[1.0, 0.5], vocab_size=V
    ),
    "unknown words": lambda: Constellation.of(
        {"a": Table(random_table(12)), "unkc": UnkCount(lambdas=(0.3, 1.7, 4.0))}, weights=[1.0, 0.5]
    ),
    "dead ends": lambda: Constellation.of({"a": Table(random_table(13, 0.6))}),
    "no predictor consulted": lambda: Constellation.of(
        {"a": Table(random_table(14))}, weights=[None], vocab_size=V
    ),
    "all equal": lambda: Constellation.of({"a": Table(np.full((V, V), -1.0))}),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"), [(name, options) for i, name in enumerate(TOYS) for options in some(OPTIONS, i)], ids=str
)
def test_toys_give_what_beam_gives(name: str, options: dict[str, Any]) -> None:
    compare(TOYS[name](), SOURCES, options)


@pytest.mark.slow
@pytest.mark.parametrize("options", WITH_COVERAGE, ids=str)
def test_coverage_of_several_predictors_gives_what_beam_gives(options: dict[str, Any]) -> None:
    tables: Predictors = {
        "a": BatchTable(random_table(1)),
        "b": Table(random_table(2)),
        "c": BatchTable(random_table(3)),
    }
    for weights in ([1.0, 0.5, 0.5], [1.0, 1.0, None]):
        compare(Constellation.of(tables, weights=weights), SOURCES, options)


scores = st.sampled_from([-1.0, -0.5, 0.0, 0.25, FORBIDDEN]) | st.floats(-3, 3, allow_nan=False, width=32)


@pytest.mark.slow
@settings(deadline=None, max_examples=examples(150))
@given(
    st.lists(st.lists(scores, min_size=5, max_size=5), min_size=5, max_size=5),
    st.lists(scores, min_size=2, max_size=2),
    st.sampled_from([1.0, -1.0, 0.0, 0.3, None]),
    st.lists(st.integers(0, 4), min_size=1, max_size=4),
    options(),
    st.integers(1, 4),
)
def test_ties_pruning_and_dead_ends_are_settled_as_beam_settles_them(
    table: list[list[float]],
    bonus: list[float],
    weight: float | None,
    limits: list[int],
    options: dict[str, Any],
    nbest: int,
) -> None:
    predictors: Predictors = {"table": Table(table), "bonus": Bonus({3: bonus[0]}, default=max(bonus[1], -4.0))}
    constellation = Constellation.of(predictors, weights=[1.0, weight])
    sources = [Source(i, (3,), max_length=limit) for i, limit in enumerate(limits, 1)]
    compare(constellation, sources, options, nbest)


@settings(deadline=None, max_examples=examples(30))
@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.5, 0.9]), options())
def test_vocabularies_wider_than_a_block_of_the_sort_give_what_beam_gives(
    seed: int, forbid: float, options: dict[str, Any]
) -> None:
    rng = np.random.default_rng(seed)
    table = rng.integers(-4, 1, (400, 400)) / 2.0
    table[rng.random(table.shape) < forbid] = FORBIDDEN
    compare(Constellation.of({"a": Table(table)}), SOURCES[:4], options)


# Models.


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[NmtPredictor]:
    """Two models over the same letters, in double precision."""
    folder = tmp_path_factory.mktemp("models")
    paths = [write_checkpoint(folder / str(seed), seed=seed) for seed in (1, 2)]
    return [NmtPredictor(str(path), Context(precision="fp64")) for path in paths]


@pytest.fixture(scope="module")
def arpa(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A bigram model over the ids of the models' tokens."""
    path = tmp_path_factory.mktemp("arpa") / "lm.arpa"
    unigrams = ["-99\t<s>\t-0.5", "-0.9\t</s>", "-1.5\t<unk>", "-0.6\t3\t-0.3", "-0.8\t4\t-0.2", "-1.1\t5\t-0.4"]
    bigrams = ["-0.4\t<s> 3", "-0.3\t3 4", "-0.7\t4 5", "-0.5\t4 </s>", "-0.2\t5 3"]
    lines = ["\\data\\", f"ngram 1={len(unigrams)}", f"ngram 2={len(bigrams)}", "", "\\1-grams:", *unigrams]
    path.write_text("\n".join([*lines, "", "\\2-grams:", *bigrams, "", "\\end\\", ""]))
    return str(path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mix", "options"),
    [
        (mix, options)
        for i, mix in enumerate(("nmt", "nmt,nmt2,wc", "nmt,wc,ngram"))
        for options in some([OPTIONS[0], *OPTIONS[5:9], *WITH_COVERAGE], i)
    ],
    ids=str,
)
def test_models_in_double_precision_give_what_beam_gives(
    models: list[NmtPredictor], arpa: str, mix: str, options: dict[str, Any]
) -> None:
    known: dict[str, tuple[Predictor | BatchPredictor, float]] = {
        "nmt": (models[0], 0.7),
        "nmt2": (models[1], 0.3),
        "wc": (WordCount(), -0.4),
        "ngram": (NGram(path=arpa, context=Context(vocab_size=V)), 0.3),
    }
    names = mix.split(",")
    predictors: Predictors = {name: known[name][0] for name in names}
    constellation = Constellation.of(predictors, weights=[known[name][1] for name in names], vocab_size=V)
    tolerance = 1e-6 if "ngram" in names else 1e-9  # an ngram has its scores in single precision
    found = compare(constellation, SOURCES, options, tolerance=tolerance)
    assert all(result.hypotheses for result in found)


def test_models_in_single_precision_give_what_beam_gives_within_its_precision(tmp_path: Path) -> None:
    predictors: Predictors = {
        str(seed): NmtPredictor(str(write_checkpoint(tmp_path / str(seed), seed=seed))) for seed in (1, 2)
    }
    constellation = Constellation.of(predictors, vocab_size=V)
    compare(constellation, SOURCES, {"size": 4, "stop": "full", "alpha": 0.6, "beta": 0.2}, tolerance=1e-4)


def test_a_language_model_alone_gives_what_beam_gives(arpa: str) -> None:
    constellation = Constellation.of({"ngram": NGram(path=arpa, context=Context(vocab_size=V))}, vocab_size=V)
    compare(constellation, SOURCES, {"size": 4, "stop": "full"}, tolerance=1e-6)


# Batches.


class Watched(BatchTable):
    """Remembers how many rows it was asked for."""

    def __init__(self, table: Any) -> None:
        super().__init__(table)
        self.asked: list[int] = []

    def predict_batch(self, states: Sequence[State], candidates: Any = None) -> Scores:
        self.asked.append(len(states))
        return super().predict_batch(states, candidates)


def test_sentences_that_are_done_and_hypotheses_that_are_finished_take_no_rows() -> None:
    never_ends = np.full((V, V), -1.0) - 0.01 * np.arange(V)
    never_ends[:, EOS] = -90.0
    predictor = Watched(never_ends)
    constellation = Constellation.of({"a": predictor})
    sources = [Source(i, (3,), max_length=limit) for i, limit in enumerate([3, 0, 1, 5], 1)]
    decoder = VanillaDecoder(size=4, stop="full")
    spaces = opened(constellation, sources, decoder, 1)
    decoder.decode_batch(spaces)
    assert predictor.asked == [4, 12, 8, 8, 4, 4]
    assert [space.expansions for space in spaces] == [13, 1, 5, 21]


def test_a_sentence_decodes_in_a_batch_as_it_decodes_alone(models: list[NmtPredictor]) -> None:
    constellation = Constellation.of({"nmt": models[0]}, vocab_size=V)
    decoder = VanillaDecoder(size=4, stop="full", alpha=0.6, beta=0.3)
    together = decoder.decode_batch(opened(constellation, SOURCES, decoder, 3))
    for source, result in zip(SOURCES, together, strict=True):
        (space,) = opened(constellation, [source], decoder, 3)
        alone = decoder.decode(space)
        assert [h.tokens for h in alone.hypotheses] == [h.tokens for h in result.hypotheses]
        for one, other in zip(alone.hypotheses, result.hypotheses, strict=True):
            assert one.rank_score == pytest.approx(other.rank_score, abs=1e-9)


def test_no_sentences_give_no_results() -> None:
    assert VanillaDecoder().decode_batch([]) == []


def test_sentences_without_a_limit_end_when_the_search_does() -> None:
    table = -0.5 - np.abs(random_table(5))  # scores never rise, so that a proof is found ...
    table[:, EOS] = -0.6  # ... once enough hypotheses are finished
    sources = [Source(1, (3,)), Source(2, (3,), max_length=1)]
    compare(Constellation.of({"a": Table(table)}), sources, {"size": 3, "stop": "proven"})


def test_under_the_scheduler_a_sentence_that_fails_fails_alone(models: list[NmtPredictor]) -> None:
    constellation = Constellation.of({"nmt": models[0]}, vocab_size=V)
    sources = [Source(1, (3, 4), max_length=3), Source(2, (99,), max_length=3), *SOURCES]
    found = list(Scheduler(constellation, VanillaDecoder(size=3), batch_size=4).run(sources))
    expected = list(Scheduler(constellation, BeamDecoder(size=3), batch_size=4).run(sources))
    assert [outcome.error is None for outcome in found] == [outcome.error is None for outcome in expected]
    for one, other in zip(found, expected, strict=True):
        assert one.result.expansions == other.result.expansions
        assert [h.tokens for h in one.result.hypotheses] == [h.tokens for h in other.result.hypotheses]


# Refusals.


def test_a_lattice_beside_a_model_means_what_it_means_in_a_beam() -> None:
    lattice = Lattice({0: {3: (-1.0, 1), 4: (-0.5, 1)}, 1: {EOS: (0.0, 2)}})
    constellation = Constellation.of({"model": Table(random_table(1)), "lattice": lattice})
    found = [
        [outcome.result for outcome in Scheduler(constellation, decoder, nbest=2).run(SOURCES)]
        for decoder in (VanillaDecoder(), BeamDecoder())
    ]
    assert found[0] == found[1] and any(len(result.hypotheses) == 2 for result in found[0])


def test_open_rows_alone_need_a_vocabulary_size(arpa: str) -> None:
    decoder = VanillaDecoder()
    for predictor in (WordCount(), NGram(path=arpa)):
        with pytest.raises(UsageError, match="--vocab-size"):
            decoder.decode_batch(opened(Constellation.of({"open": predictor}), SOURCES, decoder, 1))


def test_vocabularies_of_different_sizes_are_refused_by_name() -> None:
    constellation = Constellation.of({"a": Table(random_table(1)), "b": Table(random_table(1, size=5))})
    decoder = VanillaDecoder()
    with pytest.raises(UsageError, match="predictor 'b' scores 5 tokens, but the vocabulary has 7"):
        decoder.decode_batch(opened(constellation, SOURCES, decoder, 1))


def test_nan_is_an_error_that_names_predictor_and_token() -> None:
    broken = random_table(2)
    broken[1, 4] = math.nan
    constellation = Constellation.of({"a": Table(random_table(1)), "b": Table(broken)}, weights=[1.0, 0.0])
    decoder = VanillaDecoder()
    with pytest.raises(SgdecError, match="predictor 'b' gave NaN as the score of token 4"):
        decoder.decode_batch(opened(constellation, SOURCES, decoder, 1))


def test_infinite_scores_of_both_signs_are_an_error() -> None:
    high = random_table(1)
    high[:, 3] = math.inf
    low = random_table(2)
    low[:, 3] = -math.inf
    constellation = Constellation.of({"a": Table(high), "b": Table(low)})
    decoder = VanillaDecoder()
    with pytest.raises(SgdecError, match="'a' gave inf as the score of token 3"):
        decoder.decode_batch(opened(constellation, SOURCES[:1], decoder, 1))


class NoBound(Predictor):
    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        return Scores.dense(np.array([-1.0, -1.0, -2.0]))


def test_proof_is_refused_in_one_line_where_a_predictor_declares_no_bound() -> None:
    constellation = Constellation.of({"mystery": NoBound()})
    decoder = VanillaDecoder(stop="proven")
    with pytest.raises(UsageError, match="'mystery' does not declare best_remaining"):
        decoder.decode_batch(opened(constellation, SOURCES, decoder, 1))


def test_spaces_of_different_constellations_are_refused() -> None:
    decoder = VanillaDecoder()
    spaces = [opened(TOYS["one table"](), SOURCES[:1], decoder, 1)[0] for _ in range(2)]
    with pytest.raises(ValueError, match="share a constellation"):
        decoder.decode_batch(spaces)


# The contract, on the spaces that are dense.


@pytest.mark.gpu
def test_on_a_gpu_the_same_hypotheses_come_out(tmp_path: Path) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    context = Context(device="cuda", precision="fp64")
    predictors: Predictors = {"nmt": NmtPredictor(str(write_checkpoint(tmp_path)), context), "wc": WordCount()}
    constellation = Constellation.of(predictors, weights=[1.0, -0.3], vocab_size=V)
    compare(constellation, SOURCES, {"size": 4, "stop": "full", "alpha": 0.6, "beta": 0.2})
