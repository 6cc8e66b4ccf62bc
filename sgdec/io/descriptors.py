"""Open files where POSIX and Windows differ: flags, locks, and when an open file can be renamed or removed."""

from __future__ import annotations

import errno
import os
from importlib import import_module
from pathlib import Path
from typing import IO, Any

try:
    import fcntl
except ModuleNotFoundError:  # Windows
    _msvcrt: Any = import_module("msvcrt")
else:
    _msvcrt = None

OWN = getattr(os, "O_BINARY", 0) | getattr(os, "O_NOFOLLOW", 0)
"""Flags of `os.open` for files of bytes, without following links. Windows follows them, and without its flag would
change line ends."""
AT_ONCE = getattr(os, "O_NONBLOCK", 0)
"""The flag of `os.open` that does not wait for the writer of a pipe; Windows has no pipes in folders."""
LOCKED_BYTE = 1 << 30
"""The byte that is locked on Windows. Other processes cannot read it, so it is after the end of any locked file."""
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP)
"""The errors of file systems without locks, such as some network file systems."""


def lock(descriptor: int) -> bool:
    """Lock a file for this process, until the descriptor is closed; false if another process has locked it.

    On a file system without locks the result is always true. Raises OSError.
    """
    try:
        if _msvcrt is None:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        else:
            _lock_byte(descriptor)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
    return True


def _lock_byte(descriptor: int) -> None:
    place = os.lseek(descriptor, 0, os.SEEK_CUR)
    os.lseek(descriptor, LOCKED_BYTE, os.SEEK_SET)
    try:
        _msvcrt.locking(descriptor, _msvcrt.LK_NBLCK, 1)
    except PermissionError:
        raise BlockingIOError from None
    finally:
        os.lseek(descriptor, place, os.SEEK_SET)


def let_move(file: IO[bytes]) -> None:
    """Prepare an open file for being renamed or removed. On POSIX this does nothing, so its lock holds.

    On Windows it is closed, because nobody can rename or remove a file that is open. If another process locks it
    before it is moved, moving it fails.
    """
    if _msvcrt is not None:
        file.close()


def flush(*paths: Path) -> None:
    """Flush files, and the names in folders, to the disk. Windows does it for files only: it opens no folder."""
    for path in paths:
        folder = path.is_dir()
        if folder and _msvcrt is not None:
            continue
        descriptor = os.open(path, os.O_RDONLY if folder else os.O_RDWR)  # Windows flushes what it can write
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
