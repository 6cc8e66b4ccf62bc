"""A command that is interrupted early says nothing, and one with closed streams misses only those that it uses."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sgdec.cli import streams
from sgdec.cli.main import main
from sgdec.cli.start import interrupt
from tests.helpers.background import heed_interrupts
from tests.helpers.places import ROOT

pytestmark = pytest.mark.background

PATHS = [str(ROOT / part) for part in ("", "predictors", "decoders")]
DECODE = "decode --predictors wc --vocab-size 7 --input-format ids --max-length 3"
INTERRUPTED = """import os, signal
try:
    os.kill(os.getpid(), signal.SIGINT)
    exec("")
except KeyboardInterrupt:
    pass
"""
"""A module that takes an interrupt for an error of its own."""


def run(folder: Path, call: str, *paths: str) -> tuple[int, str, str]:
    """A shell's call of ``sgdec``, with modules from further ``paths``: exit status, output and errors."""
    ran = subprocess.run(
        ["bash", "-c", f"exec {sys.executable} -m sgdec {call}"], cwd=folder, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([*paths, *PATHS])}, preexec_fn=heed_interrupts,
    )  # fmt: skip
    return ran.returncode, ran.stdout, ran.stderr


def run_closed(call: str, *closed: int) -> tuple[int, str]:
    """A command in a fork of this process, with these streams closed; exit status, and errors unless 2 is closed."""
    child = os.fork()
    if child == 0:
        status = 99
        try:
            os.dup2(os.open("said", os.O_RDWR | os.O_CREAT | os.O_TRUNC), 2)
            sys.stdin, sys.stdout, sys.stderr = (open(n, "rww"[n], closefd=False) for n in range(3))  # noqa: SIM115
            for number in closed:
                os.close(number)
                setattr(sys, ("stdin", "stdout", "stderr")[number], None)  # as Python does it
            streams.occupy_closed()
            status = main(call.split())
            sys.stderr.flush()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), Path("said").read_text()


@pytest.fixture(scope="module", autouse=True)
def imported(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What forks then have."""
    place = tmp_path_factory.mktemp("first")
    (place / "ids").write_text("3\n")
    assert main([*DECODE.split(), "--output", str(place / "out"), "--trace", "/dev/null", str(place / "ids")]) == 0


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("ids").write_text("3 4\n4\n")


def test_an_interrupt_during_an_import_ends_the_process_silently(tmp_path: Path) -> None:
    Path("click.py").write_text(INTERRUPTED)
    assert run(tmp_path, "--version", str(tmp_path)) == (130, "", "")


def test_an_interrupt_at_another_time_is_an_exception() -> None:
    with pytest.raises(KeyboardInterrupt):
        interrupt(signal.SIGINT, sys._getframe())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "closed", "message"),
    [
        (f"{DECODE} ids", 1, "standard output is closed"),
        (DECODE, 0, "standard input is closed"),
        (f"{DECODE} --output out /dev/stdin", 0, "standard input is closed"),
        (f"{DECODE} --output out --trace /dev/stdout ids", 1, "standard output is closed"),
        (f"{DECODE} --output out --bow.path - --predictors bow ids", 0, "standard input is closed"),
        ("plugins", 1, "standard output is closed"),
        ("decode --help", 1, "standard output is closed"),
    ],
)
def test_a_closed_stream_that_is_needed_is_one_line(call: str, closed: int, message: str) -> None:
    status, said = run_closed(call, closed)
    assert status in (1, 2) and message in said and said.startswith("Error: ") and said.count("\n") == 1
    assert not [*Path().glob("out*")]


@pytest.mark.parametrize("closed", [(0,), (1,), (0, 1), (0, 1, 2)])
def test_closed_streams_that_are_not_used_change_nothing(closed: tuple[int, ...]) -> None:
    """The first files that are opened do not become standard output."""
    status, said = run_closed(f"{DECODE} --output out --signature signed ids", *closed)
    assert status == 0 and "Error" not in said and bool(said) == (2 not in closed)
    assert Path("out").read_text() == "\n\n" and Path("signed").read_text().count("\n") == 1


def test_what_is_said_to_closed_standard_error_does_not_go_to_the_output(tmp_path: Path) -> None:
    assert run(tmp_path, "--predictors 2>&-") == (2, "", "")
    status, _, said = run(tmp_path, "--version >&-")
    assert status == 2 and said.startswith("Error: standard output is closed")
