"""The rows of a result by line, in any output format."""

from __future__ import annotations

from enum import Enum


class Layout(Enum):
    """How rows are told apart by line."""

    LINES = "a row for each line"
    NUMBERED = "rows that begin with the number of their line"
    MARKED = "rows of any form, each with the number of its line before it; the merged output lacks these numbers"
    FILES = "a file for each line, and no rows"


def layout_of(output_format: str, *, nbest_list: bool = False) -> Layout:
    """The layout of an output format. ``nbest_list``: an n-best list is scored, so a line can have many rows."""
    if output_format == "fst":
        return Layout.FILES
    if output_format == "nbest":
        return Layout.NUMBERED
    return Layout.MARKED if nbest_list and output_format != "text" else Layout.LINES


def marked(id: int, row: str) -> str:
    """A row of the layout `Layout.MARKED`.

    >>> marked(7, "-0.5")
    '7 ||| -0.5'
    """
    return f"{id} ||| {row}"


def as_output(layout: Layout, rows: bytes) -> bytes:
    """Rows as the merged output has them.

    >>> as_output(Layout.MARKED, b"7 ||| -0.5\\n8 ||| \\n")
    b'-0.5\\n\\n'
    """
    if layout is not Layout.MARKED:
        return rows
    return b"".join(row.partition(b" ||| ")[2] + b"\n" for row in rows.split(b"\n")[:-1])


def rows_by_line(layout: Layout, rows: bytes, ids: range) -> list[bytes]:
    """The rows of each line with one of these numbers. Raises ValueError if there are others, or too few.

    >>> rows_by_line(Layout.LINES, b"a\\n\\n", range(7, 9))
    [b'a\\n', b'\\n']
    >>> rows_by_line(Layout.NUMBERED, b"8 ||| a\\n8 ||| b\\n", range(7, 9))
    [b'', b'8 ||| a\\n8 ||| b\\n']
    """
    listed = rows.split(b"\n")
    if listed.pop():
        raise ValueError("the last row is cut short")
    if layout in (Layout.NUMBERED, Layout.MARKED):
        return _by_number(listed, ids)
    if layout is Layout.FILES:
        if listed:
            raise ValueError(f"{len(listed)} rows; expected none")
        return [b""] * len(ids)
    if len(listed) != len(ids):
        raise ValueError(f"{len(listed)} rows")
    return [row + b"\n" for row in listed]


def _by_number(listed: list[bytes], ids: range) -> list[bytes]:
    """Rows that begin with the number of their line, in order."""
    found: dict[int, list[bytes]] = {id: [] for id in ids}
    last = ids.start
    for row in listed:
        number = row.partition(b" ||| ")[0]
        id = int(number) if number.isdigit() and len(number) < 19 else 0
        if id not in found or id < last:
            raise ValueError(f"a row of line {number[:20].decode(errors='replace')}")
        found[id].append(row + b"\n")
        last = id
    return [b"".join(rows) for rows in found.values()]
