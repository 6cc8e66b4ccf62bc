"""Progress of long tasks on a terminal: one line, which tqdm updates, and removes when the task is done.

A line is shown if a logger prints messages of level INFO and standard error is a terminal. The command line does so
unless it is told to be quiet; other programs do if they have configured logging. tqdm is imported only then.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from logging import INFO, Logger
from threading import RLock
from typing import Any, Self, TypeVar

Item = TypeVar("Item")


class Bar:
    """The progress line of one task: a context manager that removes the line at the end."""

    def __init__(
        self,
        what: str,
        log: Logger,
        *,
        unit: str = "",
        total: int | None = None,
        done: int = 0,
        hidden: bool = False,
    ) -> None:
        """``what``: a description of the task; ``unit``: the name of the items to count, "" = count nothing.

        ``total``: the number of items, if known; ``done``: those done before the start; ``hidden``: show nothing.
        """
        self.live = log.isEnabledFor(INFO) and sys.stderr is not None and sys.stderr.isatty() and not hidden
        self._what, self._counts = what, bool(unit)
        if self.live:
            self._line = _tqdm()(
                desc=what,
                unit=f" {unit}",
                total=total,
                initial=done,
                file=sys.stderr,
                leave=False,
                dynamic_ncols=True,
                bar_format=None if unit else "{desc} [{elapsed}]",
            )

    def advance(self, count: int = 1) -> None:
        """Count ``count`` more items as done."""
        if self.live:
            self._line.update(count)

    def expect(self, total: int) -> None:
        """Set the number of items, which was unknown at the start."""
        if self.live:
            self._line.total = total

    def note(self, text: str, *, now: bool = False) -> None:
        """Show this text in the line; it replaces the previous note. ``now``: even if nothing is counted."""
        if self.live and self._counts:
            self._line.set_postfix_str(text, refresh=now)
        elif self.live:
            self._line.set_description_str(f"{self._what}: {text}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        if self.live:
            self._line.close()


def track(
    items: Iterable[Item], what: str, log: Logger, *, unit: str, total: int | None = None
) -> Iterator[Item]:
    """Yield the items and show progress; an item counts as done when the next one is requested."""
    with Bar(what, log, unit=unit, total=total) as bar:
        if not bar.live:
            yield from items
            return
        for item in items:
            yield item
            bar.advance()


@contextmanager
def above() -> Iterator[None]:
    """Context manager for writing other text to standard error; it appears above the progress lines."""
    if not _tqdm.cache_info().currsize:
        yield
    else:
        with _tqdm().external_write_mode(file=sys.stderr):
            yield


@cache
def _tqdm() -> Any:
    """The tqdm class, without its monitor thread, and with a lock that needs no system semaphore."""
    from tqdm import tqdm

    return type("tqdm", (tqdm,), {"monitor_interval": 0, "_lock": RLock()})
