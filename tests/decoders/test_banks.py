"""Banks: every hypothesis that meets more of a constraint competes with its equals, so none of the slots is lost.

Oracles: the definition of the search over explicit tables (`tests.helpers.beam_reference`); all outputs of small
spaces; grid beam search (Hokamp and Liu 2017).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sgdec_decoders._banks import banked
from sgdec_decoders.beam import BeamDecoder
from sgdec_decoders.vanilla import VanillaDecoder
from sgdec_predictors.phrases import Phrases
from sgdec_predictors.regex import RegexPredictor
from sgdec_predictors.wc import WordCount

from sgdec import EOS, Context, Decoder, SearchSpace, SgdecError, Source, UsageError
from sgdec.context import Vocabularies
from sgdec.search.constellation import Constellation
from sgdec.search.scheduler import Scheduler
from sgdec.testing import BatchTable, enumerate_space
from sgdec.testing.trace_checks import require_complete
from sgdec.text.words import SPECIAL, WordVocabulary
from sgdec.trace.records import Tracing
from tests.helpers.beam_reference import SOURCE, Counting, Tabled, constrained, random_definition, random_table
from tests.helpers.both_beams import OPTIONS, compare, options
from tests.helpers.breadth import examples
from tests.helpers.relaxing import WholeLattice, random_automaton

V = 7
LETTERS = WordVocabulary([*SPECIAL, *"abcd"])
CONTEXT = Context(vocabularies=Vocabularies(LETTERS, LETTERS))
SOURCES = [Source(n, (3, 4), max_length=length) for n, length in enumerate((3, 6, 4, 9), 1)]


def by_rounds(progress: Sequence[int], size: int) -> set[int]:
    """One of each bank in turn, those that meet most first."""
    banks = [[i for i, each in enumerate(progress) if each == met] for met in sorted(set(progress), reverse=True)]
    rounds = itertools.chain.from_iterable(itertools.zip_longest(*banks))
    return set(list(filter(lambda place: place is not None, rounds))[:size])


CANDIDATES = st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=9)


@given(st.lists(CANDIDATES, max_size=3), st.integers(1, 6))
def test_slots_go_to_the_banks_in_turn(sentences: list[Any], size: int) -> None:
    flat = [(number, met, takes) for number, each in enumerate(sentences) for met, takes in each]
    sentence, progress = (np.array([row[k] for row in flat], np.int64) for k in (0, 1))
    takes_slot = np.array([row[2] for row in flat], dtype=bool)
    expected = set()
    for number in range(len(sentences)):
        places = [i for i, row in enumerate(flat) if row[0] == number and row[2]]
        expected |= {places[i] for i in by_rounds([flat[place][1] for place in places], size)}
    assert set(np.flatnonzero(banked(sentence, progress, takes_slot, size))) == expected


@pytest.mark.slow
@pytest.mark.parametrize("make", [BeamDecoder, VanillaDecoder])
def test_banks_find_what_their_definition_finds(make: type[Decoder]) -> None:
    different = 0
    for seed in range(150):
        rng = np.random.default_rng(seed)
        table = constrained(random_table(rng, float(seed % 2), coarse=seed % 3 == 0))
        definition = random_definition(rng, banks=True, beta=0.0)
        decoder, nbest = make(**asdict(definition)), 1 + seed % 3
        constellation = Constellation.of({"table": Tabled(table), "counting": Counting()})
        (root,) = constellation.roots([Source(1, (3,) * SOURCE, max_length=table.limit)])
        space = SearchSpace(constellation, root, ranking=decoder.ranking, nbest=nbest)
        found = decoder.decode(space).hypotheses
        expected, expansions = definition.search([table], nbest)
        at = f"seed {seed}: {definition}, nbest {nbest}"
        if not expected:
            continue  # the constraints are then searched alone: a promise of its own
        assert [(*each.tokens, EOS) for each in found] == [h.tokens for h, _ in expected], at
        assert [each.rank_score for each in found] == pytest.approx([rank for _, rank in expected]), at
        assert space.expansions == expansions, at
        plain, _ = random_definition(np.random.default_rng(seed), **{**asdict(definition), "banks": False}).search(
            [table], nbest
        )
        different += expected != plain
    assert different > 20


def phrases(folder: Path, wanted: str, avoid: str = "") -> Phrases:
    (folder / "wanted").write_text(wanted + "\n")
    (folder / "avoid").write_text(avoid + "\n")
    return Phrases(str(folder / "wanted"), str(folder / "avoid"), context=CONTEXT)


def mix(folder: Path, seed: int, wanted: str = "a b | d a\tc", avoid: str = "b b") -> Constellation:
    table = np.random.default_rng(seed).normal(-0.9, 1.0, (V, V))
    predictors = {"table": BatchTable(table), "phrases": phrases(folder, wanted, avoid), "wc": WordCount()}
    return Constellation.of(predictors, weights=[1.0, 0.5, -0.3], vocab_size=V)


@pytest.mark.slow
@pytest.mark.parametrize("given", OPTIONS, ids=str)
def test_vanilla_finds_what_beam_finds_with_banks(tmp_path: Path, given: dict[str, Any]) -> None:
    if given.get("stop") != "proven":
        compare(mix(tmp_path, 1), SOURCES, {**given, "banks": True})


@pytest.mark.slow
@given(options(), st.integers(0, 10_000))
def test_vanilla_finds_what_beam_finds_with_any_options(
    tmp_path_factory: pytest.TempPathFactory, given: dict[str, Any], seed: int
) -> None:
    compare(mix(tmp_path_factory.mktemp("mix"), seed), SOURCES[:3], {**given, "stop": "full", "banks": True})


@pytest.mark.slow
def test_a_wide_beam_with_banks_finds_the_true_nbest(tmp_path: Path) -> None:
    for seed in range(examples(8)):
        constellation = mix(tmp_path, seed)
        source = Source(1, (3, 4), max_length=4)
        best = sorted(enumerate_space(constellation, source), key=lambda path: -path.total)[:3]
        decoder = BeamDecoder(size=3000, stop="length", banks=True)
        (root,) = constellation.roots([source])
        found = decoder.decode(SearchSpace(constellation, root, nbest=3)).hypotheses
        assert [each.tokens for each in found] == [path.tokens for path in best]


def test_banks_meet_the_phrases_that_a_beam_alone_misses(tmp_path: Path) -> None:
    """The model almost never chooses them."""
    found = dict.fromkeys((False, True), 0)
    for seed, banks in itertools.product(range(10), found):
        table = np.random.default_rng(seed).normal(-1.0, 0.5, (V, V))
        table[:, [3, 5]] -= 20.0
        predictors = {"table": BatchTable(table), "phrases": phrases(tmp_path, "a c\tc")}
        constellation = Constellation.of(predictors, vocab_size=V)
        (root,) = constellation.roots([Source(1, (3,), max_length=6)])
        result = BeamDecoder(size=4, banks=banks).decode(SearchSpace(constellation, root))
        found[banks] += bool(result.hypotheses)
    assert found[True] == 10 and found[False] < 5


@pytest.mark.slow
@given(st.integers(0, 100_000))
def test_a_search_with_banks_has_a_result_if_there_is_one(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    """Whatever phrases, patterns and lattices allow within the limit; the limit is often just long enough."""
    rng = np.random.default_rng(seed)
    texts = ["a", "b c", "c a", "a b c", "d", "d d a"]
    wanted = "\t".join(rng.choice(texts, rng.integers(1, 4), replace=False))
    avoid = "\t".join(rng.choice(["a a", "b b", "c d", "a d", "d c"], rng.integers(0, 4), replace=False))
    folder = tmp_path_factory.mktemp("any")
    try:
        predictors: dict[str, Any] = {"phrases": phrases(folder, wanted, avoid)}
    except SgdecError:
        return
    if rng.random() < 0.4:
        pattern = rng.choice(["[ab ]*(c [a-d ]*)?", "[a-d]( [a-d])*", "([a-d] [a-d] )*d?", "d.*|.*a"])
        predictors["regex"] = RegexPredictor(pattern, context=CONTEXT)
    if rng.random() < 0.4:
        predictors["lattice"] = WholeLattice([random_automaton(rng, 4, V, cyclic=True)])
    source = Source(1, (3,), max_length=int(rng.integers(1, 6)))
    constraints = Constellation.of(predictors, vocab_size=V)
    try:
        allowed = {path.tokens for path in enumerate_space(constraints, source)}
    except SgdecError:
        return
    constellation = Constellation.of({"table": BatchTable(rng.normal(-1, 2, (V, V))), **predictors}, vocab_size=V)
    decoder = BeamDecoder(size=int(rng.integers(1, 4)), banks=True, stop=str(rng.choice(["best", "full"])))
    (root,) = constellation.roots([source])
    found = decoder.decode(SearchSpace(constellation, root)).hypotheses
    assert bool(found) == bool(allowed)
    assert {each.tokens for each in found} <= allowed


def test_searches_in_batches_find_what_they_find_alone(tmp_path: Path) -> None:
    def results(**how: Any) -> list[Any]:
        outcomes = Scheduler(mix(tmp_path, 3), BeamDecoder(size=3, banks=True), nbest=2, **how).run(iter(SOURCES))
        return [[(each.tokens, each.score) for each in outcome.result.hypotheses] for outcome in outcomes]

    assert results(batch_size=1) == results(batch_size=4) == results(batch_size=4, max_rows=2)


@pytest.mark.slow
@pytest.mark.parametrize("stop", ["best", "full", "length"])
def test_traces_say_why_children_are_dropped(tmp_path: Path, stop: str) -> None:
    """Those of `vanilla` are those of `beam`."""
    found = []
    for make in (BeamDecoder, VanillaDecoder):
        decoder: Any = make(size=3, banks=True, stop=stop, prune_local=1.0, prune_final=0.5)
        scheduler = Scheduler(mix(tmp_path, 5), decoder, nbest=2, batch_size=2, tracing=Tracing(children=3))
        found.append([outcome.trace for outcome in scheduler.run(iter(SOURCES))])
        for trace in found[-1]:
            assert trace is not None
            require_complete(trace, stop)
    assert found[0] == found[1]


def test_banks_need_a_predictor_that_counts(tmp_path: Path) -> None:
    constellation = Constellation.of({"table": BatchTable(np.zeros((V, V)))})
    for make in (BeamDecoder, VanillaDecoder):
        (root,) = constellation.roots([Source(1, (3,), max_length=4)])
        with pytest.raises(UsageError, match=r"banks need a predictor that counts .*, and none of table does"):
            make(banks=True).decode(SearchSpace(constellation, root))


def grid_beam_search(table: Any, predictor: Phrases, limit: int, size: int) -> tuple[float, tuple[int, ...]]:
    """Hokamp and Liu 2017, Algorithm 1: a beam for each length and each number of constraint tokens met."""
    beams: dict[tuple[int, int], list[tuple[float, tuple[int, ...]]]] = {(0, 0): [(0.0, ())]}
    best = -math.inf, ()
    for length in range(limit + 1):
        for met in range(9):
            for total, tokens in sorted(beams.get((length, met), []), reverse=True)[:size]:
                states = predictor.initialize_batch([Source(1, ())])
                for token in tokens:
                    states = predictor.consume_batch(states, [token])
                (row,), last = predictor.predict_batch(states).rows, tokens[-1] if tokens else 1
                for token in range(V):
                    score = total + table[last, token]
                    if row.get(token) == 0.0 and token == EOS:
                        best = max(best, (score, tokens))
                    elif row.get(token) == 0.0 and length < limit:
                        after = predictor.consume_batch(states, [token])
                        at = length + 1, predictor.progress(after)[0][0]
                        beams.setdefault(at, []).append((score, (*tokens, token)))
    return best


@pytest.mark.slow
def test_banks_and_grid_beam_search_agree_where_both_are_wide(tmp_path: Path) -> None:
    predictor = phrases(tmp_path, "a b\tc")
    for seed in range(3):
        table = np.random.default_rng(seed).normal(-1.0, 1.0, (V, V))
        constellation = Constellation.of({"table": BatchTable(table), "phrases": predictor}, vocab_size=V)
        (root,) = constellation.roots([Source(1, (3,), max_length=4)])
        decoder = BeamDecoder(size=3000, stop="length", banks=True)
        (found,) = decoder.decode(SearchSpace(constellation, root)).hypotheses
        total, tokens = grid_beam_search(table, predictor, 4, 3000)
        assert (found.tokens, found.score) == (tokens, pytest.approx(total))
