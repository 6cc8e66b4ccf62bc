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

from grader.boundary import MEMORY, Boundary
from sgdec.errors import SgdecError

LONGEST = 16 << 20
"""The most bytes of an answer."""
GRACE = 0.3
"""Seconds in which a process says where it is, before it is ended."""
READ = 1 << 16
LOOKING = 0.25
"""Seconds between two looks at the memory of a submission."""
STARTING = 60.0
"""The most seconds until a process is there, which has to import the core of sgdec."""


NO_TIME = "no time was left (--total)"


class Broken(AssertionError):
    """A submission did something else than to answer, in words: a broken promise."""


class Gone(Broken):
    """The submission has no process any more."""


class Late(Gone):
    """The time of all checks together has ended, whatever the submission was doing."""


class Child:
    """A process of a submission."""

    def __init__(self, boundary: Boundary, seconds: float, until: float) -> None:
        """``seconds``: the time for the answers of one check. ``until``: the end of all checks (`time.monotonic`).

        Raises SgdecError if the process does not start, and Late if there is no time for that.
        """
        self._boundary = boundary
        self._seconds, self._until = seconds, until
        self._left = STARTING
        self._printed = tempfile.TemporaryFile()  # noqa: SIM115 - closed by end()
        self._process: subprocess.Popen[bytes] | None = boundary.start(self._printed)
        self._number = 0
        self._looked = time.monotonic()
        try:
            self.ask("are you there")
        except Late:
            raise
        except Broken as error:
            printed = " ".join(self.printed().split())
            self.end()
            raise SgdecError(f"the boundary ({boundary.name}) does not start: {error}. {printed[-300:]}") from None

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
            raise Broken(str(answer["error"]))
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
        assert self._process.stdin is not None and self._process.stdout is not None
        to, of = self._process.stdin.fileno(), self._process.stdout.fileno()
        try:
            while line:  # which may be longer than the pipe, and nobody has to read it
                self._wait([], [to], begun)
                line = line[os.write(to, line[: select.PIPE_BUF]) :]
            said = bytearray()
            while b"\n" not in said[-READ:]:
                self._wait([of], [], begun)
                more = os.read(of, READ)
                if not more:
                    raise Gone(self.end())
                said += more
                if len(said) > LONGEST:
                    self.end()
                    raise Gone(f"an answer of more than {LONGEST >> 20} MiB")
        except BrokenPipeError:
            raise Gone(self.end()) from None
        text, _, rest = said.partition(b"\n")
        try:
            answer = json.loads(text)
            in_turn = answer["number"] == self._number
        except (ValueError, TypeError, KeyError, RecursionError):
            in_turn = False
        if not in_turn or rest:
            self.end()
            raise Gone("something else wrote in the place of an answer")
        return dict(answer)

    def _wait(self, reading: list[int], writing: list[int], begun: float) -> None:
        """Wait until one of these can be read or written. Raises Gone if that takes too long, or too much memory."""
        assert self._process is not None
        while True:
            now = time.monotonic()
            left, left_of_all = self._left - (now - begun), self._until - now
            if min(left, left_of_all) <= 0:
                where = self._where()
                self.end()
                if left_of_all <= 0:
                    raise Late(NO_TIME)
                raise Gone(f"no end after {self._seconds:g} seconds{f' (in {where})' if where else ''}")
            if now - self._looked > LOOKING:  # also while it answers: another of its processes can take memory
                if self._boundary.memory(self._process) > MEMORY:
                    self.end()
                    raise Gone(f"more than {MEMORY >> 30} GiB of memory")
                self._looked = time.monotonic()
            if any(select.select(reading, writing, [], min(left, left_of_all, LOOKING))):
                return

    def _where(self) -> str | None:
        """The function in which the submission is."""
        assert self._process is not None
        for process in self._boundary.processes(self._process):
            with contextlib.suppress(OSError):
                command = Path(f"/proc/{process}/cmdline").read_bytes()
                if command.endswith(b"/main.py\0"):  # bubblewrap names it too, and a signal would end it
                    os.kill(process, signal.SIGUSR1)
        time.sleep(GRACE)
        places = re.findall(r'File "[^"]*submission/[^"]+", line \d+ in ([\w<>.]+)', self.printed())
        return places[0] if places else None
