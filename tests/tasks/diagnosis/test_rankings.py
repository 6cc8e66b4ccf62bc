"""Under length and coverage penalties, scores and contributions are those of plain formulas."""

from __future__ import annotations

import pytest
from sgdec_decoders.beam import BeamDecoder

import sgdec
from sgdec.ranking import Ranking, is_better
from sgdec.tasks.diagnosis.cases import Case
from sgdec.tasks.diagnosis.proving import ProofBudget
from sgdec.tasks.diagnosis.run import diagnose
from sgdec.tasks.diagnosis.scored import COVERAGE, Decision, Scored, decision
from sgdec.tasks.diagnosis.verdicts import Judge, ModelVerdict
from tests.helpers.explicit_spaces import V, random_space, rank_score


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_contributions_include_the_coverage_penalty(seed: int) -> None:
    alpha, beta = 0.8, 0.3
    space = random_space(seed, forms=("simple", "batch", "restricting"), weights=(1.0, 0.5, -1.0))
    constellation = space.constellation()
    run = sgdec.load(
        dict(zip(constellation.names, constellation.predictors, strict=True)),
        BeamDecoder(1, alpha=alpha, beta=beta),
        vocab_size=V,
        **{name: {"weight": weight} for name, weight in zip(constellation.names, space.weights, strict=True)},
    )
    cases, ranks = [], []
    for source in space.sources():
        totals = dict(space.hypotheses(source.id))
        ranks.append(
            {
                tokens: rank_score(total, tokens, alpha, "gnmt") + beta * space.coverage_penalty(source.id, tokens)
                for tokens, total in totals.items()
            }
        )
        reference = sorted(totals)[len(totals) // 2] if totals else ()
        cases.append(Case(source, reference, ""))
    for sentence, rank in zip(diagnose(run, cases, ProofBudget("astar", 0)).sentences, ranks, strict=True):
        for scored in (sentence.output, sentence.reference, sentence.optimum):
            assert scored is None or scored.rank_score == pytest.approx(rank[scored.tokens], abs=1e-6)
        if sentence.output is not None:
            error = is_better(max(rank.values()), rank[sentence.output.tokens])
            assert sentence.search.error == ("proven" if error else "none")
        for why in (sentence.model.decision, sentence.search.decision):
            if why is not None:
                assert sum(why.contributions.values()) == pytest.approx(why.difference, abs=1e-6)


def test_the_coverage_penalty_can_decide() -> None:
    better, worse = Scored((3,), -1.0, -1.0, (-1.0,), 0.0), Scored((4,), -3.0, -0.5, (-0.5,), -2.5)
    why = decision(better, worse, ["nmt"], [1.0])
    assert why == Decision(2.0, {"nmt": -0.5, COVERAGE: 2.5}, COVERAGE, None)


def test_what_counts_as_equal_has_no_difference() -> None:
    one, other = Scored((3,), -1.0, -1.0, (-1.0,), 0.0), Scored((4,), -1.00001, -1.00001, (-1.00001,), 0.0)
    verdict = Judge(["nmt"], [1.0]).model(one, other, None)
    assert verdict == ModelVerdict("none", 0.0)


def test_a_length_offset_counts() -> None:
    run = sgdec.load(
        "wc", "beam", vocab_size=6, max_length=3, beam={"size": 1, "alpha": 1.0, "length_offset": 1},
        wc={"weight": -1.0},
    )  # fmt: skip
    source = next(iter(run.reader("ids").read([b"3\n"], "in")))
    assert not hasattr(source, "error")
    (sentence,) = diagnose(run, [Case(source, (3,), "3")]).sentences  # type: ignore[arg-type]
    ranking = Ranking(1.0, length_offset=1)
    assert sentence.reference is not None and sentence.optimum is not None
    assert sentence.reference.rank_score == pytest.approx(ranking.score(1.0, 2)) == pytest.approx(1 / (8 / 6))
    assert sentence.optimum.rank_score == pytest.approx(ranking.score(3.0, 4))


@pytest.mark.parametrize(
    ("one", "other", "better"),
    [(1.0, 1.0 - 2e-4, True), (1.0, 1.0 - 5e-5, False), (-100.0, -100.002, True), (-100.0, -100.0005, False),
     (0.0, float("-inf"), True), (float("-inf"), float("-inf"), False), (0.5, 1.0, False)],
)  # fmt: skip
def test_small_differences_are_none(one: float, other: float, better: bool) -> None:
    assert is_better(one, other) == better
