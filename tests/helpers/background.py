"""What tests need that also pass in the background: of cron, of nohup, with any folder of temporary files."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory


def heed_interrupts() -> None:
    """For ``preexec_fn``: in the background of a shell tests ignore SIGINT, and so would the processes they start."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def short_folder() -> Iterator[Path]:
    """A temporary folder with room for the names of sockets, whose paths have about a hundred bytes at most."""
    place = "/tmp" if os.access("/tmp", os.W_OK) else None
    with TemporaryDirectory(prefix="r", dir=place, ignore_cleanup_errors=True) as folder:
        yield Path(folder)
