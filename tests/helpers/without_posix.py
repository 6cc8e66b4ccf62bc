"""A process in which much of POSIX is missing, as on Windows. It imports all modules, then runs commands.

    python -m tests.helpers.without_posix < CALLS.json

``CALLS.json``: a list of command lines. Written to standard output as JSON: the exit status of each, with what it
wrote to standard error, and the modules that cannot be imported. Also as on Windows, an open file can be neither
renamed nor removed, no folder can be opened, and links are not allowed. Libraries are imported first, because they
run other code on Windows.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import importlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable
from enum import IntEnum
from types import ModuleType
from typing import Any

from tests.helpers.imports import modules
from tests.helpers.places import ROOT

LIBRARIES = ("multiprocessing.popen_spawn_posix", "filelock", "torch", "torch.utils.tensorboard", "torch.distributed",
             "torch._dynamo", "matplotlib.pyplot", "transformers", "sentencepiece", "sacrebleu", "pydantic",
             "tempfile", "asyncio", "socketserver", "getpass")  # fmt: skip
MODULES = ("fcntl", "grp", "pwd", "pty", "resource", "syslog", "termios", "tty")
OF_OS = (
    "O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK", "chown", "chroot", "ctermid", "fchdir", "fchmod",
    "fchown", "fork", "forkpty", "getegid", "geteuid", "getgid", "getgroups", "getloadavg", "getpgid", "getpgrp",
    "getpriority", "getsid", "getuid", "initgroups", "killpg", "lchown", "lockf", "mkfifo", "mknod", "nice",
    "pidfd_open", "pread", "pwrite", "register_at_fork", "sched_getaffinity", "sched_setaffinity", "sched_yield",
    "setgid", "setpgid", "setsid", "setuid", "statvfs", "sync", "sysconf", "ttyname", "uname", "wait", "wait3",
    "wait4", "waitid",
)  # fmt: skip
SIGNALS = {"SIGINT": 2, "SIGILL": 4, "SIGABRT": 6, "SIGFPE": 8, "SIGSEGV": 11, "SIGTERM": 15}


def take_away() -> None:
    """Remove from this process what Windows lacks, and let calls fail that fail there."""
    for name in LIBRARIES:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    whole = ModuleType("os")
    whole.__dict__.update(os.__dict__)
    for name, module in list(sys.modules.items()):
        if name == "tempfile" or name.startswith("filelock."):
            module.__dict__.update({"os": whole, "_os": whole})
    sys.modules["msvcrt"], sys.modules["_winapi"] = msvcrt(), _winapi()
    for name in MODULES:
        sys.modules[name] = None  # type: ignore[assignment]
    kill = signal.SIGKILL
    subprocess.Popen.kill = lambda process: process.send_signal(kill)  # type: ignore[method-assign]
    for name in [name for name in dir(signal) if name.startswith("SIG") and name[3] != "_" and name not in SIGNALS]:
        delattr(signal, name)
    signal.Signals = IntEnum("Signals", SIGNALS)  # type: ignore[assignment, misc]
    for name in OF_OS:
        if hasattr(os, name):
            delattr(os, name)
    for name in ("rename", "replace", "unlink", "remove"):
        setattr(os, name, _of_closed(getattr(os, name)))
    os.symlink = _refused  # type: ignore[assignment]
    os.open = _of_no_folder(os.open)


def msvcrt() -> ModuleType:
    """What a lock takes on Windows."""
    module: Any = ModuleType("msvcrt")

    def locking(descriptor: int, mode: int, size: int) -> None:
        """A lock of POSIX on the open file, since that of one process must not exclude itself."""
        assert (mode, size) == (module.LK_NBLCK, 1) and os.lseek(descriptor, 0, os.SEEK_CUR) > 1 << 20
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PermissionError(errno.EACCES, "Permission denied") from None

    module.LK_NBLCK, module.locking = 2, locking
    return module


def _winapi() -> ModuleType:
    module: Any = ModuleType("_winapi")
    module.CreateJunction = os.symlink
    return module


def _refused(*given: Any, **also: Any) -> None:
    error: Any = OSError(errno.EINVAL, "A required privilege is not held by the client")
    error.winerror = 1314
    raise error


def _of_closed(call: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(call)
    def guarded(path: Any, *more: Any, **also: Any) -> None:
        if also.get("dir_fd") is None:
            for each in (path, *more):
                if (name := os.path.realpath(os.fspath(each))) in _opened():
                    raise PermissionError(errno.EACCES, "another process uses the file", name)
            if more and os.path.isdir(more[0]):
                raise PermissionError(errno.EACCES, "Access is denied", more[0])
        call(path, *more, **also)

    return guarded


def _opened() -> set[str]:
    found = set()
    for entry in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found.add(os.readlink(f"/proc/self/fd/{entry}"))
    return found


def _of_no_folder(call: Callable[..., int]) -> Callable[..., int]:
    @functools.wraps(call)
    def guarded(path: Any, *more: Any, **also: Any) -> int:
        if also.get("dir_fd") is None and os.path.isdir(path):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return call(path, *more, **also)

    return guarded


def import_all() -> list[str]:
    """Import all modules, and the grader of the course. Returns what went wrong, except a missing library."""
    wrong = []
    sys.path.append(str(ROOT / "examples" / "course"))
    for name in (*modules(), "grader.cli", "lecturer.classes"):
        if name.endswith("__main__"):
            continue
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name in MODULES or (error.name or "").startswith("sgdec"):
                wrong.append(f"{name}: {error}")
        except Exception as error:
            wrong.append(f"{name}: {type(error).__name__}: {error}")
    return wrong


def run(args: list[str]) -> tuple[int, str]:
    """The exit status of a command, and what it wrote to standard error; a traceback is an exit status of 99."""
    from sgdec.cli.main import main

    status, said = 99, io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
        try:
            status = main(args)
        except Exception:
            traceback.print_exc()
    return status, said.getvalue()


if __name__ == "__main__":
    calls = json.load(sys.stdin)
    if sys.flags.warn_default_encoding:
        warnings.filterwarnings("error", category=EncodingWarning, module="sgdec")
    shutil._use_fd_functions = False  # type: ignore[attr-defined]
    take_away()
    wrong = import_all()
    json.dump({"wrong": wrong, "runs": [run(call) for call in calls]}, sys.stdout)
