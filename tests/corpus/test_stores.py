"""The promise of stores: of all that create a name one succeeds, and nobody sees half a file."""

from __future__ import annotations

import errno
import os
import threading
import uuid
from pathlib import Path

import pytest

from sgdec.corpus import stores
from sgdec.corpus.stores import FolderStore, Store, open_store
from sgdec.errors import SgdecError, UsageError
from sgdec.io.limits import FILE

KINDS = ["folder", "memory", "file", "no links"]


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    if request.param == "memory":
        pytest.importorskip("fsspec")
        return open_store(f"memory://{uuid.uuid4().hex}/corpus")
    if request.param == "no links":  # as on some network file systems

        def refuse(*of: object) -> None:
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))

        monkeypatch.setattr(os, "link", refuse)
    return open_store(f"file://{tmp_path}" if request.param == "file" else str(tmp_path / "corpus"))


def test_files_are_written_replaced_listed_and_removed(store: Store) -> None:
    assert store.read("a/b") is None
    assert store.names("a") == []
    store.write("a/b", b"one")
    store.write("a/b", b"two")
    store.write("a/c", b"")
    assert (store.read("a/b"), store.read("a/c")) == (b"two", b"")
    assert store.names("a") == ["b", "c"]
    assert store.exists("a/b") and not store.exists("a/d")
    store.remove("a/b")
    store.remove("a/b")
    assert store.names("a") == ["c"]


def test_the_first_one_that_creates_a_name_wins(store: Store) -> None:
    assert store.create("a/b", b"first")
    assert not store.create("a/b", b"second")
    assert store.read("a/b") == b"first"
    assert store.names("a") == ["b"]  # nothing is left beside it


@pytest.mark.slow
def test_one_of_many_threads_creates_a_name(store: Store) -> None:
    for round in range(20):
        wins: list[int] = []
        gate = threading.Barrier(8)

        def race(number: int, name: str, gate: threading.Barrier, wins: list[int]) -> None:
            gate.wait()
            if store.create(name, str(number).encode() * 1000):
                wins.append(number)

        threads = [threading.Thread(target=race, args=(n, f"r/{round}", gate, wins)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        (winner,) = wins
        assert store.read(f"r/{round}") == str(winner).encode() * 1000


def test_a_full_disk_is_one_line_and_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*of: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    store = FolderStore(str(tmp_path))
    monkeypatch.setattr(os, "fsync", full)
    for put in (store.create, store.write):
        with pytest.raises(SgdecError, match=r"results/1: No space left on device\.$"):
            put("results/1", b"x")
    assert os.listdir(tmp_path / "results") == []


def test_a_file_system_without_any_atomic_creation_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*of: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refuse)
    monkeypatch.setattr(stores.ctypes, "CDLL", lambda *of, **how: object())
    with pytest.raises(SgdecError, match="neither hard links nor a rename that replaces nothing"):
        FolderStore(str(tmp_path)).create("a", b"")


@pytest.mark.parametrize("kind", ["link to a device", "pipe", "folder"])
def test_what_is_no_regular_file_is_not_read(tmp_path: Path, kind: str) -> None:
    store = FolderStore(str(tmp_path))
    path = tmp_path / "a"
    {"link to a device": lambda: path.symlink_to("/dev/zero"), "pipe": lambda: os.mkfifo(path), "folder": path.mkdir}[
        kind
    ]()
    with pytest.raises(SgdecError, match=r"/a: not a regular file\. Restore the one .*; or remove it"):
        store.read("a")


def test_a_file_that_is_too_large_is_not_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.write("a", b"x" * 101)
    monkeypatch.setenv("SGDEC_MAX_DOCUMENT_BYTES", "100")
    with pytest.raises(SgdecError, match=r"/a: too large, more than 100 bytes"):
        store.read("a")
    assert store.read("a", FILE) == b"x" * 101


def test_a_url_that_fsspec_does_not_know_is_refused() -> None:
    pytest.importorskip("fsspec")
    with pytest.raises(UsageError, match="nowhere://x: "):
        open_store("nowhere://x")
