"""Gives up what a submission must not have, and then becomes another program: ``launch.py JSON``.

Linux only. The JSON has ``limits`` (`resource.setrlimit`), ``root`` and ``user`` (None = as they are), whether to
``filter`` system calls that could reach the network or other processes, or leave memory behind, and the ``command``.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import platform
import signal
import struct
import sys
from typing import Any

NICE = 5
"""The graders come before the submissions that they judge."""
_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP = 1, 38, 22
_FILTER = 2
MACHINES = {
    # socket, socketpair (which can reach other sockets), ptrace, process_vm_readv, process_vm_writev, mount, unshare,
    # setns, bpf, keyctl, perf_event_open, userfaultfd, io_uring_setup (which can open sockets), name_to_handle_at,
    # open_by_handle_at; those of memory that outlives its processes or that nobody counts: shmget, msgget, semget,
    # mq_open, add_key, request_key, memfd_create, memfd_secret; and the other ways to mount: open_tree, move_mount,
    # fsopen, fsmount, fspick, mount_setattr
    "x86_64": (0xC000003E, 56, (41, 53, 101, 310, 311, 165, 272, 308, 321, 250, 298, 323, 425, 303, 304,
                                29, 68, 64, 240, 248, 249, 319, 447, 428, 429, 430, 432, 433, 442)),
    "aarch64": (0xC00000B7, 220, (198, 199, 117, 270, 271, 40, 97, 268, 280, 219, 241, 282, 425, 264, 265,
                                  194, 186, 190, 180, 217, 218, 279, 447, 428, 429, 430, 432, 433, 442)),
}
"""For each kind of processor its number in <linux/audit.h>, the number of clone, and the system calls that fail."""
_CLONE3 = 435
"""Without it the C library uses clone, whose flags a filter can read."""
_NAMESPACES = 0x7E020000
"""The flags of clone that make namespaces (<linux/sched.h>), in which a process has rights that it lacks outside."""
_X32 = 0x40000000
"""System calls of another form on x86_64, which are numbered from here; no program needs them."""


def main(given: str) -> None:
    """Never returns."""
    import resource  # here, because Windows has none, and there too a grader reads MACHINES

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
    os.nice(NICE)
    _require(libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0))
    _require(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    if asked["filter"]:
        _forbid(libc, *MACHINES[platform.machine()])
    environment = {"PATH": "/", "HOME": "/", "LANG": "C.UTF-8", "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
    os.execve(asked["command"][0], asked["command"], environment)


def _forbid(libc: ctypes.CDLL, machine: int, clone: int, calls: tuple[int, ...]) -> None:
    """Let these system calls fail with EPERM, and clone too if it makes namespaces, by a filter in the kernel (Linux,
    Documentation/userspace-api/seccomp_filter.rst)."""
    load, equal, at_least, any_bit, end = 0x20, 0x15, 0x35, 0x45, 0x06
    allow, fail, missing, kill = 0x7FFF0000, 0x00050001, 0x00050000 | errno.ENOSYS, 0x80000000
    count = len(calls)
    lines = [
        (load, 0, 0, 4),
        (equal, 1, 0, machine),
        (end, 0, 0, kill),
        (load, 0, 0, 0),
        (equal, 0, 1, _CLONE3),
        (end, 0, 0, missing),
        (equal, 0, 3, clone),
        (load, 0, 0, 16),  # the lower half of its first argument
        (any_bit, count + 3, 0, _NAMESPACES),
        (end, 0, 0, allow),
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
