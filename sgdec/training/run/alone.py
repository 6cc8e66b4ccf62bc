"""Locks on a run's folder. They are the system's (flock), so they end with the process, however that ends."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from sgdec.errors import SgdecError

LOCK, TEXT_LOCK = ".lock", ".text.lock"
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP)
"""What file systems say that know no locks, as some network file systems do."""


@contextmanager
def alone(run: Path) -> Iterator[None]:
    """In the block no other process trains in the folder: two would write over each other's checkpoints.

    A file system without locks is taken for one that nobody else uses. Raises `SgdecError` if another process is
    there, or nothing can be written; a folder that was made for nothing is gone then.
    """
    fresh = not run.exists()
    lock = _lock(run, LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise SgdecError(
            f"{run}: {_holder(run / LOCK)} is training in this folder. Wait for it, end it, or give another --output."
        ) from None
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise _unwritable(run, error) from None
    try:
        yield
    finally:
        _release(lock)
        if fresh:
            with contextlib.suppress(OSError):  # there is something in it
                run.rmdir()


@contextmanager
def in_turn(run: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Processes that prepare text in one run's folder, as the ranks of a run do, enter the block one by one.

    ``waiting`` is called where another is in it. Raises `SgdecError` if nothing can be written or locked.
    """
    lock = _lock(run, TEXT_LOCK)
    try:
        try:
            lock.acquire(timeout=0)
        except Timeout:
            waiting()
            lock.acquire(poll_interval=0.5)
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise _unwritable(run, error) from None
        raise SgdecError(
            f"{run}: cannot be locked while text is prepared there ({error.strerror}). "
            "Give another --output, or --shard-tokens 0 to hold all in memory."
        ) from None
    try:
        yield
    finally:
        _release(lock)


def _lock(run: Path, name: str) -> FileLock:
    """A lock that is not held yet, in a folder that is made if need be."""

    def sign(descriptor: int) -> None:
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode())

    try:
        run.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(run, error) from None
    # Without locks filelock would take a file's existence for one, which outlives a process that is killed.
    return FileLock(run / name, fallback_to_soft=False, on_acquired=sign)


def _release(lock: FileLock) -> None:
    """Removes the file first: a process that waits for it notices, and locks the next one."""
    with contextlib.suppress(OSError):
        os.unlink(lock.lock_file)
    lock.release()


def _holder(file: Path) -> str:
    with contextlib.suppress(OSError), open(file, errors="replace") as signed:
        return signed.read(200) or "another process"
    return "another process"


def _unwritable(run: Path, error: OSError) -> SgdecError:
    return SgdecError(f"{run}: cannot be written ({error.strerror}). Give another --output.")
