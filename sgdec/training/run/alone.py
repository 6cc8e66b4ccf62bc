"""Locks on a run's folder. They are the system's, so they end with the process, however that ends."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sgdec.errors import SgdecError
from sgdec.io.writing import lock

LOCK = ".lock"


@contextmanager
def lockable(run: Path, name: str = "") -> Iterator[int]:
    """A descriptor to lock, of a file in the folder, which is made, or of the folder itself.

    Raises `SgdecError` where nothing can be written.
    """
    try:
        run.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(run / name, os.O_RDONLY | (os.O_CREAT if name else 0), 0o644)
    except OSError as error:
        raise SgdecError(f"{run}: cannot be written ({error.strerror}). Give another --output.") from None
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def alone(run: Path) -> Iterator[None]:
    """In the block no other process trains in the folder: two would write over each other's checkpoints.

    A file system without locks is taken for one that nobody else uses. Raises `SgdecError` where another process is
    there, or nothing can be written; a folder that was made for nothing is gone then.
    """
    fresh = not run.exists()
    with lockable(run, LOCK) as descriptor:
        if not lock(descriptor):
            raise SgdecError(
                f"{run}: another process is training in this folder. Wait for it, end it, or give another --output."
            )
        try:
            yield
        finally:
            if fresh and [entry.name for entry in run.iterdir()] == [LOCK]:  # it was refused before it began
                with contextlib.suppress(OSError):
                    (run / LOCK).unlink()
                    run.rmdir()
