"""A program that answers lines with lines: started once, asked many times, ended with its owner.

Threads read its output, so an answer can be waited for with a time limit on every operating system.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import threading
import weakref
from collections.abc import Sequence
from io import BufferedWriter, RawIOBase
from queue import Empty, Queue
from typing import IO, cast

from sgdec.errors import UsageError, one_line

LONGEST = 1 << 28
"""The most bytes of a line; a longer one is cut."""
TAIL = 4096
"""The bytes of its standard error that are kept for a message."""
GRACE_SECONDS = 2.0
"""The time that it has to end by itself when its input ends."""

WRITING_SECONDS = 0.1
"""The time that a request may still be in writing when its end is wanted, since its answer can be there already."""


class LineProcess:
    """Starts ``words`` without a shell. Raises UsageError if that fails; messages begin with ``name``.

    An error is final: the process has ended, and later calls raise the same one.
    """

    def __init__(self, words: Sequence[str], name: str) -> None:
        self._name = name
        self._failure: UsageError | None = None
        pipe = subprocess.PIPE
        try:
            process = subprocess.Popen(
                words, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=-1, start_new_session=os.name == "posix"
            )
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UsageError(f"{name}: {words[0]!r} could not be started: {reason}.") from None
        assert process.stdin and process.stdout and process.stderr
        self._process = process
        self._input = cast(BufferedWriter, process.stdin).detach()  # to close it needs no lock that a write holds
        self._idle = threading.Lock()
        """Held while a request is being written."""
        self._lines: Queue[bytes] = Queue(maxsize=2)  # a program that never stops to print waits
        self._errors = bytearray()
        self._drained = threading.Event()
        tail = (process.stderr, self._errors, self._drained)
        threading.Thread(target=_read_lines, args=(process.stdout, self._lines), daemon=True).start()
        threading.Thread(target=_read_tail, args=tail, daemon=True).start()
        self._end = weakref.finalize(self, _end, process, self._input, self._idle, os.getpid())

    def ask(self, request: bytes, seconds: float) -> bytes:
        """The line that it prints after it was given this one. Raises UsageError as `answer` does."""
        if self._failure is not None or not self._lines.empty():
            early = self.answer(seconds)  # raises if it has failed or ended
            raise self.failed(f"printed a line that nobody had asked for: {shown(early)}")
        threading.Thread(target=_write, args=(self._input, self._idle, request), daemon=True).start()
        return self.answer(seconds)

    def answer(self, seconds: float) -> bytes:
        """Its next line. Raises UsageError if it ends, or if there is none within this time."""
        if self._failure is not None:
            raise self._failure
        try:
            line = self._lines.get(timeout=seconds)
        except Empty:
            raise self.failed(f"said nothing for {seconds:g} seconds") from None
        if not line:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(GRACE_SECONDS)
            status = self._process.poll()
            how = "closed its output" if status is None else f"ended ({_status(status)})"
            raise self.failed(how)
        return line

    def failed(self, how: str) -> UsageError:
        """End the process at once. The error says how it failed, and the last line of its standard error."""
        if self._process.poll() is None:
            _kill(self._process)
        self.close()
        self._drained.wait(GRACE_SECONDS)
        said = re.split(r"[\r\n]+", self._errors.decode("utf-8", "replace").strip())[-1].strip()
        self._failure = UsageError(one_line(f"{self._name} {how}{f'; it last said: {said}' if said else ''}."))
        return self._failure

    def close(self) -> None:
        """End the process and what it has started. Without effect the second time."""
        self._end()


def shown(line: bytes) -> str:
    """The beginning of a line, for messages."""
    text = line.decode("utf-8", "replace").strip()
    return repr(text if len(text) <= 60 else text[:57] + "...")


def _status(status: int) -> str:
    try:
        return f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
    except ValueError:
        return f"signal {-status}"


def _read_lines(output: IO[bytes], lines: Queue[bytes]) -> None:
    with output:
        while line := output.readline(LONGEST):
            lines.put(line)
    lines.put(b"")


def _read_tail(output: IO[bytes], tail: bytearray, drained: threading.Event) -> None:
    with output:
        while some := os.read(output.fileno(), 1 << 16):
            tail += some
            del tail[:-TAIL]
    drained.set()


def _write(into: RawIOBase, idle: threading.Lock, request: bytes) -> None:
    left = memoryview(request)
    with idle, contextlib.suppress(OSError, ValueError):  # it has ended, which the reader sees
        while left:
            left = left[into.write(left) or 0 :]


def _end(process: subprocess.Popen[bytes], its_input: RawIOBase, idle: threading.Lock, owner: int) -> None:
    """End its input, so that it can end by itself; kill it if it does not, or if it still reads a request."""
    if os.getpid() != owner:  # the copy of a fork has not started it
        return
    waits = idle.acquire(timeout=WRITING_SECONDS)
    if waits:
        its_input.close()
    try:
        process.wait(GRACE_SECONDS if waits else 0)
    except subprocess.TimeoutExpired:
        _kill(process)
        process.wait()
    if not waits and idle.acquire(timeout=GRACE_SECONDS):
        its_input.close()


def _kill(process: subprocess.Popen[bytes]) -> None:
    """With the processes that it has started, where the system can."""
    if os.name == "posix":
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()
