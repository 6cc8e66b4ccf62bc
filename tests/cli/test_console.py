"""Messages are logged, progress is one line of a terminal, and a pipe sees nothing but the messages."""

from __future__ import annotations

import io
import logging
import re
import subprocess
import sys
from pathlib import Path

import pytest

import sgdec
from sgdec.cli.console import console
from sgdec.cli.main import main
from sgdec.cli.running import Tally, sentences_in
from sgdec.search.tracing import meter
from sgdec.terminal import Bar, track
from tests.helpers.training_case import make_config

pytestmark = pytest.mark.background

LOG = logging.getLogger("sgdec.tests")
WORK = {
    "decoding": "decode --predictors wc --vocab-size 9 --input-format ids --max-length 3 --output out ids",
    "scoring": "score --predictors wc --vocab-size 9 --input-format ids --target-format ids --output out ids ids",
    "n-gram model": "lm --input text --order 2 --discount-fallback --output out.arpa",
    "fitting": "fit-length text text --output out",
    "trie": "trie ids --output out.trie",
    "extracting n-grams": "ngrams list --output {id}.txt --order 1",
}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def open_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """What standard error is from now on. (Set up before the test begins, it would be replaced by pytest's.)"""
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    return screen


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ids").write_text("3 4\n5\n6 7 8\n")
    (tmp_path / "text").write_text("a b c\nb\nc a c a\nb b\n")
    (tmp_path / "list").write_text("1 ||| 3 4 ||| a= 1 ||| -1.5\n2 ||| 5 ||| a= 1 ||| -2\n")
    return tmp_path


def left_on(screen: str) -> list[str]:
    """The lines that stay: what a carriage return goes back over is gone."""
    return [line.rpartition("\r")[2] for line in re.sub(r"\x1b\[A", "", screen).split("\n")]


@pytest.mark.parametrize("what", WORK)
def test_long_work_is_seen_on_a_terminal_and_its_messages_are_those_of_a_pipe(
    folder: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    terminal = open_terminal(monkeypatch)
    assert main(WORK[what].split()) == 0
    shown = terminal.getvalue()
    assert f"\r{what}" in shown
    pipe = io.StringIO()
    monkeypatch.setattr(sys, "stderr", pipe)
    assert main(WORK[what].split()) == 0
    said = pipe.getvalue()
    assert "\r" not in said and "\x1b" not in said
    timeless = [re.sub(r"[\d.]+ (s\b|sentences/s|tokens/s)", "", text) for text in ("\n".join(left_on(shown)), said)]
    assert timeless[0] == timeless[1]


@pytest.mark.slow
def test_training_shows_its_text_its_steps_and_its_validation(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    config = make_config(folder, max_steps=3)
    call = ["train", "--train", *config.train, "--valid", *config.valid, "--tokenizer", *config.tokenizer]
    small = ["--gnmt.width", "8", "--max-steps", "3", "--batch-tokens", "48", "--bleu", "2", "--precision", "fp32"]
    assert main([*call, "--output", "run", *small, "--shard-tokens", "300"]) == 0
    shown = terminal.getvalue()
    for what in ("counting lines", "preparing text", "dealing to", "training", "perplexity", "translating"):
        assert f"\r{what}" in shown
    assert re.search(r"/3 .*steps/s, epoch [\d.]+, loss [\d.]+, [\d,]+ tokens/s", shown)
    assert [line for line in left_on(shown) if line.startswith("gnmt: ")] and left_on(shown)[-1] == ""
    seen = len(shown)
    assert main([*call, "--output", "other", *small, "--quiet"]) == 0
    assert terminal.getvalue()[seen:] == ""


def test_results_on_the_same_terminal_are_progress_enough(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = open_terminal(monkeypatch)
    monkeypatch.setattr(sys, "stdout", Terminal())
    call = WORK["decoding"].replace("--output out ", "").split()
    assert main(call) == 0
    assert "\r" not in terminal.getvalue()


def test_sentences_count_when_they_were_searched_not_when_they_are_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = open_terminal(monkeypatch)
    monkeypatch.setattr(meter, "SECONDS", 0.0)
    with console(), Tally("decoding", {"input_format": "ids", "output": "out"}, done=1) as tally:
        tally.expect([str(folder / "ids")], 1, None)
        tally.searched(2)
        assert tally.meter is not None
        tally.meter.expanded(1234)
    assert "3/3" in terminal.getvalue() and "1,234 expansions]" in terminal.getvalue()


@pytest.mark.parametrize("batch_size", ["1", "64"])
def test_long_proofs_show_their_expansions_and_their_gap(
    folder: Path, monkeypatch: pytest.MonkeyPatch, batch_size: str
) -> None:
    terminal = open_terminal(monkeypatch)
    monkeypatch.setattr(meter, "SECONDS", 0.0)
    call = WORK["decoding"].replace("wc", "wc,wc").split()
    weights = ["--wc.weight", "-1", "--wc.token", "3", "--wc2.weight", "-1", "--wc2.token", "4"]  # bounds add up
    assert main([*call, *weights, "--decoder", "dfs", "--batch-size", batch_size]) == 0
    shown = terminal.getvalue()
    assert re.search(r"\b0/3 [^\r]* \d expansions, gap unknown\]", shown)
    assert re.search(r"\b[01]/3 [^\r]* \d+ expansions, gap up to [\d.]+\]", shown)


@pytest.mark.parametrize(
    ("text", "first", "last", "expected"),
    [("a\nb\n", 1, None, 2), ("a\nb", 1, None, 2), ("a\nb\nc\n", 2, 2, 1), ("a\n", 3, 4, 0), ("", 1, None, 0)],
)
def test_sentences_of_a_file_are_counted(
    tmp_path: Path, text: str, first: int, last: int | None, expected: int
) -> None:
    (tmp_path / "in.txt").write_text(text)
    assert sentences_in([str(tmp_path / "in.txt")], first, last) == expected


def test_sentences_of_pipes_and_packed_files_are_not_counted(tmp_path: Path) -> None:
    packed = tmp_path / "in.gz"
    packed.write_bytes(b"\n")
    assert sentences_in(["-"]) is sentences_in([str(packed)]) is sentences_in(["/dev/null"]) is None


def test_messages_stay_above_the_line_of_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    with console(), Bar("working", LOG, unit="pieces", total=2) as bar:
        LOG.info("one")
        LOG.warning("two")
        bar.advance()
        LOG.debug("three")
    assert left_on(terminal.getvalue()) == ["one", "Warning: two", ""]


def test_the_console_is_there_while_a_command_runs_and_shows_a_message_once(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = logging.getLogger("sgdec")
    before = root.level, root.propagate, list(root.handlers)
    with console(), console():
        LOG.info("one")
    LOG.info("after")
    assert capsys.readouterr().err == "one\n"
    assert (root.level, root.propagate, list(root.handlers)) == before
    main(["lm", "--input", "absent", "--output", "out.arpa"])
    assert (root.level, root.propagate, list(root.handlers)) == before


def test_a_program_hears_what_it_asked_logging_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = open_terminal(monkeypatch)
    config = make_config(tmp_path)
    files = {"train": config.train, "valid": config.valid, "tokenizer": config.tokenizer}
    settings = {"gnmt": {"width": 8}, "max_steps": 1, "bleu": 0, "precision": "fp32", **files}
    sgdec.train(output=tmp_path / "unasked", **settings)
    assert terminal.getvalue() == "" and not caplog.messages
    caplog.set_level("INFO", "sgdec")
    sgdec.train(output=tmp_path / "asked", **settings)
    assert "step 1/1: perplexity" in caplog.messages[-1] and "\rtraining" in terminal.getvalue()
    caplog.clear()
    sgdec.train(output=tmp_path / "quiet", quiet=True, **settings)
    assert not caplog.messages


def test_items_are_all_there_whether_they_are_shown_or_not(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    terminal = open_terminal(monkeypatch)
    assert list(track(range(5), "counting", LOG, unit="pieces")) == [0, 1, 2, 3, 4]
    assert terminal.getvalue() == ""
    caplog.set_level("INFO", "sgdec")
    assert list(track(range(5), "counting", LOG, unit="pieces", total=5)) == [0, 1, 2, 3, 4]
    assert "\rcounting" in terminal.getvalue()


def test_a_standard_error_that_cannot_be_written_ends_a_command_without_a_traceback(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stderr", full)
        assert main(WORK["n-gram model"].split()) == 1
        monkeypatch.undo()


def test_the_package_is_the_command_line_too() -> None:
    done = subprocess.run([sys.executable, "-m", "sgdec", "plugins", "no-such"], capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.startswith("Error: no plugin named 'no-such'")


@pytest.mark.parametrize(("lines", "said"), [("3 4\n", "1 sentence, "), ("3\n4\n", "2 sentences, ")])
def test_one_sentence_is_not_sentences(
    folder: Path, capsys: pytest.CaptureFixture[str], lines: str, said: str
) -> None:
    (folder / "ids").write_text(lines)
    assert main(WORK["decoding"].split()) == 0
    assert any(line.startswith(said) for line in capsys.readouterr().err.splitlines())
