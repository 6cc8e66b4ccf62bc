"""The rows of a result belong to its lines, in every format, or are refused."""

from __future__ import annotations

import pytest

from sgdec.corpus.rows import rows_by_line

IDS = range(7, 10)


@pytest.mark.parametrize("output_format", ["text", "ids", "jsonl"])
def test_each_line_has_one_row(output_format: str) -> None:
    assert rows_by_line(output_format, b"a\n\n\xe2\x80\xa8\r\n", IDS) == [b"a\n", b"\n", b"\xe2\x80\xa8\r\n"]
    for rows in (b"", b"a\nb\n", b"a\nb\nc\nd\n"):
        with pytest.raises(ValueError, match=f"{rows.count(10)} rows"):
            rows_by_line(output_format, rows, IDS)
    with pytest.raises(ValueError, match="cut short"):
        rows_by_line(output_format, b"a\nb\nc", IDS)


def test_an_n_best_list_names_its_lines() -> None:
    assert rows_by_line("nbest", b"7 ||| a\n7 ||| b\n9 ||| c\n", IDS) == [b"7 ||| a\n7 ||| b\n", b"", b"9 ||| c\n"]
    assert rows_by_line("nbest", b"", IDS) == [b"", b"", b""]
    for rows in (b"6 ||| a\n", b"10 ||| a\n", b"8 ||| a\n7 ||| b\n", b"a\n", b"\n", b"9" * 99 + b" ||| a\n"):
        with pytest.raises(ValueError, match="a row of line"):
            rows_by_line("nbest", rows, IDS)


def test_lattices_are_no_rows() -> None:
    assert rows_by_line("fst", b"", IDS) == [b""] * 3
    with pytest.raises(ValueError, match="1 rows; expected none"):
        rows_by_line("fst", b"a\n", IDS)
