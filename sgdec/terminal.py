"""The progress of long work on a terminal: one line, which tqdm rewrites, and removes when the work is done.

A line is shown where the messages of a logger are (level INFO) and standard error is a terminal: by the command line
unless it should be quiet, and to a program that has configured logging. tqdm is imported only then.
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
    """The line of one piece of work; leaving the block ends it."""

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
        """``what`` is done, so many of ``unit`` in all, if that is known; without a unit nothing is counted.

        ``done``: before this began. ``hidden``: show nothing.
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
        """Counts ``count`` more as done."""
        if self.live:
            self._line.update(count)

    def note(self, text: str) -> None:
        """Show this, too, in the place of what was shown before."""
        if self.live and self._counts:
            self._line.set_postfix_str(text, refresh=False)
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
    """The items, each counted when the next one is asked for."""
    with Bar(what, log, unit=unit, total=total) as bar:
        if not bar.live:
            yield from items
            return
        for item in items:
            yield item
            bar.advance()


@contextmanager
def above() -> Iterator[None]:
    """In the block something is written to standard error that stays, above the lines that are shown."""
    if not _tqdm.cache_info().currsize:
        yield
    else:
        with _tqdm().external_write_mode(file=sys.stderr):
            yield


@cache
def _tqdm() -> Any:
    """tqdm without a thread that watches it, and with a lock that takes no semaphore of the system."""
    from tqdm import tqdm

    return type("tqdm", (tqdm,), {"monitor_interval": 0, "_lock": RLock()})
