"""Lines of text files: UTF-8, plain or packed by gzip or zstd; errors name the file and the line.

Lines are split only at ``\\n`` (or ``\\r\\n``), because a Unicode line separator inside a sentence must not shift a
parallel corpus. A byte order mark, which some editors put at the beginning of a file, is not text: it is skipped.
"""

from __future__ import annotations

import gzip
import logging
import sys
import zlib
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE, BOM_UTF32_BE, BOM_UTF32_LE
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import IO, cast

from sgdec.errors import SgdecError
from sgdec.io.limits import bounded_lines, unpacking

log = logging.getLogger(__name__)

ZSTD = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
"""The module of the standard library, or its backport."""
OTHER_MARKS = {BOM_UTF32_LE: "UTF-32", BOM_UTF32_BE: "UTF-32", BOM_UTF16_LE: "UTF-16", BOM_UTF16_BE: "UTF-16"}
"""The encodings by their byte order marks; that of UTF-16 can begin one of UTF-32."""


class WrongEncoding(SgdecError):
    """A whole file is in another encoding than UTF-8, so not even its lines are known."""


def read_lines(path: str | Path) -> Iterator[str]:
    """The lines of a file without their ends; ``-`` is standard input, ``.gz`` and ``.zst`` are unpacked.

    Raises `SgdecError` if the file cannot be read or unpacked, if a line is not UTF-8, and if a limit of
    `sgdec.io.limits` is exceeded. A caller whose loop can raise makes a list of them first if the file is small: the
    traceback of an exception would keep the file open.
    """
    for number, raw in enumerate(raw_lines(path), 1):
        try:
            yield raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise SgdecError(
                f"{name_of(path)}: line {number} is not UTF-8 (byte {error.start + 1} of it). Convert the file."
            ) from None


def raw_lines(path: str | Path) -> Iterator[bytes]:
    """`read_lines` before decoding, for callers that skip lines that are not UTF-8."""
    name = name_of(path)
    with reading(name), open_bytes(path) as file:
        for number, raw in enumerate(text_lines(file, name), 1):
            if isinstance(raw, SgdecError):
                raise SgdecError(f"{name}: line {number}: {raw}")
            yield raw.rstrip(b"\r\n")


def text_lines(file: IO[bytes], name: str) -> Iterator[bytes | SgdecError]:
    """`bounded_lines` of an open text file from its beginning, `without_mark`; messages call it ``name``."""
    lines = bounded_lines(file)
    for first in islice(lines, 1):
        line = without_mark(first, name) if isinstance(first, bytes) else first
        if line:  # otherwise the file has only the mark
            yield line
    yield from lines


def without_mark(start: bytes, name: str) -> bytes:
    """The first bytes of a text file without its byte order mark; a note says once for each file that there was one.

    Raises `WrongEncoding` if the mark is that of another encoding than UTF-8.
    """
    if start.startswith(BOM_UTF8):
        _note_mark(name)
        return start.removeprefix(BOM_UTF8)
    for mark, encoding in OTHER_MARKS.items():
        if start.startswith(mark):
            raise WrongEncoding(f"{name} is {encoding}, expected UTF-8. Convert it: iconv -f {encoding} -t UTF-8.")
    return start


@cache
def _note_mark(name: str) -> None:
    log.info(f"Note: {name}: the byte order mark at its beginning is skipped.")


def open_bytes(path: str | Path) -> IO[bytes]:
    """Open a file, unpacked as by `read_lines`. Raises OSError; reading can also raise `unpacking_errors`."""
    if str(path) == "-":
        if sys.stdin.buffer.isatty():
            log.info("Note: reading standard input, from the terminal; Ctrl-D ends it.")
        return sys.stdin.buffer
    unpack = _unpacker(str(path))
    return open(path, "rb") if unpack is None else unpacking(open(path, "rb"), unpack, str(path))


def unpacked(file: IO[bytes], name: str) -> IO[bytes]:
    """An open file, unpacked as by `open_bytes` if its name says so. Closing the result closes the file."""
    unpack = _unpacker(name)
    return file if unpack is None else unpacking(file, unpack, name)


@contextmanager
def reading(name: str) -> Iterator[None]:
    """Turns an error in reading a file into a `SgdecError` that names the file."""
    try:
        yield
    except unpacking_errors() as error:
        kind = "zstd" if name.endswith(".zst") else "gzip"
        raise SgdecError(f"{name}: the {kind} file is damaged or cut short ({error}).") from None
    except OSError as error:
        raise SgdecError(f"{name}: cannot be read ({error.strerror or error}).") from None


def unpacking_errors() -> tuple[type[Exception], ...]:
    """The exceptions of a damaged file; zstd's only if it was imported."""
    zstd = sys.modules.get(ZSTD)
    return (EOFError, gzip.BadGzipFile, zlib.error, *((zstd.ZstdError,) if zstd else ()))


def name_of(path: str | Path) -> str:
    return "standard input" if str(path) == "-" else str(path)


def _gzip(file: IO[bytes]) -> IO[bytes]:
    return cast(IO[bytes], gzip.open(file))


def _unpacker(name: str) -> Callable[[IO[bytes]], IO[bytes]] | None:
    """The function that unpacks a file of this name; None if it is not packed."""
    if name.endswith(".gz"):
        return _gzip
    return _zstd(name) if name.endswith(".zst") else None


def _zstd(path: str | Path) -> Callable[[IO[bytes]], IO[bytes]]:
    try:
        zstd = import_module(ZSTD)
    except ModuleNotFoundError:
        raise SgdecError(
            f'{path}: reading zstd takes a package that is not installed (pip install "sgdec[zstd]"). '
            "Install it, or unpack the file."
        ) from None
    return cast("Callable[[IO[bytes]], IO[bytes]]", zstd.open)
