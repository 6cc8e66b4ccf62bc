"""The promise of blame: a line pays for its own faults, and not for kills from outside that took others too."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sgdec.corpus.deaths import NEAR, Deaths
from sgdec.corpus.engine import Died, Event, Task
from sgdec.corpus.leases import Leases
from sgdec.corpus.merging import merge
from sgdec.corpus.results import Failure
from sgdec.corpus.starter import Starter
from sgdec.corpus.undecided import undecided
from tests.helpers.fake_workers import PATIENCE, FakeEngine, WatchedStore, World, manifest_of

pytestmark = pytest.mark.background

LINE = Task(3, 4, 1)


def verdict(*deaths: tuple[float, Task | None, bool], at: float) -> str:
    """About ``LINE``, after deaths: when, with which task, from outside or not."""
    now = 0.0
    seen = Deaths(lambda: now)
    for now, task, outside in deaths:  # noqa: B007
        seen.add(task, outside=outside)
    now = at
    return seen.verdict(LINE)


def test_the_second_fault_of_its_own_decides() -> None:
    assert verdict((0, LINE, False), at=0) == "again"
    assert verdict((0, LINE, False), (1, None, True), (1, LINE, False), at=1) == "guilty"


def test_the_third_kill_from_outside_decides_when_nothing_else_has_happened_for_a_while() -> None:
    kills = [(0.0, LINE, True), (1.0, LINE, True), (2.0, LINE, True)]
    assert verdict(*kills[:2], at=99) == "again"
    assert verdict(*kills, at=2 + NEAR) == "later"
    assert verdict(*kills, at=2.1 + NEAR) == "guilty"


@pytest.mark.parametrize("other", [None, Task(3, 5, 1), Task(4), Task(3, 0, 4)])
@pytest.mark.parametrize("when", [20 - NEAR, 20 + NEAR, 100 + NEAR])
def test_a_worker_that_is_lost_at_about_that_time_leaves_it_undecided(other: Task | None, when: float) -> None:
    deaths = [(20.0, LINE, True), (60.0, LINE, True), (100.0, LINE, True), (when, other, False)]
    assert verdict(*sorted(deaths, key=lambda each: each[0]), at=100.1 + NEAR) == "undecided"


def test_deaths_of_tasks_that_had_the_line_are_not_those_of_others() -> None:
    before = [(0.0, Task(3), True), (1.0, Task(3), True), (2.0, Task(3, 4, 4), True)]
    assert verdict(*before, *((3.0 + n, LINE, True) for n in range(3)), at=20) == "guilty"


def finish(starter: Starter, most: int = 300) -> None:
    for _ in range(most):
        if starter.finished:
            return
        starter.step(1.0)
    raise AssertionError("it does not end")


@pytest.mark.parametrize("lines", [1, 8])
def test_a_line_that_takes_all_memory_is_given_up_after_three_kills(tmp_path: Path, lines: int) -> None:
    poison = frozenset({lines})
    world = World(WatchedStore(tmp_path), manifest_of([lines]), np.random.default_rng(1), poison, "SIGKILL", 0.0)
    finish(world.starter("a", workers=1))
    failed: list[Failure] = []
    with open(tmp_path / "out", "wb") as out:
        merge(world.store, world.manifest, out, failed.append)
    assert [failure.id for failure in failed] == [lines]
    assert "its worker killed by SIGKILL, 3 times" in failed[0].reason


class Massacre(FakeEngine):
    """Each death takes another worker that had nothing to do. Tasks are done in the order of the starter."""

    def wanted(self) -> int:
        return 1 - len(self.tasks)

    def events(self, seconds: float) -> list[Event]:
        found = super().events(seconds)
        return found + [Died("9.9", None, "killed by SIGKILL", outside=True) for e in found if isinstance(e, Died)]


def test_an_undecided_line_ends_the_start_and_waits_for_the_next_one(tmp_path: Path) -> None:
    store = WatchedStore(tmp_path)
    world = World(store, manifest_of([4]), np.random.default_rng(1), frozenset({2}), "SIGKILL", 0.0)
    leases = Leases(store, patience=PATIENCE, clock=lambda: world.now)
    starter = Starter(store, world.manifest, Massacre(world, "a", 1), leases, clock=lambda: world.now)
    finish(starter)
    starter.give_back()
    assert starter.progress.chunks == 0 and starter.progress.deaths == 2 * (2 + 1 + 3)
    assert undecided(store, set()) == [(0, 1)] and leases.owner(0) is None
    assert sorted(store.names("parts/000000000")) == ["0-1.zip", "2-2.zip"], "the others are done"
    world.poison = frozenset()
    again = world.starter("b")
    finish(again)
    assert again.progress.lines == 1 and undecided(store, {0}) == []
