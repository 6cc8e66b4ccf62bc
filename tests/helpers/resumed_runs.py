"""Runs of ``sgdec decode`` that are killed again and again, and gone on with until they are complete.

    python -m tests.helpers.resumed_runs < CASES.json

``CASES.json``: for each case the arguments, the name of the output, how often to kill, and a seed. Written to
standard output, for each case: the files of a whole run and of each that was killed, their exit statuses, how many
signals were sent, and how many of them met a run that was at work. One process imports everything once; each run is a
fork of it.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sgdec.cli.main import main

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
CALLS = ("open", "write", "ftruncate", "fsync", "replace", "unlink")
"""What a run asks of the system where it writes."""


def begin(args: list[str], prepare: Callable[[], None] = lambda: None) -> int:
    """The process of a run. What it says goes to the file ``said``."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # not before there is somebody to take it
    child = os.fork()
    if child == 0:
        status = 99
        try:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
            os.dup2(os.open("said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666), 2)
            os.dup2(2, 1)
            prepare()
            status = main(args)
            sys.stderr.flush()
            sys.stdout.flush()
        except KeyboardInterrupt:  # before or after the command
            status = 130
        except BaseException as error:
            os.write(2, repr(error).encode())
        finally:
            os._exit(status)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    return child


def ended(child: int) -> int:
    """Exit status; negative: the signal."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def run(args: list[str]) -> int:
    return ended(begin(args))


def whole_run(args: list[str], output: str) -> int:
    """In this process first, which imports what every fork then has."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        status = main(args)
    clear(output)
    assert run(args) == status
    return status


def content(output: str) -> dict[str, str]:
    """All files of an output, finished or not: bytes as latin-1."""
    stem = output.partition("{id}")[0]
    return {str(path): path.read_bytes().decode("latin-1") for path in sorted(Path().glob(f"{stem}*"))}


def clear(output: str) -> None:
    for path in content(output):
        os.unlink(path)


def at_random_moments(args: list[str], output: str, kills: int, seed: int) -> dict[str, Any]:
    """Signals after a time that is drawn from the length of a whole run."""
    draw = random.Random(seed)
    status = whole_run(args, output)
    clear(output)
    started = time.monotonic()
    run(args)
    length = time.monotonic() - started
    whole, found, sent, hits = content(output), [], 0, 0
    while sent < kills:
        clear(output)
        child = begin(args)
        while True:
            time.sleep(draw.uniform(0, length))
            os.kill(child, SIGNALS[sent % len(SIGNALS)])
            sent += 1
            last = ended(child)
            hits += last not in (0, 1)
            if last in (0, 1) or sent >= kills:
                break
            child = begin([*args, "--resume"])
        if last not in (0, 1):
            last = run([*args, "--resume"])
        found.append([last, content(output), Path("said").read_text()])
    return {"status": status, "whole": whole, "found": found, "sent": sent, "hits": hits}


def at_every_call(args: list[str], output: str, number: int, seed: int) -> dict[str, Any]:
    """A death before each thing that a run asks of the system where it writes, and in the middle of each write."""
    status = whole_run(args, output)
    whole, found, sent = content(output), [], 0

    def dying(deadline: int, halfway: bool) -> Callable[[], None]:
        def prepare() -> None:
            count = 0

            def counted(call: Callable[..., Any]) -> Callable[..., Any]:
                def wrapped(*arguments: Any, **options: Any) -> Any:
                    nonlocal count
                    count += 1
                    if count == deadline:
                        if halfway and call is before["write"]:
                            call(arguments[0], arguments[1][: len(arguments[1]) // 2])
                        os.kill(os.getpid(), signal.SIGKILL)
                    return call(*arguments, **options)

                return wrapped

            before = {name: getattr(os, name) for name in CALLS}
            for name, call in before.items():
                setattr(os, name, counted(call))

        return prepare

    for halfway in (False, True):
        deadline = 0
        while True:
            deadline += 1
            clear(output)
            first = ended(begin(args, dying(deadline, halfway)))
            if first != -signal.SIGKILL:
                assert first in (0, 1), Path("said").read_text()
                break
            sent += 1
            found.append([run([*args, "--resume"]), content(output), Path("said").read_text()])
    return {"status": status, "whole": whole, "found": found, "sent": sent, "hits": sent}


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell takes from what is in its background
    works = {"moments": at_random_moments, "calls": at_every_call}
    json.dump([works[work](*case) for work, *case in json.load(sys.stdin)], sys.stdout)
