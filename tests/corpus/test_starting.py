"""The promise of a start: workers with another run are refused, and it ends if workers die and none becomes ready."""

from __future__ import annotations

from pathlib import Path

import pytest

from sgdec.corpus.engine import Died, Engine, Event, Hello, Job, Limits, Ready, Task
from sgdec.corpus.starting import Plan, start
from sgdec.errors import SgdecError, UsageError


class TwoModels(Engine):
    """Two workers that are ready together and have loaded different models."""

    closed = False

    def start(self, job: Job, workers: int, limits: Limits) -> None:
        self.said: list[Event] = [
            Ready(name, Hello({"predictors": f"nmt(model=run#{name})"}, "here")) for name in ("1.1", "2.1")
        ]

    def wanted(self) -> int:
        return 0

    def submit(self, task: Task) -> None:
        raise AssertionError("no work for workers of different runs")

    def events(self, seconds: float) -> list[Event]:
        said, self.said = self.said, []
        assert said, "the second worker was overlooked"
        return said

    def close(self) -> None:
        self.closed = True


class Dying(TwoModels):
    """Tells one death while loading after the other."""

    def start(self, job: Job, workers: int, limits: Limits) -> None:
        self.told = 0

    def events(self, seconds: float) -> list[Event]:
        self.told += 1
        return [Died(f"1.{self.told}", None, "found no memory")]


def test_workers_with_different_models_are_refused_though_they_are_ready_together(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("a\nb\n")
    job = Job(str(tmp_path / "d"), str(tmp_path), "", "nmt", "beam", {}, {})
    engine = TwoModels()
    plan = Plan([str(tmp_path / "in.txt")], job, [], 1, 2, engine, Limits())
    with pytest.raises(UsageError, match=r"was begun with predictors nmt\(model=run#1\.1\), this is .*#2\.1"):
        start(plan)
    assert engine.closed


@pytest.mark.parametrize(("workers", "deaths"), [(1, 3), (3, 3), (20, 20)])
def test_a_start_ends_when_as_many_have_died_while_loading_as_there_are_workers(
    tmp_path: Path, workers: int, deaths: int
) -> None:
    """So that one machine without memory does not end a run before the workers of others are ready."""
    (tmp_path / "in.txt").write_text("a\n")
    job = Job(str(tmp_path / "d"), str(tmp_path), "", "nmt", "beam", {}, {})
    engine = Dying()
    with pytest.raises(SgdecError, match=f"^{deaths} workers have died while .* found no memory"):
        start(Plan([str(tmp_path / "in.txt")], job, [], 1, workers, engine, Limits()))
    assert engine.told == deaths and engine.closed
