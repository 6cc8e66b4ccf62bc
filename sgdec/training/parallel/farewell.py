"""An error message from a process that receives SIGTERM while it waits for other processes.

When a process has died, torchrun sends SIGTERM to the remaining ones. A signal handler in Python runs only when the
main thread returns from C++, where it may be waiting for another rank; on a GPU it may never return. So the signal
wakes a thread instead.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

GRACE_SECONDS = 10.0
"""Time for the main thread to report its own error."""


@contextmanager
def farewell(last_word: Callable[[], BaseException]) -> Iterator[None]:
    """In the block, and after an error in it, SIGTERM makes this process print the error ``last_word()`` and end.

    If ``last_word`` returns `SystemExit`, nothing is printed: another thread or process reports the error. Works only
    in the main thread, because only that may handle signals; in other threads it does nothing. Nor on Windows, whose
    processes receive no SIGTERM from others.
    """
    if os.name == "nt" or threading.current_thread() is not threading.main_thread():
        yield
        return
    ear, mouth = os.pipe()
    os.set_blocking(mouth, False)  # set_wakeup_fd requires it
    before = signal.signal(signal.SIGTERM, lambda number, frame: None)
    signal.set_wakeup_fd(mouth)
    threading.Thread(target=_listen, args=(ear, last_word), daemon=True).start()
    yield
    # Not restored after an error: SIGTERM must not end the process before the error is printed.
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGTERM, before)
    os.close(mouth)


def _listen(ear: int, last_word: Callable[[], BaseException]) -> None:
    """Read signal numbers from the pipe until SIGTERM arrives or the block ends."""
    while signals := os.read(ear, 1):
        if signals[0] == signal.SIGTERM:
            word = last_word()
            if isinstance(word, SystemExit):  # reported elsewhere, perhaps by this process's main thread
                threading.Event().wait(GRACE_SECONDS)
            else:
                print(f"Error: {word}", file=sys.stderr, flush=True)
            os._exit(128 + signal.SIGTERM)
    os.close(ear)
