"""The promise of ``sgdec corpus``: what one process writes, whatever happens to workers, starters and disks."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from sgdec.cli.corpus import INSTEAD, SCORING
from sgdec.cli.decode import command as decode_command
from sgdec.cli.main import main
from sgdec.cli.score import command as score_command
from sgdec.corpus.manifest import read_manifest
from sgdec.corpus.merging import results
from sgdec.corpus.stores import FolderStore
from sgdec.settings import Settings
from tests.helpers import trap
from tests.helpers.forked_corpus import Begin, Process, forked_starters
from tests.helpers.places import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.background]

TRAP = [
    "--predictors", "trap", "--plugin-file", str(ROOT / "tests" / "helpers" / "trap.py"), "--input-format", "ids",
    "--decoder", "greedy",
]  # fmt: skip
LINES = 30
QUICK = ["--lease-seconds", "2"]


class Ran(NamedTuple):
    status: int
    out: str
    err: str


def environment() -> dict[str, str]:
    paths = [str(ROOT), str(ROOT / "predictors"), str(ROOT / "decoders"), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def begin() -> Iterator[Begin]:
    """Begins commands in processes of their own."""
    with forked_starters(environment()) as begins:
        yield begins


def end(process: Process, seconds: float = 120) -> Ran:
    return Ran(*process.communicate(seconds))


Sgdec = Callable[..., Ran]


@pytest.fixture(scope="module")
def sgdec(begin: Begin) -> Sgdec:
    """Runs a command to its end."""
    return lambda folder, *args: end(begin(folder, *args))


@pytest.fixture(autouse=True)
def nothing_left(tmp_path: Path) -> Iterator[None]:
    """No process outlives its test by more than moments."""
    yield
    for _ in range(200):
        own = [process for process in Path("/proc").glob("[0-9]*") if _works_in(process, tmp_path)]
        if not own:
            return
        time.sleep(0.1)
    raise AssertionError(f"processes {own} are left")


def _works_in(process: Path, folder: Path) -> bool:
    try:
        return os.readlink(process / "cwd") == str(folder.resolve())
    except OSError:
        return False


def write_ids(folder: Path, deadly: dict[int, int], name: str = "in.ids") -> list[str]:
    """Sentences of two or three tokens, some of them with a deadly one."""
    rows = [[10 + number % 50, 20, *([deadly[number]] if number in deadly else [])] for number in range(1, LINES + 1)]
    lines = [" ".join(map(str, row)) for row in rows]
    (folder / name).write_text("\n".join(lines) + "\n")
    return lines


def corpus(*more: str, name: str = "in.ids", decode: Sequence[str] = TRAP) -> list[str]:
    return ["corpus", name, "--output", "d", "--chunk", "5", "--output-format", "ids", *more, "--", *decode]


def merged(sgdec: Sgdec, folder: Path, lines: list[str], failed: Sequence[int] = ()) -> dict[int, str]:
    """The reasons of failed lines, after a check of all other lines."""
    ran = sgdec(folder, "corpus-merge", "d", "--output", "out.txt")
    assert ran.status == bool(failed), ran.err
    expected = ["" if number in failed else line for number, line in enumerate(lines, 1)]
    assert (folder / "out.txt").read_text().splitlines() == expected
    listed = [json.loads(line) for line in (folder / "out.txt.failed.jsonl").read_text().splitlines()]
    assert [row["id"] for row in listed] == list(failed)
    return {row["id"]: row["reason"] for row in listed}


def without_seconds(rows: str) -> str:
    return re.sub(r'"seconds": [0-9.e-]+', "", rows)


@pytest.fixture(scope="module")
def letters(tmp_path_factory: pytest.TempPathFactory, sgdec: Sgdec) -> Path:
    """Letters, a language model of them, and a line that fails."""
    import random

    draw = random.Random(1)
    lines = ["".join(draw.choice("abc ") for _ in range(draw.randint(1, 9))).strip() or "a" for _ in range(45)]
    lines[20] = ""
    folder = tmp_path_factory.mktemp("letters")
    (folder / "in.txt").write_text("\n".join(lines) + "\n")
    for args in (
        ["tokenizer", "--input", "in.txt", "--kind", "char", "--vocab-size", "8", "--output", "v.spm"],
        ["lm", "--input", "in.txt", "--tokenizer", "v.spm", "--discount-fallback", "--output", "lm.arpa"],
    ):
        ran = sgdec(folder, *args)
        assert ran.status == 0, ran.err
    return folder


@pytest.fixture
def text(tmp_path: Path, letters: Path) -> Path:
    shutil.copytree(letters, tmp_path, dirs_exist_ok=True)
    return tmp_path


LM = ["--predictors", "ngram,wc", "--ngram.path", "lm.arpa", "--wc.weight", "0.7", "--tokenizer", "v.spm"]


@pytest.mark.parametrize(
    ("format", "more"),
    [
        ("jsonl", ["--nbest", "3", "--batch-size", "4"]),
        ("nbest", ["--nbest", "3", "--decoder", "sample", "--sample.samples", "3"]),
        ("fst", ["--nbest", "2", "--deterministic"]),
    ],
)
def test_the_merged_output_is_that_of_one_process(text: Path, format: str, more: list[str], sgdec: Sgdec) -> None:
    one = "one.{id}.fst" if format == "fst" else "one"
    alone = sgdec(text, "decode", *LM, *more, "--output-format", format, "--output", one, "in.txt")
    assert alone.status == 1, alone.err
    shared = ["--output", "d", "--output-format", format, "--chunk", "7", "--workers", "2"]
    assert sgdec(text, "corpus", "in.txt", *shared, "--", *LM, *more).status == 1
    ran = sgdec(text, "corpus-merge", "d", "--output", "all")
    assert ran.status == 1, ran.err
    failed = json.loads((text / "all.failed.jsonl").read_text())
    assert failed == {
        "id": 21, "input": "in.txt", "line": 21, "reason": "in.txt, line 21: empty; there is nothing to decode."
    }  # fmt: skip
    if format == "fst":
        with zipfile.ZipFile(text / "all") as file:
            assert file.namelist() == [f"{number}.fst" for number in range(1, 46)]
            for number in range(1, 46):
                assert file.read(f"{number}.fst") == (text / f"one.{number}.fst").read_bytes()
    else:
        assert without_seconds((text / "all").read_text()) == without_seconds((text / "one").read_text())


def test_numbers_of_lines_go_on_from_input_to_input(tmp_path: Path, sgdec: Sgdec) -> None:
    lines = write_ids(tmp_path, {})
    other = write_ids(tmp_path, {3: trap.FAULT}, "other.ids")
    decode = corpus("other.ids")
    assert sgdec(tmp_path, *decode).status == 1
    reasons = merged(sgdec, tmp_path, lines + other, [LINES + 3])
    assert "predictor 'trap': ZeroDivisionError: a defect" in reasons[LINES + 3]


@pytest.mark.parametrize(
    ("deadly", "line_seconds"),
    [({8: trap.ABORT, 15: trap.HANG}, 2), ({22: trap.BLOAT}, 60)],  # seconds enough to take 400 MiB
)
def test_lines_that_kill_hang_or_bloat_their_workers_cost_only_themselves(
    tmp_path: Path, sgdec: Sgdec, deadly: dict[int, int], line_seconds: int
) -> None:
    lines = write_ids(tmp_path, deadly)
    limits = ("--line-seconds", str(line_seconds), "--worker-memory", "0.4")
    ran = sgdec(tmp_path, *corpus("--chunk", "1", "--workers", "2", *limits, decode=[*TRAP, "--nbest", "3"]))
    assert ran.status == 1, ran.err
    assert "nbest and jsonl write all 3" in ran.err
    assert "--output FILE` writes one file, and beside it the reasons of failed lines." in ran.err
    said = {
        trap.ABORT: "its worker killed by SIGABRT, 2 times",
        trap.HANG: "finished no line in 2 s (--line-seconds)",
        trap.BLOAT: "MiB of memory, more than 409 (--worker-memory)",
    }
    reasons = merged(sgdec, tmp_path, lines, list(deadly))
    for number, token in deadly.items():
        assert said[token] in reasons[number]


def test_a_line_that_kills_once_is_decoded_by_another_worker(tmp_path: Path, sgdec: Sgdec) -> None:
    lines = write_ids(tmp_path, {5: trap.KILL})
    ran = sgdec(tmp_path, *corpus(decode=[*TRAP, "--trap.once", "seen"]))
    assert ran.status == 0, ran.err
    assert "1 worker died" in ran.err
    merged(sgdec, tmp_path, lines)


def test_workers_and_starters_are_killed_and_a_second_start_continues(
    tmp_path: Path, sgdec: Sgdec, begin: Begin
) -> None:
    lines = write_ids(tmp_path, dict.fromkeys(range(1, LINES + 1), trap.SLOW))
    first = begin(tmp_path, *corpus("--workers", "2", *QUICK))
    _until(lambda: len(_published(tmp_path)) >= 1)
    victim = subprocess.run(["pgrep", "-P", str(first.pid)], capture_output=True, text=True).stdout.split()[0]
    os.kill(int(victim), signal.SIGKILL)
    _until(lambda: len(_published(tmp_path)) >= 2)
    first.kill()
    end(first)
    done = {path: path.read_bytes() for path in _published(tmp_path)}
    assert 2 <= len(done) < 6
    second, third = (begin(tmp_path, *corpus("--workers", "1", *QUICK)) for _ in range(2))  # both at once
    ran, other = end(second), end(third)
    assert (ran.status, other.status) == (0, 0), ran.err + other.err
    merged(sgdec, tmp_path, lines)
    assert all(path.read_bytes() == content for path, content in done.items())
    decoded = sum(int(found[1]) for found in re.finditer(r"(\d+) lines decoded here", ran.err + other.err))
    assert decoded == LINES - 5 * len(done)


def _children(pid: int) -> list[str]:
    return subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True).stdout.split()


def test_scores_survive_kills_a_deadly_line_and_a_touched_folder(
    tmp_path: Path, sgdec: Sgdec, begin: Begin
) -> None:
    """The merged list is that of one process, in which the outputs of the deadly line are forbidden."""
    slow, deadly = dict.fromkeys(range(1, 8), trap.SLOW), 20
    lines = write_ids(tmp_path, {**slow, deadly: trap.ABORT})
    write_ids(tmp_path, slow, "alone.ids")
    entries = [f"{number} ||| {line} ||| tm= {n} ||| {n}\n" for number, line in enumerate(lines, 1) for n in (1, 2)]
    (tmp_path / "list").write_text("".join(entry for entry in entries if not entry.startswith("9 ")))
    rescore = [*(option for option in TRAP if option not in ("--decoder", "greedy")), "--nbest-list"]
    once = ["--trap.once", "seen", "--old-weight", "1", "--output", "one"]
    alone = sgdec(tmp_path, "score", *rescore, *once, "alone.ids", "list")
    assert alone.status == 1, alone.err
    more = ["--score", "list", "--output-format", "nbest", "--workers", "2", "--lease-seconds", "1"]
    start = corpus(*more, decode=[*rescore, "--old-weight", "1"])
    first = begin(tmp_path, *start)
    _until(lambda: len(_published(tmp_path)) >= 1)
    first.kill()
    end(first)
    kept, *_ = done = _published(tmp_path)
    assert len(done) < 6
    content = kept.read_bytes()
    kept.write_bytes(content[:-3])
    refused = sgdec(tmp_path, *start)
    assert refused.status == 1 and "damaged" in refused.err
    kept.unlink()
    second = begin(tmp_path, *start)
    workers: list[str] = []
    _until(lambda: workers.extend(_children(second.pid)) or bool(workers))  # type: ignore[func-returns-value]
    os.kill(int(workers[0]), signal.SIGKILL)
    ran = end(second)
    assert ran.status == 1 and "complete, 1 failed" in ran.err, ran.err
    assert sgdec(tmp_path, "corpus-merge", "d", "--output", "out").status == 1
    assert (tmp_path / "out").read_bytes() == (tmp_path / "one").read_bytes()
    failed = json.loads((tmp_path / "out.failed.jsonl").read_text())
    assert failed["id"] == deadly and "its worker killed by SIGABRT, 2 times" in failed["reason"]


def test_one_interruption_lets_workers_finish_and_two_stop_them(tmp_path: Path, sgdec: Sgdec, begin: Begin) -> None:
    lines = write_ids(tmp_path, dict.fromkeys(range(1, LINES + 1), trap.SLOW))
    for times in (1, 2):
        before = len(_published(tmp_path))
        process = begin(tmp_path, *corpus(*QUICK))
        _until(lambda: len(_published(tmp_path)) > before)  # noqa: B023
        process.send_signal(signal.SIGINT)
        if times == 2:
            time.sleep(0.1)
            process.send_signal(signal.SIGINT)
        ran = end(process, 20)
        assert ran.status == 130
        assert "Interrupted: the workers finish" in ran.err
        assert "Traceback" not in ran.err
        if times == 1:
            assert "stopped; start the same command again to continue." in ran.err
            assert not [path for path in tmp_path.glob("d/leases/*/*") if not path.read_text().startswith("{")]
    assert sgdec(tmp_path, *corpus(*QUICK)).status == 0
    merged(sgdec, tmp_path, lines)


def test_a_full_disk_ends_the_run_in_one_line_and_what_is_done_stays_done(
    tmp_path: Path, sgdec: Sgdec, begin: Begin
) -> None:
    lines = write_ids(tmp_path, {})
    ran = end(begin(tmp_path, *corpus(), limits={resource.RLIMIT_FSIZE: 390}))
    assert ran.status == 1
    (error,) = [line for line in ran.err.splitlines() if line.startswith("Error")]
    assert "File too large" in error
    assert sgdec(tmp_path, *corpus()).status == 0
    merged(sgdec, tmp_path, lines)


def test_an_input_that_changes_after_the_start_is_found_by_the_worker(
    tmp_path: Path, sgdec: Sgdec, begin: Begin
) -> None:
    write_ids(tmp_path, dict.fromkeys(range(1, LINES + 1), trap.SLOW))
    process = begin(tmp_path, *corpus())
    _until(lambda: len(_published(tmp_path)) >= 1)
    content = (tmp_path / "in.ids").read_text()
    (tmp_path / "in.ids").write_text(content[:-8] + "9" + content[-7:])
    ran = end(process)
    assert ran.status == 1
    assert "lines 26 to 30 have changed since the folder was begun" in ran.err
    again = sgdec(tmp_path, *corpus())
    assert again.status == 2
    assert "was begun with another content of in.ids" in again.err


def test_another_run_in_the_folder_is_refused_with_the_difference(tmp_path: Path, sgdec: Sgdec) -> None:
    lines = write_ids(tmp_path, {})
    assert sgdec(tmp_path, *corpus()).status == 0
    for more, decode, difference in [
        (["--chunk", "11"], TRAP, "was begun with --chunk 5, this is 11"),
        ([], [*TRAP, "--trap.once", "x"], r"was begun with predictors .*trap.*, this is .*trap\(once=x\)"),
    ]:
        ran = sgdec(tmp_path, *corpus(*more, decode=decode))
        assert ran.status == 2
        assert re.search(difference, ran.err), ran.err
    assert sgdec(tmp_path, *corpus("--workers", "2")).status == 0  # the number of workers is free
    merged(sgdec, tmp_path, lines)


def test_files_of_a_pattern_are_watched_and_failed_lines_decoded_again(tmp_path: Path, sgdec: Sgdec) -> None:
    lines = [f"{number % 5 + 3} 4" for number in range(1, 11)]
    (tmp_path / "in.ids").write_text("\n".join(lines) + "\n")
    (tmp_path / "lists").mkdir()
    for number, line in enumerate(lines, 1):
        (tmp_path / "lists" / f"{number}.txt").write_text(f"{line}\n")
    (tmp_path / "lists" / "7.txt").unlink()
    trie = ["--predictors", "trie", "--trie.path", "lists/{id}.txt", "--vocab-size", "9", "--input-format", "ids"]
    start = corpus(decode=[*trie, "--decoder", "greedy"])
    for _ in range(2):
        ran = sgdec(tmp_path, *start)
        assert ran.status == 1 and "complete, 1 failed (--retry-failed tries them again)" in ran.err
    (tmp_path / "lists" / "7.txt").write_text(f"{lines[6]}\n")
    ran = sgdec(tmp_path, *start[:1], "--retry-failed", *start[1:])
    assert ran.status == 0 and "1 line decoded here" in ran.err, ran.err
    merged(sgdec, tmp_path, lines)
    (tmp_path / "lists" / "7.txt").write_text("8 8\n")
    ran = sgdec(tmp_path, *start)
    assert ran.status == 1 and "lists/7.txt changed since chunk 1, line 2 of it was decoded" in ran.err
    assert "remove " in ran.err and "again/000000001/1-1.zip, and start" in ran.err


def test_names_of_inputs_can_hold_any_bytes(tmp_path: Path, sgdec: Sgdec) -> None:
    name = os.fsdecode(b"raw\xff\xe2\x80\xa8\n.ids")
    (tmp_path / name).write_text("3 4\n\n5\n")
    rows = ["--output-format", "jsonl"]
    assert sgdec(tmp_path, "decode", *TRAP, *rows, "--output", "one", name).status == 1
    assert sgdec(tmp_path, *corpus(*rows, name=name)).status == 1
    assert sgdec(tmp_path, "corpus-merge", "d", "--output", "out").status == 1
    one, out = ((tmp_path / made).read_text() for made in ("one", "out"))
    assert without_seconds(out) == without_seconds(one)
    assert json.loads((tmp_path / "out.failed.jsonl").read_text())["input"] == name


def test_merging_does_not_write_over_an_input(tmp_path: Path, sgdec: Sgdec, begin: Begin) -> None:
    write_ids(tmp_path, {})
    assert sgdec(tmp_path, *corpus()).status == 0
    (tmp_path / "link").symlink_to("in.ids")
    before = (tmp_path / "in.ids").read_text()
    for more in (["in.ids"], ["link"], ["new", "--failed", "in.ids"]):
        ran = sgdec(tmp_path, "corpus-merge", "d", "--output", *more)
        assert ran.status == 2 and "it is an input of the corpus" in ran.err
    with open(tmp_path / "in.ids", "a") as file:
        ran = end(begin(tmp_path, "corpus-merge", "d", out=file.fileno()))
    assert ran.status == 2 and "standard output: it is an input of the corpus" in ran.err
    assert (tmp_path / "in.ids").read_text() == before


def test_merging_finds_missing_and_changed_results(tmp_path: Path, sgdec: Sgdec) -> None:
    lines = write_ids(tmp_path, {})
    assert sgdec(tmp_path, *corpus()).status == 0
    result = tmp_path / "d" / "results" / "000000" / "000000002.zip"
    content = result.read_bytes()
    result.write_bytes((tmp_path / "d" / "results" / "000000" / "000000003.zip").read_bytes())
    ran = sgdec(tmp_path, "corpus-merge", "d", "--output", "out.txt")
    assert ran.status == 1 and "000000002.zip: the result of lines 16 to 20; expected that of lines 11" in ran.err
    assert not (tmp_path / "out.txt").exists()
    result.write_bytes(content[:-3])
    assert "damaged" in sgdec(tmp_path, "corpus-merge", "d").err
    result.unlink()
    ran = sgdec(tmp_path, "corpus-merge", "d", "--output", "out.txt")
    assert ran.status == 1 and "chunk 2 (lines 11 to 15) has no result yet" in ran.err
    assert sgdec(tmp_path, *corpus()).status == 0
    merged(sgdec, tmp_path, lines)
    store = FolderStore(str(tmp_path / "d"))
    manifest = read_manifest(store)
    assert manifest is not None
    assert sum(result.lines for result in results(store, manifest)) == LINES


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["corpus", "no.txt", "--output", "d", "--", *TRAP], "input no.txt: No such file"),
        (["corpus", "empty", "--output", "d", "--", *TRAP], "empty: no lines"),
        (["corpus", "in.ids", "--output", "d", "--engine", "slurm", "--", *TRAP], "no engine named 'slurm'"),
        (["corpus", "in.ids", "--output", "d", "--local.cores", "3", "--", *TRAP], "cores"),
        (["corpus", "in.ids", "--output", "d", "--beam.size", "3", "--", *TRAP], "decoders go after `--`"),
        (["corpus", "in.ids", "--output", "d", *TRAP], r"--predictors is an option of `sgdec decode`.* after `--`"),
        (["corpus", "in.ids", "--output", "d", "--", *TRAP, "--workers", "2"], r"--workers is.* go before `--`"),
        (["corpus", "in.ids", "--output", "d", "--nothing", "--", *TRAP], "No such option '--nothing'"),
        (["corpus", "in.ids", "--output", "d", "--", *TRAP, "x.txt"], r"x\.txt: input files go before `--`"),
        (["corpus", "in.ids", "--output", "d", "--", *TRAP, "--resume"], "--resume after `--`: a second start"),
        (["corpus", "in.ids", "--output", "d", "--", *TRAP, "--range", "1:3"], "--range after `--`"),
        (["corpus", "in.ids", "--output", "d", "--", *TRAP, "--trace-children", "3"], "--trace-children after `--`"),
        (["corpus", "in.ids", "--output", "d", "--", "--config", "c.toml"], "--config c.toml: range: all lines are"),
        (["corpus", "in.ids", "--output", "d", "--", "--config", "b.toml"], "--config b.toml: no option --beam.sze"),
        (["corpus", "in.ids", "--output", "d", "--ledger", "--", *TRAP], "--ledger: text cannot hold it"),
        (["corpus", "in.ids", "--output", "d"], "--predictors is missing"),
        (["corpus", "in.ids", "--output", ".", "--", *TRAP, "--tokenizer", "manifest.json"], "tokenizer reads"),
        (["corpus", "in.ids", "--output", "d", "--", "--predictors", "trap"], "no predictor named 'trap'"),
        (["corpus-merge", "in.ids"], "in.ids: it has no manifest"),
    ],
)
def test_bad_input_is_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], args: list[str], message: str
) -> None:
    write_ids(tmp_path, {})
    (tmp_path / "empty").write_text("")
    (tmp_path / "c.toml").write_text('predictors = "wc"\nrange = "1:3"\n')
    (tmp_path / "b.toml").write_text('predictors = "wc"\nbeam.sze = 4\n')
    (tmp_path / "manifest.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    assert main(args) in (1, 2)
    (error,) = capsys.readouterr().err.splitlines()
    assert re.search(message, error), error


@pytest.mark.parametrize(
    ("command", "more"),
    [(decode_command, {"decoder", "input"}), (score_command, {*SCORING, "source", "target"})],
    ids=["decode", "score"],
)
def test_every_option_has_its_place(command: click.Command, more: set[str]) -> None:
    """None is taken and then forgotten."""
    kept = {"predictors", "config", "plugin_file", "input_format", *more}
    known = kept | set(INSTEAD) | {field.name for field in fields(Settings)}
    assert {parameter.name for parameter in command.params} - known == set()


def _published(folder: Path) -> list[Path]:
    """Results of whole chunks, without files that a worker has begun beside them."""
    return sorted(folder.glob("d/results/*/*.zip"))


def _until(condition: Callable[[], bool], seconds: float = 60) -> None:
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.02)
