"""The promise of a worker: it says how far it is, also if lines end in another order than that of the input."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from sgdec.corpus.checking import usable_result
from sgdec.corpus.engine import Job, Task
from sgdec.corpus.manifest import existing_manifest, write_manifest
from sgdec.corpus.results import name_of
from sgdec.corpus.stores import FolderStore
from sgdec.corpus.work import Worker
from sgdec.errors import SgdecError
from sgdec.library import LoadedRun
from sgdec.search.outcome import Outcome
from tests.helpers.engine_runs import corpus


def with_lists(folder: Path, monkeypatch: pytest.MonkeyPatch, **job: object) -> tuple[Worker, Job]:
    """A worker whose lines read ``lists/N.txt``, of which the second is missing."""
    monkeypatch.chdir(folder)
    Path("lists").mkdir()
    for number in (1, 3):
        Path(f"lists/{number}.txt").write_text("4\n")
    options = {"trie": {"path": "lists/{id}.txt"}}
    made = corpus(folder, ["3", "3", "3"], 3, predictors="trie", options=options, plugin_files=(), **job)
    return Worker(replace(made, settings={"vocab_size": 9}), "1.1"), made


def test_a_result_lists_what_its_lines_have_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worker, job = with_lists(tmp_path, monkeypatch)
    assert worker.work(Task(0), lambda done: None) is not None
    store = FolderStore(job.store)
    result, _ = usable_result(store, existing_manifest(store), Task(0)) or (None, None)
    assert result is not None
    found = {version.path: version.sha256 for version in result.versions}
    digest = hashlib.sha256(b"4\n").hexdigest()
    assert found == {"lists/1.txt": digest, "lists/2.txt": None, "lists/3.txt": digest}
    assert [failure.id for failure in result.failed] == [2]


def test_a_file_that_changes_while_a_chunk_is_decoded_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker, job = with_lists(tmp_path, monkeypatch)
    with pytest.raises(SgdecError, match=r"lists/3\.txt changed while chunk 0 was decoded\. Start again when"):
        worker.work(Task(0), lambda done: Path("lists/3.txt").write_text("4 4\n") and None)
    assert FolderStore(job.store).names("results") == []


def test_lines_that_fail_again_are_not_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worker, job = with_lists(tmp_path, monkeypatch)
    again = Task(0, 1, 1, again=True)
    receipt = worker.work(again, lambda done: None)
    assert receipt is not None and receipt.failed == 1 and FolderStore(job.store).read(name_of(again)) is None
    Path("lists/2.txt").write_text("4\n")
    receipt = worker.work(again, lambda done: None)
    assert receipt is not None and receipt.failed == 0 and FolderStore(job.store).read(name_of(again))


def test_a_manifest_that_was_replaced_after_the_start_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    job = corpus(tmp_path, ["3"], 1)
    worker = Worker(job, "1.1")
    store = FolderStore(job.store)
    manifest = existing_manifest(store)
    store.remove("manifest.json")
    write_manifest(store, replace(manifest, signature={"decoder": "beam"}))
    with pytest.raises(SgdecError, match=r"its manifest was removed or replaced after this start\."):
        worker.work(Task(0), lambda done: None)
    assert store.names("results") == []


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


@pytest.mark.parametrize("size", [1, 3])
def test_a_byte_order_mark_is_no_part_of_a_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Only at its beginning: that of a later chunk is a character, as for one process."""
    monkeypatch.chdir(tmp_path)
    job = corpus(tmp_path, ["\ufeff3", "\ufeff3", "3"], size)
    worker = Worker(job, "1.1")
    store = FolderStore(job.store)
    failed = []
    for chunk in range(3 // size):
        worker.work(Task(chunk), lambda done: None)
        result, _ = usable_result(store, existing_manifest(store), Task(chunk)) or (None, None)
        assert result is not None
        failed += [failure.id for failure in result.failed]
    assert failed == [2]
