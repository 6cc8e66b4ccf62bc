"""The boundary around a submission's process, which it cannot cross even if it tries.

- `OtherUser`, for graders that run as root: a user that nobody else is, with the `View` as the root folder.
- `Bubblewrap`, for others: namespaces of its own, made by bubblewrap (`bwrap`), with the same root folder.
- `NoBoundary`: a plain process, which protects from mistakes. There are no marks.

Both boundaries have limits on memory, processes, files and time, and a filter of system calls without network. All
processes of a submission end together. Windows cannot do that, so no submission runs there.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from abc import ABC, abstractmethod
from pathlib import Path
from typing import IO, Any, ClassVar

from grader.inside.launch import MACHINES
from grader.view import INSIDE, LAUNCHER, PROGRAM, PYTHON, View, readable
from sgdec.errors import SgdecError, UsageError

MEMORY = 4 << 30
"""The most bytes of the address space of a process, and of the memory of all processes of a submission."""
PROCESSES = 16
"""The most processes and threads at a time: few, because they compete with other submissions for processors."""
PROC = "/proc"
WRITTEN = 1 << 20
"""The most bytes that it may print."""
CPU = 600
"""The most seconds of processor time of a process, which end it even if no grader is left."""
USERS = range(61_000, 65_000, 2)
"""Users that systems leave free (systemd, ``docs/UIDS-GIDS``, gives 61184 to 65519 only for a short time). The number
after each of them is for the process that ends its processes."""


class Boundary(ABC):
    """Starts the processes of one submission, and ends them."""

    name: ClassVar[str]
    protects: ClassVar[bool] = True
    whole: ClassVar[bool] = True
    """Whether the view is the root folder of the submission."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="sgdec-grade-"))
        root = self._folder / "root"
        root.mkdir()
        try:
            with readable():
                self.view = View(root, whole=self.whole)
        except BaseException:
            shutil.rmtree(self._folder)
            raise

    def start(self, printed: IO[bytes]) -> subprocess.Popen[bytes]:
        """A new process, which answers questions on its standard output; the rest that it prints goes to a file."""
        return subprocess.Popen(
            self._command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=printed, cwd="/", env={},
            bufsize=0, start_new_session=True,
        )  # fmt: skip

    def end(self, process: subprocess.Popen[bytes]) -> int:
        """End the process and all that it has started; its exit status."""
        while others := self.processes(process):  # one may have started another meanwhile
            for each in others:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(each, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError, PermissionError):  # there may be no /proc
            os.killpg(process.pid, signal.SIGKILL)
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                pipe.close()  # type: ignore[union-attr]
        return process.wait()

    def processes(self, process: subprocess.Popen[bytes]) -> list[int]:
        """This process and all that it has started, if they have not ended."""
        running = _running()
        found = [process.pid] if process.pid in running else []
        for each in found:  # grows meanwhile
            found += [number for number, (_, parent) in running.items() if parent == each]
        return found

    def memory(self, process: subprocess.Popen[bytes]) -> int:
        """The bytes that they hold in memory together."""
        return sum(map(_resident, self.processes(process)))

    def close(self) -> None:
        """Remove the view."""
        shutil.rmtree(self._folder, ignore_errors=True)

    @abstractmethod
    def _command(self) -> list[str]:
        """The command of a new process."""


LIMITS = {"RLIMIT_AS": MEMORY, "RLIMIT_NPROC": PROCESSES, "RLIMIT_FSIZE": WRITTEN, "RLIMIT_NOFILE": 256,
          "RLIMIT_CORE": 0, "RLIMIT_CPU": CPU}  # fmt: skip
TRUE = shutil.which("true") or "/bin/true"
IN_VIEW = [str(PYTHON), "-I", "-S", "-B"]


def _launched(**asked: Any) -> str:
    """The argument of ``launch.py``: by default with all limits and the filter, and then the program of the view."""
    whole = {"limits": LIMITS, "root": None, "user": None, "filter": True, "command": [*IN_VIEW, str(PROGRAM)]}
    return json.dumps({**whole, **asked})


def _launch(**asked: Any) -> list[str]:
    return [sys.executable, "-I", "-S", str(INSIDE / "launch.py"), _launched(**asked)]


class OtherUser(Boundary):
    """Needs root."""

    name = "another user in a folder of its own"

    def __init__(self) -> None:
        if sys.platform != "linux" or os.geteuid() != 0:
            raise SgdecError("only root can start processes of another user")
        _require_filter()
        _require_work(_launch(root="/", user=USERS[0], command=[TRUE]), self.name)
        super().__init__()
        self._user = -1

    def _command(self) -> list[str]:
        used = {user for user, _ in _running().values()}
        self._user = random.SystemRandom().choice(sorted({*USERS} - used))  # the limit on processes is one of a user
        return _launch(root=str(self.view.root), user=self._user)

    def processes(self, process: subprocess.Popen[bytes]) -> list[int]:
        return [number for number, (user, _) in _running().items() if user == self._user]

    def end(self, process: subprocess.Popen[bytes]) -> int:
        with contextlib.suppress(ProcessLookupError):
            process.kill()  # it may not have changed its user yet
        other = self._user + 1  # of whom signals cannot stop this: man 2 kill
        as_user = f"import os; os.setgroups([]); os.setresuid({other}, {self._user}, {other}); os.kill(-1, 9)"
        while self.processes(process):  # all at once, which no process escapes by starting another
            subprocess.run([sys.executable, "-I", "-S", "-c", as_user], check=False)
        return super().end(process)


NAMESPACES = ["--unshare-all", "--unshare-user"]


class Bubblewrap(Boundary):
    """Needs the program ``bwrap``, and a kernel that lets users make namespaces."""

    name = "bubblewrap"

    def __init__(self) -> None:
        found = shutil.which("bwrap")
        if found is None:
            raise SgdecError("bubblewrap is not installed (Debian, Ubuntu, Fedora: the package bubblewrap)")
        if os.geteuid() == 0:
            raise SgdecError("root has no limit on processes in bubblewrap; root can use --boundary user")
        _require_filter()
        _require_work([found, *NAMESPACES, "--ro-bind", "/", "/", TRUE], self.name)
        self._program = found
        super().__init__()

    def _command(self) -> list[str]:
        return [
            self._program, *NAMESPACES, "--uid", "65534", "--gid", "65534", "--die-with-parent", "--new-session",
            "--clearenv", "--ro-bind", str(self.view.root), "/", "--proc", "/proc", "--dev", "/dev",
            "--remount-ro", "/dev", "--chdir", "/", *IN_VIEW, str(LAUNCHER), _launched(),
        ]  # fmt: skip


class NoBoundary(Boundary):
    """Only limits that a plain process can give itself."""

    name = "none"
    protects = False
    whole = False

    def _command(self) -> list[str]:
        return [sys.executable, "-I", "-S", "-B", str(self.view.at("/inside/main.py"))]


KINDS: dict[str, type[Boundary]] = {"user": OtherUser, "bubblewrap": Bubblewrap, "none": NoBoundary}


def open_boundary(kind: str) -> tuple[Boundary, str]:
    """A boundary of this kind, and why there is none if it is `NoBoundary`. ``auto``: the strongest that works here.

    Raises UsageError if the kind that was asked for does not work here, or this is Windows.
    """
    require_posix()
    if kind == "none":
        return NoBoundary(), "asked for by --boundary none"
    if kind != "auto":
        try:
            return KINDS[kind](), ""
        except SgdecError as error:
            raise UsageError(f"--boundary {kind}: {str(error).removesuffix('.')}.") from None
    reasons = []
    for cls in (OtherUser, Bubblewrap):
        try:
            return cls(), ""
        except SgdecError as error:
            reasons.append(str(error))
    return NoBoundary(), "; ".join(reasons)


def require_posix() -> None:
    """Raises UsageError on Windows, which cannot end a process together with all that it has started."""
    if not hasattr(os, "killpg"):
        raise UsageError(
            "submissions run only on Linux and macOS. On Windows grade in WSL, or run checks without marks by "
            "grade.py --debug TEXT."
        )


def _require_filter() -> None:
    if sys.platform != "linux" or platform.machine() not in MACHINES:
        raise SgdecError(f"system calls are filtered only on Linux with {' or '.join(MACHINES)}")


def _require_work(command: list[str], name: str) -> None:
    """Containers, and some systems, take the rights away that a boundary needs."""
    tried = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if tried.returncode != 0:
        reason = [f"exit status {tried.returncode}", *filter(None, map(str.strip, tried.stderr.splitlines()))][-1]
        raise SgdecError(f"{name} does not work here ({reason})")


def _running() -> dict[int, tuple[int, int]]:
    """All processes of this machine that have not ended, with their users and the processes that started them.

    A process runs on after the end of its first thread, although it looks like a dead one then. Nothing is found on
    systems that have no ``/proc``.
    """
    found = {}
    for entry in os.scandir(PROC) if os.path.isdir(PROC) else ():
        with contextlib.suppress(OSError, IndexError):
            if entry.name.isdigit():
                with open(f"{entry.path}/stat", "rb") as file:
                    said = file.read().rsplit(b")", 1)[1].split()
                state, parent, threads = said[0], int(said[1]), int(said[17])  # man 5 proc
                if state not in b"ZX" or threads > 1:
                    found[int(entry.name)] = entry.stat().st_uid, parent
    return found


def _resident(process: int) -> int:
    """The bytes of memory that a process holds, as its threads that have not ended say."""
    pages = 0
    for path in Path(PROC, str(process), "task").glob("*/statm"):
        with contextlib.suppress(OSError, IndexError):
            pages = max(pages, int(path.read_text().split()[1]))
    return pages * os.sysconf("SC_PAGE_SIZE")
