"""Text files in, lines out: UTF-8, plain or gzipped, with errors that name the file and the line.

Lines are split at ``\\n`` only (``\\r\\n`` is taken too): a Unicode line separator inside a caption must not
shift a parallel corpus.
"""

from __future__ import annotations

import gzip
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

from sgdec.errors import SgdecError


def read_lines(path: str | Path) -> Iterator[str]:
    """The lines of a file without their ends; ``-`` is standard input, ``.gz`` is unpacked.

    Raises `SgdecError` for a file that cannot be read and for a line that is not UTF-8.
    """
    name = "standard input" if str(path) == "-" else str(path)
    try:
        with _open(path) as file:
            for number, raw in enumerate(file, 1):
                try:
                    yield raw.decode("utf-8").rstrip("\r\n")
                except UnicodeDecodeError as error:
                    raise SgdecError(
                        f"{name}: line {number} is not UTF-8 (byte {error.start + 1} of it). Convert the file."
                    ) from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise SgdecError(f"{name}: the gzip file is damaged or cut short ({error}).") from None
    except OSError as error:
        raise SgdecError(f"{name}: cannot be read ({error.strerror or error}).") from None


def _open(path: str | Path) -> IO[bytes]:
    if str(path) == "-":
        return sys.stdin.buffer
    if str(path).endswith(".gz"):
        return cast(IO[bytes], gzip.open(path, "rb"))
    return open(path, "rb")
