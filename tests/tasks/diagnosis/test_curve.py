"""The beam curve and the oracle are those of separate runs."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

import numpy as np
import pytest

import sgdec
from sgdec.errors import UsageError
from sgdec.protocol import Source
from sgdec.tasks.diagnosis.cases import Case
from sgdec.tasks.diagnosis.curve import beam_curve, oracle, with_size
from sgdec.tasks.diagnosis.proving import ProofBudget
from sgdec.tasks.diagnosis.run import diagnose
from sgdec.testing import Table

pytest.importorskip("sacrebleu")
pytestmark = pytest.mark.slow
V, SIZES = 6, (1, 2, 8)


def table() -> Table:
    scores = np.random.default_rng(3).normal(size=(V, V))
    scores[1, 2] = -9.0  # no empty outputs
    return Table(scores - np.log(np.exp(scores).sum(axis=1, keepdims=True)))


def load(size: int, nbest: int = 1) -> Any:
    options = {"size": size, "stop": "full", "alpha": 0.5}
    return sgdec.load({"t": table()}, "beam", vocab_size=V, max_length=4, nbest=nbest, beam=options)


def cases(references: Sequence[tuple[int, ...]]) -> list[Case]:
    return [
        Case(Source(number, (3,) * number, max_length=4), tokens, " ".join(map(str, tokens)), is_text=False)
        for number, tokens in enumerate(references, 1)
    ]


REFERENCES = [(3, 4), (5,), (4, 4, 3, 5)]


def test_the_points_are_those_of_separate_runs() -> None:
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    run, given = load(2), cases(REFERENCES)
    diagnosis = diagnose(run, given, ProofBudget("dfs", 0))
    optima = [each.optimum.rank_score for each in diagnosis.sentences if each.optimum is not None]
    texts = [case.reference_text for case in given]
    for point, size in zip(beam_curve(run, given, diagnosis, [8, 1, 2, 2]), SIZES, strict=True):
        found = list(load(size).decode([case.source.tokens for case in given]))
        outputs = [" ".join(map(str, each.best.tokens)) for each in found]
        assert point.size == size and point.failed == 0
        assert point.bleu == pytest.approx(BLEU(force=True).corpus_score(outputs, [texts]).score)
        assert point.chrf == pytest.approx(CHRF().corpus_score(outputs, [texts]).score)
        assert point.rank_score == pytest.approx(fmean(each.best.rank_score for each in found))
        lengths = sum(len(each.best.tokens) for each in found), sum(map(len, REFERENCES))
        assert point.length_ratio == pytest.approx(lengths[0] / lengths[1])
        assert point.expansions == sum(each.expansions for each in found)
        errors = sum(best > each.best.rank_score + 1e-4 for best, each in zip(optima, found, strict=True))
        assert len(optima) == 3 and point.search_errors == errors


def test_another_size_can_show_a_search_error() -> None:
    run = load(1)
    given = cases([found.best.tokens for found in run.decode([(3,) * number for number in (1, 2, 3)])])
    diagnosis = diagnose(run, given, ProofBudget("none"))
    assert {each.search.error for each in diagnosis.sentences} == {"unknown"}
    narrow, wide = beam_curve(run, given, diagnosis, [1, 50])
    assert narrow.search_errors > wide.search_errors == 0


def test_the_oracle_is_the_best_of_each_list_by_chrf() -> None:
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    run, given = load(8, nbest=5), cases(REFERENCES)
    found = oracle(run, given, diagnose(run, given, ProofBudget("none")))
    lists = [
        [" ".join(map(str, each.tokens)) for each in result.hypotheses]
        for result in run.decode([case.source.tokens for case in given])
    ]
    scores = [
        [CHRF().sentence_score(text, [case.reference_text]).score for text in listed]
        for listed, case in zip(lists, given, strict=True)
    ]
    best = [max(range(len(of)), key=of.__getitem__) for of in scores]
    chosen = [listed[place] for listed, place in zip(lists, best, strict=True)]
    texts = [case.reference_text for case in given]
    assert found.size == 5 and found.chrf == pytest.approx(fmean(map(max, scores)))
    assert found.first_chrf == pytest.approx(fmean(of[0] for of in scores)) and found.chrf > found.first_chrf
    assert found.bleu == pytest.approx(BLEU(force=True).corpus_score(chosen, [texts]).score)
    assert found.rank == pytest.approx(fmean(best) + 1)


def test_a_decoder_without_a_size_has_no_curve() -> None:
    with pytest.raises(UsageError, match=r"--beams: the decoder greedy has no option 'size'"):
        with_size(sgdec.load({"t": table()}, "greedy", vocab_size=V, max_length=4), 2)
