"""One process in a run's folder: two would write over each other's checkpoints."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sgdec.errors import SgdecError

LOCK = ".lock"


@contextmanager
def alone(run: Path) -> Iterator[None]:
    """In the block no other process is in this block with the same folder, which is made if there is none.

    The lock is the system's, so it ends with the process, however that ends. A file system without locks is taken
    for one that nobody else uses. Raises `SgdecError` where another process is there, or nothing can be written.
    """
    fresh = not run.exists()
    try:
        run.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(run / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise SgdecError(f"{run}: cannot be written ({error.strerror}). Give another --output.") from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SgdecError(
                f"{run}: another process is training in this folder. Wait for it, end it, or give another --output."
            ) from None
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP):
                raise
        try:
            yield
        finally:
            if fresh and [entry.name for entry in run.iterdir()] == [LOCK]:  # it was refused before it began
                with contextlib.suppress(OSError):
                    (run / LOCK).unlink()
                    run.rmdir()
    finally:
        os.close(descriptor)
