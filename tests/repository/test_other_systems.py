"""The promise of macOS and Windows, as far as Linux can tell: sgdec works without what only POSIX or only Linux has.

`tests.helpers.without_posix` says what the simulation of Windows consists of.
"""

from __future__ import annotations

import errno
import io
import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from grader.boundary import open_boundary
from sgdec_predictors.texts import regex_worker

from sgdec.checkpoints.links import linked, point
from sgdec.cli.main import main
from sgdec.cli.streams import prepare_output
from sgdec.corpus import stores
from sgdec.corpus.engine import Limits
from sgdec.engines import processes
from sgdec.errors import SgdecError, UsageError
from sgdec.io import descriptors
from sgdec.io.writing import claim, whole_file
from tests.helpers.imports import modules
from tests.helpers.places import DATA, ROOT
from tests.helpers.without_posix import msvcrt

MIX = ("--predictors", "ngram,wc", "--ngram.path", "lm.arpa", "--tokenizer", "tok.spm", "--decoder", "beam",
       "--beam.size", "2", "--max-length", "4")  # fmt: skip
TRAIN = ("train", "--train", "text", "text", "--valid", "text", "text", "--tokenizer", "tok.spm", "--output", "run",
         "--model", "transformer", "--transformer.width", "8", "--transformer.heads", "1", "--transformer.layers",
         "1", "--batch-tokens", "100", "--validate-every", "2", "--max-steps")  # fmt: skip
DECODE: dict[str, tuple[str, ...]] = {
    "out.txt": ("decode", *MIX, "--output", "out.txt", "text"),
    "out.nbest": ("decode", *MIX, "--nbest", "2", "--output-format", "nbest", "--output", "out.nbest", "text"),
    "out/1.fst": ("decode", *MIX, "--nbest", "2", "--output-format", "fst", "--output", "out/{id}.fst", "text"),
}
"""The commands that write these files."""
CALLS: tuple[tuple[str, ...], ...] = (
    ("plugins",),
    ("tokenizer", "--kind", "char", "--vocab-size", "18", "--input", "text", "--output", "tok.spm"),
    ("lm", "--order", "2", "--discount-fallback", "--tokenizer", "tok.spm", "--input", "text", "--output", "lm.arpa"),
    *DECODE.values(),
    DECODE["out.txt"],  # replaces its output
    ("decode", *MIX, "--trace", "trace.jsonl.zst", "text"),
    ("view", "trace.jsonl.zst", "--output", "page.html"),
    (*TRAIN, "2"),
    (*TRAIN, "4", "--resume"),
    ("decode", "--predictors", "nmt", "--nmt.model", "run", "--decoder", "greedy", "text"),
    ("corpus", "text", "--output", "corpus", "--", *MIX),
    ("corpus-merge", "corpus", "--output", "merged.txt"),
)
GRADE = ("course", "grade", "lattice", "submissions", "--seed", "2", "--csv", "marks.csv")


class Simulated(NamedTuple):
    folder: Path
    wrong: list[str]
    """The modules that cannot be imported."""
    runs: dict[tuple[str, ...], tuple[int, str]]
    """The exit status of each command, and its messages."""


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Simulated:
    """All commands in a process like one of Windows, where a file that is opened without an encoding is an error."""
    folder = tmp_path_factory.mktemp("windows")
    (folder / "text").write_text("drei Äpfel\nein Apfel → ▁\nzwei Birnen\n", encoding="utf-8")
    (folder / "submissions").mkdir()
    (folder / "submissions" / "one.py").touch()
    calls = (*CALLS, GRADE)
    done = subprocess.run(
        [sys.executable, "-X", "warn_default_encoding", "-m", "tests.helpers.without_posix"], cwd=folder,
        input=json.dumps(calls), capture_output=True, check=True, encoding="utf-8",
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "predictors", ROOT / "decoders")))},
    )  # fmt: skip
    told = json.loads(done.stdout)
    return Simulated(folder, told["wrong"], {call: tuple(run) for call, run in zip(calls, told["runs"], strict=True)})


def test_every_module_can_be_imported_on_windows(simulated: Simulated) -> None:
    assert simulated.wrong == []


@pytest.mark.parametrize("call", CALLS, ids=lambda call: f"{call[0]} {CALLS.index(call)}")
def test_a_command_runs_on_windows(simulated: Simulated, call: tuple[str, ...]) -> None:
    status, said = simulated.runs[call]
    assert status == 0, said


def test_windows_writes_the_same_bytes(simulated: Simulated, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("text", "tok.spm", "lm.arpa"):
        (tmp_path / name).write_bytes((simulated.folder / name).read_bytes())
    for name, call in DECODE.items():
        assert main(call) == 0
        assert (tmp_path / name).read_bytes() == (simulated.folder / name).read_bytes()
    assert (simulated.folder / "merged.txt").read_bytes() == (tmp_path / "out.txt").read_bytes()


def test_a_run_on_windows_leaves_its_links_and_nothing_unfinished(simulated: Simulated) -> None:
    run = simulated.folder / "run"
    assert {(run / name).resolve() for name in ("best", "last")} == linked(run)
    assert all(place.parent == run.resolve() and place.name.startswith("step-") for place in linked(run))
    assert not list(simulated.folder.rglob("*.partial*"))


def test_no_submission_runs_on_windows(simulated: Simulated, monkeypatch: pytest.MonkeyPatch) -> None:
    status, said = simulated.runs[GRADE]
    assert status == 2 and said.startswith("Error: submissions run only on Linux and macOS. On Windows grade in WSL")
    monkeypatch.delattr(os, "killpg")
    with pytest.raises(UsageError, match="grade in WSL"):
        open_boundary("none")


def test_two_processes_do_not_write_one_file_on_windows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(descriptors, "_msvcrt", msvcrt())
    path = tmp_path / "out"
    with whole_file(path) as file:
        file.write(b"one")
        with pytest.raises(SgdecError, match="another process is writing this file"), whole_file(path):
            pass
    assert path.read_bytes() == b"one"
    first = claim(path)
    assert first is not None and claim(path) is None and first.read() == b"one"
    first.close()
    second = claim(path)
    assert second is not None
    second.close()


def test_a_link_that_may_not_be_made_for_another_reason_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(*given: Any, **also: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "symlink", refuse)
    with pytest.raises(OSError, match="No space"):
        point(tmp_path / "best", "step-1")


def test_renaming_replaces_nothing_on_windows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def rename(written: Path, target: Path) -> None:
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, "Cannot create a file when that file already exists")
        os.replace(written, target)

    def no_links(*given: Any, **also: Any) -> None:
        raise OSError(errno.EINVAL, "Incorrect function")

    (one, other, target) = paths = [tmp_path / name for name in ("one", "other", "target")]
    for path in paths[:2]:
        path.write_text(path.name, encoding="utf-8")
    monkeypatch.setattr(os, "rename", rename)
    monkeypatch.setattr(os, "link", no_links)
    with monkeypatch.context() as patch:
        patch.setattr(os, "name", "nt")
        results = stores.publish(one, target), stores.publish(other, target)
    assert results == (True, False) and target.read_text("utf-8") == "one" and other.exists()


def test_a_limit_on_memory_is_refused_where_it_cannot_be_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "own_memory", lambda pid: 0)
    job: Any = None
    with pytest.raises(UsageError, match=r"^--worker-memory: only Linux says .* Leave it out, or run on Linux\.$"):
        processes.Processes(job, [], Limits(memory=1 << 30), 1)


def test_a_limit_that_macos_refuses_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    set_limits = []

    def refuse(kind: int, limits: tuple[int, int]) -> None:
        if kind == resource.RLIMIT_AS:
            raise ValueError("current limit exceeds maximum limit")
        set_limits.append(kind)

    monkeypatch.setattr(resource, "setrlimit", refuse)
    regex_worker.limit(8, 1 << 30)
    assert set_limits == [resource.RLIMIT_CPU]


class Terminal(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("kind", "written"),
    [(Terminal, b"\xe4 \\u2192 \xff\r\n"), (io.TextIOWrapper, b"\xc3\xa4 \xe2\x86\x92 \xff\n")],
    ids=["terminal", "file or pipe"],
)
def test_standard_output_on_windows(kind: type[io.TextIOWrapper], written: bytes) -> None:
    bytes_written = io.BytesIO()
    stream = kind(bytes_written, "cp1252", newline="\r\n")
    prepare_output(stream)
    print("ä → \udcff", file=stream, flush=True)
    assert bytes_written.getvalue() == written


def test_a_pipe_gets_utf_8_whatever_the_encoding_of_the_system(tmp_path: Path) -> None:
    said = subprocess.run(
        [sys.executable, "-m", "sgdec", "demo", "corpus", "--directory", "→"], cwd=tmp_path, capture_output=True,
        check=True, env={**os.environ, "PYTHONIOENCODING": "cp1252"},
    ).stdout  # fmt: skip
    assert said.decode("utf-8").startswith("→: 260 lines train")


def test_outputs_that_differ_in_case_are_one_file_where_case_is_ignored(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    call = ["decode", "--predictors", "wc", "--output", "Out.txt", "--trace", "out.TXT", str(DATA / "numbers.txt")]
    main(call)
    assert "are the same file" not in capsys.readouterr().err
    same = os.path.samefile
    monkeypatch.setattr(os.path, "samefile", lambda one, other: one == other.swapcase() or same(one, other))
    assert main(call) == 2
    assert "--output Out.txt and --trace out.TXT are the same file" in capsys.readouterr().err


def test_files_are_opened_with_an_encoding() -> None:
    folders = ("sgdec", "predictors", "decoders", "examples")
    ruff = [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache", "--preview", "--select", "PLW1514"]
    done = subprocess.run([*ruff, *folders], cwd=ROOT, capture_output=True, check=False, encoding="utf-8")
    assert done.returncode == 0, done.stdout


def test_no_process_is_forked_and_multiprocessing_is_not_used() -> None:
    for path in modules().values():
        code = path.read_text("utf-8")
        assert "os.fork" not in code and "multiprocessing" not in code, path
