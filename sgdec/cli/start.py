"""The process of a command: its interrupts and its standard streams come before everything that takes time."""

from __future__ import annotations

import os
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import NoReturn


def start() -> int:
    """Run the command of this process. Returns its exit status."""
    handled = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # a shell's background job ignores it
    if handled:
        signal.signal(signal.SIGINT, interrupt)
    from sgdec.cli.streams import occupy_closed

    occupy_closed()
    from sgdec.threads import THREADS

    THREADS.begin()
    from sgdec.cli.main import main

    status = main()
    if handled:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # in Python's own end it would be noise
    return status


def interrupt(number: int, frame: FrameType | None) -> NoReturn:
    """Raises KeyboardInterrupt; in the middle of an import it ends the process at once and silently.

    An import would lose the exception, take it for an error of a library, or show where it was.
    """
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            os._exit(128 + number)  # as shells report it
        frame = frame.f_back
    raise KeyboardInterrupt
