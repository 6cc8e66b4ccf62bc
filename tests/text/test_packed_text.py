"""Text is read the same from plain files and those of gzip and zstd; damaged ones are one line naming the file."""

from __future__ import annotations

import gzip
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from sgdec.errors import SgdecError
from sgdec.text.lines import ZSTD, read_lines

TEXT = "ein Hund\n\nzwei\u2028Hunde\r\nkein Ende"
LINES = ["ein Hund", "", "zwei\u2028Hunde", "kein Ende"]
HAS_ZSTD = find_spec(ZSTD.partition(".")[0]) is not None and find_spec(ZSTD) is not None
KINDS = ["gz", pytest.param("zst", marks=pytest.mark.skipif(not HAS_ZSTD, reason=f"{ZSTD} is not installed"))]


def pack(kind: str, content: bytes) -> bytes:
    packed: bytes = gzip.compress(content) if kind == "gz" else import_module(ZSTD).compress(content)
    return packed


@pytest.mark.parametrize("kind", KINDS)
def test_packed_lines_are_those_of_the_plain_file(tmp_path: Path, kind: str) -> None:
    plain, packed = tmp_path / "text", tmp_path / f"text.{kind}"
    plain.write_bytes(TEXT.encode())
    packed.write_bytes(pack(kind, TEXT.encode()))
    assert list(read_lines(packed)) == list(read_lines(plain)) == LINES


@pytest.mark.parametrize("kind", KINDS)
def test_parts_one_after_the_other_are_one_text(tmp_path: Path, kind: str) -> None:
    packed = tmp_path / f"text.{kind}"
    packed.write_bytes(pack(kind, b"a\nb") + pack(kind, b"c\n"))
    assert list(read_lines(packed)) == ["a", "bc"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("damage", ["cut", "plain"])
def test_a_damaged_file_is_one_line(tmp_path: Path, kind: str, damage: str) -> None:
    packed = tmp_path / f"text.{kind}"
    packed.write_bytes(pack(kind, TEXT.encode())[:-7] if damage == "cut" else TEXT.encode())
    name = {"gz": "gzip", "zst": "zstd"}[kind]
    with pytest.raises(
        SgdecError, match=rf"text\.{kind}: the {name} file is damaged or cut short \(.*\)\.$"
    ) as caught:
        list(read_lines(packed))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", KINDS)
def test_a_missing_file_is_one_line(tmp_path: Path, kind: str) -> None:
    with pytest.raises(SgdecError, match=rf"text\.{kind}: cannot be read \(No such file"):
        list(read_lines(tmp_path / f"text.{kind}"))


def test_without_the_package_it_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "text.zst").write_bytes(b"")
    monkeypatch.setitem(sys.modules, ZSTD, None)
    with pytest.raises(SgdecError, match=r'text\.zst: reading zstd takes .* \(pip install "sgdec\[zstd\]"\)'):
        list(read_lines(tmp_path / "text.zst"))
