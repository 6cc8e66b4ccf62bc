"""Standard streams that the caller of a command has closed, as a shell does with ``>&-``.

Their descriptors are taken first of all: the next file that is opened would otherwise be standard output to whatever
prints, or standard input to whatever reads. A command that needs a closed stream fails with one line, and one that
does not need it runs as ever. Messages to a closed standard error are dropped.
"""

from __future__ import annotations

import io
import os
import sys
from typing import Any, NoReturn

from sgdec.errors import UsageError

NAMES = ("standard input", "standard output", "standard error")


class Closed(io.BufferedIOBase):
    """Stands for a closed stream: reading and writing raise UsageError."""

    def __init__(self, number: int) -> None:
        self._number = number

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._number

    def read1(self, size: int = -1, /) -> NoReturn:
        refuse(self._number)

    def read(self, size: int | None = -1, /) -> NoReturn:
        refuse(self._number)

    def write(self, data: Any, /) -> NoReturn:
        refuse(self._number)


def occupy_closed() -> None:
    """Take the descriptors of closed streams, and replace the stream objects, which Python sets to None.

    As in the C library's ``csu/check_fds.c``, the descriptors can be neither read nor written as the stream is.
    """
    for number, flags in enumerate((os.O_WRONLY, os.O_RDONLY, os.O_RDONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, flags)  # gets the lowest number that is free
    if sys.stdin is None:
        sys.stdin = io.TextIOWrapper(Closed(0), "utf-8")
    if sys.stdout is None:
        sys.stdout = io.TextIOWrapper(Closed(1), "utf-8", write_through=True)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", errors="backslashreplace")  # noqa: SIM115 - as long as the process


def is_closed(number: int) -> bool:
    """Whether standard input (0) or output (1) was closed when the command began."""
    return isinstance(getattr((sys.stdin, sys.stdout)[number], "buffer", None), Closed)


def refuse(number: int) -> NoReturn:
    """Raises UsageError."""
    raise UsageError(f"{NAMES[number]} is closed, and this command needs it. Open it, or name a file in its place.")
