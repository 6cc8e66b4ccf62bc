"""The promise: `shortlist` is `nmt` over the translations of a sentence's own tokens and the frequent ones, whatever
shares its batch; files and the command keep that."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sgdec_decoders.beam import BeamDecoder
from sgdec_predictors.nmt import NmtPredictor
from sgdec_predictors.shortlist import ShortlistPredictor

from sgdec.checkpoints.layout import load_vocabularies
from sgdec.checkpoints.shortlists import FOLDER, load_shortlist, save_shortlist
from sgdec.cli.main import main
from sgdec.context import EOS, Context
from sgdec.errors import SgdecError, UsageError
from sgdec.models.shortlists import Shortlist
from sgdec.search.constellation import Constellation
from sgdec.search.scheduler import Scheduler
from tests.helpers.clustering import LETTERS, SOURCES, V
from tests.helpers.tiny_models import write_checkpoint

FREQUENT = [4, 9, 6]
RANKED = {3: [7, 8, 9], 4: [15, 3], 5: [10, 11, 12, 13], 6: [], 12: [5], 13: [14, 4, 5], 15: [0, 2]}
"""Translations of source tokens, the likeliest first."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_checkpoint(tmp_path_factory.mktemp("model"), source=LETTERS, target=LETTERS))


def write(folder: Path, model: str, ranked: dict[int, list[int]], frequent: list[int]) -> str:
    rows = [ranked.get(token, []) for token in range(V)]
    starts = torch.tensor([0, *map(len, rows)]).cumsum(0)
    tokens = torch.tensor([token for row in rows for token in row], dtype=torch.long)
    save_shortlist(folder, Shortlist(starts, tokens, torch.tensor(frequent), V), load_vocabularies(model), about={})
    return str(folder)


@pytest.fixture(scope="module")
def folder(model: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(tmp_path_factory.mktemp("shortlist"), model, RANKED, FREQUENT)


def rows(predictor: NmtPredictor) -> Any:
    """Scores after <s> and after one token."""
    states = predictor.initialize_batch(SOURCES)
    first = predictor.predict_batch(states).values
    after = predictor.predict_batch(predictor.consume_batch(states, [7] * len(SOURCES))).values
    return np.concatenate([np.asarray(first), np.asarray(after)])


@pytest.mark.parametrize("precision", ["fp32", "fp64", "bf16"])
@pytest.mark.parametrize(("k", "frequent"), [(0, 3), (1, 3), (2, 1), (4, 0)])
def test_a_row_is_the_softmax_over_its_own_sentence_s_list(
    model: str, folder: str, k: int, frequent: int, precision: str
) -> None:
    context = Context(precision=precision)
    predictor = ShortlistPredictor(model, folder, k=k, frequent=None if frequent == 3 else frequent, context=context)
    found, plain = rows(predictor), rows(NmtPredictor(model, context))
    for row, source in enumerate([*SOURCES, *SOURCES]):
        listed = {token for each in source.tokens for token in RANKED.get(each, [])[: k or None]}
        active = sorted(listed | {EOS, *FREQUENT[:frequent]})
        expected = np.full(V, -np.inf)
        expected[active] = plain[row, active] - np.logaddexp.reduce(plain[row, active])
        assert np.allclose(found[row], expected, atol={"fp32": 1e-5, "fp64": 1e-12, "bf16": 0.1}[precision])
    assert 0 < predictor.active_share <= 1
    assert (predictor.summary() or "").endswith("of the vocabulary active, mean of 2 projections")


def test_with_all_tokens_listed_it_is_nmt(model: str, tmp_path: Path) -> None:
    context = Context(precision="fp64")
    whole = write(tmp_path / "whole", model, {}, list(range(V)))
    assert np.allclose(
        rows(ShortlistPredictor(model, whole, k=0, frequent=V, context=context)),
        rows(NmtPredictor(model, context)), atol=1e-12,
    )  # fmt: skip


def test_sentences_decode_together_as_they_decode_alone(model: str, folder: str) -> None:
    found = []
    for batch_size in (1, 64):
        predictor = ShortlistPredictor(model, folder, frequent=2, context=Context(precision="fp64"))
        constellation = Constellation.of({"shortlist": predictor}, vocab_size=V)
        outcomes = list(Scheduler(constellation, BeamDecoder(size=3), batch_size=batch_size).run(SOURCES))
        found.append([(h.tokens, round(h.score, 9)) for outcome in outcomes for h in outcome.result.hypotheses])
    assert found[0] == found[1] and len(found[0]) == len(SOURCES)


def test_more_than_is_recorded_is_refused(model: str, folder: str) -> None:
    with pytest.raises(UsageError, match=r"--shortlist.k 5: .* has 4 translations of a source token at most\."):
        ShortlistPredictor(model, folder, k=5, frequent=0)
    with pytest.raises(UsageError, match=r"--shortlist.frequent 100: .* lists 3 frequent tokens\."):
        ShortlistPredictor(model, folder, frequent=100)


def test_an_8_bit_model_is_refused_with_a_way_out(model: str, folder: str) -> None:
    with pytest.raises(UsageError, match=r"shortlist: 8-bit models .*\. Give the model that this one was made of"):
        ShortlistPredictor(model, folder, context=Context(precision="int8"))


def test_a_shortlist_of_other_vocabularies_is_refused(folder: str, tmp_path: Path) -> None:
    for sides, which in ((("abcdefghijkm", LETTERS), "source"), ((LETTERS, "abcdefghijkm"), "target")):
        other = write_checkpoint(tmp_path / which, source=sides[0], target=sides[1])
        with pytest.raises(SgdecError, match=rf"this shortlist is of another {which} vocabulary than the model's\."):
            ShortlistPredictor(str(other), folder, frequent=0)


DAMAGE: dict[str, Any] = {
    "starts that fall": lambda parts: parts["starts"].index_fill_(0, torch.tensor([4]), 9),
    "a token outside": lambda parts: parts["tokens"].fill_(V),
    "a negative frequent token": lambda parts: parts["frequent"].fill_(-1),
    "cut tokens": lambda parts: parts.update(tokens=parts["tokens"][:3].clone()),
    "another type": lambda parts: parts.update(tokens=parts["tokens"].float()),
    "a missing tensor": lambda parts: parts.pop("frequent"),
    "another number of sources": lambda parts: parts.update(starts=parts["starts"][:-1].clone()),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_one_line(model: str, damage: str, tmp_path: Path) -> None:
    write(tmp_path, model, RANKED, FREQUENT)
    parts = load_file(tmp_path / FOLDER.tensors)
    DAMAGE[damage](parts)
    save_file(parts, tmp_path / FOLDER.tensors)
    with pytest.raises(SgdecError, match=r"the shortlist is damaged \(.*\)\. Run `sgdec shortlist` again\."):
        load_shortlist(tmp_path, load_vocabularies(model))


def test_a_cut_or_missing_or_newer_file_is_one_line(model: str, tmp_path: Path) -> None:
    vocabularies = load_vocabularies(model)
    write(tmp_path / "sl", model, RANKED, FREQUENT)
    tensors = (tmp_path / "sl" / FOLDER.tensors).read_bytes()
    (tmp_path / "sl" / FOLDER.tensors).write_bytes(tensors[:-9])
    with pytest.raises(SgdecError, match="the tensor file is damaged"):
        load_shortlist(tmp_path / "sl", vocabularies)
    (tmp_path / "sl" / FOLDER.description).write_text(json.dumps({"format": 9}))
    with pytest.raises(SgdecError, match="format 9, expected 1"):
        load_shortlist(tmp_path / "sl", vocabularies)
    with pytest.raises(SgdecError, match=r"no shortlist\.json here"):
        load_shortlist(tmp_path, vocabularies)
    with pytest.raises(UsageError, match="there is something other than a shortlist"):
        write(tmp_path, model, RANKED, FREQUENT)


def test_the_command_finds_what_occurs_together(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = ["a b", "b c", "c", "", "a c"]
    Path("src").write_text("\n".join(lines) + "\n")
    with gzip.open("tgt.gz", "wt") as file:
        file.write("\n".join(line.translate(str.maketrans("abc", "def")) for line in lines) + "\n")
    Path("short").write_text("a\n")
    command = ["shortlist", "src", "tgt.gz", "--model", model, "--output", "sl"]
    assert main([*command, "--k", "1", "--frequent", "2", "--iterations", "20", "--held-out", "src", "tgt.gz"]) == 0
    said = capsys.readouterr().err
    assert "2 frequent tokens, from 5 pairs" in said and "are not listed; lists have" in said
    vocabularies = load_vocabularies(model)
    found = load_shortlist("sl", vocabularies)
    assert vocabularies.source is not None and vocabularies.target is not None
    for one, other in zip("abc", "def", strict=True):
        (best,) = found.translations([vocabularies.source.token(one)]).tolist()
        assert vocabularies.target.piece(best) == other
    assert main(["shortlist", "src", "short", "--model", model, "--output", "other"]) == 1
    assert "src and short have different numbers of lines." in capsys.readouterr().err
    Path("empty").write_text("\n")
    assert main(["shortlist", "empty", "empty", "--model", model, "--output", "other"]) == 1
    assert "empty, empty: no pair of lines with text on both sides." in capsys.readouterr().err
    Path("in").write_text("a b\n")
    words = ["--shortlist.model", model, "--shortlist.path", "sl", "--shortlist.frequent", "1", "--max-length", "3"]
    assert main(["decode", "--predictors", "shortlist", *words, "in"]) == 0
    assert "of the vocabulary active" in capsys.readouterr().err
