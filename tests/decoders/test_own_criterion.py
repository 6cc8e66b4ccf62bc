"""A decoder that ranks by expected utility is listed by it in every output; totals stay totals."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from sgdec.cli.main import main
from sgdec.testing import Table
from tests.helpers.mbr_decoder import MbrDecoder, unigram_f1
from tests.helpers.oracles import tiny
from tests.helpers.places import ROOT
from tests.helpers.random_spaces import search
from tests.helpers.tiny_models import write_lattice

PLUGIN = str(ROOT / "tests" / "helpers" / "mbr_decoder.py")
RUN = ["--plugin-file", PLUGIN, "--predictors", "fst", "--fst.path", "{id}.fst", "--input-format", "ids"]
MBR = ["--decoder", "mbr", "--mbr.samples", "40", "--nbest", "4", "--max-length", "0"]


def test_the_rank_score_is_the_mean_similarity_to_all_samples() -> None:
    space = tiny(3, a=Table(np.random.default_rng(1).normal(size=(5, 5))))
    result, opened = search(MbrDecoder(samples=12), space, 12)
    drawn = [node.tokens for node in MbrDecoder(samples=12).draw(opened)]
    assert len(result.hypotheses) == len(set(drawn)) > 1
    for hypothesis in result.hypotheses:
        similar = [unigram_f1((*hypothesis.tokens, 2), tokens) for tokens in drawn]
        assert hypothesis.rank_score == pytest.approx(np.mean(similar))


def test_lists_come_by_utility_and_hold_totals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The likeliest path has nothing in common with the three others, which are much like each other."""
    paths = [((9, 9, 9), 0.9), ((3, 4, 5), 1.3), ((3, 4, 6), 1.4), ((3, 4, 7), 1.5)]
    totals = {tokens: -cost for tokens, cost in paths}
    write_lattice(tmp_path / "1.fst", paths)
    (tmp_path / "in.ids").write_text("8\n")
    monkeypatch.chdir(tmp_path)

    def run(*args: str) -> list[str]:
        assert main(list(args)) == 0
        out, err = capsys.readouterr()
        assert "Note:" not in err
        return out.splitlines()

    (row,) = run("decode", *RUN, *MBR, "--output-format", "jsonl", "in.ids")
    found = json.loads(row)["hypotheses"]
    assert [tuple(h["tokens"]) for h in found][-1] == (9, 9, 9)
    assert [h["score"] for h in found] == pytest.approx([totals[tuple(h["tokens"])] for h in found])
    assert [h["rank_score"] for h in found] == sorted((h["rank_score"] for h in found), reverse=True)
    assert all(0 < h["rank_score"] <= 1 for h in found)

    listed = run("decode", *RUN, *MBR, "--output-format", "nbest", "in.ids")
    assert [line.split(" ||| ")[1] for line in listed] == [" ".join(map(str, h["tokens"])) for h in found]
    assert [float(line.split(" ||| ")[3]) for line in listed] == pytest.approx([h["score"] for h in found])
    (tmp_path / "list.nbest").write_text("".join(f"{line}\n" for line in listed))
    rescored = run("score", *RUN, "--nbest-list", "in.ids", "list.nbest")
    new = [float(line.split(" ||| ")[3]) for line in rescored]
    assert new == pytest.approx(sorted(totals.values(), reverse=True))
