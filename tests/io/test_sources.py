"""The promise of the reader: sentences keep their numbers, and a bad line costs only itself, in one clear message."""

from __future__ import annotations

import gzip
import io
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from sgdec.errors import SgdecError, UsageError
from sgdec.io.sources import SourceReader, open_input, parse_range
from sgdec.lengths import LengthRule
from sgdec.protocol import Source
from sgdec.search.outcome import Unreadable


class Letters:
    """``a`` is token 3, ``b`` token 4, ...; blanks are nothing."""

    size = 8
    fingerprint = "letters"

    def encode(self, text: str) -> tuple[int, ...]:
        return tuple(ord(letter) - ord("a") + 3 for letter in text if letter.isalpha())

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(self.piece(token) for token in tokens)

    def piece(self, token: int) -> str:
        return chr(token - 3 + ord("a"))

    def token(self, piece: str) -> int:
        return ord(piece) - ord("a") + 3


TEXT = SourceReader(Letters())
IDS = SourceReader(None, "ids")


def only(reader: SourceReader, line: bytes) -> Source:
    (source,) = reader.read([line], "in.txt")
    assert isinstance(source, Source)
    return source


def refusal(reader: SourceReader, line: bytes) -> str:
    (unreadable,) = reader.read([line], "in.txt")
    assert isinstance(unreadable, Unreadable) and unreadable.id == 1
    return str(unreadable.error)


def test_text_goes_through_the_vocabulary_and_is_kept() -> None:
    assert only(TEXT, b"ab c\n") == Source(1, (3, 4, 5), "ab c", max_length=6)


def test_ids_are_read_as_they_are() -> None:
    assert only(IDS, b" 7 0\t12 \r\n").tokens == (7, 0, 12)


def test_ids_are_no_text() -> None:
    """What reads the text of a source would take their digits for it."""
    assert only(IDS, b"7 0 12\n").text is None


def test_text_needs_a_vocabulary_before_anything_is_read() -> None:
    with pytest.raises(UsageError, match="--tokenizer FILE, or token ids with --input-format ids"):
        SourceReader(None)


@pytest.mark.parametrize(
    ("factor", "fixed", "length", "limit"),
    [(2.0, None, 7, 14), (1.5, None, 3, 4), (0.0, None, 3, 0), (2.0, 5, 7, 5), (2.0, 0, 7, None)],
)
def test_outputs_are_limited_by_the_source_or_by_a_number(
    factor: float, fixed: int | None, length: int, limit: int | None
) -> None:
    reader = SourceReader(None, "ids", LengthRule(factor, fixed))
    assert only(reader, b"3 " * length).max_length == limit


@pytest.mark.parametrize(
    ("reader", "line", "message"),
    [
        (TEXT, b"\n", "in.txt, line 1: empty; there is nothing to decode"),
        (TEXT, b"  \t \r\n", "in.txt, line 1: empty; there is nothing to decode"),
        (IDS, b"", "in.txt, line 1: empty; there is nothing to decode"),
        (TEXT, b"ab\xffc\n", "in.txt, line 1: not UTF-8 (byte 3); convert the file, for example with iconv"),
        (IDS, b"\xc3\n", "in.txt, line 1: not UTF-8 (byte 1)"),
        (
            IDS,
            b"3 vier\n",
            "in.txt, line 1: 'vier' is not a token id (0, 1, 2, ...); for text use --input-format text",
        ),
        (IDS, b"3 -4\n", "'-4' is not a token id"),
        (IDS, b"3 4.0\n", "'4.0' is not a token id"),
        (IDS, b"1_0\n", "'1_0' is not a token id"),
        (IDS, "٣\n".encode(), "'٣' is not a token id"),
        (SourceReader(Letters(), "ids"), b"3 8\n", "token 8 is outside the source vocabulary 0..7"),
        (SourceReader(None, "ids", longest=3), b"3 3 3 3\n", "4 tokens, more than --max-source-length 3"),
        (IDS, b"3 " * 10_000, "10000 tokens, more than --max-source-length 1000; split it, or raise the limit"),
    ],
)
def test_a_line_that_cannot_be_read_says_where_why_and_what_to_do(
    reader: SourceReader, line: bytes, message: str
) -> None:
    assert message in refusal(reader, line)


def test_no_source_is_too_long_without_a_limit() -> None:
    assert len(only(SourceReader(None, "ids", longest=0), b"3 " * 10_000).tokens) == 10_000


LINES = [b"3\n", b"4\n", b"x\n", b"\n", b"7\n"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, [1, 2, 3, 4, 5]), ("2:4", [2, 3, 4]), ("5", [5]), ("4:", [4, 5]), (":2", [1, 2]), ("5:9", [5]),
        (":", [1, 2, 3, 4, 5]),
    ],
)  # fmt: skip
def test_sentences_keep_their_numbers_whatever_lies_between(text: str | None, expected: list[int]) -> None:
    assert [sentence.id for sentence in IDS.read(LINES, "in.txt", *parse_range(text))] == expected


@pytest.mark.parametrize(("lines", "count"), [(LINES, "5 lines"), (LINES[:1], "1 line"), ([], "0 lines")])
def test_a_range_behind_the_last_line_is_refused_but_not_a_run_that_was_complete(
    lines: list[bytes], count: str
) -> None:
    with pytest.raises(UsageError, match=f"--range begins at 6, but in.txt has {count}\\."):
        list(IDS.read(lines, "in.txt", *parse_range("6:9")))
    assert list(IDS.read(lines, "in.txt", done=len(lines))) == []


def test_lines_behind_the_range_are_not_read() -> None:
    def lines() -> Iterator[bytes]:
        yield from LINES[:3]
        raise AssertionError("read too far")

    assert [sentence.id for sentence in IDS.read(lines(), "in.txt", 1, 2)] == [1, 2]


@pytest.mark.parametrize(
    "text", ["0", "3:2", "a:b", "1:2:3", "-1", "1.5", "::", ":0", "1_0:2_0", "1_0", "٣", " 1", "1: 2", "+1", "9" * 99]
)
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=f"--range {re.escape(text)}: expected A:B with 1 <= A <= B, such as 1:100"):
        parse_range(text)


def test_an_empty_range_is_refused() -> None:
    with pytest.raises(UsageError, match="--range '': expected A:B"):
        parse_range("")


def test_a_unicode_line_separator_does_not_shift_lines(tmp_path: Path) -> None:
    path = tmp_path / "in.txt"
    path.write_text("a\u2028b\nc\n", encoding="utf-8")
    with open_input(str(path)) as lines:
        sources = list(TEXT.read(lines, str(path)))
    assert [source.id for source in sources] == [1, 2]


@pytest.mark.parametrize(("reader", "line"), [(IDS, "3 4"), (TEXT, "ab")])
def test_a_byte_order_mark_is_no_part_of_the_first_sentence(
    tmp_path: Path, reader: SourceReader, line: str
) -> None:
    path = tmp_path / "in"
    path.write_text(f"\ufeff{line}\n", encoding="utf-8")
    with reader.open([str(path)]) as lines:
        assert list(reader.read(lines, "in")) == [only(reader, line.encode())]


def test_utf_16_is_refused_as_a_whole(tmp_path: Path) -> None:
    """Its lines are not known, so no line of it can fail alone."""
    path = tmp_path / "in.txt"
    path.write_text("3 4\n5\n", encoding="utf-16")
    with IDS.open([str(path)]) as lines, pytest.raises(SgdecError) as refused:
        list(IDS.read(lines, "in.txt", 2))
    assert str(refused.value) == f"{path} is UTF-16, expected UTF-8. Convert it: iconv -f UTF-16 -t UTF-8."


def test_a_gzipped_file_is_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "in.gz"
    path.write_bytes(gzip.compress(b"3 4\n5"))
    with open_input(str(path)) as lines:
        assert [source.tokens for source in IDS.read(lines, str(path)) if isinstance(source, Source)] == [
            (3, 4),
            (5,),
        ]


@pytest.mark.parametrize("first", [1, 500_000])
def test_a_gzipped_file_that_is_cut_short_ends_with_one_message(tmp_path: Path, first: int) -> None:
    path = tmp_path / "in.gz"
    data = gzip.compress(b"".join(b"%d\n" % n for n in range(9000)))
    path.write_bytes(data[: len(data) // 2])
    with open_input(str(path)) as lines:
        *before, last = IDS.read(lines, str(path), first)
    assert isinstance(last, Unreadable) and len(before) == (last.id - 1 if first == 1 else 0)
    assert all(isinstance(source, Source) for source in before)
    assert str(last.error).startswith(f"{path}, line {last.id}: the file cannot be read from here on (")


def test_what_is_no_gzip_file_is_said(tmp_path: Path) -> None:
    path = tmp_path / "in.gz"
    path.write_bytes(b"3 4\n")
    with open_input(str(path)) as lines:
        (unreadable,) = IDS.read(lines, str(path))
    assert isinstance(unreadable, Unreadable) and isinstance(unreadable.error, SgdecError)
    assert "Not a gzipped file" in str(unreadable.error)


@pytest.mark.parametrize(("path", "reason"), [("none.txt", "No such file or directory"), (".", "Is a directory")])
def test_an_input_that_cannot_be_opened_is_a_wrong_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, reason: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=f"input {path}: {reason}"), open_input(path):
        pass


def test_a_dash_is_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"3\n")))
    with open_input("-") as lines:
        assert list(lines) == [b"3\n"]
