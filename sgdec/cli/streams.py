"""Standard streams: how text is written to them, and what happens if the caller of a command has closed them.

A shell closes a stream with ``>&-``. The descriptors of closed streams are taken first of all: the next file that is
opened would otherwise be standard output to whatever prints, or standard input to whatever reads. A command that
needs a closed stream fails with one line, and one that does not need it runs as ever. Messages to a closed standard
error are dropped.
"""

from __future__ import annotations

import codecs
import io
import os
import sys
from typing import Any, NoReturn

from sgdec.errors import UsageError

SHOWN = "sgdec.shown"
"""The name of the error handler of standard output."""
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


def prepare_output(stream: Any) -> None:
    """Set how text is written to standard output, the same on all systems.

    A file or a pipe gets UTF-8 and line feeds. A terminal keeps its encoding, and shows a character that this lacks
    as ``\\u2192``. In both, parts of file names that are not text are written as the bytes that they are.
    """
    if not isinstance(stream, io.TextIOWrapper):
        return
    if stream.isatty():
        stream.reconfigure(errors=SHOWN)
    else:
        stream.reconfigure(encoding="utf-8", errors=SHOWN, newline="\n")


def _shown(error: UnicodeError) -> tuple[str | bytes, int]:
    try:
        return _as_bytes(error)
    except UnicodeEncodeError:
        return codecs.backslashreplace_errors(error)


_as_bytes = codecs.lookup_error("surrogateescape")
codecs.register_error(SHOWN, _shown)


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
        sys.stderr = open(os.devnull, "w", encoding="utf-8", errors="backslashreplace")  # noqa: SIM115 - as long as the process


def is_closed(number: int) -> bool:
    """Whether standard input (0) or output (1) was closed when the command began."""
    return isinstance(getattr((sys.stdin, sys.stdout)[number], "buffer", None), Closed)


def refuse(number: int) -> NoReturn:
    """Raises UsageError."""
    raise UsageError(f"{NAMES[number]} is closed, and this command needs it. Open it, or name a file in its place.")
