"""Gives up what a submission must not have, and then becomes another program: ``launch.py JSON``.

Linux only. The JSON has ``limits`` (`resource.setrlimit`), ``root`` and ``user`` (None = as they are), whether to
``filter`` system calls that could reach the network or other processes, or leave memory behind, and the ``command``.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import resource
import signal
import struct
import sys
from typing import Any

_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP = 1, 38, 22
_FILTER = 2
MACHINES = {
    # socket, ptrace, process_vm_readv, process_vm_writev, mount, unshare, setns, bpf, keyctl, perf_event_open,
    # userfaultfd, io_uring_setup (which can open sockets), name_to_handle_at, open_by_handle_at; and those of memory
    # that outlives its processes: shmget, msgget, semget, mq_open, add_key, request_key
    "x86_64": (0xC000003E, (41, 101, 310, 311, 165, 272, 308, 321, 250, 298, 323, 425, 303, 304,
                            29, 68, 64, 240, 248, 249)),
    "aarch64": (0xC00000B7, (198, 117, 270, 271, 40, 97, 268, 280, 219, 241, 282, 425, 264, 265,
                             194, 186, 190, 180, 217, 218)),
}
"""For each kind of processor its number in <linux/audit.h>, and the system calls that fail."""
_X32 = 0x40000000
"""System calls of another form on x86_64, which are numbered from here; no program needs them."""


def main(given: str) -> None:
    """Never returns."""
    asked: dict[str, Any] = json.loads(given)
    libc = ctypes.CDLL(None, use_errno=True)
    for name, value in asked["limits"].items():
        resource.setrlimit(getattr(resource, name), (value, value))
    if asked["root"] is not None:
        os.chroot(asked["root"])
        os.chdir("/")
    if asked["user"] is not None:
        os.setgroups([])
        os.setresgid(asked["user"], asked["user"], asked["user"])
        os.setresuid(asked["user"], asked["user"], asked["user"])
    os.umask(0o077)
    _require(libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0))
    _require(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    if asked["filter"]:
        _forbid(libc, *MACHINES[platform.machine()])
    environment = {"PATH": "/", "HOME": "/", "LANG": "C.UTF-8", "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
    os.execve(asked["command"][0], asked["command"], environment)


def _forbid(libc: ctypes.CDLL, machine: int, calls: tuple[int, ...]) -> None:
    """Let these system calls fail with EPERM, by a filter in the kernel (Linux, Documentation/userspace-api/
    seccomp_filter.rst)."""
    load, equal, at_least, end = 0x20, 0x15, 0x35, 0x06
    allow, fail, kill = 0x7FFF0000, 0x00050001, 0x80000000
    count = len(calls)
    lines = [
        (load, 0, 0, 4),
        (equal, 1, 0, machine),
        (end, 0, 0, kill),
        (load, 0, 0, 0),
        (at_least, count + 1, 0, _X32),
        *((equal, count - place, 0, call) for place, call in enumerate(calls)),
        (end, 0, 0, allow),
        (end, 0, 0, fail),
    ]
    program = b"".join(struct.pack("HBBI", *line) for line in lines)
    held = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HP", len(lines), ctypes.addressof(held))
    _require(libc.prctl(_PR_SET_SECCOMP, _FILTER, ctypes.c_char_p(header), 0, 0))


def _require(status: int) -> None:
    if status != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


if __name__ == "__main__":
    main(sys.argv[1])
