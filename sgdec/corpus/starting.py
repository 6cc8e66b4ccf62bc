"""One start of ``sgdec corpus``: the folder, the workers, and the work until all chunks are done."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from sgdec.corpus.engine import Died, Engine, Event, Hello, Job, Limits, Ready, Refused
from sgdec.corpus.leases import Leases, refuse_company
from sgdec.corpus.manifest import (
    ChunkTable,
    Input,
    Manifest,
    read_manifest,
    refuse_other,
    survey,
    write_manifest,
)
from sgdec.corpus.starter import Progress, Starter, about
from sgdec.corpus.stores import Store, open_store
from sgdec.errors import SgdecError, UsageError

log = logging.getLogger(__name__)

STEP = 0.5
"""Seconds between two reports of progress."""
BEATS = 6
"""Pulses in the time after which a starter counts as dead."""
LOADING_DEATHS = 3
"""Deaths before any worker was ready after which the run stops; with more workers, as many as there are."""


@dataclass(frozen=True)
class Plan:
    """The wishes of the user."""

    inputs: Sequence[str]
    job: Job
    """Its token is set by `start`."""
    arguments: Sequence[str]
    """Those of ``sgdec decode``."""
    chunk: int
    workers: int
    engine: Engine
    limits: Limits
    patience: float = 60.0


@dataclass(frozen=True)
class Ended:
    """The end of a start."""

    manifest: Manifest
    progress: Progress
    complete: bool
    """Whether all chunks have a result."""


def start(plan: Plan, shown: Callable[[Manifest, Progress], None] = lambda manifest, progress: None) -> Ended:
    """Decode the lines that have no result yet. ``shown`` is called about twice a second.

    Raises UsageError for a folder of another run and for options that do not work, SgdecError if the run cannot
    continue. Results that are there stay.
    """
    store = open_store(plan.job.store)
    leases = Leases(store, patience=plan.patience)
    refuse_company(leases, store)
    known = read_manifest(store)
    inputs, chunks = survey(plan.inputs, plan.chunk, store, known=known)
    if not chunks:
        raise UsageError(f"{' and '.join(plan.inputs)}: no lines. Expected one sentence per line.")
    job = replace(plan.job, token=f"tokens/{leases.name}")
    store.create(job.token, b"")
    progress = Progress()
    with _pulsing(leases, plan.patience / BEATS, lambda: about(progress)):
        try:
            plan.engine.start(job, plan.workers, plan.limits)
            hello, others = _greeting(plan.engine, plan.workers)
            for note in hello.notes:
                log.info(f"Note: {note}")
            manifest = _agreed(store, known, _manifest(plan, inputs, chunks, hello.signature))
            starter = Starter(store, manifest, plan.engine, leases)
            progress = starter.progress
            for event in others:
                starter.react(event)
            _work(starter, manifest, shown)
            return Ended(manifest, progress, progress.chunks == len(manifest.chunks))
        finally:
            plan.engine.close()
            store.remove(job.token)


def _greeting(engine: Engine, workers: int) -> tuple[Hello, list[Event]]:
    """The message of the first worker that is ready, and what was told together with it."""
    deaths = 0
    while True:
        found = engine.events(STEP)
        for number, event in enumerate(found, 1):
            if isinstance(event, Ready):
                return event.hello, found[number:]
            if isinstance(event, Refused):
                raise event.error
            if isinstance(event, Died):
                deaths += 1
                if deaths >= max(LOADING_DEATHS, workers):
                    raise SgdecError(
                        f"{deaths} workers have died while they were loading; the last one {event.reason}. Run "
                        "`sgdec decode` with the same options to see why, or give fewer --workers if memory is short."
                    )


def _manifest(
    plan: Plan, inputs: list[Input], chunks: ChunkTable, signature: Mapping[str, str]
) -> Manifest:
    return Manifest(
        list(plan.arguments), plan.job.folder, dict(signature), plan.job.output_format, plan.job.ledger, plan.chunk,
        inputs, sum(each.lines for each in inputs), chunks,
    )  # fmt: skip


def _agreed(store: Store, known: Manifest | None, now: Manifest) -> Manifest:
    if known is None:
        return write_manifest(store, now)
    refuse_other(known, now, store)
    return known


def _work(starter: Starter, manifest: Manifest, shown: Callable[[Manifest, Progress], None]) -> None:
    with _patient(starter):
        try:
            while not starter.finished:
                starter.step(STEP)
                shown(manifest, starter.progress)
        finally:
            starter.give_back()


@contextmanager
def _patient(starter: Starter) -> Iterator[None]:
    """The first Ctrl-C lets workers finish what they have; the second one stops everything at once."""

    def interrupted(*of: Any) -> None:
        if starter.stopping:
            raise KeyboardInterrupt
        starter.stopping = True
        log.info(f"Interrupted: the workers finish {starter.flying} tasks. Ctrl-C again stops them at once.")

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, interrupted)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _pulsing(leases: Leases, seconds: float, said: Callable[[], dict[str, Any]]) -> Iterator[None]:
    """Show from a thread that this starter lives, whatever it waits for."""
    ended = threading.Event()
    begun = time.monotonic()

    def content() -> dict[str, Any]:
        return {**said(), "seconds": round(time.monotonic() - begun, 1), "every": seconds}

    def beat() -> None:
        while not ended.wait(seconds):
            try:
                leases.pulse(content())
            except SgdecError as error:  # the work itself meets the same trouble, and reports it
                log.debug(str(error))

    leases.pulse(content())
    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        try:
            leases.end(content())
        except SgdecError as error:
            log.debug(str(error))
