"""Memory of wide searches: what cannot fit is refused before it is allocated, in one line that says what to do.

Linux grants more memory than there is, and kills the process when it is used. So before a large array is allocated,
its size is compared with the available memory: by the number of rows and the tokens in a row, the least that it will
need. An allocator that refuses by itself, such as that of a GPU or under ``ulimit -v``, is reported in the same way.
Either concerns one batch. The scheduler repeats its requests one by one, so that a sentence fails only if it does not
fit alone.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from pathlib import Path

from sgdec.errors import SgdecError, one_line
from sgdec.io.limits import BATCH

FREE = 16 << 20
"""Arrays of at most this many bytes are not checked: looking would cost more than it saves."""
SIGNS = ("DefaultCPUAllocator", "not enough memory", "bad_alloc", "out of memory", "STATUS_ALLOC_FAILED")
"""Words in the messages of allocator errors that are plain `RuntimeError`; GPUs say ``out of memory``."""
WAY_OUT = "Use a smaller beam, or score fewer prefixes in one call with --max-rows or a smaller --batch-size."
MEMORY = Path("/proc/meminfo")
GROUP = Path("/sys/fs/cgroup")
"""The control group of a container, as the container sees it (version 2)."""


def require_room(rows: int, row_bytes: int, what: str, unit: str) -> None:
    """Raise SgdecError, with the sizes and a remedy, if ``rows`` times ``row_bytes`` exceed the available memory.

    ``what`` and ``unit`` come before and after the number of rows in the message. `sgdec.io.limits.BATCH` sets
    another limit.
    """
    needed = rows * row_bytes
    if needed <= FREE:
        return
    room = BATCH.value or available()
    if room is not None and needed > room:
        fits = room // (2 * row_bytes)
        fewer = f", such as --max-rows {1 << fits.bit_length() - 1}" if fits else ""
        limit = f"{BATCH.variable} allows" if BATCH.value else "there is room for"
        raise SgdecError(
            f"{what} {rows:,} {unit} need {_gib(needed)}, but {limit} {_gib(room)}. "
            f"{WAY_OUT.removesuffix('.')}{fewer}."
        )


def available() -> int | None:
    """The bytes that can still be allocated, swap space included; None if the system does not say."""
    try:
        sizes = {name: int(size.split()[0]) << 10 for name, size in _pairs(MEMORY.read_text("utf-8"), ":")}
        swap = sizes.get("SwapFree", 0)
        room = sizes["MemAvailable"] + swap
    except (OSError, ValueError, LookupError):
        return None
    try:
        most, used = (int((GROUP / name).read_text("utf-8")) for name in ("memory.max", "memory.current"))
        parts = {name: int(size) for name, size in _pairs((GROUP / "memory.stat").read_text("utf-8"), " ")}
        cache = parts.get("active_file", 0) + parts.get("inactive_file", 0)
        return min(room, max(0, most - used + cache) + swap)
    except (OSError, ValueError):  # no group, or one without a limit: "max"
        return room


def is_out_of_memory(error: BaseException) -> bool:
    """Whether this is the error of an allocator, of a GPU or the CPU, that is out of memory.

    >>> is_out_of_memory(RuntimeError("... DefaultCPUAllocator: can't allocate memory")), is_out_of_memory(OSError())
    (True, False)
    """
    if isinstance(error, MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in SIGNS)


def ran_out(error: BaseException) -> str:
    """The error of an allocator in one line, with a remedy.

    >>> print(ran_out(MemoryError()))
    out of memory. Use a smaller beam, or score fewer prefixes in one call with --max-rows or a smaller --batch-size.
    """
    text = one_line(str(error).partition(". ")[0]).rstrip(".")
    return f"out of memory{f' ({text})' if text else ''}. {WAY_OUT}"


def let_go(error: Exception) -> Exception:
    """If memory ran out, free what the frames of the error hold, so that the next batch finds room.

    Returns the error to report: that of an allocator becomes an SgdecError.
    """
    errors = list(_chain(error))
    if any(map(is_out_of_memory, errors)):
        for each in errors:
            traceback.clear_frames(each.__traceback__)
    return SgdecError(ran_out(error)) if is_out_of_memory(error) else error


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    met: list[BaseException] = []
    while error is not None and error not in met:
        yield error
        met.append(error)
        error = error.__cause__ or error.__context__


def _pairs(text: str, between: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        name, _, value = line.partition(between)
        yield name, value


def _gib(size: int) -> str:
    """
    >>> _gib(3 << 30), _gib(5 << 18)
    ('3.0 GiB', '1.2 MiB')
    """
    return f"{size / 2**30:,.1f} GiB" if size >= 1 << 30 else f"{size / 2**20:.1f} MiB"
