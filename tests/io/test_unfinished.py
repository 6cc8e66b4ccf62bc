"""An unfinished output is as private as the file that it will replace, and damaged notes lose no sentence."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sgdec.cli.main import main
from sgdec.errors import UsageError
from sgdec.io.unfinished import NotedRows, beside, open_noted

ABOUT = {"signature": {"nbest": "1"}, "input": []}
DECODE = "decode --predictors wc --vocab-size 7 --input-format ids --max-length 3 --output out"
NOTES = "out.partial.jsonl"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("ids").write_text("3 4\n4\n5\n6\n")


@contextmanager
def killed(*, resume: bool = False) -> Iterator[NotedRows]:
    with pytest.raises(KeyboardInterrupt), open_noted("out", ABOUT, resume=resume, overwrite=False) as rows:
        yield rows
        raise KeyboardInterrupt


def write(rows: NotedRows, sentence: int) -> None:
    rows.write("secret\n")
    rows.flush()
    rows.note(sentence)


def modes() -> set[int]:
    return {Path(path).stat().st_mode & 0o777 for path in beside("out")}


def test_rows_that_will_replace_a_private_file_are_private() -> None:
    Path("out").touch(0o600)
    with killed() as rows:
        write(rows, 1)
        assert modes() == {0o600}


def test_a_run_that_goes_on_takes_away_what_the_file_does_not_permit() -> None:
    with killed() as rows:
        write(rows, 1)
    for path in beside("out"):
        Path(path).chmod(0o644)
    Path("out").touch(0o600)
    with killed(resume=True):
        assert modes() == {0o600}


def test_rows_of_nobody_are_replaced_and_not_written() -> None:
    Path("precious").touch()
    Path("out.partial").hardlink_to("precious")
    with killed() as rows:
        write(rows, 1)
    assert Path("precious").read_bytes() == b""


def unfinished() -> list[dict[str, Any]]:
    """Leave a run of two sentences. Returns the lines of its notes."""
    main([*DECODE.split(), "--trace", "/dev/full", "ids"])
    return [json.loads(line) for line in Path(NOTES).read_text().splitlines()][:3]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("end", 10**15), ("end", 1.5), ("end", float("nan")), ("crc", "x"), ("failed", "x"), ("sentence", 1.5),
        ("sentence", None),
    ],
)  # fmt: skip
def test_a_damaged_note_is_not_believed(key: str, value: Any) -> None:
    header, first, second = unfinished()
    Path(NOTES).write_text("".join(json.dumps(line) + "\n" for line in (header, first, {**second, key: value})))
    assert main([*DECODE.split(), "--resume", "ids"]) == 0
    assert Path("out").read_text() == "\n" * 4


@pytest.mark.parametrize("sentence", [3, 4, 10**18])
def test_notes_that_skip_sentences_are_refused(sentence: int, capsys: pytest.CaptureFixture[str]) -> None:
    header, first, second = unfinished()
    Path(NOTES).write_text("".join(json.dumps(n) + "\n" for n in (header, first, {**second, "sentence": sentence})))
    capsys.readouterr()
    assert main([*DECODE.split(), "--resume", "ids"]) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith("Error: --resume: the notes of out are damaged")
    assert not Path("out").exists()


@pytest.mark.parametrize(
    "damage", [{"signature": 5}, {"signature": ["x"]}, {"input": 5}, {"input": [5]}, {"input": [{}]}]
)
def test_damaged_settings_are_those_of_no_run(damage: dict[str, Any]) -> None:
    with killed() as rows:
        write(rows, 1)
    header, note = Path(NOTES).read_text().splitlines()
    Path(NOTES).write_text(json.dumps({**json.loads(header), **damage}) + f"\n{note}\n")
    with pytest.raises(UsageError, match="without the notes of the run that wrote it"):
        open_noted("out", ABOUT, resume=True, overwrite=False).__enter__()
