"""The searches recorded from SGNMT 1.1 (the data folder's ``cases/``; its README has the format), in our terms.

What is translated:

- ``use_weights`` is false by default there.
- The cost of the leading ``<s>`` arc is dropped there; here it counts, so each total differs by that constant. (Two
  cases add it to the score of ``</s>``, or of the first token: then totals are equal.) With ``normalize`` it is 0.
- Their kenlm speaks log10: our weight is theirs divided by ln 10.
- ``a_b`` is our ``a:b``; the second lattice of a run is called ``fst_path2`` there.
- In beam search ``early_stopping`` is our ``stop best``; without it, ``stop full``.
- ``beam`` is the size in beam and bucket search, the capacity in A* search.
- ``low_decoder_memory`` and ``collect_statistics`` change nothing about what an exact search finds.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from sgdec.io.lattice import read_lattice
from sgdec.plugins.assembly import RunConfig
from sgdec.plugins.predictor_list import parse_predictors
from sgdec.protocol import Source

DATA = os.environ.get("SGDEC_DATA")
Case: TypeAlias = Mapping[str, Any]
Options: TypeAlias = Mapping[str, Any]

OPTIONS = {
    "fst": {"use_weights": "use_fst_weights", "normalize": "normalize_fst_weights"},
    "nfst": {"use_weights": "use_fst_weights", "normalize": "normalize_fst_weights"},
    "kenlm": {"path": "lm_path"},
    "forced": {"path": "trg_test"},
    "forcedlst": {
        "path": "trg_test",
        "use_weights": "use_nbest_weights",
        "feature": "forcedlst_sparse_feat",
        "match_unk": "forcedlst_match_unk",
    },
    "bow": {
        "path": "trg_test",
        "accept_subsets": "bow_accept_subsets",
        "accept_duplicates": "bow_accept_duplicates",
    },
    "wc": {"token": "wc_word"},
    "unkc": {"lambdas": "unk_count_lambdas"},
    "length": {"weights": "length_model_weights", "point": "use_length_point_probs", "text": "src_test_raw"},
    "extlength": {"path": "extlength_path"},
    "ngramc": {"path": "ngramc_path", "order": "ngramc_order", "discount": "ngramc_discount_factor"},
    "fsttok": {"path": "fsttok_path"},
    "word2char": {"path": "word2char_map"},
    "idxmap": {"path": "trg_idxmap", "src_path": "src_idxmap"},
}
"""By predictor, by option, what SGNMT calls it."""
DECODER_OPTIONS = {
    "greedy": {},
    "beam": {"size": "beam", "recombine": "hypo_recombination"},
    "syncbeam": {"size": "beam", "symbol": "sync_symbol"},
    "dfs": {"recombine": "hypo_recombination"},
    "astar": {"capacity": "beam", "recombine": "hypo_recombination"},
    "restarting": {"node_score": "restarting_node_score", "recombine": "hypo_recombination"},
    "bucket": {
        "size": "beam",
        "selector": "bucket_selector",
        "score_strategy": "bucket_score_strategy",
        "recombine": "hypo_recombination",
    },
}
WITHOUT_WEIGHTS = {"fst", "nfst", "forcedlst"}
"""Where weights are off unless they are asked for."""
LATTICES = {"fst", "nfst"}


def groups() -> Path:
    return Path(DATA or "") / "cases" / "groups"


def all_cases() -> list[dict[str, Any]]:
    """Every case that was recorded; none where there is no data folder."""
    if DATA is None:
        return []
    files = sorted(groups().glob("*/cases.json"))
    return [case for file in files for case in json.loads(file.read_text())["cases"]]


def translated(case: Case) -> RunConfig:
    """The run that the case is, in our names and options."""
    given, folder = case["options"], groups() / case["group"]
    weights = [float(weight) for weight in case["predictor_weights"].split(",") if weight]
    predictors = case["predictors"].replace("_", ":")
    options: dict[str, dict[str, Any]] = {}
    for place, entry in enumerate(parse_predictors(predictors)):
        for name, plugin in entry.parts:
            options[name] = _predictor_options(plugin, given, folder)
            if plugin in LATTICES:
                second = any(part in options for part in LATTICES - {name} if name[-1] == "2")
                path = given.get("fst_path2", given["fst_path"]) if second else given["fst_path"]
                options[name]["path"] = _path(folder, path)
        log_base = math.log(10) if entry.parts[-1].plugin == "kenlm" else 1.0
        options[entry.name]["weight"] = (weights[place] if weights else 1.0) / log_base
    options[case["decoder"]] = _decoder_options(case["decoder"], given)
    return RunConfig(predictors, case["decoder"], options)


def source_of(case: Case, recorded: Options) -> Source:
    """The sentence, as token ids."""
    tokens = tuple(map(int, recorded["src"].split()))
    limit = math.floor(float(case["options"].get("max_len_factor", 2)) * len(tokens))
    return Source(recorded["id"], tokens, max_length=limit)


def dropped_there(case: Case, sentence: int) -> float:
    """What our total has more: the weighted scores of the leading <s> arcs."""
    config = translated(case)
    return math.fsum(
        _bos_score(str(config.options[part.name]["path"]).replace("{id}", str(sentence)))
        * float(config.options[entry.name]["weight"])
        for entry in parse_predictors(config.predictors)
        for part in entry.parts
        if part.plugin in LATTICES
        and config.options[part.name]["use_weights"] == "true"
        and config.options[part.name].get("normalize") != "true"
        and case["options"].get("fst_skip_bos_weight") != "false"
    )


def _predictor_options(plugin: str, given: Options, folder: Path) -> dict[str, Any]:
    options = {ours: given[theirs] for ours, theirs in OPTIONS[plugin].items() if theirs in given}
    if plugin in WITHOUT_WEIGHTS:
        options.setdefault("use_weights", "false")
    files = {"path", "src_path", "text"}
    return {key: _path(folder, value) if key in files else value for key, value in options.items()}


def _decoder_options(decoder: str, given: Options) -> dict[str, Any]:
    options = {ours: given[theirs] for ours, theirs in DECODER_OPTIONS[decoder].items() if theirs in given}
    if decoder in ("beam", "syncbeam"):
        options["stop"] = "full" if given.get("early_stopping") == "false" else "best"
    return options


def _path(folder: Path, path: str) -> str:
    return str(folder / path.replace("%d", "{id}"))


@cache
def _bos_score(path: str) -> float:
    lattice = read_lattice(path)
    (arc,) = lattice.arcs[lattice.start]
    assert arc.label == 1 and set(lattice.final) <= {0.0, math.inf}  # final weights are ignored there
    return -arc.cost
