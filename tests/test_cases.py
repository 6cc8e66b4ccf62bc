"""Agreement with SGNMT 1.1 on the cases recorded from it (the data folder's ``cases/``; its README has the format).

Compared are the cases of the predictors that we have, under the same decoder. Where SGNMT searched exactly, the
optimum is compared, and where it enumerated everything (``early_stopping`` false), the list. What is translated:

- ``use_weights`` is false by default there.
- The cost of the leading ``<s>`` arc is dropped there; here it counts, so each total differs by that constant. (One
  case adds it to the score of ``</s>``: then totals are equal.) With ``normalize`` it is 0.
- Their kenlm speaks log10: our weight is theirs divided by ln 10.
- In beam search ``early_stopping`` is our ``stop best``; without it, ``stop full``.
- ``hypo_recombination`` is our ``recombine``, but merges finished hypotheses too: only the best is compared.
- ``beam`` is the size in beam and bucket search, the capacity in A* search.
- Hypotheses are compared as (tokens, total); in tie-sensitive cases, totals only.
- unkc: SGNMT spreads the Poisson probability over the tokens and loses the first UNK and, for lambda > 1, the
  normalisation. Compared are the hypotheses where that does no harm: lambda < 1 and a first token that is known.

Not compared, since they have no counterpart here: heuristics that are no bounds, normalisation with a tropical sum,
non-terminal penalties, closed-vocabulary normalisation, combination schemes, and searches cut by a budget.
``low_decoder_memory`` and ``collect_statistics`` change nothing about what an exact search finds.
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Mapping
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from sgdec.assembly import RunConfig, assemble
from sgdec.io.lattice import read_lattice
from sgdec.plugins import Host
from sgdec.protocol import Hypothesis, Source
from sgdec.search import SearchSpace
from sgdec.testing.enumeration import score_path

DATA = os.environ.get("SGDEC_DATA")
GROUPS = ("g01_fst", "g03_fst_kenlm", "g05_fst_fst", "g07_positive", "g08_forced", "g12_counts")
PREDICTORS = {"fst", "forced", "kenlm", "wc"}
DECODERS = {"greedy", "beam", "dfs", "astar", "restarting", "bucket"}
EVERYTHING = 100_000
"""More hypotheses than any of these spaces holds."""
SOURCE_SIZE_THERE = 30_000
"""Source tokens from here on are unknown to SGNMT."""
WITHOUT_COUNTERPART = {
    "heuristics", "log_sum", "wc_nonterminal_penalty", "closed_vocabulary_normalization", "combination_scheme",
    "max_node_expansions",
}  # fmt: skip

pytestmark = pytest.mark.skipif(DATA is None, reason="SGDEC_DATA does not name the data folder")


def _groups() -> Path:
    return Path(DATA or "") / "cases" / "groups"


def _cases(group: str) -> list[dict[str, Any]]:
    if DATA is None:
        return []
    cases: list[dict[str, Any]] = json.loads((_groups() / group / "cases.json").read_text())["cases"]
    return cases


def _comparable() -> list[dict[str, Any]]:
    return [
        case
        for case in chain.from_iterable(map(_cases, GROUPS))
        if set(case["predictors"].split(",")) <= PREDICTORS
        and case["decoder"] in DECODERS
        and (case["decoder"] in ("beam", "greedy") or case["exact"])
        and not WITHOUT_COUNTERPART & set(case["options"])
    ]


def test_every_group_has_cases_to_compare() -> None:
    counts = Counter(case["group"] for case in _comparable())
    assert counts == {
        "g01_fst": 13, "g03_fst_kenlm": 10, "g05_fst_fst": 2, "g07_positive": 1, "g08_forced": 4, "g12_counts": 2
    }  # fmt: skip


@pytest.mark.parametrize("case", _comparable(), ids=lambda case: case["id"])
def test_the_same_hypotheses_and_totals_as_sgnmt(case: dict[str, Any]) -> None:
    for recorded in case["sentences"]:
        ours = _decode(case, recorded)
        offset = _dropped_there(case, recorded["id"])
        theirs = [(tuple(h["tokens"]), h["score"] + offset) for h in recorded["nbest"]]
        where = f"sentence {recorded['id']}"
        if _only_the_best_compares(case):
            assert ours[0].score == pytest.approx(theirs[0][1], abs=1e-4), where
            continue
        assert len(ours) == recorded["n_hypos"], where
        totals = [hypothesis.score for hypothesis in ours[: len(theirs)]]
        assert totals == pytest.approx([total for _, total in theirs], abs=1e-4), where
        if not case["tie_sensitive"]:
            assert [h.tokens for h in ours[: len(theirs)]] == [tokens for tokens, _ in theirs], where


def _only_the_best_compares(case: Mapping[str, Any]) -> bool:
    exact = case["decoder"] not in ("beam", "greedy")
    return (exact and not case["full_enumeration"]) or case["options"].get("hypo_recombination") == "true"


def test_the_same_unknown_word_scores_as_sgnmt_where_it_has_no_defect() -> None:
    compared = 0
    for case in _cases("g13_unkc"):
        lambdas = [float(value) for value in case["options"]["unk_count_lambdas"].split(",")]
        run = assemble(RunConfig("unkc", "greedy", {"unkc": {"lambdas": lambdas}}), Host(autoload=False))
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


def _decode(case: Mapping[str, Any], recorded: Mapping[str, Any]) -> list[Hypothesis]:
    tokens = tuple(int(word) for word in recorded["src"].split())
    source = Source(recorded["id"], tokens, None, max_length=2 * len(tokens))
    run = assemble(_translated(case), Host(autoload=False))
    (root,) = run.constellation.roots([source])
    nbest = 1 if _only_the_best_compares(case) else EVERYTHING
    return run.decoder.decode(SearchSpace(run.constellation, root, nbest=nbest)).hypotheses


def _translated(case: Mapping[str, Any]) -> RunConfig:
    folder, given = _groups() / case["group"], case["options"]
    weights = [float(weight) for weight in case["predictor_weights"].split(",") if weight]
    options: dict[str, dict[str, Any]] = {}
    for place, plugin in enumerate(case["predictors"].split(",")):
        name = "fst2" if plugin == "fst" and "fst" in options else plugin
        options[name] = {"weight": weights[place] if weights else 1.0}
        if plugin == "fst":
            path = given.get("fst_path2", given["fst_path"]) if name == "fst2" else given["fst_path"]
            options[name] |= {
                "path": str(folder / path.replace("%d", "{id}")),
                "use_weights": given.get("use_fst_weights", "false"),
                "normalize": given.get("normalize_fst_weights", "false"),
            }
        elif plugin == "kenlm":
            options[name] |= {"path": str(folder / given["lm_path"])}
            options[name]["weight"] /= math.log(10)
        elif plugin == "forced":
            options[name] |= {"path": str(folder / given["trg_test"])}
        elif plugin == "wc":
            options[name] |= {"token": given.get("wc_word", -1)}
    options[case["decoder"]] = _decoder_options(case["decoder"], given)
    return RunConfig(case["predictors"], case["decoder"], options)


def _decoder_options(decoder: str, given: Mapping[str, Any]) -> dict[str, Any]:
    recombine = {"recombine": given.get("hypo_recombination", "false")}
    if decoder == "beam":
        stop = "full" if given.get("early_stopping") == "false" else "best"
        return {"size": given["beam"], "stop": stop, **recombine}
    if decoder == "astar":
        return {"capacity": given["beam"], **recombine}
    if decoder == "restarting":
        return {"node_score": given.get("restarting_node_score", "difference"), **recombine}
    if decoder == "bucket":
        selector = given.get("bucket_selector", "maxscore")
        strategy = given.get("bucket_score_strategy", "difference")
        return {"size": given.get("beam", 4), "selector": selector, "score_strategy": strategy, **recombine}
    return recombine if decoder == "dfs" else {}


def _dropped_there(case: Mapping[str, Any], sentence: int) -> float:
    """What our total has more: the weighted scores of the leading <s> arcs."""
    config = _translated(case)
    return sum(
        _bos_score(part["path"].replace("{id}", str(sentence))) * float(part["weight"])
        for name, part in config.options.items()
        if name in ("fst", "fst2")
        and part["use_weights"] == "true"
        and part["normalize"] != "true"
        and case["options"].get("fst_skip_bos_weight") != "false"
    )


@cache
def _bos_score(path: str) -> float:
    lattice = read_lattice(path)
    (arc,) = lattice.arcs[lattice.start]
    assert arc.label == 1 and set(lattice.final) <= {0.0, math.inf}  # final weights are ignored there
    return -arc.cost
