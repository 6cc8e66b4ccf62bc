"""A KenLM binary decodes and scores through the command line, alone and in any place of a mix.

The oracle is the ARPA file of the same model; `ngrams/test_kenlm_layouts.py` compares with KenLM itself.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sgdec_predictors.ngrams.backoff import BackoffTable

from sgdec.cli.main import main
from sgdec.files import read_arpa
from tests.helpers.places import DATA
from tests.helpers.tiny_models import write_checkpoint, write_lattice

MIXES = [
    "kenlm", "kenlm,wc", "wc,kenlm", "kenlm,nmt", "nmt,kenlm", "kenlm,fst", "fst,kenlm", "kenlm,nmt,fst",
    "nmt,fst,kenlm", "rank:kenlm", "nmt,maskvocab:kenlm", "kenlm,kenlm2=kenlm",
]  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_checkpoint(tmp_path_factory.mktemp("model")))


@pytest.fixture
def options(tmp_path: Path, model: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """What each name of a mix needs on the command line."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.ids").write_text("3 4\n5\n4 4 3\n")
    write_lattice(tmp_path / "any.fst", [((3, 4, 5), 0.5), ((3, 4), 0.25), ((4, 5), 0.5), ((6,), 0.0)])
    binary = str(DATA / "tiny.kenlm")
    return {
        "kenlm": ["--kenlm.path", binary],
        "kenlm2": ["--kenlm2.path", binary, "--kenlm2.weight", "0.5"],
        "nmt": ["--nmt.model", model, "--nmt.weight", "0.5"],
        "fst": ["--fst.path", "any.fst"],
        "maskvocab": ["--maskvocab.tokens", "6"],
        "wc": ["--wc.weight", "0.25"],
        "rank": [],
    }


def call(options: dict[str, list[str]], mix: str) -> list[str]:
    named = [option for name, given in options.items() if name in mix.replace(":", ",").replace("=", ",").split(",")
             for option in given]  # fmt: skip
    size = [] if "nmt" in mix else ["--vocab-size", "7"]
    return ["--predictors", mix, *named, *size, "--input-format", "ids", "--output-format", "jsonl"]


RUNS = [("greedy", mix) for mix in MIXES] + [
    (decoder, mix) for decoder in ("beam", "vanilla", "sample", "sepbeam") for mix in ("kenlm", "kenlm,nmt")
]


@pytest.mark.slow
@pytest.mark.parametrize(("decoder", "mix"), RUNS)
def test_it_decodes_and_scores(
    options: dict[str, list[str]], decoder: str, mix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = call(options, mix)
    assert main(["decode", *run, "--decoder", decoder, "--max-length", "4", "in.ids"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    found = [row["hypotheses"][0] for row in rows]
    assert len(found) == 3
    if decoder == "sepbeam":
        return  # each hypothesis has the score of one system
    Path("out.ids").write_text("".join(" ".join(map(str, h["tokens"])) + "\n" for h in found))
    assert main(["score", *run, "--target-format", "ids", "in.ids", "out.ids"]) == 0
    scored = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    arpa = read_arpa(DATA / "tiny.arpa")
    oracle = BackoffTable(arpa, arpa.words)
    for hypothesis, again in zip(found, scored, strict=True):
        assert again["score"] == pytest.approx(hypothesis["score"], abs=1e-4)
        if "kenlm" in hypothesis["scores"] and ":" not in mix:
            expected, history = 0.0, oracle.start
            for word in [*map(str, hypothesis["tokens"]), "</s>"]:
                score, history = oracle.step(history, oracle.symbol(word))
                expected += score
            assert hypothesis["scores"]["kenlm"] == pytest.approx(expected, abs=1e-4)


def test_a_proof_needs_the_highest_score(
    options: dict[str, list[str]], model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Which a KenLM binary does not tell; of the ARPA file it is known."""
    run = [*call(options, "kenlm"), "--decoder", "dfs", "--max-length", "4", "in.ids"]
    assert main(["decode", *run]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("Error: predictor 'kenlm' does not declare") and "give --kenlm.max_score" in line
    assert main(["decode", *run, "--kenlm.max_score", "0"]) == 0
    found = [json.loads(row) for row in capsys.readouterr().out.splitlines()]
    assert main(["decode", *run, "--kenlm.path", str(DATA / "tiny.arpa")]) == 0
    expected = [json.loads(row) for row in capsys.readouterr().out.splitlines()]
    for row, same in zip(found, expected, strict=True):
        assert row["proven"] is same["proven"] is True
        assert row["hypotheses"][0]["tokens"] == same["hypotheses"][0]["tokens"]


def test_a_score_above_the_highest_costs_only_its_sentence(
    options: dict[str, list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first sentence's lattice has 3 after <s>, which scores -0.92; the other ones score less."""
    write_lattice(tmp_path / "1.fst", [((3,), 0.0)])
    write_lattice(tmp_path / "2.fst", [((6, 6), 0.0)])
    write_lattice(tmp_path / "3.fst", [((6,), 0.0)])
    lattices = ["--predictors", "fst,kenlm", "--fst.path", "{id}.fst", "--kenlm.max_score", "-0.95"]
    run = [*call(options, "kenlm"), *lattices, "--output-format", "ids", "in.ids"]
    for batch in ("1", "64"):
        assert main(["decode", *run, "--batch-size", batch]) == 1
        done = capsys.readouterr()
        assert done.out.splitlines() == ["", "6 6", "6"]
        assert "sentence 1: ngram: the token '3' scores -0.921" in done.err and "sentence 2" not in done.err
