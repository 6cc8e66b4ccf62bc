"""The promise of lines: a byte order mark at the beginning of a file is skipped and said once, another encoding is
refused, and nothing else of a file changes."""

from __future__ import annotations

import gzip
import logging
from pathlib import Path

import pytest

from sgdec.errors import SgdecError
from sgdec.io.documents import parse_toml
from sgdec.text.lines import raw_lines, read_lines

MARK = "\ufeff"


def test_a_byte_order_mark_is_skipped_and_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "text"
    path.write_bytes(f"{MARK}a\r\n{MARK}b\nc{MARK}".encode())
    with caplog.at_level(logging.INFO):
        assert list(read_lines(path)) == list(read_lines(path)) == ["a", f"{MARK}b", f"c{MARK}"]
        assert list(raw_lines(path)) == [b"a", f"{MARK}b".encode(), f"c{MARK}".encode()]
    assert caplog.messages == [f"Note: {path}: the byte order mark at its beginning is skipped."]


@pytest.mark.parametrize(("content", "lines"), [("", []), (f"{MARK}", []), (f"{MARK}\n", [""]), ("\n", [""])])
def test_a_mark_alone_is_no_line(tmp_path: Path, content: str, lines: list[str]) -> None:
    (tmp_path / "text").write_text(content, encoding="utf-8")
    assert list(read_lines(tmp_path / "text")) == lines


def test_the_mark_of_a_packed_file_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "text.gz").write_bytes(gzip.compress(f"{MARK}1 ||| a\n".encode()))
    assert list(read_lines(tmp_path / "text.gz")) == ["1 ||| a"]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
@pytest.mark.parametrize("order", ["le", "be"])
def test_another_encoding_is_named_with_the_way_out(tmp_path: Path, encoding: str, order: str) -> None:
    (tmp_path / "text").write_bytes(f"{MARK}a\nb\n".encode(f"{encoding}-{order}"))
    name = encoding.upper()
    with pytest.raises(SgdecError) as caught:
        list(read_lines(tmp_path / "text"))
    expected = f"{tmp_path}/text is {name}, expected UTF-8. Convert it: iconv -f {name} -t UTF-8."
    assert str(caught.value) == expected


def test_a_file_of_options_can_begin_with_the_mark() -> None:
    assert parse_toml(f"{MARK}nbest = 3\n".encode()) == {"nbest": 3}
