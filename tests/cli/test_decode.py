"""The promise of `sgdec decode`: what the options say is what comes out, in every format, line for line."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import click
import pytest

from sgdec.cli.main import COMMANDS, main
from tests.helpers.tiny_models import characters, write_checkpoint, write_lattice


class Ran(NamedTuple):
    """What a command wrote."""

    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines]


Decode = Callable[..., Ran]


@pytest.fixture
def decode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Decode:
    """Runs ``sgdec decode`` in a folder of its own."""
    monkeypatch.chdir(tmp_path)

    def run(*args: str, status: int = 0) -> Ran:
        assert main(["decode", *args]) == status, capsys.readouterr().err
        return Ran(*capsys.readouterr())

    return run


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_checkpoint(tmp_path_factory.mktemp("model")))


LATTICES: Sequence[Sequence[tuple[Sequence[int], float]]] = [
    [((3, 4), 0.5), ((3, 5), 0.25), ((6,), 2.0)],
    [((4,), -1.0), ((4, 4, 4), 1.0)],
    [((5, 5), 0.0)],
]
FST = ["--predictors", "fst", "--fst.path", "{id}.fst", "--input-format", "ids", "--max-length", "0"]


@pytest.fixture
def lattices(tmp_path: Path) -> None:
    """Three sentences with their lattices; the input has ids."""
    (tmp_path / "in.ids").write_text("7\n8 8\n9\n")
    for number, paths in enumerate(LATTICES, 1):
        write_lattice(tmp_path / f"{number}.fst", paths)


def test_the_help_of_each_command_has_one_source() -> None:
    for name in COMMANDS:
        try:
            command = import_module(f"sgdec.cli.{name.replace('-', '_')}").command
        except ModuleNotFoundError:
            continue  # another test says so
        assert isinstance(command, click.Command) and command.short_help is None


@pytest.mark.usefixtures("lattices")
def test_each_format_holds_the_same_hypotheses(decode: Decode) -> None:
    assert decode(*FST, "in.ids").lines == ["3 5", "4", "5 5"]
    assert decode(*FST, "--output-format", "ids", "in.ids").lines == ["3 5", "4", "5 5"]
    full = ["--nbest", "5", "--beam.stop", "full"]
    assert decode(*FST, *full, "--output-format", "nbest", "in.ids").lines == [
        "1 ||| 3 5 ||| fst= -0.250000 ||| -0.250000",
        "1 ||| 3 4 ||| fst= -0.500000 ||| -0.500000",
        "1 ||| 6 ||| fst= -2.000000 ||| -2.000000",
        "2 ||| 4 ||| fst= 1.000000 ||| 1.000000",
        "2 ||| 4 4 4 ||| fst= -1.000000 ||| -1.000000",
        "3 ||| 5 5 ||| fst= 0.000000 ||| 0.000000",
    ]
    first, second, third = decode(*FST, *full, "--output-format", "jsonl", "in.ids").rows
    assert [h["tokens"] for h in first["hypotheses"]] == [[3, 5], [3, 4], [6]]
    assert set(first) == {"id", "hypotheses", "proven", "gap", "expansions", "bounds", "seconds"}
    assert third["hypotheses"] == [
        {"tokens": [5, 5], "text": "5 5", "score": 0.0, "rank_score": 0.0, "scores": {"fst": 0.0},
         "weights": {"fst": 1.0}}
    ]  # fmt: skip
    assert second["id"] == 2 and third["expansions"] == 3


LOOSE = [
    "--predictors", "wc,wc", "--wc.token", "3", "--wc.weight", "-1", "--wc2.token", "4", "--wc2.weight", "-1",
    "--vocab-size", "9", "--input-format", "ids", "--max-length", "4", "--output-format", "jsonl",
    "--bounds", "sum",
]  # fmt: skip
"""Two rewards of which each token can earn only one: the sum of their bounds is too high until all is searched."""


@pytest.mark.slow
@pytest.mark.parametrize("decoder", ["astar", "dfs", "bucket", "lendfs", "restarting"])
def test_the_last_line_counts_what_a_budget_leaves_unproven(decode: Decode, tmp_path: Path, decoder: str) -> None:
    (tmp_path / "in.ids").write_text("5\n5 6\n")
    found = decode(*LOOSE, "--decoder", decoder, f"--{decoder}.max_expansions", "30", "in.ids")
    gaps = [row["gap"] for row in found.rows if row["proven"] is False]
    assert len(gaps) == 2
    assert found.err.splitlines()[-1] == (
        f"Warning: 2 of 2 outputs are not proven (gap up to {max(gaps):.4g})"
    )
    assert "not proven" not in decode(*LOOSE, "--decoder", decoder, "in.ids").err


def test_a_list_whose_first_output_alone_is_proven_is_told_so(decode: Decode, tmp_path: Path) -> None:
    (tmp_path / "in.ids").write_text("5\n5 6\n")
    words = ["--predictors", "wc", "--vocab-size", "9", "--input-format", "ids", "--max-length", "4"]
    words += ["--output-format", "jsonl", "--decoder", "dfs", "--nbest", "5", "--dfs.max_expansions", "4"]
    found = decode(*words, "in.ids")
    assert [(row["proven"], row["gap"]) for row in found.rows] == [(False, 0.0)] * 2
    said = [line for line in found.err.splitlines() if "not proven" in line]
    assert said == ["Warning: 2 of 2 lists are not proven; their first outputs are"]


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["fst", "fst.gz"])
def test_written_lattices_rescore_to_the_same_totals(decode: Decode, model: str, tmp_path: Path, suffix: str) -> None:
    (tmp_path / "in.txt").write_text("ab c\nc\nba ba\n")
    lattice = tmp_path / "all.fst"
    texts = [characters("abc").encode(text) for text in ("a", "ab", "ab c", "cc", "c a b")]
    write_lattice(lattice, [(tokens, 0.3 * i) for i, tokens in enumerate(texts)])
    run = ["--predictors", "nmt,fst", "--nmt.model", model, "--fst.path", str(lattice), "--fst.weight", "0.5"]
    options = ["--nbest", "4", "--beam.size", "8", "--beam.stop", "full", "--max-length", "0"]
    first = decode(*run, *options, "--output-format", "jsonl", "in.txt").rows
    decode(*run, *options, "--output-format", "fst", "--output", f"out/{{id}}.{suffix}", "in.txt")
    again = decode(
        "--predictors", "fst", "--fst.path", f"out/{{id}}.{suffix}", "--tokenizer", f"{model}/tokenizer.spm",
        *options, "--output-format", "jsonl", "in.txt",
    ).rows  # fmt: skip
    for one, other in zip(first, again, strict=True):
        assert len(one["hypotheses"]) == 4
        assert [h["tokens"] for h in one["hypotheses"]] == [h["tokens"] for h in other["hypotheses"]]
        totals = [h["score"] for h in one["hypotheses"]]
        assert [h["score"] for h in other["hypotheses"]] == pytest.approx(totals, abs=1e-4)
        assert [h["text"] for h in one["hypotheses"]] == [h["text"] for h in other["hypotheses"]]


@pytest.mark.usefixtures("lattices")
def test_a_range_keeps_the_numbers_of_its_sentences(decode: Decode) -> None:
    ran = decode(*FST, "--range", "2:3", "--output-format", "nbest", "in.ids")
    assert [line.split(" ||| ")[:2] for line in ran.lines] == [["2", "4"], ["3", "5 5"]]
    assert decode(*FST, "--range", "2", "in.ids").lines == ["4"]
    assert decode(*FST, "--range", "3:9", "in.ids").lines == ["5 5"]


@pytest.mark.usefixtures("lattices")
def test_a_range_that_begins_after_the_input_is_refused(decode: Decode, tmp_path: Path) -> None:
    refused = decode(*FST, "--range", "4:5", "--output", "out", "in.ids", status=2)
    assert "Error: --range begins at 4, but in.ids has 3 lines." in refused.err
    assert not (tmp_path / "out").exists()
    assert decode(*FST, "--range", "3", "--output", "out", "in.ids").out == ""  # nothing stands in its way


@pytest.mark.parametrize(("form", "told"), [("text", True), ("ids", True), ("nbest", False), ("jsonl", False)])
@pytest.mark.usefixtures("lattices")
def test_a_format_that_holds_one_hypothesis_says_so(
    decode: Decode, tmp_path: Path, form: str, told: bool
) -> None:
    (tmp_path / "letters.spm").write_bytes(characters("abcdef").serialized)
    run = [*FST, "--tokenizer", "letters.spm", "--beam.stop", "full", "--output-format", form, "in.ids"]
    assert "Note: " not in decode(*run).err
    note = f"Note: --output-format {form} writes only the best hypothesis; nbest and jsonl write all 3."
    assert (note in decode(*run, "--nbest", "3").err) is told


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.usefixtures("lattices")
def test_a_run_that_waits_for_a_terminal_says_so(
    decode: Decode, monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    typed = io.BytesIO(b"7\n")
    typed.isatty = lambda: terminal  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=typed))
    assert ("Note: reading standard input" in decode(*FST).err) is terminal


@pytest.mark.usefixtures("lattices")
def test_the_input_may_be_standard_input_or_gzipped(
    decode: Decode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in.gz").write_bytes(gzip.compress(b"7\n8\n"))
    assert decode(*FST, "in.gz").lines == ["3 5", "4"]
    for args in ([], ["-"]):
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"7\n")))
        assert decode(*FST, *args).lines == ["3 5"]


CONFIG = """
predictors = ["fst", "wc"]
input = "in.ids"
input-format = "ids"
output-format = "nbest"
nbest = 2
range = "2:3"
max-length = 0

[fst]
path = "{id}.fst"
weight = 0.5

[wc]
weight = -0.1

[beam]
size = 9
stop = "full"
"""


@pytest.mark.slow
@pytest.mark.usefixtures("lattices")
def test_a_configuration_says_what_the_command_line_says_and_the_command_line_wins(
    decode: Decode, tmp_path: Path
) -> None:
    (tmp_path / "run.toml").write_text(CONFIG)
    (tmp_path / "mine.py").write_text(
        "import sgdec\nfrom sgdec_decoders.beam import BeamDecoder\n"
        "@sgdec.hookimpl\ndef sgdec_decoders():\n    return {'mine': BeamDecoder}\n"
    )
    same = [
        "--predictors", "fst,wc", "--input-format", "ids", "--output-format", "nbest", "--nbest", "2",
        "--range", "2:3", "--max-length", "0", "--fst.path", "{id}.fst", "--fst.weight", "0.5",
        "--wc.weight", "-0.1", "--beam.size", "9", "--beam.stop", "full", "in.ids",
    ]  # fmt: skip
    by_file, by_line = decode("--config", "run.toml"), decode(*same)
    assert by_file.out == by_line.out == (
        "2 ||| 4 ||| fst= 1.000000 wc= -1.000000 ||| 0.600000\n"
        "2 ||| 4 4 4 ||| fst= -1.000000 wc= -3.000000 ||| -0.200000\n"
        "3 ||| 5 5 ||| fst= 0.000000 wc= -2.000000 ||| 0.200000\n"
    )  # fmt: skip
    wins = decode("--config", "run.toml", "--nbest", "1", "--range", "1", "--wc.weight=0", "--output-format", "ids")
    assert wins.lines == ["3 5"]
    (tmp_path / "other.toml").write_text('decoder = "mine"\n' + CONFIG.replace("[beam]", "[mine]"))
    assert decode("--config", "other.toml", "--plugin-file", "mine.py").out == by_file.out


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("nbset = 2", "--config run.toml: no option 'nbset'. Did you mean 'nbest'?"),
        ('config = "other.toml"', "--config run.toml: no option 'config'."),
        ("nbest = 0", "--config run.toml: --nbest: '0' should be at least 1 (int >= 1: "),
        ('nbest = "many"', "--config run.toml: --nbest: 'many' should be an integer"),
        ("nbest = ", "--config run.toml is not a TOML file"),
        ("[beem]\nsize = 3", "--config run.toml: options for 'beem', which this run does not use. Did you mean"),
        ("[beam]\nsize = 0", "--config run.toml: --beam.size: 0 should be at least 1"),
        ("[beam]\nsice = 3", "--config run.toml: no option --beam.sice. Did you mean '--beam.size'?"),
        ("[beam.size]\nx = 3", "--config run.toml: --beam.size: {'x': 3} should be an integer"),
        ("beam.sice = 3", "--config run.toml: no option --beam.sice. Did you mean '--beam.size'?"),
        ("[wc]\ntokn = 3", "--config run.toml: no option --wc.tokn. Did you mean '--wc.token'?"),
        ('[wc]\nweight = "x"', "--config run.toml: --wc.weight x: expected a number, such as 0.5."),
        ("[wc]\nrenormalize = 3", "--config run.toml: --wc.renormalize: 3 should be true or false"),
        ("[dfs]\nsize = 3", "--config run.toml: options for 'dfs', which this run does not use. It is a decoder"),
    ],
)
def test_a_configuration_that_is_wrong_is_one_line(decode: Decode, tmp_path: Path, config: str, message: str) -> None:
    (tmp_path / "run.toml").write_text(config)
    ran = decode("--config", "run.toml", "--predictors", "wc", "--vocab-size", "5", status=2)
    assert ran.err.startswith(f"Error: {message}") and ran.err.count("\n") == 1


def test_a_configuration_is_blamed_only_for_what_it_sets(decode: Decode, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text("[beam]\nsize = 0\n[wc]\n")
    (tmp_path / "in.ids").write_text("3\n")
    run = ["--config", "run.toml", "--predictors", "wc", "--vocab-size", "5", "--input-format", "ids", "in.ids"]
    decode(*run, "--beam.size", "2")
    assert decode(*run, "--beam.size", "-1", status=2).err.startswith("Error: --beam.size: '-1' should be at least 1")
    assert decode(*run, "--predictors", "wcc", status=2).err.startswith("Error: no predictor named 'wcc'.")


@pytest.mark.usefixtures("lattices")
def test_the_signature_is_printed_and_stored(decode: Decode, tmp_path: Path) -> None:
    ran = decode(*FST, "--signature", "run.sig", "--nbest", "2", "--seed", "4", "in.ids")
    stored = (tmp_path / "run.sig").read_text()
    assert ran.err.splitlines()[-1] == f"signature: {stored.strip()}"
    lattice = hashlib.sha256((tmp_path / "1.fst").read_bytes()).hexdigest()[:12]
    for part in (f"predictors:1*fst(path={{id}}.fst#{lattice})", "decoder:beam", "seed:4", "nbest:2", "max_length:0"):
        assert f"|{part}|" in stored + "|"


@pytest.mark.usefixtures("lattices")
def test_the_summary_counts_what_was_done(decode: Decode) -> None:
    summary = decode(*FST, "in.ids").err.splitlines()[-2]
    assert summary.startswith("3 sentences, 8 tokens, ") and "sentences/s" in summary


def test_the_summary_counts_sentences_with_words_or_characters_that_the_vocabulary_does_not_know(
    decode: Decode, model: str, tmp_path: Path
) -> None:
    (tmp_path / "in.txt").write_text("ab\naxyb\nz\n")
    (tmp_path / "known.txt").write_text("ab\nc\n")
    run = ["--predictors", "nmt", "--nmt.model", model]
    note, *_ = (line for line in decode(*run, "in.txt").err.splitlines() if line.startswith("Note: "))
    assert note.startswith("Note: 2 of 3 sentences have words or characters that the source vocabulary does not know")
    assert "Note: " not in decode(*run, "known.txt").err


@pytest.mark.usefixtures("lattices")
def test_lines_never_shift_whatever_fails(decode: Decode, tmp_path: Path) -> None:
    (tmp_path / "in.ids").write_bytes(b"7\n\n9\n\xff\n4\nx\n")
    (tmp_path / "5.fst").write_bytes((tmp_path / "2.fst").read_bytes())
    ran = decode(*FST, "--output", "out.ids", "in.ids", status=1)
    assert ran.out == "" and (tmp_path / "out.ids").read_text() == "3 5\n\n5 5\n\n4\n\n"
    warnings = [line for line in ran.err.splitlines() if line.startswith("Warning: sentence ")]
    assert [line.split(": ")[1] for line in warnings] == ["sentence 2", "sentence 4", "sentence 6"]
    assert "6 sentences, 3 failed, " in ran.err
    rows = decode(*FST, "--output-format", "jsonl", "in.ids", status=1).rows
    assert [row["id"] for row in rows] == [1, 2, 3, 4, 5, 6]
    assert [bool(row["hypotheses"]) for row in rows] == ["error" not in row for row in rows]


@pytest.mark.parametrize(
    ("args", "lengths"),
    [
        ([], [2, 4]),
        (["--max-length-factor", "3.5"], [3, 7]),
        (["--max-length", "5"], [5, 5]),
        (["--max-length-factor", "0"], [0, 0]),
    ],
)
def test_the_length_limit_is_a_factor_or_a_number(
    decode: Decode, tmp_path: Path, args: list[str], lengths: list[int]
) -> None:
    (tmp_path / "in.ids").write_text("3\n3 3\n")
    run = ["--predictors", "wc", "--wc.weight", "-1", "--vocab-size", "4", "--input-format", "ids"]
    ran = decode(*run, "--decoder", "greedy", *args, "in.ids")
    assert [len(line.split()) for line in ran.lines] == lengths
    assert ran.err.splitlines()[-2] == (
        "Note: 2 of 2 outputs end at the length limit, where only </s> can follow; --max-length N allows more."
    )


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        ("1", None),
        ("2", "1 of 2 outputs ends at the length limit, where only </s> can follow; --max-length N allows more"),
        ("3", "1 of 3 outputs ends at the length limit, where only </s> can follow; --max-length N allows more"),
        ("4", None),
    ],
)
def test_the_last_lines_count_the_outputs_that_end_at_the_length_limit(
    decode: Decode, tmp_path: Path, limit: str, said: str | None
) -> None:
    """Forced outputs of 2, 3 and 2 tokens; those that are longer than the limit fail."""
    (tmp_path / "in.ids").write_text("3\n3\n3\n")
    (tmp_path / "out.ids").write_text("4 4\n4 4 4\n\n")
    run = ["--predictors", "forced", "--forced.path", "out.ids", "--vocab-size", "5", "--input-format", "ids"]
    ran = decode(*run, "--decoder", "greedy", "--max-length", limit, "in.ids", status=int(int(limit) < 3))
    warnings = [line for line in ran.err.splitlines() if "length limit" in line]
    assert warnings == ([] if said is None else [f"Note: {said}."])


def test_text_comes_out_as_text_whatever_the_terminal_speaks(
    decode: Decode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "eu.spm").write_bytes(characters("éü").serialized)
    (tmp_path / "in.txt").write_text("éü\n")
    (tmp_path / "ref.txt").write_text("ü é\n")
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    decode("--predictors", "forced", "--forced.path", "ref.txt", "--tokenizer", "eu.spm", "in.txt")
    assert raw.getvalue().decode("utf-8") == "ü é\n"


@pytest.mark.slow
@pytest.mark.usefixtures("lattices")
@pytest.mark.parametrize("batch_size", ["1", "2"])
def test_the_batch_size_changes_nothing(decode: Decode, batch_size: str) -> None:
    assert decode(*FST, "--batch-size", batch_size, "in.ids").out == decode(*FST, "in.ids").out
