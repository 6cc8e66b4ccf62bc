"""A last word of a process that is told to end (SIGTERM) while it waits for others.

torchrun sends SIGTERM to the processes that are left when one has died. A handler in Python would run only when the
main thread comes back from whatever it waits for in C++, on a GPU perhaps never. So the signal wakes a thread.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

GRACE_SECONDS = 10.0
"""For the main thread to say itself what it has met."""


@contextmanager
def farewell(last_word: Callable[[], BaseException]) -> Iterator[None]:
    """In the block, and after an error in it, SIGTERM ends this process when it has told ``last_word()``.

    A `SystemExit` is a word that is told elsewhere.
    Works only in the main thread, which alone may handle signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ear, mouth = os.pipe()
    os.set_blocking(mouth, False)  # as signal handlers ask
    before = signal.signal(signal.SIGTERM, lambda number, frame: None)
    signal.set_wakeup_fd(mouth)
    threading.Thread(target=_listen, args=(ear, last_word), daemon=True).start()
    yield
    # not after an error: until the process has told it, SIGTERM is not to end it
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGTERM, before)
    os.close(mouth)


def _listen(ear: int, last_word: Callable[[], BaseException]) -> None:
    """Wait for the number of SIGTERM, or for the end of the block."""
    while signals := os.read(ear, 1):
        if signals[0] == signal.SIGTERM:
            word = last_word()
            if isinstance(word, SystemExit):  # it is told elsewhere, perhaps by our own main thread
                threading.Event().wait(GRACE_SECONDS)
            else:
                print(f"Error: {word}", file=sys.stderr, flush=True)
            os._exit(128 + signal.SIGTERM)
    os.close(ear)
