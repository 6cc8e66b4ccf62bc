"""``sgdec trie`` builds what the predictor maps, says what it left out, and nothing else comes out of a search."""

from __future__ import annotations

import gzip
import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from sgdec.cli.main import main
from sgdec.io.trie import open_trie
from tests.helpers.tiny_models import characters, write_checkpoint


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, list[str]]:
    status = main(["trie", *args, "--output", "out.trie"])
    out, err = capsys.readouterr()
    assert not out
    return status, err.splitlines()


def test_duplicates_prefixes_and_the_empty_output_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    Path("list").write_text("3 4 5\n3 4\n\n3 4 5\n1 3 4 2\n7\n")
    status, (summary,) = run(capsys, "list")
    size = Path("out.trie").stat().st_size
    assert status == 0
    assert summary == (
        "out.trie: 4 outputs, the empty one among them (2 duplicates, 0 lines left out), at most 3 tokens, 8 arcs, "
        f"{size} bytes"
    )
    Path("list").write_text("3\t-2\n3\t-1\n3\t-3\n")
    assert run(capsys, "list")[1][0].startswith("out.trie: 1 output (2 duplicates, 0 lines left out), at most 1 tok")
    assert open_trie("out.trie").best == -1.0


def test_a_trie_is_no_list(capsys: pytest.CaptureFixture[str]) -> None:
    Path("list").write_text("3\n")
    run(capsys, "list")
    Path("out.trie").rename("in.trie")
    assert run(capsys, "in.trie") == (2, ["Error: in.trie is a trie already. Give the list that it was built from."])


@pytest.mark.parametrize("packed", [False, True])
def test_lists_are_read_from_files_packed_or_not_and_from_standard_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], packed: bool
) -> None:
    Path("list.gz").write_bytes(gzip.compress(b"3 4\n"))
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"3 4\n"), isatty=lambda: False))
    assert run(capsys, *(["list.gz"] if packed else []))[0] == 0
    assert open_trie("out.trie").entries == 1


def tokenizer(letters: str = "abc") -> None:
    Path("tok.spm").write_bytes(characters(letters).serialized)


def test_unknown_words_are_left_out_listed_and_counted(capsys: pytest.CaptureFixture[str]) -> None:
    tokenizer()
    Path("list").write_text("ab\nab xy c\nc\n" + "z\n" * 30)
    status, lines = run(capsys, "list", "--tokenizer", "tok.spm")
    assert status == 1 and len(lines) == 12
    assert lines[0] == "Warning: list: line 2 is left out: the vocabulary does not know 'xy'."
    assert lines[9].startswith("Warning: list: line 12 is left out") and "--left-out FILE lists all" in lines[10]
    assert "2 outputs (0 duplicates, 31 lines left out)" in lines[11]
    status, lines = run(capsys, "list", "--tokenizer", "tok.spm", "--left-out", "left")
    assert status == 0 and len(lines) == 1
    left = Path("left").read_text().splitlines()
    assert left[0] == "2\tthe vocabulary does not know 'xy'" and len(left) == 31
    Path("list").write_text("z\n")
    status, lines = run(capsys, "list", "--tokenizer", "tok.spm", "--left-out", "left")
    assert status == 1 and len(lines) == 1 and lines[0].startswith("Error: list: no entries, so nothing")
    assert Path("left").read_text().count("\n") == 31  # the old one


@pytest.mark.parametrize(
    ("text", "args", "complaint"),
    [
        ("", [], "list: no entries"),
        ("3\nab\n", [], "list: line 2: 'ab' is not a token id."),
        ("3\n9\n", ["--vocab-size", "9"], "list: line 2: 9 is outside the target vocabulary of 9 tokens."),
        ("3\tx\n", [], "list: line 1: 'x' is not a weight."),
        ("3\n4\t1\n", [], "list: line 2 has a tab"),
        ("3\n", ["--tokenizer", "none.spm"], "none.spm: cannot be read"),
        ("3\n", ["--tokenizer", "tok.spm", "--vocab-size", "9"], "Omit one of them."),
    ],
)
def test_a_mistake_is_one_line_and_no_file(
    capsys: pytest.CaptureFixture[str], text: str, args: list[str], complaint: str
) -> None:
    tokenizer()
    Path("list").write_text(text)
    status, (error,) = run(capsys, "list", *args)
    assert status in (1, 2) and error.startswith("Error: ") and complaint in error and error.endswith(".")
    assert not Path("out.trie").exists()
    status, (error,) = run(capsys, "none")
    assert status == 1 and "none: cannot be read (No such file" in error


def decode(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, list[dict[str, object]], str]:
    status = main(["decode", "--output-format", "jsonl", "--max-length", "6", *args])
    out, err = capsys.readouterr()
    return status, [json.loads(line) for line in out.splitlines()], err


@pytest.mark.slow
def test_a_model_beside_a_trie_writes_entries_only(capsys: pytest.CaptureFixture[str]) -> None:
    write_checkpoint(Path("model"))
    vocabulary = "model/tokenizer.spm"
    allowed = ["ab", "abc", "b a", "c", "cc"]
    Path("in.txt").write_text("ab c\nc\nbb\n")
    Path("list").write_text("".join(f"{text}\t{-number / 8}\n" for number, text in enumerate(allowed)))
    assert run(capsys, "list", "--tokenizer", vocabulary)[0] == 0
    Path("4.txt").write_text("c\n")
    Path("plain.txt").write_text(Path("list").read_text())
    results = []
    search = ["--decoder", "beam", "--beam.size", "9", "--beam.stop", "full", "--nbest", "9", "in.txt"]
    for predictors, path in (("nmt,trie", "out.trie"), ("trie,nmt", "out.trie"), ("nmt,trie", "plain.txt")):
        given = ["--predictors", predictors, "--nmt.model", "model", "--trie.path", path]
        status, rows, _ = decode(capsys, *given, *search)
        assert status == 0
        for row in rows:
            found = row["hypotheses"]
            assert isinstance(found, list) and sorted(one["text"] for one in found) == sorted(allowed)
            for one in found:
                assert one["scores"]["trie"] == -allowed.index(one["text"]) / 8
        results.append([[(one["text"], one["score"]) for one in row["hypotheses"]] for row in rows])  # type: ignore
    for result in results[1:]:
        for one, other in zip(results[0], result, strict=True):
            assert [text for text, _ in one] == [text for text, _ in other]
            assert [score for _, score in one] == pytest.approx([score for _, score in other], rel=1e-5)


@pytest.mark.slow
def test_a_trie_of_another_tokenizer_is_refused_before_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    write_checkpoint(Path("model"))
    tokenizer("abd")
    Path("in.txt").write_text("ab c\n")
    Path("list").write_text("ab\n")
    run(capsys, "list", "--tokenizer", "tok.spm")
    given = ["--predictors", "nmt,trie", "--nmt.model", "model", "--trie.path", "out.trie", "in.txt"]
    status, rows, err = decode(capsys, *given)
    assert (status, rows) == (1, []) and err.startswith("Error: trie: out.trie: built with another tokenizer")
