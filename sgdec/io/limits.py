"""Limits on sizes: a size that a file declares is checked against its actual bytes, and actual sizes have limits.

To raise a limit, set the environment variable that the error names:

    SGDEC_MAX_LINE_BYTES       16 MiB     one line of a text file
    SGDEC_MAX_CONFIG_BYTES      1 MiB     a TOML file of options
    SGDEC_MAX_DOCUMENT_BYTES   64 MiB     a JSON file, a SentencePiece model
    SGDEC_MAX_FILE_BYTES        1 GiB     a lattice or transducer, unpacked
    SGDEC_MAX_UNPACKED_TIMES  100         unpacked size / packed size; the first 16 MiB are always allowed, and the
                                          first 256 MiB of text
    SGDEC_MAX_NESTING         100         depth of nested lists and objects in JSON and TOML
    SGDEC_MAX_VOCABULARY        5 million tokens of a vocabulary without a model
    SGDEC_MAX_BATCH_BYTES       -         one array of scores, or the children that a beam keeps; by default the
                                          available memory; the first 16 MiB are always allowed
"""

from __future__ import annotations

import io
import os
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import IO, Any, NamedTuple

from sgdec.errors import SgdecError, UsageError

FREE = 16 << 20
"""The number of bytes that any packed file may unpack to: zeros and equal records pack very well."""
FREE_TEXT = 256 << 20
"""The same for text, which is read line by line: lists of similar outputs pack to a three-hundredth."""
CHUNK = 1 << 16
"""The number of bytes that are read at a time."""
TOKENS = 1 << 31
"""Token ids are below this number: OpenFst's labels have 32 bits."""
GZIP = b"\x1f\x8b"
"""The first bytes of a gzip file."""


class Limit(NamedTuple):
    """The limit on a size or number."""

    variable: str
    """The environment variable that sets it."""
    default: int

    @property
    def value(self) -> int:
        """The limit in force. Raises `UsageError` if the environment variable is not a positive whole number."""
        given = os.environ.get(self.variable)
        if given is None:
            return self.default
        number = whole_number(given, 1 << 63)
        if not number:
            raise UsageError(f"the environment variable {self.variable} is {given!r}; expected a number above 0.")
        return number

    @property
    def raising(self) -> str:
        """The end of an error message, which says how to raise this limit."""
        return f"The limit is {self.value}; set the environment variable {self.variable} to raise it."


LINE = Limit("SGDEC_MAX_LINE_BYTES", 16 << 20)
CONFIG = Limit("SGDEC_MAX_CONFIG_BYTES", 1 << 20)
DOCUMENT = Limit("SGDEC_MAX_DOCUMENT_BYTES", 64 << 20)
FILE = Limit("SGDEC_MAX_FILE_BYTES", 1 << 30)
UNPACKED = Limit("SGDEC_MAX_UNPACKED_TIMES", 100)
NESTING = Limit("SGDEC_MAX_NESTING", 100)
VOCABULARY = Limit("SGDEC_MAX_VOCABULARY", 5_000_000)
BATCH = Limit("SGDEC_MAX_BATCH_BYTES", 0)
"""0 = the available memory (`sgdec.search.memory`)."""


def whole_number(word: str, below: int = TOKENS) -> int | None:
    """The number that a word of ASCII digits denotes, such as a token id; None for other words, and for numbers of
    ``below`` or more.

    >>> whole_number("17"), whole_number("-1"), whole_number("²"), whole_number("9" * 5000)
    (17, None, None, None)
    """
    if len(word) < 40 and word.isascii() and word.isdecimal() and (number := int(word)) < below:
        return number
    return None


def real_number(word: str) -> float | None:
    """The number that a word denotes, such as a score; None for other words. ``inf`` and ``nan`` are numbers here.

    Python itself also reads underscores and the digits of all scripts.

    >>> real_number("-0.5"), real_number(" 1e3 "), real_number("1_0"), real_number("٣"), real_number("a")
    (-0.5, 1000.0, None, None, None)
    """
    if not word.isascii() or "_" in word:
        return None
    try:
        return float(word)
    except ValueError:
        return None


def read_all(file: IO[bytes], name: str, limit: Limit) -> bytes:
    """The rest of an open file. Raises `SgdecError` if it has more than ``limit`` bytes."""
    most, chunks, size = limit.value, [], 0
    while chunk := file.read(CHUNK):
        chunks.append(chunk)
        size += len(chunk)
        if size > most:
            raise SgdecError(f"{name}: too large, more than {most} bytes. {limit.raising}")
    return b"".join(chunks)


def bounded_lines(file: IO[bytes]) -> Iterator[bytes | SgdecError]:
    """Yields the lines of an open file with their line ends; for a line beyond the limit an error that does not name
    the file.

    If a line has more bytes than a file may have (such as that of /dev/zero), reading stops after it.
    """
    most = LINE.value
    for line in iter(partial(file.readline, most + 1), b""):
        if len(line) <= most:
            yield line
            continue
        read, left = len(line), FILE.value
        while left > 0 and line and not line.endswith(b"\n"):
            line = file.readline(CHUNK)
            read, left = read + len(line), left - len(line)
        unending = left <= 0 and not line.endswith(b"\n")
        rest = f"; nothing was read after {read} bytes" if unending else ""
        yield SgdecError(f"the line has more than {most} bytes{rest}. {LINE.raising}")
        if unending:
            return


def gunzipped(data: bytes, name: str) -> bytes:
    """The unpacked members of a gzip file. Raises `EOFError` or `zlib.error` if it is damaged, `SgdecError` if it
    exceeds a limit."""
    most = _allowance(len(data), FREE)
    parts, size = [], 0
    while data:
        member = zlib.decompressobj(16 + zlib.MAX_WBITS)
        parts.append(member.decompress(data, most + 1 - size))
        size += len(parts[-1])
        if size > most:
            raise _bomb(name, most)
        if not member.eof:
            raise EOFError("it is cut short")
        data = member.unused_data.lstrip(b"\0")  # padding, as on tapes
    return b"".join(parts)


def unpacking(packed: IO[bytes], unpack: Callable[[IO[bytes]], IO[bytes]], name: str) -> IO[bytes]:
    """A packed file opened by ``unpack``, such as `gzip.open`; reading beyond the limits raises `SgdecError`.

    Closing it closes ``packed``.
    """
    counted = _Counted(packed)
    unpacked = unpack(io.BufferedReader(counted))
    return io.BufferedReader(_Guarded(unpacked, counted, name), CHUNK)


class _Counted(io.RawIOBase):
    """A file that counts the bytes that were read from it."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.count = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._file.read1(len(buffer))  # `read` would lose the bytes before a fault
        buffer[: len(data)] = data
        self.count += len(data)
        return len(data)

    def close(self) -> None:
        self._file.close()
        super().close()


class _Guarded(_Counted):
    """The unpacked bytes of a packed file."""

    def __init__(self, file: Any, packed: _Counted, name: str) -> None:
        super().__init__(file)
        self._packed = packed
        self._name = name

    def readinto(self, buffer: Any) -> int:
        size = super().readinto(buffer)
        most = _allowance(self._packed.count, FREE_TEXT)
        if self.count > most:
            raise _bomb(self._name, most)
        return size

    def close(self) -> None:
        super().close()
        self._packed.close()


def _allowance(packed: int, free: int) -> int:
    """The number of bytes that ``packed`` bytes may unpack to; ``free``: whatever they are."""
    return max(free, packed * UNPACKED.value)


def _bomb(name: str, most: int) -> SgdecError:
    return SgdecError(
        f"{name}: unpacks to more than {most} bytes, far more than text or lattices do. "
        f"The limit is {UNPACKED.value} times the packed file; set the environment variable {UNPACKED.variable} to "
        "raise it."
    )
