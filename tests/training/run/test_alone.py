"""A run's folder is for one process at a time, and a lock ends with the process that holds it."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from sgdec.errors import SgdecError, UsageError
from sgdec.training import train
from sgdec.training.run.alone import LOCK, alone, in_turn
from tests.helpers.training_case import make_config

pytestmark = pytest.mark.background


@pytest.mark.slow
def test_two_processes_do_not_train_in_one_folder(tmp_path: Path) -> None:
    config = make_config(tmp_path, max_steps=2, bleu=0)
    train(config, quiet=True)
    with open(tmp_path / "run" / LOCK, "w") as other:  # as another process would have it
        fcntl.flock(other, fcntl.LOCK_EX)
        other.write("process 7 on node3")
        other.flush()
        for resume in (True, False):
            with pytest.raises(SgdecError, match=r"run: process 7 on node3 is training in this folder\. Wait for it"):
                train(config, resume=resume, quiet=True)
    assert train(config, resume=True, quiet=True).steps == 2, "a file that nobody has locked is no lock"


def test_who_is_refused_learns_who_is_there(tmp_path: Path) -> None:
    with alone(tmp_path / "run"), pytest.raises(SgdecError) as caught, alone(tmp_path / "run"):
        pass
    here = f"process {os.getpid()} on {socket.gethostname()}"
    assert str(caught.value) == (
        f"{tmp_path}/run: {here} is training in this folder. Wait for it, end it, or give another --output."
    )


def test_a_killed_process_leaves_no_lock_behind(tmp_path: Path) -> None:
    run = tmp_path / "run"
    child = os.fork()
    if not child:
        with alone(run):
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert (run / LOCK).exists()
    with alone(run):
        pass


def test_a_folder_that_was_made_for_nothing_is_gone_and_no_other(tmp_path: Path) -> None:
    for name in ("new", "mine", "used"):
        if name == "mine":
            (tmp_path / name).mkdir()
        with pytest.raises(UsageError, match="anything"), alone(tmp_path / name):
            if name == "used":
                (tmp_path / name / "metrics.jsonl").touch()
            raise UsageError("anything")
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == [
        "mine", "used", "used/metrics.jsonl",
    ]  # fmt: skip


def test_who_waited_is_alone_as_well(tmp_path: Path) -> None:
    """The lock that it waited for was on a file that its owner removed: a third one must meet it all the same."""
    asked, entered, done = Event(), Event(), Event()

    def second() -> None:
        with in_turn(tmp_path, asked.set):
            entered.set()
            assert done.wait(20)

    def refused() -> None:
        raise UsageError("somebody is there")

    with ThreadPoolExecutor() as threads:
        with in_turn(tmp_path, refused):
            waiter = threads.submit(second)
            assert asked.wait(20)
        assert entered.wait(20)
        try:
            with pytest.raises(UsageError, match="somebody is there"), in_turn(tmp_path, refused):
                pass
        finally:
            done.set()
        waiter.result()


@pytest.mark.parametrize("error", ["ENOLCK", "ENOSYS", "ENOTSUP"])
def test_a_file_system_without_locks_is_taken_for_one_that_nobody_else_uses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: str
) -> None:
    import errno

    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(getattr(errno, error), "no locks here")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with alone(tmp_path / "run"), alone(tmp_path / "run"):
        pass
    refused = pytest.raises(SgdecError, match=r"run: cannot be locked while text is prepared .*\(no locks here\)")
    with refused, in_turn(tmp_path / "run", lambda: None):
        pass


def test_a_folder_that_cannot_be_made_or_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "run" / LOCK).mkdir(parents=True)
    for run in (tmp_path / "file" / "run", tmp_path / "run", Path("/proc/sgdec")):
        refused = pytest.raises(SgdecError, match=rf"{run}: cannot be written \(.+\)\. Give another --output\.")
        with refused, alone(run):
            pass
