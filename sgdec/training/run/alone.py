"""Locks on a run's folder. The operating system (flock) releases them when the process ends for any reason."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from sgdec.errors import SgdecError
from sgdec.io.descriptors import NO_LOCKS

LOCK, TEXT_LOCK = ".lock", ".text.lock"


@contextmanager
def alone(run: Path) -> Iterator[None]:
    """Lock the folder of a run in the block: two processes that train in it would overwrite each other's checkpoints.

    On a file system without locks, other processes are assumed not to use the folder. Raises `SgdecError` if another
    process trains in the folder, or nothing can be written. A new folder is removed at the end if it is empty.
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
            with contextlib.suppress(OSError):  # fails if the folder is not empty
                run.rmdir()


@contextmanager
def in_turn(run: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Let only one process at a time, such as the ranks of a run, prepare text in a run's folder in the block.

    ``waiting`` is called if another process is in its block. Raises `SgdecError` if nothing can be written or locked.
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
            "Give another --output, or --shard-tokens 0 to hold the text in memory."
        ) from None
    try:
        yield
    finally:
        _release(lock)


def _lock(run: Path, name: str) -> FileLock:
    """A lock, not yet acquired, on a file in the run's folder, which is created if necessary."""

    def sign(descriptor: int) -> None:
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode())

    try:
        run.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(run, error) from None
    # Without system locks, filelock would treat an existing file as a lock, which remains if the process is killed.
    return FileLock(run / name, fallback_to_soft=False, on_acquired=sign)


def _release(lock: FileLock) -> None:
    """Removes the file before the lock: a waiting process notices that, and locks a new file. Windows keeps the file,
    because it is open."""
    with contextlib.suppress(OSError):
        os.unlink(lock.lock_file)
    lock.release()


def _holder(file: Path) -> str:
    with contextlib.suppress(OSError), open(file, encoding="utf-8", errors="replace") as signed:
        return signed.read(200) or "another process"
    return "another process"


def _unwritable(run: Path, error: OSError) -> SgdecError:
    return SgdecError(f"{run}: cannot be written ({error.strerror}). Give another --output.")
