"""The promise of a folder that somebody has touched: no wrong result is used, and one line says what to do."""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from sgdec.corpus.checking import (
    Results,
    refuse_results_without_manifest,
    refuse_unusable,
    usable_result,
)
from sgdec.corpus.engine import Task
from sgdec.corpus.leases import Leases
from sgdec.corpus.manifest import existing_manifest
from sgdec.corpus.merging import merge
from sgdec.corpus.results import ChunkResult, Failure, name_of, publish_result
from sgdec.corpus.starter import failed_before
from sgdec.corpus.status import look
from sgdec.corpus.stores import FolderStore
from sgdec.corpus.versions import versions_now
from sgdec.errors import SgdecError, UsageError
from tests.helpers.corpora import write_corpus
from tests.helpers.fake_workers import WatchedStore, World, manifest_of

RESULTS = [f"results/000000/00000000{chunk}.zip" for chunk in range(3)]


def edited(path: Path, **members: bytes) -> None:
    """Other contents of members, or more members; ``_`` in a name is a dot."""
    with zipfile.ZipFile(path) as file:
        content = {name: file.read(name) for name in file.namelist()}
    content |= {name.replace("_", "."): data for name, data in members.items()}
    with zipfile.ZipFile(path, "w") as file:
        for name, data in content.items():
            file.writestr(name, data)


def about(path: Path, **values: object) -> None:
    with zipfile.ZipFile(path) as file:
        content = json.loads(file.read("about.json"))
    edited(path, about_json=json.dumps({**content, **values}).encode())


def swap(one: Path, other: Path) -> None:
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)


def replaced_by(path: Path, target: str) -> None:
    path.unlink()
    path.symlink_to(target)


DAMAGES: list[tuple[Callable[[Path, Path], object], str]] = [
    (lambda a, b: b.write_bytes(b""), "damaged"),
    (lambda a, b: b.write_bytes(b.read_bytes()[:-9]), "damaged"),
    (lambda a, b: swap(a, b), "the result of lines 3 to 4; expected that of lines 1 to 2"),
    (lambda a, b: about(b, run="0" * 64), "the result of another run"),
    (lambda a, b: about(b, lines=10**9), "expected that of lines 3 to 4"),
    (lambda a, b: about(b, id=None), "damaged"),
    (lambda a, b: about(b, failed=7), "damaged"),
    (lambda a, b: about(b, more=1), "damaged"),
    (lambda a, b: edited(b, rows=b"x\n"), "1 rows; expected those of 2 lines"),
    (lambda a, b: edited(b, rows=b"x\nx"), "the last row is cut short"),
    (lambda a, b: edited(b, **{"//x": b""}), "it has a member '//x'"),
    (lambda a, b: edited(b, **{"9_fst": b""}), "damaged"),
    (lambda a, b: edited(b, **{"3_fst": b""}), "1 lattices; expected 0"),
    (lambda a, b: edited(b, failed_jsonl=b'{"id": 3, "input": 1, "line": 1, "reason": ""}\n'), "damaged"),
    (lambda a, b: edited(b, versions_jsonl=b'[3, "a", 1, 2, 3]\n'), "damaged"),
    (lambda a, b: replaced_by(b, "/dev/zero"), "not a regular file"),
    (lambda a, b: (b.unlink(), os.mkfifo(b)), "not a regular file"),
    (lambda a, b: (b.unlink(), b.mkdir()), "not a regular file"),
    (lambda a, b: replaced_by(b, "nowhere"), "no such file"),
]


@pytest.mark.slow
@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("number", range(len(DAMAGES)))
def test_a_start_the_status_and_the_merge_find_what_is_wrong(tmp_path: Path, number: int, recorded: bool) -> None:
    damage, message = DAMAGES[number]
    store = write_corpus(tmp_path, failing=False)
    manifest = existing_manifest(store)
    if not recorded:
        for chunk in range(3):
            store.remove(f"leases/000000/00000000{chunk}")
    damage(*(tmp_path / name for name in RESULTS[:2]))
    results = Results(store, manifest)
    with pytest.raises(SgdecError, match=message) as refused:
        refuse_unusable(store, list(results.examine(results.done())), [])
    assert f"{tmp_path}/{RESULTS[0]}" in str(refused.value) or f"{tmp_path}/{RESULTS[1]}" in str(refused.value)
    assert "emove" in str(refused.value) and "\n" not in str(refused.value)
    records = look(store, manifest).records
    assert records is not None and any(message in wrong for wrong in records.unusable)
    with pytest.raises(SgdecError, match=f"{message}|has no result yet"):
        merge(store, manifest, io.BytesIO(), print)


def test_another_sound_result_than_the_record_names_is_found(tmp_path: Path) -> None:
    store = write_corpus(tmp_path)
    manifest = existing_manifest(store)
    edited(tmp_path / RESULTS[1], rows=b"x\ny\n")
    with pytest.raises(SgdecError, match=r"not the file that its record names \(sha256 .*; leases/000000/0{8}1 has"):
        Results(store, manifest).checked(1)
    store.remove(RESULTS[1])  # as the message says
    assert Results(store, manifest).checked(1) is None


def test_results_without_their_manifest_are_of_no_known_run(tmp_path: Path) -> None:
    store = write_corpus(tmp_path)
    refuse_results_without_manifest(store)
    store.remove("manifest.json")
    for _ in ("results", "leases", "parts"):
        with pytest.raises(UsageError, match=r"no manifest\.json, which says of which run they are\. Restore it, or"):
            refuse_results_without_manifest(store)
        for kind in ("results", "leases"):
            for path in list((tmp_path / kind).rglob("*0*")):
                if path.is_file():
                    path.unlink()
        store.create(name_of(Task(0, 0, 1)), b"")
    store.remove(name_of(Task(0, 0, 1)))
    refuse_results_without_manifest(store)


def with_lists(folder: Path, monkeypatch: pytest.MonkeyPatch) -> FolderStore:
    """A corpus whose lines have read ``lists/N.txt``; line 3 has failed, and line 5 had no file."""
    monkeypatch.chdir(folder)
    Path("lists").mkdir()
    for line in range(1, 5):
        Path(f"lists/{line}.txt").write_text(f"{line}\n")
    store = write_corpus(folder / "d", [2, 2, 1], done=[])
    manifest = existing_manifest(store)
    for number, chunk in enumerate(manifest.chunks):
        ids = range(chunk.id, chunk.id + chunk.lines)
        failed = (Failure(3, "in.txt", 3, "no"),) if 3 in ids else ()
        result = ChunkResult(len(ids), b"x\n" * len(ids), {}, failed, 1.0, "1.1", manifest.run, chunk.id)
        versions = versions_now(["lists/{id}.txt"], ids)
        receipt = publish_result(store, Task(number), ChunkResult(**{**vars(result), "versions": versions}))
        assert receipt is not None
        Leases(store).settle(number, asdict(receipt))
    return store


@pytest.mark.parametrize(
    ("line", "content", "found"),
    [(4, "9\n", True), (4, "99\n", True), (4, None, False), (3, "9\n", False), (5, "5\n", True), (2, "2\n", False)],
)
def test_files_that_lines_have_read_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: int, content: str | None, found: bool
) -> None:
    """Not their times, not those of failed lines; and what is gone is only counted."""
    store = with_lists(tmp_path, monkeypatch)
    path = Path(f"lists/{line}.txt")
    path.unlink(missing_ok=True)
    if content is not None:
        path.write_text(content)
        os.utime(path, (1, 1))
    results = Results(store, existing_manifest(store), str(tmp_path))
    examined = list(results.examine(results.done()))
    wrong = [each.unusable for each in examined if each.unusable]
    assert len(wrong) == found
    assert not found or f"{path} changed since chunk {(line - 1) // 2} was decoded. Restore it; or remove" in wrong[0]
    assert sum(each.gone for each in examined) == (content is None)


def test_failed_lines_that_are_decoded_again_are_added_to_the_result(tmp_path: Path) -> None:
    """By two starts at once, one of which is killed; what was published stays."""
    rng = np.random.default_rng(1)
    world = World(WatchedStore(tmp_path), manifest_of([6, 3]), rng, frozenset({2, 3, 5, 8}), chance=0.0)
    first = world.starter("a")
    while not first.finished:
        first.step(1.0)
    before = dict(world.store.first)  # type: ignore[attr-defined]
    world.poison = frozenset({5})
    for most in (3, 1000):
        results = Results(world.store, world.manifest)
        again = list(failed_before(results, results.done()))
        starters = [world.starter(name, retry=again) for name in "bc"]
        for step in range(most):
            if all(starter.finished for starter in starters):
                break
            starters[step % 2].step(1.0)
    failed: list[Failure] = []
    rows = io.BytesIO()
    assert merge(world.store, world.manifest, rows, failed.append) == 1
    assert rows.getvalue().decode().splitlines() == ["1", "2", "3", "4", "", "6", "7", "8", "9"]
    results = Results(world.store, world.manifest)
    assert [failure.id for failure in failed] == [5] and sum(map(results.failed, results.done())) == 1
    assert all(world.store.read(name) == content for name, content in before.items())
    assert list(failed_before(results, results.done())) == [Task(0, 4, 1, again=True)]


def test_a_damaged_result_of_lines_decoded_again_is_named(tmp_path: Path) -> None:
    store = write_corpus(tmp_path)
    store.create(name_of(Task(1, 0, 1, again=True)), b"")
    with pytest.raises(SgdecError, match=r"again/000000001/0-1\.zip: damaged"):
        Results(store, existing_manifest(store)).checked(1)


def test_parts_of_another_run_are_found(tmp_path: Path) -> None:
    store = write_corpus(tmp_path, [4, 1], done=[1])
    manifest = existing_manifest(store)
    publish_result(store, Task(0, 0, 2), ChunkResult(2, b"x\n" * 2, run="other", id=1))
    (wrong,) = Results(store, manifest).unusable_parts({1})
    assert "parts/000000000/0-2.zip: the result of another run" in wrong
    with pytest.raises(SgdecError, match="another run"):
        usable_result(store, manifest, Task(0, 0, 2))
