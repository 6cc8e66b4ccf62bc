"""Older distributions of others keep working: each of `third_party/older` loads, decodes and keeps its contract.

They are written as at the first day of the protocol's number (`sgdec.API`), two of them with a trait that is older
still, and are never changed. Each is a source tree that pip can install.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from weakref import WeakSet

import pytest

import sgdec
from sgdec import Context, Source
from sgdec.cli.main import main
from sgdec.lifting import lift
from sgdec.models.base import ModelContext
from sgdec.plugins import surface
from sgdec.plugins.host import Host
from sgdec.testing import DecoderContract, PredictorContract, score_path
from sgdec.testing.seq2seq_contract import Seq2SeqContract
from tests.helpers.distributions import Site
from tests.helpers.places import ROOT
from tests.helpers.tiny_models import write_checkpoint

pytestmark = pytest.mark.slow

FOLDER = ROOT / "tests" / "third_party" / "older"
AS_WRITTEN = {
    "consensus": "c00db5ba884c5ef7",
    "elman": "6b4e28d66f9da3ce",
    "glossary": "bdd6c611a1d73908",
    "narrowing": "fcc09c6d588cb0d1",
    "parity": "ff6196e8168793fe",
    "temper": "e9f27dd83a7e3569",
    "topic": "197286bad92c00e8",
}


@pytest.fixture(scope="module", autouse=True)
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """All of them, in one folder on ``sys.path``."""
    with pytest.MonkeyPatch.context() as patch:
        site = Site(tmp_path_factory.mktemp("site"))
        patch.syspath_prepend(site.folder)
        patch.delenv("SGDEC_DISABLE_PLUGIN_AUTOLOAD", raising=False)
        for tree in sorted(FOLDER.iterdir()):
            site.install_tree(tree)
        yield site.folder
        for name in AS_WRITTEN:
            sys.modules.pop(f"sgdec_{name}", None)


def load(kind: str, name: str) -> type[Any]:
    return Host().load(kind, name)


@pytest.mark.parametrize("tree", sorted(FOLDER.iterdir()), ids=lambda tree: tree.name)
def test_they_are_as_they_were_written(tree: Path) -> None:
    files = sorted(file for file in tree.rglob("*") if file.suffix in (".py", ".tsv"))
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]
    assert digest == AS_WRITTEN[tree.name]


class TestEven(PredictorContract):
    vocab_size = 6

    def make(self) -> Any:
        return load("predictor", "even")()


class TestTopic(PredictorContract):
    vocab_size = 6

    def make(self) -> Any:
        return load("predictor", "topic")(Context(vocab_size=6))


class TestGlossary(PredictorContract):
    vocab_size = 8

    def make(self) -> Any:
        return load("predictor", "glossary")()


class TestTemper(PredictorContract):
    vocab_size = 6

    def make(self) -> Any:
        return load("predictor", "temper")(lift(load("predictor", "topic")(Context(vocab_size=6))))


class TestNarrowing(DecoderContract):
    def make(self) -> Any:
        return load("decoder", "narrowing")()


class TestConsensus(DecoderContract):
    def make(self) -> Any:
        return load("decoder", "consensus")()


class TestElman(Seq2SeqContract):
    def make(self, context: ModelContext) -> Any:
        return load("model", "elman")(context, width=5, embedding=4)


LIST = "even,glossary,temper:topic"
OPTIONS = ["--topic.spread", "2", "--temper.temperature", "3", "--vocab-size", "8", "--max-length", "4"]


def decode(folder: Path, *words: str) -> list[dict[str, Any]]:
    (folder / "in").write_text("3\n4 3\n")
    formats = ["--input-format", "ids", "--output-format", "jsonl", "--output", str(folder / "out")]
    assert main(["decode", *words, *formats, str(folder / "in")]) == 0
    return [json.loads(line) for line in (folder / "out").read_text().splitlines()]


@pytest.mark.parametrize("decoder", ["narrowing", "consensus", "beam", "astar", "vanilla"])
def test_they_decode_together(
    decoder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for checked in ("_SOUND", "_TOLD"):  # as in a new process
        monkeypatch.setattr(surface, checked, WeakSet())
    found = decode(tmp_path, "--predictors", LIST, *OPTIONS, "--decoder", decoder)
    warnings = [line for line in capsys.readouterr().err.splitlines() if "never_positive" in line]
    assert ["class Even" in line for line in warnings] == [True, False] and "class Temper" in warnings[1]
    options: dict[str, Any] = {"topic": {"spread": 2}, "temper": {"temperature": 3}}
    run = sgdec.load(LIST, decoder, vocab_size=8, max_length=4, **options)
    for line, tokens in zip(found, [(3,), (4, 3)], strict=True):
        best = line["hypotheses"][0]
        total, _ = score_path(run.parts.constellation, Source(line["id"], tokens, max_length=4), best["tokens"])
        assert len(best["tokens"]) % 2 == 0 and best["score"] == pytest.approx(total, abs=1e-4)


def test_the_model_decodes(tmp_path: Path) -> None:
    model = write_checkpoint(tmp_path / "model", model="elman", options={"width": 5, "embedding": 4})
    (tmp_path / "text").write_text("a b\n")
    line = ["decode", "--predictors", "nmt,even", "--nmt.model", str(model), "--max-length", "4"]
    assert main([*line, "--output-format", "ids", "--output", str(tmp_path / "out"), str(tmp_path / "text")]) == 0
    assert len((tmp_path / "out").read_text().split()) % 2 == 0


def test_the_model_is_trained(tmp_path: Path) -> None:
    """By its name and its distribution; its options bear its name."""
    text, words = tmp_path / "text", tmp_path / "words"
    text.write_text("a b\nb a\n" * 4)
    line = ["tokenizer", "--kind", "word", "--vocab-size", "6", "--input", str(text), "--output", str(words)]
    assert main(line) == 0
    files = ["--train", str(text), str(text), "--valid", str(text), str(text), "--tokenizer", str(words)]
    model = ["--model", "elman@sgdec-elman", "--elman.width", "5", "--elman.embedding", "4", "--max-steps", "1"]
    assert main(["train", *files, *model, "--output", str(tmp_path / "run")]) == 0
    line = ["decode", "--predictors", "nmt", "--nmt.model", str(tmp_path / "run" / "best"), "--max-length", "2"]
    assert main([*line, "--output", str(tmp_path / "out"), str(text)]) == 0
