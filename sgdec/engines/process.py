"""A worker as a process: ``python -m sgdec.engines.process NAME`` reads a job and then tasks, and says what happens.

Both directions are lines of JSON, in over standard input and out over the descriptor that was standard output. What
code prints goes to standard error. The process ends with its standard input, so none outlives its starter; Linux also
kills it if its starter dies while native code runs and lets no other thread work.
"""

from __future__ import annotations

import ctypes
import faulthandler
import json
import os
import signal
import sys
import threading
import time
from typing import Any

from sgdec.corpus.engine import Advanced, Done, Event, Job, Ready, Refused, Task
from sgdec.engines.messages import line_of
from sgdec.errors import SgdecError, one_line

PAUSE = 0.2
"""The least seconds between two reports of progress."""
STARTER_DIED = 3
_PR_SET_PDEATHSIG = 1


def main(name: str) -> int:
    """Work until standard input ends."""
    faulthandler.enable()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    orders = os.fdopen(os.dup(0), "r", encoding="utf-8")
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def say(event: Event) -> None:
        answers.write(line_of(event) + "\n")
        answers.flush()

    job = Job.of_json(orders.readline())
    waiting: list[Task] = []
    ready = threading.Condition()
    threading.Thread(target=_listen, args=(orders, waiting, ready), daemon=True).start()
    try:
        from sgdec.corpus.work import Worker

        worker = Worker(job, name)
        say(Ready(name, worker.hello))
        while True:
            with ready:
                ready.wait_for(lambda: waiting)
                task = waiting.pop(0)
            say(Done(name, task, worker.work(task, _Reporter(name, say))))
    except SgdecError as error:
        say(Refused(name, str(error), error.exit_status))
    except MemoryError:
        return 1
    except Exception as error:
        say(Refused(name, f"{type(error).__name__}: {one_line(str(error))}"))
        raise
    return 1


class _Reporter:
    """Says how many lines are done, but not each time."""

    def __init__(self, name: str, say: Any) -> None:
        self._name, self._say = name, say
        self._last = 0.0

    def __call__(self, lines: int) -> None:
        if (now := time.monotonic()) - self._last >= PAUSE:
            self._last = now
            self._say(Advanced(self._name, lines))


def _listen(orders: Any, waiting: list[Task], ready: threading.Condition) -> None:
    for line in orders:
        with ready:
            waiting.append(Task(*json.loads(line)))
            ready.notify()
    os._exit(STARTER_DIED)  # the main thread may be in native code for long


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
