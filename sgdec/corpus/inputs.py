"""Inputs that workers read from any place on: files of this machine, or URLs of fsspec."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

from sgdec.corpus.stores import file_system, without_waiting
from sgdec.errors import SgdecError, UsageError
from sgdec.io.sources import open_input
from sgdec.io.writing import descriptor_of
from sgdec.text.lines import unpacked


def is_url(path: str) -> bool:
    """Whether a path is a URL.

    >>> is_url("s3://bucket/a.txt"), is_url("a.txt")
    (True, False)
    """
    return "://" in path


def absolute(path: str) -> str:
    """The path from which all workers read an input."""
    return path if is_url(path) else os.path.abspath(path)


@contextmanager
def opened(path: str) -> Iterator[IO[bytes]]:
    """An input, unpacked; ``-`` is standard input. Raises UsageError if it cannot be opened."""
    if not is_url(path):
        with open_input(path) as file:
            yield file
        return
    files, place = file_system(path)
    with _explained(path):
        found = io.BufferedReader(files.open(place, "rb"))
    with unpacked(found, path) as file:
        yield file


def is_seekable(path: str, file: IO[bytes]) -> bool:
    """Whether workers can begin in the middle of an input, which is open as ``file``."""
    ours = path == "-" or descriptor_of(path) is not None  # /dev/stdin is another file in another process
    return not ours and not path.endswith((".gz", ".zst")) and file.seekable()


def state_of(path: str) -> tuple[int, int]:
    """The size of an input, and a number that differs after a change: its time in nanoseconds, or the hash of what an
    object store says of it. Raises OSError, and UsageError for a URL that cannot be opened."""
    if not is_url(path):
        found = os.stat(path)
        return found.st_size, found.st_mtime_ns
    files, place = file_system(path)
    with _explained(path):
        files.invalidate_cache()
        key = hashlib.sha256(str(files.ukey(place)).encode()).hexdigest()
        return int(files.size(place)), int(key[:15], 16)


def read_range(path: str, begin: int, end: int) -> bytes:
    """Some bytes of an input. Raises SgdecError if it cannot be read."""
    if is_url(path):
        files, place = file_system(path)
        try:
            return bytes(files.cat_file(place, begin, end))
        except Exception as error:  # each file system raises errors of its own library
            raise SgdecError(f"input {path}: {_said(error)}.") from None
    try:
        with open(path, "rb", opener=without_waiting) as file:
            file.seek(begin)
            return file.read(end - begin)
    except OSError as error:
        raise SgdecError(f"input {path}: {error.strerror}. All machines have to see it under this path.") from None


@contextmanager
def _explained(path: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # each file system raises errors of its own library
        raise UsageError(f"input {path}: {_said(error)}; expected a text file, one sentence per line.") from None


def _said(error: Any) -> str:
    return " ".join(str(error).split()) or type(error).__name__
