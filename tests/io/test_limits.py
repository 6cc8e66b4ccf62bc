"""Limits of files: what is too large is one line that names the limit and how to raise it, before memory is taken.

Files are made as large as they have to be with limits that are lowered: raising works by the same variable.
"""

from __future__ import annotations

import gzip
import importlib
import io
import json
import tracemalloc
from pathlib import Path

import pytest

from sgdec.errors import SgdecError, UsageError
from sgdec.io import limits
from sgdec.io.documents import parse_json, parse_toml
from sgdec.io.lattice import read_lattice
from sgdec.io.sources import SourceReader
from sgdec.search.outcome import Unreadable
from sgdec.text.lines import ZSTD, read_lines
from tests.helpers.places import ROOT

MEGABYTE = 1 << 20


def peak(work: object) -> int:
    """The most bytes that were held at once; what is raised is left to another test."""
    tracemalloc.start()
    try:
        work()  # type: ignore[operator]
    except SgdecError:
        pass
    finally:
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return most


def test_a_limit_is_what_its_variable_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGDEC_MAX_LINE_BYTES", "12")
    assert limits.LINE.value == 12
    monkeypatch.delenv("SGDEC_MAX_LINE_BYTES")
    assert limits.LINE.value == limits.LINE.default


@pytest.mark.parametrize("given", ["0", "-3", "many", "", "1e6", "9" * 5000])
def test_a_limit_that_is_no_number_is_a_wrong_call(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv("SGDEC_MAX_LINE_BYTES", given)
    with pytest.raises(UsageError, match="SGDEC_MAX_LINE_BYTES is"):
        _ = limits.LINE.value


def test_every_limit_is_in_the_table_and_in_the_security_page() -> None:
    documented = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    found = [limit for limit in vars(limits).values() if isinstance(limit, limits.Limit)]
    assert len(found) >= 7
    for limit in found:
        assert limits.__doc__ is not None and limit.variable in limits.__doc__ and limit.variable in documented


@pytest.mark.parametrize("ending", ["", ".gz", ".zst"])
def test_a_line_beyond_the_limit_is_named_and_the_limit_can_be_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    text = b"short\n" + b"x" * 1000 + b"\nshort\n"
    pack = {"": bytes, ".gz": gzip.compress, ".zst": importlib.import_module(ZSTD).compress}[ending]
    path = tmp_path / f"text{ending}"
    path.write_bytes(pack(text))
    monkeypatch.setenv("SGDEC_MAX_LINE_BYTES", "999")
    with pytest.raises(SgdecError, match=r": line 2: the line has more than 999 bytes.*SGDEC_MAX_LINE_BYTES"):
        list(read_lines(path))
    monkeypatch.setenv("SGDEC_MAX_LINE_BYTES", "1001")
    assert len(list(read_lines(path))) == 3


def test_a_sentence_beyond_the_limit_costs_itself_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGDEC_MAX_LINE_BYTES", "10")
    file = io.BytesIO(b"3 4\n" + b"3 " * 50 + b"\n5\n" + b"7" * 11)
    found = list(SourceReader(None, "ids").read(limits.bounded_lines(file), "in"))
    assert [source.id for source in found] == [1, 2, 3, 4]
    assert [isinstance(source, Unreadable) for source in found] == [False, True, False, True]


@pytest.mark.parametrize("digits", [10, 11, 4301, 100_000])
def test_an_id_of_many_digits_costs_its_line_alone(digits: int) -> None:
    lines = [b"3 4\n", b"9" * digits + b"\n", b"5\n"]
    found = list(SourceReader(None, "ids").read(lines, "in"))
    assert [isinstance(source, Unreadable) for source in found] == [False, True, False]
    assert isinstance(found[1], Unreadable)
    assert "is not a token id" in str(found[1].error) and len(str(found[1].error)) < 200


@pytest.mark.slow
@pytest.mark.parametrize("ending", [".gz", ".zst"])
def test_a_bomb_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str) -> None:
    monkeypatch.setattr(limits, "FREE_TEXT", 1 << 16)
    pack = {".gz": gzip.compress, ".zst": importlib.import_module(ZSTD).compress}[ending]
    path = tmp_path / f"bomb{ending}"
    path.write_bytes(pack(b"\n" * (2 * MEGABYTE)))
    lines = 0
    with pytest.raises(SgdecError, match=rf"bomb{ending}: unpacks to more than .*SGDEC_MAX_UNPACKED_TIMES"):
        for _ in read_lines(path):
            lines += 1
    assert lines < MEGABYTE
    monkeypatch.setenv("SGDEC_MAX_UNPACKED_TIMES", "1000000")
    assert sum(1 for _ in read_lines(path)) == 2 * MEGABYTE


def test_text_that_packs_very_well_is_read(tmp_path: Path) -> None:
    path = tmp_path / "list.gz"
    lines = [b"%d ||| %b||| -1.25\n" % (n // 100, b"the house is small " * 50) for n in range(20_000)]
    path.write_bytes(gzip.compress(b"".join(lines)))
    unpacked = sum(map(len, lines))
    assert unpacked > max(limits.FREE, path.stat().st_size * limits.UNPACKED.value), "the case tests nothing"
    assert sum(1 for _ in read_lines(path)) == len(lines)


def test_lattices_are_not_unpacked_beyond_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FREE", MEGABYTE)
    path = tmp_path / "bomb.fst.gz"
    path.write_bytes(gzip.compress(bytes(50 * MEGABYTE)))
    with pytest.raises(SgdecError, match="SGDEC_MAX_UNPACKED_TIMES"):
        read_lattice(path)
    assert peak(lambda: read_lattice(path)) < 20 * MEGABYTE


def test_a_device_that_never_ends_is_not_read_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGDEC_MAX_FILE_BYTES", str(4 * MEGABYTE))
    with pytest.raises(SgdecError, match=r"/dev/zero: too large, more than .*SGDEC_MAX_FILE_BYTES"):
        read_lattice("/dev/zero")


@pytest.mark.parametrize("members", [1, 3])
def test_gzip_of_several_members_and_padding_is_unpacked_as_gzip_does(members: int) -> None:
    packed = gzip.compress(b"abc") * members + bytes(13)
    assert limits.gunzipped(packed, "x") == gzip.decompress(packed) == b"abc" * members


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, '{"a":' * 100_000, "[" * 102 + "]" * 102, "9" * 5000, "[1, 2", "\ud800", '"\\ud8"'],
    ids=["lists", "objects", "just too deep", "digits", "cut", "surrogate", "escape"],
)  # fmt: skip
def test_bad_json_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):
        parse_json(text.encode("utf-8", "surrogatepass"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "a = " + "[" * 100_000,
        "a = " + "{a=" * 100_000,
        ".".join(["a"] * 100_000) + " = 1",
        "[" + ".".join(["a"] * 100_000) + "]",
        '"a"."b"' * 100 + "." + '"a".' * 200 + "b = 1",
        "a = " + "9" * 5000,
        "a = " + "[" * 102 + "]" * 102,
        "a",
        "\ud800",
    ],
    ids=["lists", "tables", "key", "header", "quoted keys", "digits", "just too deep", "cut", "surrogate"],
)
def test_bad_toml_is_a_value_error_that_takes_no_memory(text: str) -> None:
    tracemalloc.start()
    with pytest.raises(ValueError):
        parse_toml(text.encode("utf-8", "surrogatepass"))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 20 * MEGABYTE


def test_depth_up_to_the_limit_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGDEC_MAX_NESTING", "5")
    deep = [[[[[]]]]]
    assert parse_json(json.dumps(deep)) == deep
    assert parse_toml(f"a = {json.dumps(deep[0])}".encode()) == {"a": deep[0]}
    with pytest.raises(ValueError, match="SGDEC_MAX_NESTING"):
        parse_json(json.dumps([[deep]]))


def test_a_line_without_an_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """What /dev/zero gives: reading on would never end."""

    class Endless(io.RawIOBase):
        given = 0

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: object) -> int:
            size = memoryview(buffer).nbytes  # type: ignore[arg-type]
            memoryview(buffer).cast("B")[:] = bytes(size)  # type: ignore[arg-type]
            self.given += size
            assert self.given < 10_000_000
            return size

    monkeypatch.setenv("SGDEC_MAX_LINE_BYTES", "100000")
    monkeypatch.setenv("SGDEC_MAX_FILE_BYTES", "300000")
    with io.BufferedReader(Endless()) as file:
        (found,) = limits.bounded_lines(file)
    assert "more than 100000 bytes; nothing was read after 427681 bytes" in str(found)


def test_lines_after_one_that_is_too_long_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGDEC_MAX_LINE_BYTES", "100")
    first, long, last = limits.bounded_lines(io.BytesIO(b"a\n" + b"b" * 1_000_000 + b"\nc"))
    assert (first, last) == (b"a\n", b"c") and "nothing was read" not in str(long)
