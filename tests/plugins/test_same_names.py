"""A plugin of a name that others have, too: ``NAME@DISTRIBUTION`` names it wherever a plugin can be named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import sgdec
from sgdec.cli.completion import Zsh, join_words
from sgdec.cli.main import main
from sgdec.cli.main import sgdec as command
from sgdec.errors import UsageError
from sgdec.plugins.predictor_list import parse_predictors
from tests.helpers.distributions import Site

MODULE = '''
"""Plugins of the names of bundled ones."""
import sgdec
from sgdec_decoders.beam import BeamDecoder
from sgdec.engines.local import Local

class Count(sgdec.Predictor):
    """A price for each token."""
    def __init__(self, price: float = 1.0):
        self.price = price
    def predict_next(self, candidates=None):
        return sgdec.Scores.sparse([2], [0.0], default=-self.price)

class Around(sgdec.BatchPredictor):
    def __init__(self, inner, times: float = 2.0):
        self.inner, self.times = inner, times
        self.initialize_batch, self.consume_batch = inner.initialize_batch, inner.consume_batch
    def initialize_batch(self, sources): ...
    def consume_batch(self, states, tokens): ...
    def predict_batch(self, states, candidates=None):
        rows = self.inner.predict_batch(states, candidates).rows
        return sgdec.Scores(rows=[type(r)(r.tokens, [self.times * s for s in r.scores], self.times * r.default)
                                  for r in rows])

class Search(sgdec.Decoder):
    def __init__(self, width: int = 1):
        self.width = width
    def decode(self, space):
        return BeamDecoder(size=self.width).decode(space)

class Workers(Local):
    """Processes."""

@sgdec.hookimpl
def sgdec_predictors(): return {"wc": Count, "idxmap": Around}
@sgdec.hookimpl
def sgdec_decoders(): return {"greedy": Search}
@sgdec.hookimpl
def sgdec_engines(): return {"local": Workers}
'''
POINTS = dict.fromkeys(["predictor.wc", "predictor.idxmap", "decoder.greedy", "engine.local"], "foo")
WC = "predictor 'wc' is sgdec's own; sgdec-foo has another one: write wc@sgdec-foo to use it."


@pytest.fixture(autouse=True)
def installed(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.install("sgdec-foo", POINTS, {"foo": MODULE})
    (site.folder / "in").write_text("3\n4 3\n")
    monkeypatch.chdir(site.folder)
    monkeypatch.setenv("PYTHONPATH", str(site.folder))


def run(capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> tuple[list[str], list[str]]:
    """Standard output of a command, and what it says besides, except how many outputs end at the length limit."""
    assert main(words) == status
    out, err = capsys.readouterr()
    said = [line for line in err.splitlines() if line.startswith(("Warning: ", "Error: ", "Note: "))]
    return out.splitlines(), [line.partition(": ")[2] for line in said if "length limit" not in line]


DECODE = ("--vocab-size", "5", "--input-format", "ids", "--max-length", "3")


def scores(out: list[str]) -> dict[str, float]:
    """By predictor, those of the best hypothesis of the first sentence."""
    found: dict[str, float] = json.loads(out[0])["hypotheses"][0]["scores"]
    return found


def test_the_options_of_a_plugin_bear_its_name_without_the_distribution(capsys: pytest.CaptureFixture[str]) -> None:
    line = ["decode", *DECODE, "--predictors", "wc@sgdec-foo,wc,idxmap@sgdec-foo:wc@Sgdec_Foo"]
    line += ["--wc.price", "3", "--wc2.weight", "-9", "--wc3.price", "0.5", "--idxmap.times", "4"]
    line += ["--decoder", "greedy@sgdec-foo", "--greedy.width", "2", "--signature", "signed"]
    out, said = run(capsys, *line, "--output-format", "jsonl", "in")
    assert said == [WC], "a run that names the other plugin is not warned of it"
    assert scores(out) == {"wc": -9.0, "wc2": -3.0, "idxmap": -6.0}
    signature = Path("signed").read_text()
    assert "|plugins:sgdec-foo:1.0|predictors:1*wc@sgdec-foo(price=3),-9*wc2=wc," in signature
    assert ",1*idxmap@sgdec-foo(times=4):wc3=wc@sgdec-foo(price=0.5)|decoder:greedy@sgdec-foo(width=2)|" in signature


def test_spellings_of_one_distribution_have_one_signature() -> None:
    signatures = [
        sgdec.load(f"wc@{spelt}", f"greedy@{spelt}", vocab_size=5, max_length=1).signature
        for spelt in ("sgdec-foo", "Sgdec_Foo", "SGDEC.-_foo")
    ]
    assert signatures[0] == signatures[1] == signatures[2]
    assert "wc@sgdec-foo" in signatures[0] and "greedy@sgdec-foo" in signatures[0]


def test_a_config_file_names_a_plugin_as_the_command_line_does(capsys: pytest.CaptureFixture[str]) -> None:
    Path("run.toml").write_text('predictors = "wc@sgdec-foo"\ndecoder = "greedy@sgdec-foo"\n[wc]\nprice = -1.5\n')
    out, said = run(capsys, "decode", *DECODE, "--config", "run.toml", "--output-format", "jsonl", "in")
    assert scores(out) == {"wc": 4.5} and said == []


def test_the_bundled_plugin_is_meant_without_a_distribution(capsys: pytest.CaptureFixture[str]) -> None:
    _, said = run(capsys, "decode", *DECODE, "--predictors", "wc", "--wc.price", "3", "in", status=2)
    assert said[0] == WC and said[1].startswith("no option --wc.price.")
    _, said = run(capsys, "decode", *DECODE, "--predictors", "wc@sgdec", "--decoder", "beam", "in")
    assert said == []


@pytest.mark.parametrize("given", ["wc@sgdec-foo", {"mine": "idxmap@sgdec-foo:wc@sgdec-foo"}])
def test_a_library_call_names_a_plugin_as_the_command_line_does(given: Any) -> None:
    run = sgdec.load(given, "greedy@sgdec-foo", vocab_size=5, max_length=1, greedy={"width": 3})
    (found,) = run.decode([[3]])
    assert found.best.score == 0.0 and "greedy@sgdec-foo(width=3)" in repr(run)


@pytest.mark.parametrize("wrong", ["wc@", "@sgdec-foo", "wc@sgdec foo", "wc@-foo", "a@b=wc", "wc@a@b"])
def test_a_malformed_name_is_refused(wrong: str) -> None:
    with pytest.raises(UsageError, match=r"^--predictors '.*' is not a name in entry 1\. Expected a comma list"):
        parse_predictors(wrong)


def test_options_of_a_name_with_a_distribution_say_what_is_meant(capsys: pytest.CaptureFixture[str]) -> None:
    line = ["decode", *DECODE, "--predictors", "wc@sgdec-foo", "--wc@sgdec-foo.price", "3", "in"]
    _, (said,) = run(capsys, *line, status=2)
    assert said == (
        "options for 'wc@sgdec-foo', which this run does not use. Options belong to the name alone: --wc.OPTION."
    )


def test_plugins_lists_what_has_to_be_written_and_warns(capsys: pytest.CaptureFixture[str]) -> None:
    out, said = run(capsys, "plugins")
    columns = [line.split()[:3] for line in out]
    assert ["predictor", "wc", "sgdec"] in columns and ["predictor", "wc@sgdec-foo", "sgdec-foo"] in columns
    assert WC in said and len(said) == 4
    out, said = run(capsys, "plugins", "--check")
    assert out[0].startswith("All ") and WC in said and len(said) == 4


def test_plugins_describes_each_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("wc@sgdec-foo", "predictor.wc@sgdec-foo"):
        out, said = run(capsys, "plugins", name)
        assert out[0] == "predictor wc (sgdec-foo: foo.Count)" and said == []
    out, said = run(capsys, "plugins", "wc")
    assert out[0] == "predictor wc (sgdec: sgdec_predictors.wc.WordCount)" and said == [WC]
    _, (said,) = run(capsys, "plugins", "wc@foo", status=2)
    assert said == "no predictor 'wc' of a distribution 'foo'. Did you mean 'sgdec-foo'? Available: sgdec, sgdec-foo."


def test_shells_complete_the_names_of_both() -> None:
    def proposed(*words: str) -> list[str]:
        *args, incomplete = words
        items = Zsh(command, {}, "sgdec", "_SGDEC_COMPLETE").get_completions(["decode", *args], incomplete)
        return [item.value for item in items]

    assert proposed("--predictors", "fst,wc") == ["fst,wc", "fst,wc@sgdec-foo"]
    assert proposed("--predictors", "wc@") == ["wc@sgdec", "wc@sgdec-foo"]
    assert proposed("--decoder", "gre") == ["greedy", "greedy@sgdec-foo"]
    assert proposed("--predictors", "wc@sgdec-foo", "--wc.pr") == ["--wc.price"]
    assert proposed("--decoder", "greedy@sgdec-foo", "--greedy.") == ["--greedy.width"]
    assert join_words(["--predictors", "wc", "@", "sgdec"]) == (["--predictors", "wc@sgdec"], "wc@")


@pytest.mark.slow
def test_a_corpus_records_the_distribution_and_warns_once(capsys: pytest.CaptureFixture[str]) -> None:
    line = ["corpus", "in", "--output", "out", "--workers", "2", "--engine", "local@sgdec-foo", "--local.ahead", "2"]
    line += ["--", "--predictors", "wc@sgdec-foo,wc", "--decoder", "greedy@sgdec", *DECODE]
    _, said = run(capsys, *line)
    assert said == [WC]
    signature = json.loads(Path("out", "manifest.json").read_text())["signature"]
    assert signature["plugins"] == "sgdec-foo:1.0" and signature["predictors"] == "1*wc@sgdec-foo,1*wc2=wc"
