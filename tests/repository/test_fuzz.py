"""Fuzzing: each past finding stays mended, some inputs of `make fuzz`, no reader is left out, and the judge sees all.

What `fuzz/regressions` marks with ``until_mended`` is known and not mended yet; a mark that is no longer true fails.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fuzz import options
from fuzz.campaign import run_chunk
from fuzz.case import Case, from_toml
from fuzz.files import NO_PATHS
from fuzz.judge import judge
from fuzz.running import ROOT, Outcome, Runner
from fuzz.targets import TARGETS
from fuzz.zygote import _memory
from tests.helpers.breadth import some

REGRESSIONS = sorted((ROOT / "fuzz" / "regressions").glob("*.toml"))
INPUTS = 200


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    with Runner() as runner:
        yield runner


def parameters() -> list[Any]:
    found = []
    for path in REGRESSIONS:
        _, about = from_toml(path)
        reason = about.get("until_mended")
        marks = [pytest.mark.xfail(strict=True, reason=reason)] if reason else []
        found.append(pytest.param(path, id=path.stem, marks=marks))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("path", parameters())
def test_a_past_finding_stays_mended(runner: Runner, path: Path) -> None:
    case, about = from_toml(path)
    outcome = runner.run(case)
    assert judge(case, outcome) is None, outcome.err[-3000:]
    assert outcome.status in about.get("statuses", [about.get("status", outcome.status)]), outcome.err[-3000:]
    for words in about.get("says", ()):
        assert words in outcome.out.decode() + outcome.err


@pytest.mark.slow
@pytest.mark.parametrize("number", some(range(len(TARGETS))), ids=lambda number: TARGETS[number].name)
def test_random_inputs_have_no_finding(runner: Runner, number: int) -> None:
    each, rest = divmod(INPUTS, len(TARGETS))
    chunk = run_chunk(runner, TARGETS[number], seed=0, number=0, size=each + (number < rest))
    assert not chunk.findings, [str(finding) for finding, _ in chunk.findings.values()]


def test_each_option_that_can_name_a_file_is_damaged_somewhere() -> None:
    by_plugin, by_command = options.damaged_by_plugin(), options.damaged_by_command()
    for names, option in options.text_options_of_plugins():
        given = {(name, option) for name in names}
        assert given & (by_plugin | NO_PATHS), f"--{min(names)}.{option}: fuzz/files.py has no target for it"
    for command, option in options.text_options_of_commands():
        assert (command, option) in by_command | NO_PATHS, f"sgdec {command}, {option}: fuzz/files.py has no target"


def outcome(err: str = "", status: int = 0, **more: Any) -> Outcome:
    values: dict[str, Any] = {"waited": False, "cpu": 0.1, "seconds": 0.1, "rss": 1 << 20, "out": b"", "changed": ()}
    return Outcome(status=status, err=err, **values | more)


def test_the_memory_of_processes_that_a_command_starts_is_counted() -> None:
    allocate = "data = b'x' * (64 << 20); print(flush=True); input()"
    start = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {allocate!r}])"
    with subprocess.Popen([sys.executable, "-c", start], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None and child.stdout is not None
        child.stdout.readline()
        assert _memory(child.pid) > 64 << 20
        child.stdin.write(b"\n")


TRACEBACK = 'Traceback (most recent call last):\n  File "/x/sgdec/io/arpa.py", line 7, in read\nKeyError: 3\n'


@pytest.mark.parametrize(
    ("kind", "seen"),
    [
        ("traceback", outcome(TRACEBACK, 1)),
        ("traceback", outcome(f"Warning: sentence 1: 3\n{TRACEBACK}signature: x\n", 1)),
        ("traceback", outcome(f"{TRACEBACK}Error: the process that compiles ended.\n", 1)),
        ("backtrace", outcome("thread '<unnamed>' panicked at src/lib.rs:3:\nno id\nError: x.json: damaged.\n", 1)),
        ("backtrace", outcome("stack backtrace:\n   0: rust_begin_unwind\nError: x.json: damaged.\n", 1)),
        ("backtrace", outcome("Fatal Python error: Segmentation fault\n\nError: x.json: damaged.\n", 1)),
        ("signal", outcome(status=-11)),
        ("slow", outcome(status=-24, cpu=10.1)),
        ("slow", outcome(waited=True, status=-9)),
        ("memory", outcome(f"{TRACEBACK}MemoryError\n", 1)),
        ("memory", outcome(rss=3 << 30)),
        ("noise", outcome("x.py:3: RuntimeWarning: overflow\n")),
        ("noise", outcome("ERROR: FstHeader::Read\nError: x.fst: no lattice.\n", 1)),
        ("status", outcome("Error: no such option.\n", 3)),
        ("status", outcome("Error: one.\n", 0)),
        ("unclear", outcome("", 1)),
        ("unclear", outcome("Error: one.\nError: two.\n", 2)),
        ("unclear", outcome("Error: one\ntwo.\n", 2)),
        ("unclear", outcome("Error: \x1b[31mred.\n", 2)),
        ("unclear", outcome(f"Error: {'x' * 9999}.\n", 2)),
        ("incomplete", outcome(out=b"a\nb\n")),
        ("incomplete", outcome("Warning: sentence 1: empty.\n", 1, out=b"a\nb\n")),
        ("lost", outcome(out=b"a\nb\nd\n")),
        ("lost", outcome("Warning: sentence 1: empty.\nError: too long.\n", 1, out=b"a\n")),
        ("overwritten", outcome(out=b"a\nb\nc\n", changed=("in",))),
        ("overwritten", outcome("Error: full.\n", 2, changed=("out/1",))),
        (None, outcome(out=b"a\nb\nc\n", changed=("out/1",))),
        (None, outcome("Error: no such option.\n", 2)),
        (None, outcome("done: complete, 1 failed.\n", 1, out=b"a\nb\nc\n")),
        ("unclear", outcome("done: complete, 0 failed.\n", 1)),
        (None, outcome("Error: no such option.\n", 2, changed=("run/.lock",))),
        (None, outcome("Warning: sentence 1: empty.\n", 1, out=b"\n\nc\n")),
    ],
)
def test_the_judge_sees_what_is_wrong(kind: str | None, seen: Outcome) -> None:
    survives = seen.status == 1
    case = Case("x", ("decode",), {}, rows=3, kept={3: "c"}, survives=survives, writes=("out",))
    finding = judge(case, seen)
    assert (finding and finding.kind) == kind
