"""The promise of packed results: what was packed is unpacked, and nothing unpacks to much more than it is."""

from __future__ import annotations

import io
import os
import tracemalloc
import zipfile

import pytest

from sgdec.corpus.packing import pack, unpack
from sgdec.io.limits import FREE


@pytest.mark.parametrize("content", [b"", b"a\n", os.urandom(1000), b"\n" * (FREE + 1)], ids=len)
def test_what_is_packed_is_unpacked_however_well_it_packs(content: bytes) -> None:
    members = {"rows": content, "about.json": b"{}"}
    assert unpack(pack(members), 2) == members
    assert pack(members) == pack(members)


def bomb(size: int, declared: int) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("rows", b"\0" * size)
    data = bytearray(buffer.getvalue())
    at = data.index(b"PK\x01\x02") + 24
    data[at : at + 4] = declared.to_bytes(4, "little")
    return bytes(data)


@pytest.mark.slow
@pytest.mark.parametrize("declared", [4 * FREE, 10])
def test_a_bomb_takes_no_memory_whatever_it_declares(declared: int) -> None:
    data = bomb(4 * FREE, declared)
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"unpacks to too much|Bad CRC"):
            unpack(data, 1)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_many_members_are_refused_before_they_are_listed() -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for number in range(2000):
            file.writestr(str(number), b"")
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="too many members"):
            unpack(buffer.getvalue(), 5)
        assert tracemalloc.get_traced_memory()[1] < 4 * len(buffer.getvalue())
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("how", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_another_way_of_packing_is_refused(how: int) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", how) as file:
        file.writestr("rows", b"a\n")
    with pytest.raises(ValueError, match="packed in another way"):
        unpack(buffer.getvalue(), 1)


def test_a_flipped_bit_is_an_error_or_changes_nothing() -> None:
    members = {"rows": b"a b\nc\n", "about.json": b'{"lines": 2}'}
    data = pack(members)
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            found = unpack(bytes(flipped), 2)
        except ValueError:
            continue
        assert found == members or list(found) != list(members), bit
