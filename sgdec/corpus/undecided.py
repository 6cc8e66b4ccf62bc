"""Lines of which nobody knows whether they kill their workers: these were killed from outside.

They have no result, and the next start tries them again. A note says which lines these are, ``undecided/CHUNK-LINE``
(the line is counted in the chunk from 0). It counts until its line has a result, so nobody has to remove it.
"""

from __future__ import annotations

import re
from collections.abc import Container

from sgdec.corpus.engine import Task
from sgdec.corpus.results import PARTS, results_of_some
from sgdec.corpus.stores import Store

UNDECIDED = "undecided"
_NAME = re.compile(r"([0-9]{9,18})-([0-9]{1,18})")


def note(store: Store, task: Task, reason: str) -> None:
    """Note that the one line of this task is undecided."""
    store.write(f"{UNDECIDED}/{task.chunk:09}-{task.first}", reason.encode("utf-8", "backslashreplace"))


def undecided(store: Store, done: Container[int]) -> list[tuple[int, int]]:
    """The chunk and the place in it of each line that is undecided. ``done``: the chunks that have a result."""
    found = (_NAME.fullmatch(name) for name in store.names(UNDECIDED))
    places = ((int(each[1]), int(each[2])) for each in found if each)
    return [(chunk, line) for chunk, line in places if chunk not in done and not _has_part(store, chunk, line)]


def _has_part(store: Store, chunk: int, line: int) -> bool:
    parts = results_of_some(store, PARTS, chunk)
    return any(part.first <= line < part.first + (part.lines or 0) for part in parts)
