"""Damaged files for tests of readers: a seeded mutation of good ones, and what a reader may do with them.

A reader gives a value or raises one `SgdecError` of one line that names the file; nothing else, and nothing native
dies. Readers that hand bytes to native code are run in a child process (`in_child`).
"""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from sgdec.errors import SgdecError

MOST_MEMORY = 2 << 30
MOST_SECONDS = 10
NUMBERS = (0, 1, -1, 3, 127, 255, 65535, 2**31 - 1, -(2**31), 2**32 - 1, 2**62, -(2**63))
TEXTS = (b"nan", b"inf", b"-1", b"1e308", b"1e999", b"9" * 30, b"9" * 5000, b"\0", b"\n", b" ", b"\xff", b"||| ",
         b"[", b"{", b'"', b"0", b"2", b"_", b":", b"X1", "\u2028".encode(), b"-")  # fmt: skip


def mutants(seeds: Sequence[bytes], count: int, seed: int) -> Iterator[bytes]:
    """So many damaged copies of some files."""
    rng = random.Random(seed)
    for _ in range(count):
        data = bytearray(rng.choice(seeds))
        for _ in range(rng.choice((1, 1, 1, 2, 4))):
            _mutate(data, rng)
        yield bytes(data)


def _mutate(data: bytearray, rng: random.Random) -> None:
    place, length = rng.randrange(len(data) + 1), rng.choice((1, 2, 4, 8, 64))
    match rng.randrange(8):
        case 0:
            data[place : place + 1] = bytes([rng.randrange(256)])
        case 1:
            data[place : place + 4] = struct.pack("<q", rng.choice(NUMBERS))[:4]
        case 2:
            data[place : place + 8] = struct.pack("<q", rng.choice(NUMBERS))
        case 3:
            del data[place : place + length]
        case 4:
            data[place:place] = rng.choice(TEXTS)
        case 5:
            data[place : place + length] = rng.choice(TEXTS)
        case 6:
            data[place:place] = data[max(0, place - length) : place]
        case 7 if rng.random() < 0.3:
            del data[place:]


def verdict(read: Callable[[Path], object], path: Path) -> str:
    """``value`` or ``error``; AssertionError for an error that is no clear line. What else is raised passes."""
    try:
        read(path)
    except SgdecError as error:
        message = str(error)
        assert path.name in message and "\n" not in message and "\r" not in message, message
        return "error"
    return "value"


def in_child(read: Callable[[Path], object], path: Path, contents: Iterable[bytes]) -> list[str]:
    """`verdict` of a file with these contents in turn, or what else was raised, in a separate process under limits.

    The list ends with how the process died, if it did.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + MOST_MEMORY,) * 2)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            for content in contents:
                path.write_bytes(content)
                signal.alarm(MOST_SECONDS)
                try:
                    found = verdict(read, path)
                except BaseException as error:
                    found = f"{type(error).__name__}: {error}"[:4000]
                os.write(writer, f"{json.dumps(found)}\n".encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        said = [json.loads(line) for line in pipe]
    _, status = os.waitpid(child, 0)
    return [*said, f"signal {os.WTERMSIG(status)}"] if os.WIFSIGNALED(status) else said
