"""Starting processes again: at once after a death at work, later and later after deaths while loading."""

from __future__ import annotations

import errno
import io
import json
import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sgdec.corpus.engine import Died, Event, Job, Limits, Task
from sgdec.engines import processes as module
from sgdec.engines.processes import Processes

pytestmark = pytest.mark.background

JOB = Job("d", ".", "", "p", "greedy", {}, {"threads": 1})


class Began(io.StringIO):
    """The standard input of a process, which shows what it was told; and the process, which says nothing and ends."""

    returncode = 1
    pid = 2**31 - 1  # of no process
    said: list[str]

    def __init__(self, command: list[str], **how: object) -> None:
        super().__init__()
        self.stdin, self.stdout = self, io.StringIO()

    def close(self) -> None:
        self.said = self.getvalue().splitlines()

    def wait(self, timeout: float) -> int:
        return self.returncode


def deaths(workers: Processes, number: int) -> list[Died]:
    found: list[Event] = []
    limit = time.monotonic() + 20
    while len(found) < number:
        assert time.monotonic() < limit
        found += workers.events(0.01)
    return [event for event in found if isinstance(event, Died)]


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "POLL", 0.01)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The failures before each start, whose pauses are short."""
    asked: list[int] = []
    monkeypatch.setattr(module, "pause_after", lambda failures: asked.append(failures) or 0.02 * failures)
    yield asked


def test_deaths_while_loading_make_the_pause_longer(monkeypatch: pytest.MonkeyPatch, pauses: list[int]) -> None:
    monkeypatch.setattr(subprocess, "Popen", Began)
    workers = Processes(JOB, [0], Limits(), 1)
    died = deaths(workers, 4)
    assert [event.worker for event in died] == ["1.1", "1.2", "1.3", "1.4"]
    assert {(event.task, event.reason) for event in died} == {(None, "ended with status 1")}
    assert pauses == [0, 1, 2, 3, 4]
    workers._all[0].loaded = True
    workers._all[0].successor().end()
    assert pauses[-1] == 0
    workers.close()


def test_a_process_that_waits_to_begin_gets_its_tasks_then(monkeypatch: pytest.MonkeyPatch) -> None:
    began: list[Began] = []

    def begin(command: list[str], **how: object) -> Began:
        began.append(Began(command, **how))
        return began[-1]

    monkeypatch.setattr(module, "pause_after", lambda failures: 0.2 * failures)
    monkeypatch.setattr(subprocess, "Popen", begin)
    workers = Processes(JOB, [0], Limits(), 1)
    deaths(workers, 1)
    assert len(began) == 1
    workers.submit(Task(7))
    workers.submit(Task(8))
    (died,) = deaths(workers, 1)
    assert died.waiting == (Task(7), Task(8))
    assert [json.loads(line) for line in began[1].said[1:]] == [list(Task(7)), list(Task(8))]
    workers.close()


@pytest.mark.parametrize(("given", "expected"), [(None, "1"), ("", ""), ("7", "7"), ("2,5", "5"), ("-1", "-1")])
def test_workers_share_the_visible_gpus_and_none_is_none(
    monkeypatch: pytest.MonkeyPatch, given: str | None, expected: str
) -> None:
    monkeypatch.setattr(module, "_gpus", lambda: 2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given or "")
    if given is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    job = replace(JOB, settings={**JOB.settings, "device": "cuda"})
    assert module._environment(job, 3)["CUDA_VISIBLE_DEVICES"] == expected


@pytest.mark.parametrize("failing", ["subprocess.Popen", "tempfile.TemporaryFile"])
def test_a_machine_without_memory_or_disk_is_the_death_of_a_worker(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, pauses: list[int], failing: str
) -> None:
    def full(*of: object, **how: object) -> None:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    monkeypatch.setattr(failing, full)
    workers = Processes(JOB, [0, 1], Limits(), 1)
    died = deaths(workers, 3)
    assert {event.reason for event in died} == {"cannot be started: Cannot allocate memory"}
    workers.close()
    assert workers.events(0.01) == []
