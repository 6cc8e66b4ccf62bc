"""The promise of lines with counts: one of a thing is no plural, whatever a command counts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sgdec.cli.main import main

ONES = re.compile(
    r"(?<![\d.])1 (outputs|lines|duplicates|tokens|arcs|files|words|sentences|expansions|columns|weights)\b(?!/s)"
)
IDS = ["--input-format", "ids", "--vocab-size", "9"]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["decode", "--predictors", "wc", *IDS, "--max-length", "1", "one.ids"], "1 sentence, 1 token, 1 expansion"),
        (["decode", "--predictors", "altsrc:wc", "--altsrc.path", "one.ids", *IDS, "two.ids"], "has 1 line, so none"),
        (["decode", "--predictors", "bow", "--bow.path", "one.ids", *IDS, "two.ids"], "has 1 line, so none"),
        (["decode", "--predictors", "forced", "--forced.path", "one.ids", *IDS, "two.ids"], "has 1 line, so none"),
        (["decode", "--predictors", "lrhiero", "--lrhiero.path", "one.ids", *IDS, "one.ids"], "line 1: 1 column. "),
        (["decode", "--predictors", "length", "--length.weights", "1", *IDS, "one.ids"], "length: 1 weight; "),
        (["trie", "--vocab-size", "9", "--output", "out.trie", "one.ids"], "1 output (0 duplicates, 0 lines"),
        (["ngrams", "one.nbest", "--order", "1", "--output", "{id}.ngrams"], "{id}.ngrams: 1 file"),
        (["tokenizer", "--kind", "word", "--input", "one.txt", "--vocab-size", "9", "--output", "w"], "w: 4 pieces"),
    ],
)
def test_one_is_no_plural(
    args: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    files = {"one.ids": "3\n", "two.ids": "3\n4\n", "one.txt": "word\n", "one.nbest": "1 ||| 3 ||| -1\n"}
    for name, text in files.items():
        Path(name).write_text(text)
    main(args)
    shown = capsys.readouterr().err
    assert said in shown and not ONES.search(shown)
