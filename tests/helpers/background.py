"""Helpers for tests that also pass in the background: of cron, of nohup, with any folder of temporary files."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.util import get_temp_dir
from pathlib import Path

import pytest


def heed_interrupts() -> None:
    """For ``preexec_fn``: in the background of a shell tests ignore SIGINT, and so would the processes they start."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


SHORT = "/tmp" if os.access("/tmp", os.W_OK) else None
"""A folder with room for the names of sockets, whose paths have about a hundred bytes at most."""


@contextmanager
def short_folder() -> Iterator[Path]:
    """A temporary folder with room for the names of sockets."""
    with tempfile.TemporaryDirectory(prefix="r", dir=SHORT, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def give_room_to_multiprocessing() -> None:
    """Let its sockets be in a folder with a short name; the folder is made once in a process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", SHORT or tempfile.gettempdir())
        get_temp_dir()
