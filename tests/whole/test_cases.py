"""Agreement with SGNMT 1.1 on the searches recorded from it (`tests.helpers.recorded` says how they are translated).

Every recorded case is compared here, or listed with the reason why it has no counterpart. Where SGNMT searched
exactly, the optimum is compared, and where it enumerated everything (``early_stopping`` false), the list; lists of
beam search are compared as they are. Hypotheses are (tokens, total); in tie-sensitive cases, totals only. Of searches
that have no counterpart here the scores are compared.

- ``hypo_recombination`` is our ``recombine``, but merges finished hypotheses too: only the best is compared.
- forcedlst with ``match_unk``: of several entries that match, SGNMT takes the last, we the best.
- unkc: SGNMT spreads the Poisson probability over the tokens and loses the first UNK and, for lambda > 1, the
  normalisation. Compared are the hypotheses where that does no harm: lambda < 1 and a first token that is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from sgdec_decoders.dfs import DfsDecoder

from sgdec.plugins.assembly import RunConfig, assemble
from sgdec.plugins.host import Host
from sgdec.protocol import Hypothesis, Source
from sgdec.search.space import SearchSpace
from sgdec.testing.enumeration import score_path
from tests.helpers.breadth import some
from tests.helpers.recorded import DATA, Case, all_cases, dropped_there, groups, source_of, translated

pytestmark = pytest.mark.slow

EVERYTHING = 100_000
"""More hypotheses than any of these spaces holds."""
SOURCE_SIZE_THERE = 30_000
"""Source tokens from here on are unknown to SGNMT."""
HOST = Host(autoload=False)

HEURISTIC = "ordered by a heuristic, which beam search here has not, or which is no bound"
TIES = "equal scores compete for the last places of a beam that the other hypotheses fill"
BUDGET = "cut by a budget that counts SGNMT's own expansions"
COMBINATION = "scores are combined otherwise than by a weighted sum"
NORMALIZATION = (
    "scores are changed by how many other tokens the predictors leave; a score here depends on nobody else"
)
BRACKET = "the bracket predictor, which is none of those of the paper"
SCORES_ALONE = {
    "g01_fst/fst:beam:beam=4:heuristics=predictor": HEURISTIC,
    "g03_fst_kenlm/fst+kenlm:astar:beam=0:heuristics=lasttoken:pure_heuristic_scores=true": HEURISTIC,
    "g03_fst_kenlm/fst+kenlm:astar:beam=8:heuristics=scoreperword": HEURISTIC,
    "g03_fst_kenlm/fst+kenlm:bucket:max_node_expansions=60": BUDGET,
    "g03_fst_kenlm/fst+kenlm:restarting:max_node_expansions=40": BUDGET,
    "g10_bow/bow+kenlm:duplicates:beam:beam=4:early_stopping=false": TIES,
}
"""Cases whose search has no counterpart, but whose hypotheses have the same scores here."""
WITHOUT_COUNTERPART = {
    "g01_fst/fst:normalized_tropical:beam:beam=4": "normalisation by the best arc instead of the sum",
    "g05_fst_fst/fst+fst:bayesian:combibeam:beam=4:early_stopping=false": COMBINATION,
    "g05_fst_fst/fst+fst:bayesian_loglin:beam:beam=6:early_stopping=false": COMBINATION,
    "g05_fst_fst/fst+fst:norm_exact:dfs": NORMALIZATION,
    "g05_fst_fst/fst+fst:norm_non_zero:dfs": NORMALIZATION,
    "g05_fst_fst/fst+fst:norm_reduced:beam:beam=4": NORMALIZATION,
    "g12_counts/fst+wc:nonterminal:beam:beam=8:early_stopping=false": "a penalty of non-terminals, which wc has not",
    "g15_vocab_wrappers/fst+rank_kenlm:greedy": (
        "ranks among the tokens that the lattice leaves; here among all, since a score depends on nobody else"
    ),
    "g17_structure/fst+bracket:beam:beam=4": BRACKET,
    "g17_structure/fst+bracket:depth1:dfs": BRACKET,
}
LONGER_HERE = "g14_tokenization/fsttok_fst:early:beam:beam=10:early_stopping=false"
"""SGNMT's list is the last beam. Ours has, between its entries, finished hypotheses that lost their slots before."""
UNKNOWN_COUNT = "g13_unkc/forcedlst+unkc:w:dfs:early_stopping=false"
MATCH_UNKNOWN = "g09_forcedlst/fst+forcedlst:match_unk:dfs:early_stopping=false"
IN_PART = {UNKNOWN_COUNT, MATCH_UNKNOWN}
"""Compared by tests of their own."""
COMPARED = [case for case in all_cases() if case["id"] not in {*SCORES_ALONE, *WITHOUT_COUNTERPART, *IN_PART}]
RESCORED = [case for case in all_cases() if case["id"] in SCORES_ALONE]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(DATA is None, reason="SGDEC_DATA does not name the data folder"),
]


def test_every_recorded_case_is_compared_or_listed_with_a_reason() -> None:
    recorded = [case["id"] for case in all_cases()]
    listed = [*(case["id"] for case in COMPARED), *SCORES_ALONE, *WITHOUT_COUNTERPART, *IN_PART]
    assert sorted(listed) == sorted(recorded)
    assert (len(COMPARED), len(SCORES_ALONE), len(WITHOUT_COUNTERPART), len(IN_PART)) == (70, 6, 10, 2)


@pytest.mark.parametrize("case", COMPARED, ids=[case["id"] for case in COMPARED])
def test_the_same_hypotheses_and_totals_as_sgnmt(case: dict[str, Any]) -> None:
    for recorded in some(case["sentences"], COMPARED.index(case)):
        ours = _decode(case, recorded)
        offset = dropped_there(case, recorded["id"])
        theirs = [(tuple(h["tokens"]), h["score"] + offset) for h in recorded["nbest"]]
        where = f"sentence {recorded['id']}"
        if case["id"] == LONGER_HERE:
            ours = [hypothesis for hypothesis in ours if hypothesis.tokens in dict(theirs)]
        if _only_the_best_compares(case):
            assert ours[0].score == pytest.approx(theirs[0][1], abs=1e-4), where
            continue
        assert len(ours) == recorded["n_hypos"], where
        totals = [hypothesis.score for hypothesis in ours[: len(theirs)]]
        assert totals == pytest.approx([total for _, total in theirs], abs=1e-4), where
        if not case["tie_sensitive"]:
            found = {hypothesis.tokens: hypothesis.score for hypothesis in ours}
            assert {tokens: found.get(tokens) for tokens, _ in theirs} == pytest.approx(dict(theirs), abs=1e-4), where


@pytest.mark.parametrize("case", RESCORED, ids=[case["id"] for case in RESCORED])
def test_the_same_totals_for_what_sgnmt_found_otherwise(case: dict[str, Any]) -> None:
    """None of them better than what an exact search finds here."""
    run = assemble(translated(case), HOST)
    for recorded in case["sentences"]:
        source, offset = source_of(case, recorded), dropped_there(case, recorded["id"])
        best = max(hypothesis["score"] for hypothesis in recorded["nbest"]) + offset
        for theirs in recorded["nbest"]:
            ours, _ = score_path(run.constellation, source, theirs["tokens"])
            assert ours == pytest.approx(theirs["score"] + offset, abs=1e-4)
        (root,) = run.constellation.roots([source])
        (optimum,) = DfsDecoder().decode(SearchSpace(run.constellation, root)).hypotheses
        assert optimum.score >= best - 1e-4


def test_a_recursive_network_says_what_its_flattened_lattice_says_that_was_recorded() -> None:
    (case,) = (case for case in all_cases() if case["predictors"] == "nfst" and "rtn_path" in case["options"])
    options = {"path": str(groups() / case["group"] / case["options"]["rtn_path"])}
    run = assemble(RunConfig("rtn", "dfs", {"rtn": options}), HOST)
    for recorded in case["sentences"]:
        (root,) = run.constellation.roots([source_of(case, recorded)])
        found = run.decoder.decode(SearchSpace(run.constellation, root, nbest=EVERYTHING)).hypotheses
        assert {h.tokens: h.score for h in found} == pytest.approx(
            {tuple(h["tokens"]): h["score"] + dropped_there(case, recorded["id"]) for h in recorded["nbest"]},
            abs=1e-4,
        )


def test_the_same_unknown_word_scores_as_sgnmt_where_it_has_no_defect() -> None:
    compared = 0
    (case,) = (case for case in all_cases() if case["id"] == UNKNOWN_COUNT)
    lambdas = [float(value) for value in case["options"]["unk_count_lambdas"].split(",")]
    run = assemble(RunConfig("unkc", "greedy", {"unkc": {"lambdas": lambdas}}), HOST)
    for recorded in case["sentences"]:
        words = [int(word) for word in recorded["src"].split()]
        source = Source(recorded["id"], tuple(word if word < SOURCE_SIZE_THERE else 0 for word in words))
        if lambdas[min(source.tokens.count(0), len(lambdas) - 1)] >= 1:
            continue
        for theirs in recorded["nbest"]:
            if theirs["tokens"][0] != 0:
                ours, _ = score_path(run.constellation, source, theirs["tokens"])
                assert ours == pytest.approx(theirs["predictor_scores"][1], abs=1e-9)
                compared += 1
    assert compared == 52


def test_the_same_n_best_scores_as_sgnmt_where_unknown_words_match_once() -> None:
    """Of several entries that match, SGNMT takes the last; here the best counts, whatever their order."""
    (case,) = (case for case in all_cases() if case["id"] == MATCH_UNKNOWN)
    several = 0
    for recorded in case["sentences"]:
        ours = {h.tokens: h.score for h in _decode(case, recorded)}
        assert len(ours) == recorded["n_hypos"]
        for theirs in recorded["nbest"]:
            tokens = tuple(theirs["tokens"])
            matching = [score for entry, score in entries(case, recorded["id"]) if matches(entry, tokens)]
            beside = theirs["score"] - theirs["predictor_scores"][1] + dropped_there(case, recorded["id"])
            assert theirs["predictor_scores"][1] == pytest.approx(matching[-1], abs=1e-6)
            assert ours[tokens] == pytest.approx(beside + max(matching), abs=1e-4)
            several += len(matching) > 1
    assert several


def entries(case: Case, sentence: int) -> list[tuple[tuple[int, ...], float]]:
    """An n-best list in the order of its file; ids count from 0 there."""
    lines = (groups() / case["group"] / case["options"]["trg_test"]).read_text().splitlines()
    found = [[part.strip() for part in line.split("|||")] for line in lines]
    return [
        (tuple(token for token in map(int, words.split()) if token not in (1, 2)), float(total))
        for number, words, *_, total in found
        if int(number) == sentence - 1
    ]


def matches(entry: tuple[int, ...], tokens: tuple[int, ...]) -> bool:
    """Unknown words of an entry match any token."""
    return len(entry) == len(tokens) and all(ours in (theirs, 0) for ours, theirs in zip(entry, tokens, strict=True))


def _decode(case: Case, recorded: Mapping[str, Any]) -> list[Hypothesis]:
    run = assemble(translated(case), HOST)
    (root,) = run.constellation.roots([source_of(case, recorded)])
    nbest = 1 if _only_the_best_compares(case) else EVERYTHING
    return run.decoder.decode(SearchSpace(run.constellation, root, nbest=nbest)).hypotheses


def _only_the_best_compares(case: Case) -> bool:
    if case["options"].get("hypo_recombination") == "true":
        return True
    return case["exact"] and case["options"].get("early_stopping") != "false"
