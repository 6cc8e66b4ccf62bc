"""The promise of leases: a chunk is taken from a starter only if its pulse stands still, by the watcher's clock."""

from __future__ import annotations

from pathlib import Path

import pytest

from sgdec.corpus.leases import Leases, chunks_in, refuse_company
from sgdec.corpus.stores import FolderStore
from sgdec.errors import SgdecError


class Clock:
    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def pair(folder: Path) -> tuple[Leases, Leases, Clock, Clock]:
    """Two starters whose clocks have nothing to do with each other."""
    store, mine, theirs = FolderStore(str(folder)), Clock(5.0), Clock(1e9)
    return Leases(store, clock=mine), Leases(store, clock=theirs), mine, theirs


def test_a_chunk_has_one_starter_until_it_gives_it_back(tmp_path: Path) -> None:
    one, other, _, _ = pair(tmp_path)
    one.pulse()
    other.pulse()
    assert one.claim(7) == "mine"
    assert one.claim(7) == "mine"
    assert other.claim(7) == "taken"
    other.release(7)  # it is not its own
    assert other.claim(7) == "taken"
    one.release(7)
    assert other.claim(7) == "mine"
    assert one.claim(7) == "taken"


def test_a_done_chunk_stays_done_and_says_with_which_result(tmp_path: Path) -> None:
    one, other, _, clock = pair(tmp_path)
    one.pulse()
    assert one.claim(3) == "mine"
    assert one.record(3) is None
    one.settle(3, {"sha256": "ab", "lines": 5})
    clock.now += 1e6
    assert other.claim(3) == one.claim(3) == "done"
    assert other.record(3) == {"sha256": "ab", "lines": 5}


def test_a_pulse_that_stands_still_for_a_minute_is_death(tmp_path: Path) -> None:
    one, other, _, clock = pair(tmp_path)
    one.pulse()
    other.pulse()
    assert one.claim(0) == "mine"
    assert other.claim(0) == "taken"  # seen for the first time
    clock.now += 59
    assert other.claim(0) == "taken"
    one.pulse()  # alive after all, and the minute begins again
    assert other.claim(0) == "taken"
    clock.now += 59
    assert other.claim(0) == "taken"
    clock.now += 2
    assert other.claim(0) == "mine"
    assert one.claim(0) == "taken"  # it seemed dead, and another has it now


def test_a_starter_without_a_pulse_or_with_a_last_one_is_dead_at_once(tmp_path: Path) -> None:
    one, other, _, _ = pair(tmp_path)
    assert one.claim(0) == "mine"
    assert other.claim(0) == "mine"
    one.pulse()
    assert one.claim(1) == "mine"
    one.end({})
    assert other.claim(1) == "mine"


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"counter": "x", "starter": 1}', b"\xff"])
def test_a_damaged_pulse_or_lease_is_nobody(tmp_path: Path, content: bytes) -> None:
    one, other, _, _ = pair(tmp_path)
    one.pulse()
    one.claim(0)
    FolderStore(str(tmp_path)).write(f"starters/{one.name}.json", content)
    assert other.claim(0) == "mine"
    FolderStore(str(tmp_path)).write("leases/000000/000000001", b"\xff\xfe")
    assert one.claim(1) == "mine"


class Undecided(FolderStore):
    atomic = False


def test_a_store_that_cannot_decide_takes_one_starter(tmp_path: Path) -> None:
    store = Undecided(str(tmp_path))
    one, other = Leases(store, patience=5), Leases(store, patience=5)
    waited: list[float] = []
    refuse_company(other, store, waited.append)
    assert not waited
    one.pulse()
    refuse_company(other, store, waited.append)  # dead: nothing moves
    assert sum(waited) >= 5
    with pytest.raises(SgdecError, match="another starter works there"):
        refuse_company(other, store, lambda seconds: one.pulse())
    refuse_company(other, FolderStore(str(tmp_path)), lambda seconds: one.pulse())


@pytest.mark.parametrize("lease", [b"", b"\0" * 60, b"x" * 5000, b"../../../etc/passwd", b"a\nb"])
def test_a_lease_that_names_no_starter_is_taken(tmp_path: Path, lease: bytes) -> None:
    one, _, _, _ = pair(tmp_path)
    store = FolderStore(str(tmp_path))
    store.write("leases/000000/000000007", lease)
    assert one.owner(7) is None
    assert one.claim(7) == "mine"


def test_copies_beside_results_and_leases_are_not_chunks(tmp_path: Path) -> None:
    store = FolderStore(str(tmp_path))
    for name in ("000000001.zip", "000000002.zip~", "000000003", "4.zip", "٥.zip", "001000006.zip"):
        store.write(f"results/000000/{name}", b"")
    for name in ("000000001", "000000002.bak", "x"):
        store.write(f"leases/000000/{name}", b"")
    assert list(chunks_in(store, "results")) == [1]
    assert list(chunks_in(store, "leases")) == [1]


def test_starters_that_have_ended_are_not_waited_for(tmp_path: Path) -> None:
    one, other, _, _ = pair(tmp_path)
    store = FolderStore(str(tmp_path))
    store.atomic = False
    other.end({})
    refuse_company(one, store, lambda seconds: pytest.fail("waits"))
