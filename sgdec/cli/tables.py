"""Tables in a terminal: columns of plain text."""

from __future__ import annotations

from collections.abc import Sequence

from sgdec.errors import one_line


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, texts: int = 1) -> str:
    """The lines of a table. The first ``texts`` columns are aligned on the left, the others on the right.

    >>> print(table(["output", "BLEU"], [["a.txt", "9.1"], ["best.txt", "34.5"]]))
    output    BLEU
    a.txt      9.1
    best.txt  34.5
    """
    cells = [[one_line(cell) for cell in row] for row in (head, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = (
        "  ".join(
            cell.ljust(width) if place < texts else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in cells
    )
    return "\n".join(line.rstrip() for line in lines)
