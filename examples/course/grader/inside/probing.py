"""Tries to cross the boundary, before the submission is there: the grader gives marks only if all of this fails."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import socket
from collections.abc import Callable
from functools import partial
from typing import Any

_PTRACE_SEIZE = 0x4206
"""Becomes the tracer of a process without stopping it, until this process ends."""


def probe(paths: list[str], process: int, port: int) -> dict[str, Any]:
    """All that was possible, in words: to read ``paths``, to reach ``process`` (the grader) or a ``port`` here,
    to write anywhere, to have no limits."""
    tries: dict[str, Callable[[], object]] = {
        **{f"read {path}": partial(_read, path) for path in paths},
        "send a signal to the grader": lambda: os.kill(process, 0),
        "trace the grader": lambda: _trace(process),
        "reach the network": lambda: socket.create_connection(("127.0.0.1", port), 1).close(),
        "open a pair of sockets": socket.socketpair,
        "write a file": _write,
        "import the bundled decoders": lambda: __import__("sgdec_decoders"),
        "import the testing kit": lambda: __import__("sgdec.testing"),
        "use memory and processor without limits": _unlimited,
        "start processes without end": _fork,
    }
    possible = []
    for what, attempt in tries.items():
        with contextlib.suppress(Exception):
            attempt()
            possible.append(what)
    return {"possible": possible}


def _read(path: str) -> None:
    os.listdir(path) if os.path.isdir(path) else os.close(os.open(path, os.O_RDONLY))


def _trace(process: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(_PTRACE_SEIZE, process, None, None) != 0:
        raise OSError


def _write() -> None:
    for folder in ("/", "/submission", "/site", "/tmp", os.getcwd(), os.path.dirname(os.path.abspath(__file__))):
        path = os.path.join(folder, f"probe-{os.getpid()}")
        with contextlib.suppress(OSError):
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
            os.unlink(path)
            return
    raise OSError


def _fork(most: int = 200) -> None:
    """Raises OSError once there are too many, and leaves them to the grader."""
    for _ in range(most):
        if os.fork() == 0:
            signal.pause()


def _unlimited() -> None:
    for name in ("RLIMIT_AS", "RLIMIT_FSIZE", "RLIMIT_NOFILE", "RLIMIT_CPU"):
        if resource.getrlimit(getattr(resource, name))[1] == resource.RLIM_INFINITY:
            return
    raise OSError
