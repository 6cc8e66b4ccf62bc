"""The status of a corpus is what its folder holds, and it says of starters only what counters can show."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgdec.corpus import status as module
from sgdec.corpus.checking import lines_of
from sgdec.corpus.engine import Receipt, Task
from sgdec.corpus.leases import Leases
from sgdec.corpus.manifest import existing_manifest
from sgdec.corpus.results import ChunkResult, name_of, publish_result
from sgdec.corpus.starter import CorpusProgress, about
from sgdec.corpus.status import Status, look
from sgdec.corpus.status_page import page
from sgdec.corpus.status_tables import findings, tables
from sgdec.corpus.stores import FolderStore, Store
from sgdec.errors import SgdecError, UsageError
from sgdec.io.limits import DOCUMENT, Limit
from tests.helpers.corpora import write_corpus
from tests.helpers.web_pages import Page


def seen(store: Store, **given: Any) -> Status:
    return look(store, existing_manifest(store), **given)


def pulse(leases: Leases, lines: int, seconds: float, **more: Any) -> None:
    """As `sgdec.corpus.starting` writes it."""
    progress = CorpusProgress(lines=lines, pending={"1.1": more.pop("underway", 0)}, by_worker={"1": lines})
    leases.pulse({**about(progress), "seconds": seconds, "every": 10.0, **more})


def publish(store: Store, task: Task) -> Receipt | None:
    """As a worker does."""
    manifest = existing_manifest(store)
    ids = lines_of(manifest, task)
    return publish_result(store, task, ChunkResult(len(ids), b"x\n" * len(ids), run=manifest.run, id=ids.start))


def test_lines_and_chunks_are_those_with_a_result(tmp_path: Path) -> None:
    found = seen(write_corpus(tmp_path, [3, 3, 3, 1], done=[0, 1, 3]))
    assert (found.lines, found.chunks, found.lines_done, found.chunks_done) == (10, 4, 7, 3)
    assert found.failed == 1 and found.leased == {} and found.lost == [] and found.seconds_left is None
    assert next(findings(found)) == "7 of 10 lines are done (70.0 %), 3 of 4 chunks."


def test_a_chunk_is_leased_until_it_has_a_result_and_unrecorded_until_it_has_a_record(tmp_path: Path) -> None:
    store = write_corpus(tmp_path, [2, 2, 1], done=[0])
    leases = Leases(store)
    pulse(leases, 2, 1.0)
    assert [leases.claim(chunk) for chunk in (1, 2)] == ["mine", "mine"]
    found = seen(store)
    assert found.leased == {1: leases.name, 2: leases.name} and found.starters[0].leased == 2
    receipt = publish(store, Task(1))
    assert receipt is not None
    found = seen(store)
    assert found.leased == {2: leases.name} and found.records is not None and found.records.unrecorded == [1]
    leases.settle(1, asdict(receipt))
    assert seen(store).records.unrecorded == []  # type: ignore[union-attr]


def test_split_chunks_have_the_lines_of_the_parts_that_are_done(tmp_path: Path) -> None:
    store = write_corpus(tmp_path, [8, 8], done=[])
    publish(store, Task(1, 0, 4))
    publish(store, Task(1, 6, 1))
    found = seen(store)
    assert found.split == {1: 5} and found.lines_done == 0
    publish(store, Task(1))
    assert seen(store).split == {}


def test_a_result_that_somebody_removed_is_named(tmp_path: Path) -> None:
    store = write_corpus(tmp_path)
    store.remove(name_of(Task(1)))
    found = seen(store)
    assert found.lost == [1] and found.chunks_done == 2 and found.leased == {}
    assert any("missing although they were published: chunk 1." in line for line in findings(found))


def test_one_look_does_not_say_who_lives(tmp_path: Path) -> None:
    store = write_corpus(tmp_path, [2, 2], done=[0])
    pulse(Leases(store), 2, 1.0)
    found = seen(store)
    assert found.starters[0].state == "unknown" and found.starters[0].pulse == 1
    assert "if every starter that has not ended still works" in list(findings(found))[1]
    assert "--watch 30" in next(tables(found)).notes[0]


def test_a_starter_that_has_just_begun_is_not_taken_for_idle(tmp_path: Path) -> None:
    store = write_corpus(tmp_path, [2, 2], done=[0])
    leases = Leases(store)
    pulse(leases, 0, 0.0)
    assert list(findings(seen(store)))[1].startswith("The speed is not known yet")
    leases.end({})
    assert list(findings(seen(store)))[1].startswith("Nobody works on it now")


@pytest.mark.parametrize(("seconds", "unchanged"), [(30.0, "silent"), (15.0, "unknown")])
def test_two_looks_tell_the_living_from_the_silent_if_there_is_time_for_two_pulses(
    tmp_path: Path, seconds: float, unchanged: str
) -> None:
    store = write_corpus(tmp_path, [2] * 50, done=[0])
    living, dead, ended, new = (Leases(store) for _ in range(4))
    for each in (living, dead, ended):
        pulse(each, 10, 100.0)
    ended.end({"lines": 10})

    def meanwhile(waited: float) -> None:
        assert waited == seconds
        pulse(living, 14, 110.0, underway=1)
        pulse(new, 1, 2.0)

    found = {each.name: each for each in seen(store, seconds=seconds, wait=meanwhile).starters}
    states = {found[each.name].state for each in (living, new)}
    assert states == {"lives"} and found[dead.name].state == unchanged and found[ended.name].state == "ended"
    assert found[living.name].rate == pytest.approx(5 / 10), "between the looks, by its own clock"
    assert found[new.name].rate == pytest.approx(1 / 2), "since its start"
    assert found[ended.name].rate is None
    assert found[dead.name].rate == (None if unchanged == "silent" else pytest.approx(10 / 100))


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(1, 50)), min_size=1, max_size=4))
def test_the_remaining_time_is_that_of_the_lines_that_nobody_has_decoded(rates: list[tuple[int, int]]) -> None:
    starters = [
        module.StarterStatus("s", 1, 1.0, "lives", lines, 3, 0, 0, lines / seconds, 0, {}) for lines, seconds in rates
    ]
    found = Status("d", 1000, 10, 400, 4, {}, {}, [], starters, None)
    rate = sum(lines / seconds for lines, seconds in rates)
    assert found.seconds_left == (pytest.approx((600 - 3 * len(rates)) / rate) if rate else None)


def test_records_of_many_chunks_are_read_only_if_details_are_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = write_corpus(tmp_path)
    pulse(Leases(store), 5, 1.0, failed=7)
    monkeypatch.setattr(module, "FEW", 2)
    monkeypatch.setattr(module, "SLOWEST", 2)
    read: list[str] = []

    class Counting(FolderStore):
        def read(self, name: str, limit: Limit = DOCUMENT) -> bytes | None:
            read.append(name)
            return super().read(name, limit)

    quick = seen(Counting(str(tmp_path)))
    assert quick.records is None and quick.failed == 7 and not any(name.startswith("leases") for name in read)
    assert "by the pulses" in " ".join(findings(quick))
    full = seen(store, details=True)
    assert full.records is not None and full.failed == 1
    assert [chunk for chunk, _ in full.records.slowest] == [2, 0], "8 seconds a line, then 5"


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"counter": 1}', b"\xff"])
def test_a_pulse_that_cannot_be_read_is_left_out(tmp_path: Path, content: bytes) -> None:
    store = write_corpus(tmp_path)
    store.write("starters/x.json", content)
    assert seen(store).starters == []


def test_a_pulse_with_odd_values_counts_nothing(tmp_path: Path) -> None:
    store = write_corpus(tmp_path)
    store.write("starters/x.json", b'{"counter": 3, "starter": "x", "lines": "many", "workers": [], "every": null}')
    (starter,) = seen(store).starters
    assert starter.lines == 0 and starter.workers == {} and starter.rate is None


@pytest.mark.parametrize("odd", ["NaN", "Infinity", "-1", "1e308", "1" + "0" * 400, "1e-300", "true"])
def test_numbers_that_no_starter_writes_end_nothing(tmp_path: Path, odd: str) -> None:
    store = write_corpus(tmp_path, [2, 2, 1], done=[0])
    names = ("lines", "underway", "failed", "deaths", "every")
    numbers = "".join(f', "{name}": {odd}' for name in names)
    for name, seconds in (("x", odd), ("y", "1e-300"), ("z", "1e14")):
        pulse = f'{{"counter": 3, "starter": "{name}", "workers": {{"1": {odd}}}, "seconds": {seconds}{numbers}}}'
        store.write(f"starters/{name}.json", pulse.encode())
    store.write("leases/000000/000000000", f'{{"seconds": {odd}, "failed": {odd}}}'.encode())
    store.write("parts/000000001/notes.txt", b"")
    found = seen(store, details=True)
    assert list(findings(found)) and list(tables(found)) and page(found)


def test_a_folder_without_a_corpus_and_a_damaged_manifest_are_errors(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none: it has no manifest\.json\. Expected a folder that `sgdec corpus`"):
        seen(FolderStore(str(tmp_path / "none")))
    store = write_corpus(tmp_path / "d")
    store.write("manifest.json", b"{")
    with pytest.raises(SgdecError, match=r"damaged, or .*Restore both, or start again in another folder\."):
        seen(store)


def test_all_of_it_is_json_and_on_the_page(tmp_path: Path) -> None:
    store = write_corpus(tmp_path, [2, 2, 1], done=[0, 1])
    leases = Leases(store)
    hostile = "<script>alert(1)</script>"
    pulse(leases, 4, 2.0, workers={hostile: 4})
    leases.claim(2)
    found = seen(store, details=True)
    told = json.loads(json.dumps(found.to_dict()))
    assert told["leased"] == {"2": leases.name} and told["failed"] == 1
    assert told["lines_per_second"] == 2.0 and told["seconds_left"] == 0.5
    parsed = Page(page(found))
    assert f"{leases.name} {hostile}" in parsed.texts["th"] and parsed.texts["li"] == list(findings(found))
    assert [len(table.rows) for table in tables(found)] == [1, 1, 2]


@pytest.mark.parametrize("header", [b"{'descr': '<i8', 'fortran_order': False, 's\0", b"{'descr': '<i8' 3}", b"("])
def test_a_damaged_table_of_chunks_is_an_error(tmp_path: Path, header: bytes) -> None:
    store = write_corpus(tmp_path)
    table = store.read("chunks.npy")
    assert table is not None
    store.write("chunks.npy", table[:10] + header.ljust(118) + table[128:])
    with pytest.raises(SgdecError, match=r"chunks\.npy is damaged"):
        seen(store)


def test_results_of_chunks_that_the_manifest_lacks_count_nothing(tmp_path: Path) -> None:
    store = write_corpus(tmp_path)
    publish_result(store, Task(7), ChunkResult(1))
    store.write("results/000000/notes.txt", b"")
    assert seen(store).chunks_done == 3
