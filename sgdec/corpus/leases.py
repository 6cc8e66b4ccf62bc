"""Leases say which starter works on a chunk, although starters and machines can die at any time.

A starter claims a chunk by creating its lease, a file with the starter's name. While it lives, it raises a counter in
a file of its own (its pulse). A lease is stale if the pulse of its starter stands still for `Leases.patience` seconds
by the clock of the process that watches it, so clocks of two machines are never compared. A stale lease is replaced.

A starter that only seemed dead may still finish the chunk. That costs work and nothing else: of two results the first
is kept (`sgdec.corpus.results`).
"""

from __future__ import annotations

import json
import logging
import math
import os
import re
import socket
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from sgdec.corpus.stores import Store
from sgdec.errors import SgdecError
from sgdec.io.documents import parse_json

log = logging.getLogger(__name__)

PULSES = "starters"
_ENDINGS = {"leases": "", "results": ".zip"}
_STARTER = re.compile(r"[^/\x00-\x1f]{1,200}")
"""A name of a starter; after a crash of a machine a lease can hold anything."""
Claim: TypeAlias = Literal["mine", "taken", "done"]


def place_of(chunk: int) -> str:
    """The name of a chunk's file in a folder: at most a thousand to a folder.

    >>> place_of(12345)
    '000012/000012345'
    """
    return f"{chunk // 1000:06}/{chunk:09}"


def chunks_in(store: Store, kind: str) -> Iterator[int]:
    """The chunks that have a file in ``leases`` or ``results``, in order."""
    for folder in store.names(kind):
        yield from _chunks(store, kind, folder)


def chunks_beside(store: Store, kind: str, chunk: int) -> Iterator[int]:
    """Those of `chunks_in` that are in the folder of this one."""
    return _chunks(store, kind, place_of(chunk).partition("/")[0])


def _chunks(store: Store, kind: str, folder: str) -> Iterator[int]:
    """Copies that somebody left beside a file, such as 000000007.zip~, do not count as the file."""
    for name in store.names(f"{kind}/{folder}"):
        number = name.partition(".")[0]
        if number.isdecimal() and f"{folder}/{name}" == place_of(int(number)) + _ENDINGS[kind]:
            yield int(number)


def _starter_in(lease: bytes | None) -> str | None:
    """The starter that a lease names; None for a record, and for what is neither."""
    name = (lease or b"").decode(errors="replace")
    return name if _STARTER.fullmatch(name) and not name.startswith("{") else None


@dataclass
class _Seen:
    """A pulse as this process last saw it change."""

    counter: int
    at: float


class Leases:
    """The leases of one starter, and what it has seen of others."""

    def __init__(
        self, store: Store, *, patience: float = 60.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.patience = patience
        self.name = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self._store, self._clock = store, clock
        self._counter = 0
        self._seen: dict[str, _Seen] = {}

    def pulse(self, about: dict[str, Any] | None = None) -> None:
        """Show that this starter lives. ``about``: what others may want to know of it."""
        self._counter += 1
        content = {**(about or {}), "starter": self.name, "counter": self._counter}
        self._store.write(f"{PULSES}/{self.name}.json", json.dumps(content).encode())

    def claim(self, chunk: int) -> Claim:
        """Take a chunk, unless it is done, or a living starter has it."""
        name = f"leases/{place_of(chunk)}"
        if self._store.create(name, self.name.encode()):
            return "mine"
        found = self._store.read(name)
        if found is not None and found.startswith(b"{"):
            return "done"
        owner = _starter_in(found)
        if owner is not None and owner != self.name:
            if self._lives(owner):
                return "taken"
            log.info(f"chunk {chunk}: taken over from {owner}, which has stopped.")
        self._store.write(name, self.name.encode())  # two that do so at once both work on it, and one wins
        return "mine"

    def settle(self, chunk: int, record: Mapping[str, Any]) -> None:
        """Note that a chunk is done. The record, which takes the place of the lease, says with which result."""
        self._store.write(f"leases/{place_of(chunk)}", json.dumps(record).encode())

    def record(self, chunk: int) -> dict[str, Any] | None:
        """The record that `settle` wrote; None if there is none."""
        content = self._store.read(f"leases/{place_of(chunk)}")
        try:
            return dict(parse_json(content)) if content is not None and content.startswith(b"{") else None
        except ValueError:
            return None

    def owner(self, chunk: int) -> str | None:
        """The starter that has a chunk; None if none has claimed it, or it is done."""
        return _starter_in(self._store.read(f"leases/{place_of(chunk)}"))

    def release(self, chunk: int) -> None:
        """Give a chunk back, for others to claim."""
        if self.owner(chunk) == self.name:
            self._store.remove(f"leases/{place_of(chunk)}")

    def others(self) -> list[dict[str, Any]]:
        """The last pulses of all other starters, dead or alive."""
        names = [name for name in self._store.names(PULSES) if name != f"{self.name}.json"]
        return [found for name in names if (found := self._pulse_of(name.removesuffix(".json"))) is not None]

    def end(self, about: dict[str, Any]) -> None:
        """The last pulse, which says that this starter has stopped."""
        self.pulse({**about, "ended": True})

    def _lives(self, owner: str) -> bool:
        found = self._pulse_of(owner)
        if found is None or found.get("ended"):
            return False
        counter, now = found["counter"], self._clock()
        seen = self._seen.get(owner)
        if seen is None or seen.counter != counter:
            self._seen[owner] = _Seen(counter, now)
            return True
        return now - seen.at < self.patience

    def _pulse_of(self, owner: str) -> dict[str, Any] | None:
        content = self._store.read(f"{PULSES}/{owner}.json")
        try:
            found = parse_json(content or b"")
            if isinstance(found["counter"], int) and isinstance(found["starter"], str):
                return dict(found)
        except (ValueError, KeyError, TypeError):
            pass
        return None


def refuse_company(leases: Leases, store: Store, wait: Callable[[float], None] = time.sleep) -> None:
    """Raises SgdecError if another starter works in a store that cannot decide between two."""
    if store.atomic:
        return
    before = {found["starter"]: found["counter"] for found in leases.others() if not found.get("ended")}
    for _ in range(math.ceil(leases.patience) if before else 0):
        wait(1.0)
        if any(found["counter"] != before.get(found["starter"]) for found in leases.others()):
            raise SgdecError(
                f"{store}: another starter works there, and this store cannot decide between two. Wait for it, or "
                "use a folder or a store with conditional requests (s3, gs)."
            )
