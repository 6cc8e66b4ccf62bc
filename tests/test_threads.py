"""`sgdec.threads` promises as many threads as there are free cores, and fewer only where no score changes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from sgdec import threads
from sgdec.threads import Load, Pool, Threads, whole_cores


class Run:
    """A run that agrees, or does not, to other numbers of threads."""

    def __init__(self, agrees: bool = True) -> None:
        self._agrees = agrees

    def agrees(self, numbers: Collection[int]) -> bool:
        return self._agrees


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """The cores that other processes use, second by second, of a machine with eight cores and eight threads.

    Each look at the load is one second later. PyTorch's number is restored."""
    others: list[float] = []
    loads = [Load(0.0, 0.0, (Pool(8.0, 0.0),))]

    def now() -> Load:
        last, used = loads[-1], others.pop(0) if others else 0.0
        own = min(8.0, 8.0 - used)
        pool = Pool(8.0, last.pools[0].busy + used + own)
        loads.append(Load(last.wall + 1.0, last.used + own, (pool,)))
        return loads[-1]

    monkeypatch.setattr(Load, "now", now)
    monkeypatch.setattr(time, "monotonic", lambda: loads[-1].wall + 1.0)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    monkeypatch.setattr(threads, "usable_cores", lambda: 8)
    before = torch.get_num_threads()
    torch.set_num_threads(8)
    yield others
    torch.set_num_threads(before)


def begun(monkeypatch: pytest.MonkeyPatch) -> Threads:
    """The threads of a process that has not imported PyTorch, and whose user has set nothing."""
    number = Threads()
    with monkeypatch.context() as patched:
        for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
            patched.delenv(name, raising=False)
        patched.delitem(sys.modules, "torch")
        number.begin()
    return number


@pytest.mark.parametrize(("others", "expected"), [(0.0, 8), (0.2, 8), (1.0, 7), (5.4, 2), (8.0, 1), (20.0, 1)])
def test_a_run_starts_with_the_free_cores(
    machine: list[float], monkeypatch: pytest.MonkeyPatch, others: float, expected: int
) -> None:
    machine += [0.0, others]
    number = begun(monkeypatch)
    assert number.choose("auto") == expected == torch.get_num_threads()
    assert (number.summary() is None) == (expected == 8)


def test_a_users_number_wins(machine: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    machine += [0.0, 7.0, 7.0, 7.0, 7.0, 7.0]
    number = begun(monkeypatch)
    assert number.choose(3) == 3 == torch.get_num_threads()
    for _ in range(4):
        number.watch()
    assert torch.get_num_threads() == 3
    assert "--threads 1" in str(number.summary())


def test_the_number_of_a_process_with_pytorch_is_its_users(machine: list[float]) -> None:
    """Of a notebook, and of a second run."""
    machine += [7.0] * 8
    number = Threads()
    number.begin()
    assert number.choose("auto") == 8
    for _ in range(4):
        number.watch()
    assert torch.get_num_threads() == 8


@pytest.mark.parametrize("name", ["OMP_NUM_THREADS", "MKL_NUM_THREADS"])
def test_the_number_of_a_variable_is_its_users(
    machine: list[float], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    machine += [7.0] * 4
    monkeypatch.setenv(name, "8")
    with monkeypatch.context() as patched:
        patched.delitem(sys.modules, "torch")
        number = Threads()
        number.begin()
    assert number.choose("auto") == 8


def test_a_deterministic_run_does_not_look_at_the_load(machine: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    machine += [0.0] + [7.0] * 6
    number = begun(monkeypatch)
    assert number.choose("auto", by_load=False) == 8
    for _ in range(4):
        number.watch()
    assert torch.get_num_threads() == 8


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ([0, 0, 0, 0, 0], 8),
        ([0, 5, 0, 5, 0], 8),  # a busy second is chance
        ([0, 5, 5, 0, 0], 3),
        ([0, 5, 5, 7, 7], 1),
    ],
)
def test_threads_that_wait_for_cores_are_given_up(
    machine: list[float], monkeypatch: pytest.MonkeyPatch, others: list[float], expected: int
) -> None:
    machine += [0.0, 0.0]
    number = begun(monkeypatch)
    number.choose("auto")
    number.join(run := Run())
    machine += others
    for _ in others:
        number.watch()
    assert torch.get_num_threads() == expected
    assert ("continued with" in str(number.summary())) == (expected < 8)
    del run


def test_no_run_in_memory_may_have_other_scores(machine: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    machine += [0.0, 0.0]
    number = begun(monkeypatch)
    number.choose("auto")
    number.join(agreeing := Run())
    number.join(other := Run(agrees=False))
    machine += [5.0] * 4
    for _ in range(3):
        number.watch()
    assert torch.get_num_threads() == 8
    assert "--threads 3" in str(number.summary())
    del other
    number.watch()
    assert torch.get_num_threads() == 3
    del agreeing


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell")
@pytest.mark.slow
def test_other_processes_use_cores() -> None:
    """As much as the system gives them, which can be less than a whole one here."""
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        time.sleep(0.1)
        first, seconds = Load.now(), os.times()
        time.sleep(0.4)
        free = Load.now().free_since(first)
    finally:
        busy.kill()
        busy.wait()
    used = os.times().children_user - seconds.children_user
    assert free <= threads.usable_cores() - min(used - 0.15, 0.3)


def test_limits_of_control_groups_are_read(tmp_path: Path) -> None:
    for name, text in {
        "cpu.max": "150000 100000\n", "cpu.stat": "usage_usec 2500000\nuser_usec 1\n",
        "cpu.cfs_quota_us": "50000\n", "cpu.cfs_period_us": "100000\n", "cpuacct.usage": "3000000000\n",
    }.items():  # fmt: skip
        (tmp_path / name).write_text(text)
    assert threads._limited_2(tmp_path) == Pool(1.5, 2.5)
    assert threads._limited(tmp_path) == Pool(0.5, 3.0)
    (tmp_path / "cpu.max").write_text("max 100000\n")
    (tmp_path / "cpu.cfs_quota_us").write_text("-1\n")
    for read in (threads._limited_2, threads._limited):
        with pytest.raises(ValueError):
            read(tmp_path)


def test_the_scarcest_cores_count() -> None:
    """Those of a container that has less than the machine; what this process uses itself is free for it."""
    earlier = Load(10.0, 5.0, (Pool(64, 1000.0), Pool(2, 50.0)))
    later = Load(20.0, 15.0, (Pool(64, 1300.0), Pool(2, 65.0)))
    assert later.free_since(earlier) == pytest.approx(2 - 0.5)
    assert whole_cores(later.free_since(earlier)) == 1


def test_where_the_system_does_not_tell_all_cores_count_as_free(
    machine: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On macOS and Windows."""
    counted = Load.now
    monkeypatch.setattr(Load, "now", lambda: replace(counted(), pools=()))
    machine += [7.0] * 6
    number = begun(monkeypatch)
    assert number.choose("auto") == 8
    number.join(run := Run())
    for _ in range(4):
        number.watch()
    assert torch.get_num_threads() == 8 and number.summary() is None
    del run


def test_a_new_run_knows_nothing_of_the_run_before(machine: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    machine += [0.0, 0.0, 0.0]
    number = begun(monkeypatch)
    number.choose("auto")
    number.join(run := Run(agrees=False))
    machine += [5.0] * 4
    for _ in range(4):
        number.watch()
    assert number.summary() is not None
    assert number.choose("auto") == 8 and number.summary() is None
    machine += [0.0, 5.0]
    number.watch()  # a new period begins
    number.watch()
    assert number.summary() is None, "a busy second is chance, whatever was before this run"
    del run
