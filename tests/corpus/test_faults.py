"""The promise of a corpus: each line is in the merged result exactly once, whatever dies and whenever."""

from __future__ import annotations

import io
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from sgdec.corpus.checking import usable_result
from sgdec.corpus.engine import Died, Task
from sgdec.corpus.leases import Leases, chunks_in
from sgdec.corpus.merging import merge
from sgdec.corpus.results import Failure, name_of
from sgdec.corpus.starter import Starter
from sgdec.corpus.undecided import undecided
from sgdec.errors import SgdecError
from tests.helpers.breadth import examples
from tests.helpers.fake_workers import FAULTS, StarterKilled, WatchedStore, World, manifest_of

HISTORIES = examples(60)


def until_complete(world: World, most: int) -> None:
    """Run up to ``most`` starters at a time, each until it dies, until one of them says that all is done, and that is
    true. Results of another run are removed where an error names them."""
    born = 0
    running: list[Starter] = []
    for _ in range(20_000):
        if not running or (len(running) < most and world.rng.random() < 0.05):
            born += 1
            running.append(world.starter(f"s{born}"))
        starter = running[int(world.rng.integers(len(running)))]
        try:
            if starter.finished:
                running.remove(starter)
                starter.give_back()
                if not undecided(world.store, set(chunks_in(world.store, "results"))):
                    merge(world.store, world.manifest, io.BytesIO(), lambda failure: None)
                    return
                world.faults["undecided"] += 1
                continue
            starter.step(1.0)
            starter._leases.pulse()
        except StarterKilled:
            running.remove(starter)
        except SgdecError as error:  # the disk was full, and somebody has made room
            if starter in running:
                running.remove(starter)
                starter.give_back()
            if named := re.search(r"(results/\S*\.zip): the result of another run", str(error)):
                world.store.remove(named[1])
    raise AssertionError(f"not complete after {dict(world.faults)}")


def drawn(rng: np.random.Generator, folder: Path, chance: float = 0.25) -> World:
    manifest = manifest_of([int(rng.integers(1, 20)) for _ in range(int(rng.integers(1, 12)))])
    count = min(int(rng.choice([0, 0, 1, 2, 5])), manifest.lines)
    poison = frozenset(rng.choice(manifest.lines, size=count, replace=False).tolist())
    return World(WatchedStore(folder), manifest, rng, frozenset(line + 1 for line in poison), chance=chance)


@pytest.mark.slow
def test_each_line_is_in_the_result_once_after_hundreds_of_random_faults(tmp_path: Path) -> None:
    faults: Counter[str] = Counter()
    unlucky = 0
    for history in range(HISTORIES):
        world = drawn(np.random.default_rng(history), tmp_path / str(history))
        until_complete(world, most=1 + history % 3)
        failed: list[Failure] = []
        rows = io.BytesIO()
        merge(world.store, world.manifest, rows, failed.append)
        lost = {failure.id for failure in failed}
        lines = range(1, world.manifest.lines + 1)
        assert rows.getvalue().decode().splitlines() == ["" if n in lost else str(n) for n in lines], history
        assert len(failed) == len(lost)
        assert {failure.id for failure in failed if "SIGSEGV" in failure.reason} == world.poison, history
        unlucky += sum("SIGKILL" in failure.reason for failure in failed)  # of other causes
        faults += world.faults
    assert sum(faults.values()) >= 200
    assert unlucky < 0.002 * sum(faults.values())
    assert set(faults) >= {*FAULTS, "poison"}


def test_no_line_is_lost_by_kills_of_all_workers_together(tmp_path: Path) -> None:
    """However often: lines stay undecided, and a later start decodes them."""
    faults: Counter[str] = Counter()
    for history in range(examples(30)):
        store = WatchedStore(tmp_path / str(history))
        rng = np.random.default_rng(2000 + history)
        world = World(store, manifest_of([1, 2, 1, 3, 1]), rng, chance=0.6, of=("machine dies",))
        until_complete(world, most=1 + history % 2)
        rows = io.BytesIO()
        assert merge(store, world.manifest, rows, print) == 0
        assert rows.getvalue().decode().split() == [str(line) for line in range(1, 9)]
        faults += world.faults
    assert faults["undecided"] >= 10


@pytest.mark.slow
def test_a_late_writer_changes_nothing(tmp_path: Path) -> None:
    for history in range(examples(30)):
        store = WatchedStore(tmp_path / str(history))
        rng = np.random.default_rng(1000 + history)
        world = World(store, manifest_of([3] * 6), rng, chance=0.5)
        until_complete(world, most=3)
        while world.zombies:
            task, worker = world.zombies.pop()
            assert task.lines is not None or world.decode(task, worker) is None
        assert len(store.first) == 6
        for name, content in store.first.items():
            assert store.read(name) == content


def test_what_is_done_is_not_done_again(tmp_path: Path) -> None:
    world = World(WatchedStore(tmp_path), manifest_of([4] * 10), np.random.default_rng(1), chance=0.0)
    starter = world.starter("a")
    while starter.progress.chunks < 5:
        starter.step(1.0)
    starter.give_back()
    again = world.starter("b")
    while not again.finished:
        again.step(1.0)
    assert starter.progress.lines + again.progress.lines == 40
    assert again.progress.chunks == 10


@pytest.mark.parametrize("poison", [(1,), (1000,), (1, 2, 3), (500, 501, 999), tuple(range(90, 100))])
def test_only_the_deadly_lines_of_a_chunk_are_lost(tmp_path: Path, poison: tuple[int, ...]) -> None:
    rng = np.random.default_rng(2)
    world = World(WatchedStore(tmp_path), manifest_of([1000]), rng, frozenset(poison), chance=0.0)
    starter = world.starter("a")
    while not starter.finished:
        starter.step(1.0)
    found = usable_result(world.store, world.manifest, Task(0))
    assert found is not None
    assert [failure.id for failure in found[0].failed] == list(poison)
    assert found[0].rows.count(b"\n") == 1000
    assert world.store.names("parts/000000000") == []


def test_workers_that_all_die_end_the_run_with_the_reason(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    world = World(WatchedStore(tmp_path), manifest_of([40] * 4), rng, frozenset(range(161)), chance=0.0)
    starter = world.starter("a")
    with pytest.raises(SgdecError, match=r"workers have died one after the other.*SIGSEGV.*sgdec decode"):
        while not starter.finished:
            starter.step(1.0)


def test_a_worker_that_cannot_load_ends_no_run_in_which_others_work(tmp_path: Path) -> None:
    """It has no GPU, or there is no memory left; a chunk takes the others minutes."""
    world = World(WatchedStore(tmp_path), manifest_of([4] * 4), np.random.default_rng(1), chance=0.0)
    starter = world.starter("a")
    starter._hand_out()
    assert starter.flying
    for number in range(200):
        starter.react(Died(f"2.{number}", None, "ended with status 1"))
    while not starter.finished:
        starter.step(1.0)
    assert starter.progress.chunks == 4 and starter.progress.deaths == 200
    with pytest.raises(SgdecError, match="workers have died one after the other"):  # nobody has a task now
        for number in range(200):
            starter.react(Died(f"2.{number}", None, "ended with status 1"))


def test_a_result_whose_starter_died_before_it_noted_this_is_not_decoded_again(tmp_path: Path) -> None:
    world = World(WatchedStore(tmp_path), manifest_of([4]), np.random.default_rng(1), chance=0.0)
    starter = world.starter("late")  # it looks at the folder before the result is there
    world.decode(Task(0), "1.1@dead")
    starter.step(1.0)
    assert starter.finished and starter.progress.lines == 0
    assert Leases(world.store).record(0) is not None


def test_a_result_of_another_run_that_was_first_does_not_count(tmp_path: Path) -> None:
    """It can be that of workers of another start, in a folder that was emptied meanwhile."""
    world = World(WatchedStore(tmp_path), manifest_of([4]), np.random.default_rng(1), chance=0.0)
    starter = world.starter("a")
    starter._hand_out()
    world.plant_other_run(Task(0))
    with pytest.raises(SgdecError, match=r"results/000000/000000000\.zip: the result of another run"):
        while not starter.finished:
            starter.step(1.0)


def test_a_merge_needs_no_right_to_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(WatchedStore(tmp_path), manifest_of([2]), np.random.default_rng(1), chance=0.0)
    world.decode(Task(0), "1.1@dead")  # its record is missing

    def protected(*of: object) -> None:
        raise SgdecError("d: leases/000000/000000000: Read-only file system.")

    monkeypatch.setattr(world.store, "write", protected)
    rows = io.BytesIO()
    assert merge(world.store, world.manifest, rows, print) == 0
    assert rows.getvalue() == b"1\n2\n"


def test_parts_that_vanish_are_decoded_again(tmp_path: Path) -> None:
    world = World(WatchedStore(tmp_path), manifest_of([8]), np.random.default_rng(1), frozenset({8}), chance=0.0)
    starter = world.starter("a")
    removed = 0
    while not starter.finished:
        starter.step(1.0)
        for name in world.store.names("parts/000000000")[:1] if removed < 3 else ():
            world.store.remove(f"parts/000000000/{name}")
            removed += 1
    found = usable_result(world.store, world.manifest, Task(0))
    assert found is not None and removed == 3
    assert found[0].rows == b"1\n2\n3\n4\n5\n6\n7\n\n"


def test_results_and_parts_that_no_worker_wrote_do_not_count(tmp_path: Path) -> None:
    """Those of chunks that do not exist, and parts beyond the end of their chunk or over others."""
    world = World(WatchedStore(tmp_path), manifest_of([4, 4]), np.random.default_rng(1), chance=0.0)
    world.store.create(name_of(Task(9)), b"")
    for name in ("0-0", "2-5", "1-9", "notes"):
        world.store.create(f"parts/000000001/{name}.zip", b"")
    starter = world.starter("a")
    while not starter.finished:
        starter.step(1.0)
    assert starter.progress.chunks == 2 and starter.progress.lines == 8
