"""Command lines, each run in a separate process that is watched, gets no more room on its disk, or is killed.

    python -m tests.helpers.whole_file_runs < CALLS.json

``CALLS.json``: a list of command lines, each with a file that it writes. Written to standard output: for each what
came of the three runs, and whether the file was left as it was by those that could not end well. The module
is a process of its own since an audit hook stays for good, and since a fork must not meet other threads.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

from fuzz.zygote import preload
from sgdec.cli.main import main

LIMIT = 16
"""Bytes of a file where the disk is full."""


def in_child(args: list[str], prepare: Any) -> tuple[int, str]:
    """Exit status (negative: the signal) and standard error of a forked process."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        os.dup2(writer, 2)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w", closefd=False)
        status = 99
        try:
            prepare()
            status = main(args)
            sys.stderr.flush()
        except BaseException as error:
            os.write(2, repr(error).encode())
        finally:
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        said = pipe.read().decode()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return status, said


def watched(args: list[str]) -> tuple[int, str, list[str]]:
    """Likewise, with the files below this folder that were opened for writing."""
    log = Path(os.path.realpath(".")) / "opened.log"

    def prepare() -> None:
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)

        def hook(event: str, details: tuple[Any, ...]) -> None:
            if event == "open" and isinstance(details[0], str | bytes | os.PathLike):
                path = os.path.realpath(os.fsdecode(details[0]))
                written = int(details[2] or 0) & (os.O_WRONLY | os.O_RDWR | os.O_APPEND | os.O_TRUNC)
                if written and path.startswith(str(log.parent)):
                    os.write(descriptor, f"{os.path.relpath(path, log.parent)}\n".encode())

        sys.addaudithook(hook)

    status, said = in_child(args, prepare)
    opened = log.read_text().splitlines()
    log.unlink()
    return status, said, opened


def without_room() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, LIMIT))


def about_to_die() -> None:
    """When something complete is to be put in its place, or to be made sure of, this process is killed instead."""
    os.fsync = os.replace = os.rename = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment]


def content(path: str) -> bytes | None:
    return Path(path).read_bytes() if os.path.exists(path) else None


def clear(path: str) -> None:
    """What a killed run left, and a folder that has to be new."""
    for part in Path().glob(".*.partial"):
        if part.is_file():
            part.unlink()
    if os.path.dirname(path):
        shutil.rmtree(os.path.dirname(path), ignore_errors=True)


def left_behind() -> list[str]:
    return sorted(str(path) for path in Path().rglob("*.partial*"))


if __name__ == "__main__":
    preload()
    found = []
    for call, written in json.load(sys.stdin):
        before = content(written)
        killed = *in_child(call, about_to_die), content(written) == before
        clear(written)
        full = *in_child(call, without_room), content(written) == before, left_behind()
        clear(written)
        found.append([killed, full, (*watched(call), left_behind())])
    json.dump(found, sys.stdout)
