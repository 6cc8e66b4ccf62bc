"""`sgdec view` writes the page or the figure that it was asked for, and refuses what it cannot show in one line."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from sgdec.cli.main import main
from tests.helpers.traced_runs import SOURCES, Model, traced, write_trace
from tests.helpers.web_pages import Page

RUN = traced("greedy", {"nmt": Model(1)}, nbest=1)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_trace(Path("a.jsonl"), RUN)
    return tmp_path


def refusal(*args: str, capsys: pytest.CaptureFixture[str]) -> str:
    """The message of a call that fails, which writes nothing."""
    before = sorted(Path().iterdir())
    assert main(["view", *args]) in (1, 2)
    said = capsys.readouterr().err
    assert said.startswith("Error: ") and said.count("\n") == 1 and sorted(Path().iterdir()) == before
    return said.removeprefix("Error: ").strip()


@pytest.mark.parametrize(
    ("trace", "page"),
    [("a.jsonl", "a.html"), ("b.jsonl.gz", "b.html"), ("c.jsonl.zst", "c.html"), ("d", "d.html"), ("e.f", "e.html")],
)
def test_the_page_is_named_after_the_trace(trace: str, page: str, capsys: pytest.CaptureFixture[str]) -> None:
    write_trace(Path(trace), RUN)
    assert main(["view", trace]) == 0
    assert capsys.readouterr().out == f"{page}\n"
    assert Path(page).read_text(encoding="utf-8").startswith("<!doctype html>")


def test_only_the_chosen_sentences_are_in_the_page() -> None:
    assert main(["view", "a.jsonl", "--sentences", "2:3", "--output", "b.html"]) == 0
    html = Path("b.html").read_text(encoding="utf-8")
    assert [f"#sentence={id}" in html for id in (1, 2, 3)] == [False, True, True]


@pytest.mark.slow
def test_a_figure_is_written_in_place_of_a_page() -> None:
    assert main(["view", "a.jsonl", "--sentence", "2", "--svg", "f.svg", "--pdf", "f.pdf"]) == 0
    assert "<svg" in Path("f.svg").read_text(encoding="utf-8") and Path("f.pdf").read_bytes().startswith(b"%PDF")
    assert not Path("a.html").exists()


def test_a_trace_is_never_overwritten(capsys: pytest.CaptureFixture[str]) -> None:
    write_trace(Path("t.html"), RUN)
    assert refusal("t.html", capsys=capsys) == "t.html is a trace. Give --output another file."
    assert refusal("a.jsonl", "t.html", "--output", "t.html", capsys=capsys).startswith("--output t.html is ")
    write_trace(Path("t"), RUN)
    assert refusal("t", "t.html", capsys=capsys) == "t.html is a trace. Give --output another file."
    assert refusal(".", capsys=capsys) == "'.': cannot be read (Is a directory)."


def test_only_a_page_of_this_command_is_replaced_without_being_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["view", "a.jsonl"]) == main(["view", "a.jsonl", "--sentences", "1"]) == 0
    capsys.readouterr()
    Path("a.html").write_text("a report\n")
    assert refusal("a.jsonl", capsys=capsys) == (
        "a.html exists, and was not written by sgdec view. Give --output FILE."
    )
    assert Path("a.html").read_text() == "a report\n"
    assert main(["view", "a.jsonl", "--output", "a.html"]) == 0


def test_traces_of_different_sources_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    write_trace(Path("b.jsonl"), traced("greedy", {"nmt": Model(1)}, nbest=1, sources=[SOURCES[0], [3]]))
    assert refusal("a.jsonl", "b.jsonl", capsys=capsys) == (
        "a.jsonl and b.jsonl are traces of different sources: sentence 2 is '7 8 9' and '3'. "
        "Give two traces of the same input."
    )
    write_trace(Path("c.jsonl"), replace(RUN, sentences=[replace(RUN.sentences[0], id=7)]))
    assert "have no sentence in common" in refusal("a.jsonl", "c.jsonl", capsys=capsys)


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["--sentence", "9", "--svg", "x"], "a.jsonl has no sentence 9."),
        (["--sentences", "4:5"], "a.jsonl has no sentence from 4 to 5."),
        (["--sentences", "4:"], "a.jsonl has no sentence from 4 to the end."),
        (["--sentences", "5:4"], "--sentences 5:4: expected A:B with 1 <= A <= B, such as 1:100."),
        (["--svg", "x"], "--svg and --pdf draw one search. Give its sentence: --sentence N."),
        (["--sentence", "1"], "--sentence is about --svg and --pdf. Give one of them, or --sentences A:B"),
        (["--output", "-"], "--output -: a page is a file that a browser opens. Give its name."),
        (["--dropped", "1"], "--dropped is about --svg and --pdf. Give one of them."),
        (["--sentence", "1", "--svg", "x", "--output", "y"], "--svg and --pdf write no page. Leave out --output."),
        (["--sentence", "1", "--svg", "x", "--sentences", "1"], "--svg and --pdf draw one search. Leave out "),
        (["a.jsonl", "--sentence", "1", "--svg", "x"], "--svg and --pdf draw one search. Give a.jsonl or a.jsonl."),
        (["--sentence", "1", "--svg", "x", "--diagnosis", "a.jsonl"], "--svg and --pdf show no search errors."),
        (["--diagnosis", "a.jsonl"], "a.jsonl: line 1 is not a line of a diagnosis (id is missing). Expected what "),
    ],
)
def test_options_that_cannot_be_followed_are_refused(
    args: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refusal("a.jsonl", *args, capsys=capsys).startswith(expected)


def test_a_diagnosis_adds_its_search_errors() -> None:
    rows = [
        {"id": trace.id, "output": {"tokens": trace.hypotheses[0].tokens},
         "search": {"error": "proven", "by": trace.id + 0.25, "gap": None}}
        for trace in RUN.sentences
    ]  # fmt: skip
    Path("d.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert main(["view", "a.jsonl"]) == 0 and "search error" not in Page(Path("a.html").read_text()).texts["th"]
    assert main(["view", "a.jsonl", "--diagnosis", "d.jsonl"]) == 0
    page = Page(Path("a.html").read_text(encoding="utf-8"))
    assert "search error" in page.texts["th"]
    assert {"1.250", "2.250", "3.250"} <= set(page.texts["td"])
    assert main(["view", "a.jsonl", "--diagnosis", "d.jsonl", "--sentences", "2:3"]) == 0


def test_damaged_traces_are_refused_with_their_line(capsys: pytest.CaptureFixture[str]) -> None:
    text = Path("a.jsonl").read_text()
    lines = text.splitlines(keepends=True)
    Path("cut").write_text("".join(lines[:-1]))
    Path("torn").write_text(text[:-40])
    Path("version").write_text(text.replace('"version":1', '"version":2', 1))
    Path("empty").touch()
    Path("none").write_text(lines[0])
    Path("other").write_text("a line\n")
    assert "ends in the middle of sentence 3" in refusal("cut", capsys=capsys)
    assert f"line {len(lines)} " in refusal("torn", capsys=capsys)
    assert "is a trace of version 2" in refusal("version", capsys=capsys)
    assert "empty is empty" in refusal("empty", capsys=capsys)
    assert refusal("none", capsys=capsys) == "none has no sentence. Trace a run that has one."
    assert "line 1 is" in refusal("other", capsys=capsys)
    assert "missing" in refusal("missing", capsys=capsys)


@pytest.mark.slow
def test_standard_input_is_a_trace_if_the_page_has_a_name() -> None:
    command = [sys.executable, "-m", "sgdec", "view", "-"]
    with open("a.jsonl", "rb") as trace:
        refused = subprocess.run(command, stdin=trace, capture_output=True, text=True)
    assert "Give --output FILE." in refused.stderr
    with open("a.jsonl", "rb") as trace:
        assert subprocess.run([*command, "--output", "b.html"], stdin=trace).returncode == 0
    assert Path("b.html").exists()


def test_standard_input_is_not_two_traces(capsys: pytest.CaptureFixture[str]) -> None:
    assert refusal("-", "-", "--output", "x.html", capsys=capsys).startswith("standard input can be read only once.")


@pytest.mark.slow
def test_a_page_needs_no_matplotlib_and_no_torch() -> None:
    code = (
        "import sys; from sgdec.cli.main import main; assert main(['view', 'a.jsonl']) == 0;"
        "assert not {'matplotlib', 'torch', 'sacrebleu'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
