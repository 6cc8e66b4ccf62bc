"""The rows of a result by line, in any output format."""

from __future__ import annotations


def rows_by_line(output_format: str, rows: bytes, ids: range) -> list[bytes]:
    """The rows of each line with one of these numbers. Raises ValueError if there are others, or too few.

    >>> rows_by_line("text", b"a\\n\\n", range(7, 9))
    [b'a\\n', b'\\n']
    >>> rows_by_line("nbest", b"8 ||| a\\n8 ||| b\\n", range(7, 9))
    [b'', b'8 ||| a\\n8 ||| b\\n']
    """
    listed = rows.split(b"\n")
    if listed.pop():
        raise ValueError("the last row is cut short")
    if output_format == "nbest":
        return _by_number(listed, ids)
    if output_format == "fst":  # lattices are files
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
