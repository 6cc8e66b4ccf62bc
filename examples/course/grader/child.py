"""The conversation with the process of a submission: one question, one answer, both a line of JSON, in turn."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from grader.boundary import Boundary

LONGEST = 16 << 20
"""The most bytes of an answer."""
GRACE = 0.3
"""Seconds in which a process says where it is, before it is ended."""
STARTING = 60.0
"""The most seconds until a process answers its first question."""


NO_TIME = "no time was left (--total)"


class Broken(AssertionError):
    """What a submission did instead of answering; a broken promise."""


class Gone(Broken):
    """The submission has no process any more."""


class Child:
    """A process of a submission."""

    def __init__(self, boundary: Boundary, seconds: float, until: float) -> None:
        """``seconds``: the time for the answers of one check. ``until``: the end of all checks (`time.monotonic`)."""
        self._boundary = boundary
        self._seconds, self._until = seconds, until
        self._left = STARTING
        self._printed = tempfile.TemporaryFile()  # noqa: SIM115 - closed by end()
        self._process: subprocess.Popen[bytes] | None = boundary.start(self._printed)
        self._buffer = b""
        self._number = 0

    @property
    def alive(self) -> bool:
        return self._process is not None

    def begin_check(self) -> None:
        """From now on the answers of the next check count."""
        self._left = self._seconds

    def ask(self, what: str, **arguments: Any) -> dict[str, Any]:
        """The answer. Raises Broken with what the submission raised, Gone if it ended, or was too slow."""
        self._number += 1
        line = json.dumps({"ask": what, "with": arguments, "number": self._number}) + "\n"
        begun = time.monotonic()
        try:
            answer = self._read(line.encode(), begun)
        finally:
            self._left -= time.monotonic() - begun
        if "error" in answer:
            raise Broken(str(answer["error"])[:400])
        return answer

    def end(self) -> str:
        """End the process; how it ended, in words."""
        if self._process is None:
            return "ended"
        status = self._boundary.end(self._process)
        self._process = None
        self._printed.close()
        if status < 0:
            return f"the process died ({signal.Signals(-status).name})"
        return f"the process died (exit status {status})"

    def printed(self, most: int = 10_000) -> str:
        """The end of what the submission has printed."""
        if self._process is None:
            return ""
        size = os.fstat(self._printed.fileno()).st_size
        return os.pread(self._printed.fileno(), most, max(0, size - most)).decode(errors="replace")

    def _read(self, line: bytes, begun: float) -> dict[str, Any]:
        if self._process is None:
            raise Gone("the process has ended")
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        try:
            stdin.write(line)
            stdin.flush()
            while b"\n" not in self._buffer:
                left = min(self._left, self._until - begun) - (time.monotonic() - begun)
                if left <= 0 or not select.select([stdout], [], [], left)[0]:
                    raise self._too_slow(self._until - begun < self._left)
                more = os.read(stdout.fileno(), 1 << 16)
                if not more:
                    raise Gone(self.end())
                self._buffer += more
                if len(self._buffer) > LONGEST:
                    self.end()
                    raise Gone(f"an answer of more than {LONGEST >> 20} MiB")
        except BrokenPipeError:
            raise Gone(self.end()) from None
        text, _, self._buffer = self._buffer.partition(b"\n")
        try:
            answer = json.loads(text)
            in_turn = answer["number"] == self._number
        except (ValueError, TypeError, KeyError, RecursionError):
            in_turn = False
        if not in_turn or self._buffer:
            self.end()
            raise Gone("something else wrote in the place of an answer")
        return dict(answer)

    def _too_slow(self, over: bool) -> Gone:
        where = self._where()
        self.end()
        if over:
            return Gone(NO_TIME)
        return Gone(f"no end after {self._seconds:g} seconds{f' (in {where})' if where else ''}")

    def _where(self) -> str | None:
        """The function in which the submission is."""
        assert self._process is not None
        for process in _family(self._process.pid):
            with contextlib.suppress(OSError):
                if b"main.py" in Path(f"/proc/{process}/cmdline").read_bytes():  # a signal would end bubblewrap
                    os.kill(process, signal.SIGUSR1)
        time.sleep(GRACE)
        places = re.findall(r'File "[^"]*submission/[^"]+", line \d+ in (\S+)', self.printed())
        return places[0] if places else None


def _family(process: int) -> list[int]:
    """This process and all that it has started; bubblewrap starts the submission's."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            parent = int(entry.read_text().rsplit(")", 1)[1].split()[1])
            children.setdefault(parent, []).append(int(entry.parent.name))
    found = [process]
    for each in found:  # grows meanwhile
        found += children.get(each, ())
    return found
