"""``sgdec corpus-status`` prints lines, writes a page and JSON, and only reads the folder."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from sgdec.cli.main import main
from sgdec.corpus.leases import Leases
from tests.helpers.corpora import write_corpus
from tests.helpers.web_pages import Page


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def files(folder: str) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}


def test_plain_lines_a_page_and_json_say_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    leases = Leases(write_corpus("d", [2, 2, 1], done=[0, 1]))
    leases.pulse({"lines": 4, "seconds": 2.0, "every": 10.0, "workers": {str(n): n for n in range(12)}})
    leases.claim(2)
    before = files("d")
    assert main(["corpus-status", "d", "--json", "s.json", "--html", "s.html"]) == 1
    said = capsys.readouterr().out
    assert said.startswith("4 of 5 lines are done (80.0 %), 2 of 3 chunks.\n2.0 lines/s, 0:00:00 left, if every")
    assert "\nLeased: chunk 2.\n" in said and "2 more rows are on the page (--html FILE)." in said
    assert json.loads(Path("s.json").read_text())["lines_done"] == 4
    page = Path("s.html").read_text(encoding="utf-8")
    assert Page(page).texts["li"][0] == said.splitlines()[0]
    assert files("d") == before


def test_a_watch_looks_twice(capsys: pytest.CaptureFixture[str]) -> None:
    Leases(write_corpus("d", done=[0])).pulse({"every": 0.01, "seconds": 1.0})
    assert main(["corpus-status", "d", "--watch", "0.03"]) == 0
    assert " silent " in capsys.readouterr().out


def test_a_folder_without_a_corpus_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    os.mkdir("d")
    assert main(["corpus-status", "d"]) == 2
    assert capsys.readouterr().err.startswith("Error: d: it has no manifest.json. Expected a folder that")


def test_nothing_is_written_into_the_folder(capsys: pytest.CaptureFixture[str]) -> None:
    write_corpus("d")
    assert main(["corpus-status", "d", "--json", "d/manifest.json"]) == 2
    assert "is in a folder that" in capsys.readouterr().err


@pytest.mark.parametrize(("full", "other"), [("--html", "--json"), ("--json", "--html")])
def test_if_one_file_cannot_be_written_the_other_is_not_replaced(full: str, other: str) -> None:
    write_corpus("d")
    Path("out").write_text("before")
    assert main(["corpus-status", "d", full, "/dev/full", other, "out"]) == 1
    assert Path("out").read_text() == "before"
