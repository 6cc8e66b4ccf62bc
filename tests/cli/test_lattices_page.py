"""The promise: docs/howto/lattices-and-arpa.md quotes real messages and has a row for each typical mistake."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from shutil import copy
from typing import Any

import pytest

from sgdec.cli.main import main
from tests.helpers.lattice_files import write_automaton, write_paths
from tests.helpers.optional import optional
from tests.helpers.places import ROOT

PAGE = (ROOT / "docs" / "howto" / "lattices-and-arpa.md").read_text(encoding="utf-8")
ROWS = PAGE.split("| what sgdec says | what to do |\n|---|---|\n")[1].splitlines()
QUOTED = [span for row in ROWS if row for span in re.findall(r"`([^`]+)`", row.split(" | ")[0])]
ARPA = "\\data\\\nngram 1=4\n\n\\1-grams:\n-1 <unk>\n-99 <s>\n-1 </s>\n-0.5 the\n\n\\end\\\n"
WORDS = "<eps> 0\n<s> 1\n</s> 2\nthe 3\ncat 4\nmat 5\n"
CALL = "--predictors fst,ngram --decoder astar --fst.path {id}.fst --ngram.path lm.arpa --ngram.words words.txt"


def symbols(*names: str) -> Any:
    table = optional("pynini").SymbolTable()
    for name in names:
        table.add_symbol(name)
    return table


def compiled_with(*names: str) -> None:
    """A lattice with its table of symbols."""
    table = symbols(*names)
    fst = optional("pynini").accep(" ".join(names[1:3]), token_type=table)
    fst.set_input_symbols(table)
    fst.write("1.fst")


MISTAKES: dict[str, tuple[Callable[[], object], str]] = {
    "short input": (lambda: None, "--input-format ids"),
    "input as text": (lambda: None, ""),
    "too many lines": (lambda: Path("in").write_text("0\n0\n0\n"), "--input-format ids --max-length 0 --range 3:3"),
    "no word file": (lambda: None, "--input-format ids --ngram.words ids"),
    "words outside the model": (lambda: None, "--input-format ids --max-length 0"),
    "binary model": (
        lambda: copy(ROOT / "tests" / "data" / "tiny.kenlm", "lm.arpa"),
        "--input-format ids --ngram.words ids",
    ),
    "binary table": (lambda: symbols("<eps>").write("words.txt"), "--input-format ids"),
    "table of the lattice": (lambda: compiled_with("<eps>", "the", "cat"), "--input-format ids"),
    "table of words": (
        lambda: Path("words.txt").write_text("<eps> 1\n<s> 2\n</s> 3\nthe 4\n"),
        "--input-format ids",
    ),
    "lattice without its table": (lambda: write_paths("1.fst", [((5, 2, 4), 0.0)]), "--input-format ids"),
    "text": (lambda: Path("1.fst").write_text("0 1 the 0.5\n1\n"), "--input-format ids"),
    "epsilons": (lambda: write_automaton("1.fst", [(0, 0, 0.0, 1), (1, 3, 0.0, 2)], {2: 0.0}), "--input-format ids"),
    "two arcs": (
        lambda: write_automaton("1.fst", [(0, 3, 0.0, 1), (0, 3, 0.0, 2), (1, 4, 0.0, 2)], {2: 0.0}),
        "--input-format ids",
    ),
    "transducer": (lambda: write_automaton("1.fst", [(0, (3, 4), 0.0, 1)], {1: 0.0}), "--input-format ids"),
}


def said_after(mistake: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Standard error of a run with this mistake, in a new folder."""
    folder.mkdir()
    os.chdir(folder)
    Path("lm.arpa").write_text(ARPA)
    Path("words.txt").write_text(WORDS)
    Path("in").write_text("0\n")
    write_paths("1.fst", [((3, 4, 5), 0.0)])
    make, options = MISTAKES[mistake]
    make()
    main(["decode", *CALL.split(), *options.split(), "in"])
    return capsys.readouterr().err


@pytest.mark.slow
def test_each_quoted_message_is_said_and_each_mistake_has_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)  # and back afterwards
    said = {mistake: said_after(mistake, tmp_path / mistake, capsys) for mistake in MISTAKES}
    assert len(QUOTED) > 10
    assert [quoted for quoted in QUOTED if not any(quoted in text for text in said.values())] == []
    assert {mistake: text for mistake, text in said.items() if not any(quoted in text for quoted in QUOTED)} == {}
