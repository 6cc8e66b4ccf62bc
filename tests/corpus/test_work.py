"""The promise of a worker: it says how far it is, also if lines end in another order than that of the input."""

from __future__ import annotations

from pathlib import Path

import pytest

from sgdec.corpus.engine import Task
from sgdec.corpus.work import Worker
from sgdec.library import LoadedRun
from sgdec.search.outcome import Outcome
from tests.helpers.engine_runs import corpus


def test_lines_count_when_they_end_and_not_when_they_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise --line-seconds would kill a worker whose first line is the longest of hundreds, and begun last."""
    monkeypatch.chdir(tmp_path)  # as the worker does
    lines = [" ".join("3" * length) for length in (9, 1, 2, 3, 4, 5)]
    worker = Worker(corpus(tmp_path, lines, 6, settings={"batch_size": 2, "window": 6}), "1.1")
    seen: list[tuple[int, int]] = []
    written: list[Outcome] = []
    monkeypatch.setattr(LoadedRun, "respelled", lambda run, outcome: written.append(outcome) or outcome)
    receipt = worker.work(Task(0), lambda done: seen.append((done, len(written))))
    assert receipt is not None and receipt.lines == len(written) == 6
    assert [done for done, _ in seen] == [1, 2, 3, 4, 5, 6]
    assert {count for _, count in seen} == {0}
