"""The rows of a result belong to its lines, in every format, or are refused."""

from __future__ import annotations

import pytest

from sgdec.corpus.rows import Layout, as_output, layout_of, marked, rows_by_line

IDS = range(7, 10)


@pytest.mark.parametrize("output_format", ["text", "ids", "jsonl", "score"])
def test_each_line_has_one_row(output_format: str) -> None:
    layout = layout_of(output_format)
    assert rows_by_line(layout, b"a\n\n\xe2\x80\xa8\r\n", IDS) == [b"a\n", b"\n", b"\xe2\x80\xa8\r\n"]
    for rows in (b"", b"a\nb\n", b"a\nb\nc\nd\n"):
        with pytest.raises(ValueError, match=f"{rows.count(10)} rows"):
            rows_by_line(layout, rows, IDS)
    with pytest.raises(ValueError, match="cut short"):
        rows_by_line(layout, b"a\nb\nc", IDS)


def test_an_n_best_list_names_its_lines() -> None:
    layout = layout_of("nbest")
    assert rows_by_line(layout, b"7 ||| a\n7 ||| b\n9 ||| c\n", IDS) == [b"7 ||| a\n7 ||| b\n", b"", b"9 ||| c\n"]
    assert rows_by_line(layout, b"", IDS) == [b"", b"", b""]
    for rows in (b"6 ||| a\n", b"10 ||| a\n", b"8 ||| a\n7 ||| b\n", b"a\n", b"\n", b"9" * 99 + b" ||| a\n"):
        with pytest.raises(ValueError, match="a row of line"):
            rows_by_line(layout, rows, IDS)


def test_scores_of_a_list_have_the_number_of_their_line_until_they_are_merged() -> None:
    """One line can have many of them, and nothing else says which."""
    outputs = [(7, ""), (7, "a ||| b"), (9, "\r")]
    rows = "".join(f"{marked(id, output)}\n" for id, output in outputs).encode()
    for output_format in ("score", "jsonl"):
        layout = layout_of(output_format, nbest_list=True)
        assert rows_by_line(layout, rows, IDS) == [b"7 ||| \n7 ||| a ||| b\n", b"", b"9 ||| \r\n"]
        assert as_output(layout, rows) == b"\na ||| b\n\r\n"
    for output_format in ("nbest", "text"):  # they number their rows, or have one a line
        assert as_output(layout_of(output_format, nbest_list=True), rows) == rows


def test_lattices_are_no_rows() -> None:
    assert layout_of("fst") is Layout.FILES
    assert rows_by_line(Layout.FILES, b"", IDS) == [b""] * 3
    with pytest.raises(ValueError, match="1 rows; expected none"):
        rows_by_line(Layout.FILES, b"a\n", IDS)
