"""The promise of ``--resume``: whenever a run is ended, going on with it gives what one run gives."""

from __future__ import annotations

import gzip
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from sgdec.cli.main import main
from sgdec.io.unfinished import NotedRows, open_noted
from sgdec.plugins.host import Host
from sgdec.plugins.options import describe
from tests.helpers.breadth import examples
from tests.helpers.places import ROOT
from tests.helpers.tiny_models import write_checkpoint, write_lattice

pytestmark = [pytest.mark.slow, pytest.mark.background]

LOOSE = "a model without --deterministic"
NMT = [
    "decode", "--predictors", "nmt", "--nmt.model", "model", "--decoder", "beam", "--beam.size", "3", "--nbest", "2",
    "--max-source-length", "9", "--batch-size", "3", "--window", "4", "--output-format", "jsonl",
]  # fmt: skip
TEXT = ["ab", "c a", "", "bca b", "a", "abc ab c", "b" * 20, "ba", "cab", "aa b"]
"""The third line is empty and the seventh too long, which costs them their sentences."""
FST = [
    "decode", "--predictors", "fst,wc", "--fst.path", "lattice{id}", "--input-format", "ids", "--nbest", "3",
    "--batch-size", "3", "--window", "4", "--deterministic",
]  # fmt: skip
SAMPLES = ["--decoder", "sample", "--sample.samples", "3", "--output-format", "nbest"]
SCORE = ["score", "--predictors", "fst,wc", "--fst.path", "lattice{id}", "--input-format", "ids"]
LIST = """1 ||| 3 4 ||| a= -1 ||| -1
1 ||| 6 ||| a= -1 ||| -1
3 ||| 6 ||| a= -1 ||| -1
3 ||| 9 ||| a= -1 ||| -1
5 ||| 6 ||| a= -1 ||| -1
"""
"""There is none of the second and of the fourth sentence."""
LATTICES = 12
"""The fifth is not there."""
OUTPUTS = {"text": "text.out", "ids": "ids.out", "nbest": "nbest.out", "jsonl": "jsonl.out", "fst": "fst.{id}.out"}
MOMENTS = examples(16)
"""Signals for each format, besides those at every call."""


def case(work: str, name: str, *args: str, kills: int = 0, seed: int = 1) -> list[Any]:
    return [work, [*args, "--output", name], name, kills, seed]


CASES: dict[str, list[Any]] = {
    **{
        f"{format} at random moments": case(
            "moments", name, *FST, "--output-format", format, "ids", kills=MOMENTS, seed=number
        )
        for number, (format, name) in enumerate(OUTPUTS.items())
    },
    **{
        f"{format} at every call": case(
            "calls", f"{name}.calls", *FST, "--output-format", format, "--range", "4:6", "ids"
        )
        for format, name in OUTPUTS.items()
        if format in ("text", "fst")
    },
    **{
        f"score, {format} at every call": case(
            "calls", f"score-{format}.calls", *SCORE, "--output-format", format, *what
        )
        for format, what in {
            "jsonl": ("few", "few"),
            "nbest": ("--nbest-list", "few", "list"),
        }.items()
    },
    "samples": case("moments", "samples.out", *FST, *SAMPLES, "ids", kills=6),
    "a model": case("moments", "model.out", *NMT, "--deterministic", "text", kills=8),
    LOOSE: case("moments", "loose.out", *NMT, "text", kills=6),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What came of each case."""
    folder = tmp_path_factory.mktemp("resumed")
    write_checkpoint(folder / "model")
    (folder / "text").write_text("".join(f"{line}\n" for line in TEXT))
    (folder / "ids").write_text("3 4\n" * LATTICES)
    (folder / "few").write_text("6\n" * 6)
    (folder / "list").write_text(LIST)
    for number in {*range(1, LATTICES + 1)} - {5}:
        write_lattice(folder / f"lattice{number}", [((3, 4), 0.5), ((number, 5), 0.1 * number), ((6,), 2.0)])
    done = subprocess.run(
        [sys.executable, "-m", "tests.helpers.resumed_runs"], input=json.dumps(list(CASES.values())),
        capture_output=True, text=True, cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr + (folder / "said").read_text()
    return dict(zip(CASES, json.loads(done.stdout), strict=True))


def without_seconds(text: str) -> list[Any]:
    rows = [json.loads(line) for line in text.splitlines()]
    return [{key: value for key, value in row.items() if key != "seconds"} for row in rows]


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in CASES if name != LOOSE])
def test_what_goes_on_equals_what_was_never_ended_byte_for_byte(runs: dict[str, Any], name: str) -> None:
    ran = runs[name]
    whole = ran["whole"]
    assert ran["status"] == 1, "a sentence failed, and whoever goes on behind it says so, too"
    assert ran["hits"] > ran["sent"] / 8 and ran["found"]  # the rest came before or after the run
    for status, output, said in ran["found"]:
        assert status == 1 or (status == 0 and "complete already" in said), said
        if name in ("jsonl at random moments", "a model"):
            assert list(output) == list(whole)
            assert [*map(without_seconds, output.values())] == [*map(without_seconds, whole.values())]
        else:
            assert output == whole


@pytest.mark.slow
def test_without_determinism_no_line_is_missing_or_doubled_and_scores_agree(runs: dict[str, Any]) -> None:
    (whole,) = runs[LOOSE]["whole"].values()
    for _, output, _ in runs[LOOSE]["found"]:
        assert list(output) == ["loose.out"]
        for row, expected in zip(without_seconds(output["loose.out"]), without_seconds(whole), strict=True):
            assert row["id"] == expected["id"] and ("error" in row) == ("error" in expected)
            scores = [hypothesis["score"] for hypothesis in row["hypotheses"]]
            assert scores == pytest.approx([hypothesis["score"] for hypothesis in expected["hypotheses"]], rel=1e-5)


MINE = """
import sgdec
from sgdec_decoders.greedy import GreedyDecoder

@sgdec.hookimpl
def sgdec_decoders():
    return {"mine": GreedyDecoder}
"""


def decoders() -> list[str]:
    return [entry.name for entry in Host(autoload=False).names("decoder")]


@cache
def options_of(decoder: str) -> list[str]:
    return [option.name for option in describe(Host(autoload=False).load("decoder", decoder))]


WC = [
    "decode",
    "--decoder",
    "greedy",
    "--predictors",
    "wc",
    "--wc.weight",
    "-1",
    "--vocab-size",
    "5",
    "--input-format",
    "ids",
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").write_text("3\n3 3\n3 3 3\n")
    (tmp_path / "other").write_text("3\n3 3\n3\n")
    return tmp_path


def listed(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


class Death(BaseException):
    """What takes the place of a signal where a process must not die."""


Leave = Callable[..., None]


@pytest.fixture
def leave(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Leave:
    """Leaves an unfinished run of so many sentences, whose process has died in the middle of the next row."""

    def run(*args: str, sentences: int = 2) -> None:
        note = NotedRows.note

        def last(rows: NotedRows, sentence: int, *, failed: bool = False) -> None:
            note(rows, sentence, failed=failed)
            if sentence == sentences:
                assert rows._rows is not None
                os.write(rows._rows.fileno(), b"half a r")
                os.write(rows._notes.fileno(), b"half a n")
                rows._rows.close()
                raise Death

        with monkeypatch.context() as patch, pytest.raises(Death):
            patch.setattr(NotedRows, "note", last)
            patch.setattr(NotedRows, "end", lambda self, complete: None)
            main([*WC, *args])
        capsys.readouterr()

    return run


Said = Callable[..., str]


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Said:
    """Runs the command with these arguments; what it says."""

    def run(*args: str, status: int = 0, run: Sequence[str] = WC) -> str:
        assert main([*run, *args]) == status, capsys.readouterr().err
        return capsys.readouterr().err

    return run


def test_an_unfinished_run_is_neither_taken_for_a_finished_one_nor_lost(
    folder: Path, said: Said, leave: Leave
) -> None:
    (folder / "out").write_text("of an earlier run\n")
    leave("in", "--output", "out")
    before = listed(folder)
    assert before["out"] == b"of an earlier run\n" and before["out.partial"].startswith(b"0 0\n0 0 0 0\nhalf")
    assert said("in", "--output", "out", status=2) == (
        "Error: --output out: 2 sentences of an unfinished run are there already. Continue with --resume, or begin "
        "again with --overwrite.\n"
    )
    assert listed(folder) == before
    assert "out: continues after sentence 2." in said("in", "--output", "out", "--resume")
    whole = b"0 0\n0 0 0 0\n0 0 0 0 0 0\n"
    assert listed(folder) == {"in": before["in"], "other": before["other"], "out": whole}
    leave("in", "--output", "out")
    said("in", "--output", "out", "--overwrite")
    assert listed(folder) == {"in": before["in"], "other": before["other"], "out": whole}


def test_with_nothing_to_go_on_with_a_run_begins_and_says_so(folder: Path, said: Said, leave: Leave) -> None:
    assert "out: nothing to resume; begins with the first sentence." in said("in", "--output", "out", "--resume")
    assert (folder / "out").read_text().count("\n") == 3


def test_what_is_complete_stays_and_that_is_said(folder: Path, said: Said, leave: Leave) -> None:
    said("in", "--output", "out")
    before = listed(folder), (folder / "out").stat().st_mtime_ns
    assert "out: complete already; nothing is done." in said("in", "--output", "out", "--resume")
    assert (listed(folder), (folder / "out").stat().st_mtime_ns) == before
    said("other", "--output", "out")
    assert (folder / "out").read_text() == "0 0\n0 0 0 0\n0 0\n", "a finished output is replaced"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--nbest", "2", "in"], "out was begun with nbest 1, and this is 2. Give the same, or begin again with"),
        (["--seed", "2", "in"], "out was begun with seed 0, and this is 2."),
        (["--wc.weight", "-2", "in"], "out was begun with predictors -1*wc, and this is -2*wc."),
        (["--decoder", "dfs", "in"], "out was begun with decoder greedy, and this is dfs."),
        (["--max-length", "2", "in"], "out was begun with max_length_factor 2.0, and this is (none)."),
        (["--deterministic", "in"], "out was begun with deterministic (none), and this is True."),
        (["--output-format", "ids", "in"], "out was begun with output_format text, and this is ids."),
        (["--range", "1:2", "in"], "out was begun with range None, and this is 1:2."),
        (
            ["--decoder", "mine", "--plugin-file", "mine.py", "in"],
            "out was begun with decoder greedy, and this is mine.",
        ),
        (["other"], "out was begun with another input, in as it was then. Give the same, or begin again"),
        (["-"], "--resume: standard input cannot be read a second time. Give the input as a file."),
        (
            ["--decoder", "astar", "--astar.max_seconds", "9", "in"],
            "--astar.max_seconds 9 ends searches by the clock",
        ),
        (["--overwrite", "in"], "--resume continues a run and --overwrite begins it again. Give only one of them."),
    ],
)
def test_a_run_goes_on_as_it_was_begun_or_not_at_all(
    folder: Path, said: Said, leave: Leave, args: list[str], message: str
) -> None:
    (folder / "mine.py").write_text(MINE)
    leave("in", "--output", "out")
    before = listed(folder)
    error = said(*args, "--output", "out", "--resume", status=2)
    assert message in error and error.startswith("Error: ") and error.count("\n") == 1
    assert listed(folder) == before


@pytest.mark.parametrize("args", [["--batch-size", "1"], ["--window", "1"], ["--max-rows", "1"], ["--threads", "1"]])
def test_what_only_shares_work_may_change(folder: Path, said: Said, leave: Leave, args: list[str]) -> None:
    leave("in", "--output", "out")
    said("in", *args, "--output", "out", "--resume")
    assert (folder / "out").read_text() == "0 0\n0 0 0 0\n0 0 0 0 0 0\n"


def test_the_input_may_lie_elsewhere_by_then(folder: Path, said: Said, leave: Leave) -> None:
    leave("in", "--output", "out")
    (folder / "in").rename(folder / "moved")
    said("moved", "--output", "out", "--resume")
    assert (folder / "out").read_text() == "0 0\n0 0 0 0\n0 0 0 0 0 0\n"


@pytest.mark.parametrize(
    "decoder", [name for name in decoders() if any(o.endswith("seconds") for o in options_of(name))]
)
def test_every_decoder_with_a_clock_is_refused(folder: Path, said: Said, leave: Leave, decoder: str) -> None:
    clock = next(option for option in options_of(decoder) if option.endswith("seconds"))
    args = ["--decoder", decoder, f"--{decoder}.{clock}", "9", "--max-length", "2"]
    assert "ends searches by the clock" in said("in", *args, "--output", "out", "--resume", status=2)


@pytest.mark.parametrize(
    ("rows", "notes", "kept"),
    [
        (lambda rows: rows[:6], lambda notes: notes, 1),  # a part of the second row is gone
        (lambda rows: rows[:4] + bytes(8), lambda notes: notes, 1),  # as a loss of power may leave it
        (lambda rows: rows, lambda notes: notes[:-30], 1),
        (lambda rows: rows, lambda notes: notes + bytes(99), 2),
        (lambda rows: rows, lambda notes: notes + b'{"sentence": 1, "end": 0, "crc": 0, "failed": false}\n', 2),
        (lambda rows: rows, lambda notes: notes + b'{"sentence": "x"}\n[]\n7\n' + b"[" * 9999 + b"\n", 2),
    ],
)
def test_what_is_damaged_at_the_end_is_made_again(
    folder: Path, said: Said, leave: Leave, rows: Callable[[bytes], bytes], notes: Callable[[bytes], bytes], kept: int
) -> None:
    leave("in", "--output", "out")
    for name, damage in (("out.partial", rows), ("out.partial.jsonl", notes)):
        path = folder / name
        path.write_bytes(damage(path.read_bytes().rpartition(b"half")[0]))
    assert f"out: continues after sentence {kept}." in said("in", "--output", "out", "--resume")
    assert (folder / "out").read_text() == "0 0\n0 0 0 0\n0 0 0 0 0 0\n"


def test_rows_of_somebody_else_are_not_gone_on_with_and_not_lost(folder: Path, said: Said, leave: Leave) -> None:
    leave("in", "--output", "out")
    (folder / "out.partial").write_text("precious\n")
    before = listed(folder)
    error = said("in", "--output", "out", "--resume", status=1)
    assert "out.partial: not what the run wrote that left it. Begin again with --overwrite." in error
    assert listed(folder) == before
    (folder / "out.partial.jsonl").unlink()
    for flags in ([], ["--resume"]):
        error = said("in", "--output", "out", *flags, status=2)
        assert "out.partial: in the way, and without the notes of the run that wrote it." in error
        assert (folder / "out.partial").read_text() == "precious\n" and "out.partial.jsonl" not in listed(folder)


def test_a_run_without_a_sentence_leaves_nothing(folder: Path, said: Said, leave: Leave) -> None:
    before = listed(folder)
    said("in", "--output", "out", status=2, run=["decode", "--predictors", "wc", "--input-format", "ids"])
    assert listed(folder) == before


def test_two_processes_do_not_write_one_output(folder: Path, said: Said, leave: Leave) -> None:
    with open_noted("out", {"input": []}, resume=False, overwrite=False) as rows:
        for flags in ([], ["--resume"], ["--overwrite"]):
            assert "--output out: another process is writing there." in said(
                "in", "--output", "out", *flags, status=1
            )
        rows.write("mine\n")
    assert (folder / "out").read_text() == "mine\n"


@pytest.mark.parametrize("where", [[], ["--output", "/dev/stdout"], ["--output", "pipe"]])
def test_what_is_no_file_cannot_be_gone_on_with(folder: Path, said: Said, leave: Leave, where: list[str]) -> None:
    os.mkfifo(folder / "pipe")
    error = said("in", *where, "--resume", status=2)
    assert "--resume continues a run whose output is a file. Give --output FILE" in error


@pytest.mark.parametrize("format", OUTPUTS)
def test_a_full_disk_says_how_to_go_on(folder: Path, said: Said, format: str) -> None:
    output = OUTPUTS[format]
    write_lattice(folder / "x.fst", [((3,), 0.5)])
    (folder / "in").write_text("3\n" * 400)
    args = ["--predictors", "fst,wc", "--fst.path", "x.fst", "--output-format", format, "--output", output, "in"]
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, hard))
    try:
        error = said(*args, status=1).splitlines()[-1]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert error.startswith("Error: ") and "File too large" in error and "Traceback" not in error
    assert error.endswith("continue with --resume.") and "Sentences up to " in error
    said(*args, "--resume")
    resumed = listed(folder)
    for name in resumed.keys() - {"in", "other", "x.fst"}:
        (folder / name).unlink()
    said(*args)
    assert listed(folder).keys() == resumed.keys() and not [name for name in resumed if "partial" in name]
    if format != "jsonl":
        assert listed(folder) == resumed


def test_a_link_is_followed(folder: Path, said: Said, leave: Leave) -> None:
    (folder / "disk").mkdir()
    (folder / "out").symlink_to("disk/real")
    leave("in", "--output", "out")
    assert {path.name for path in (folder / "disk").iterdir()} == {"real.partial", "real.partial.jsonl"}
    said("in", "--output", "disk/real", "--resume")
    assert (folder / "out").is_symlink() and (folder / "out").read_text() == "0 0\n0 0 0 0\n0 0 0 0 0 0\n"


@pytest.mark.parametrize("args", [["out.partial"], ["--config", "out.partial.jsonl", "in"]])
def test_what_is_beside_an_output_is_not_read(folder: Path, said: Said, leave: Leave, args: list[str]) -> None:
    for name in ("out.partial", "out.partial.jsonl"):
        (folder / name).write_text("")
    assert "Write to another file." in said(*args, "--output", "out", status=2)


def test_a_line_that_is_too_long_stays_one_row_behind_it(
    folder: Path, said: Said, leave: Leave, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SGDEC_MAX_LINE_BYTES", "9")
    (folder / "in").write_text("3\n" + "3 " * 9 + "\n3\n3 3\n")
    said("in", "--output", "whole", status=1)
    assert (folder / "whole").read_text() == "0 0\n\n0 0\n0 0 0 0\n"
    leave("in", "--output", "out", sentences=3)
    said("in", "--output", "out", "--resume", status=1)
    assert (folder / "out").read_bytes() == (folder / "whole").read_bytes()
    said("in", "--output", "range", "--range", "3:")
    assert (folder / "range").read_text() == "0 0\n0 0 0 0\n"


def test_an_input_that_breaks_off_is_told_once(folder: Path, said: Said, leave: Leave) -> None:
    (folder / "in.gz").write_bytes(gzip.compress(b"3\n3 3\n" + os.urandom(9999))[:-3000])
    said("in.gz", "--output", "whole", status=1)
    rows = (folder / "whole").read_text().count("\n")
    leave("in.gz", "--output", "out", sentences=rows)
    said("in.gz", "--output", "out", "--resume", status=1)
    assert (folder / "out").read_bytes() == (folder / "whole").read_bytes()
