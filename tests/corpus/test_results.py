"""The promise of results: what was packed is unpacked, whatever names and reasons hold, and damage is one line."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgdec.corpus.engine import Task
from sgdec.corpus.results import (
    PARTS,
    ROWS,
    ChunkResult,
    Failure,
    chunks_with,
    name_of,
    read_result,
    results_of_some,
)
from sgdec.corpus.stores import FolderStore
from sgdec.errors import SgdecError

TEXTS = st.text(st.characters() | st.sampled_from("\u2028\u2029\x85\x0b\n\r\udcff"))


@given(TEXTS, TEXTS)
def test_failures_are_read_as_they_were_written(path: str, reason: str) -> None:
    failed = (Failure(1, path, 1, reason), Failure(2, path, 2, reason))
    result = ChunkResult(2, b"a\nb\n", {}, failed)
    assert ChunkResult.unpacked(result.packed(), "it", 2) == result


def test_an_encrypted_result_is_damaged(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr(ROWS, b"a\n")
    data = bytearray(buffer.getvalue())
    for signature, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(signature) + flags] |= 1
    store = FolderStore(str(tmp_path))
    store.write(name_of(Task(0)), bytes(data))
    with pytest.raises(SgdecError, match=r"000\.zip: damaged"):
        read_result(store, Task(0), 1)


def test_files_with_other_names_are_not_parts(tmp_path: Path) -> None:
    store = FolderStore(str(tmp_path))
    for name in ("5-5.zip", "0-5.zip", "foo", "-1-2.zip", "5-.zip", "0-5.zip~", "9" * 60 + "-1.zip"):
        store.write(f"parts/000000003/{name}", b"")
    for folder in ("foo", "3", "٣"):
        store.write(f"parts/{folder}/0-5.zip", b"")
    assert chunks_with(store, PARTS) == [3]
    assert results_of_some(store, PARTS, 3) == [Task(3, 0, 5), Task(3, 5, 5)]
