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

from sgdec.corpus.checking import Examined, Results, refuse_results_without_manifest, refuse_unusable
from sgdec.corpus.engine import Died, Engine, Event, Hello, Job, Limits, Ready, Refused, Task
from sgdec.corpus.leases import Leases, refuse_company
from sgdec.corpus.manifest import (
    ChunkTable,
    Input,
    Manifest,
    read_manifest,
    refuse_other,
    refuse_other_input,
    refuse_other_target,
    survey,
    write_manifest,
)
from sgdec.corpus.starter import CorpusProgress, Starter, about, failed_before
from sgdec.corpus.stores import Store, open_store
from sgdec.corpus.targets import survey_target
from sgdec.corpus.undecided import undecided
from sgdec.corpus.work import token_of_run
from sgdec.errors import SgdecError, UsageError
from sgdec.io.scored import require_total
from sgdec.plugins.predictor_list import parse_predictors
from sgdec.terminal import Bar

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
    """Those of the job's command."""
    chunk: int
    workers: int
    engine: Engine
    limits: Limits
    patience: float = 60.0
    retry_failed: bool = False
    """Whether to try again the lines that have failed."""
    target: str | None = None
    """The file of the outputs to score, if the job is to score."""


@dataclass(frozen=True)
class EndedRun:
    """The end of a start."""

    manifest: Manifest
    progress: CorpusProgress
    complete: bool
    """Whether all chunks have a result."""
    failed: int
    """The failed lines of all results, by whichever start."""
    undecided: int
    """The lines whose workers were killed from outside, so that they have no result yet."""


def start(
    plan: Plan, shown: Callable[[Manifest, CorpusProgress], None] = lambda manifest, progress: None
) -> EndedRun:
    """Decode the lines that have no result yet. ``shown`` is called about twice a second.

    Raises UsageError for a folder of another run and for options that do not work, SgdecError if the run cannot
    continue. Results that are there stay.
    """
    store = open_store(plan.job.store)
    leases = Leases(store, patience=plan.patience)
    refuse_company(leases, store)
    known = read_manifest(store)
    if known is None:
        refuse_results_without_manifest(store)
    inputs, chunks = survey(plan.inputs, plan.chunk, store, known=known)
    if not chunks:
        raise UsageError(f"{' and '.join(plan.inputs)}: no lines. Expected one sentence per line.")
    again: list[Task] = []
    if known is not None:
        refuse_other_input(known.inputs, inputs, store)
    target = _target(plan, inputs, chunks, known, store)
    if known is not None:
        refuse_other_target(known, target[0], store)
        again = _look_at_results(Results(store, known, plan.job.folder), store, retry=plan.retry_failed)
    job = replace(plan.job, token=f"tokens/{leases.name}")
    store.create(job.token, b"")
    progress = CorpusProgress()
    with _pulsing(leases, plan.patience / BEATS, lambda: about(progress)):
        try:
            plan.engine.start(job, plan.workers, plan.limits)
            hello, others = _greeting(plan.engine, plan.workers, plan.job.command)
            for note in hello.notes:
                log.info(f"Note: {note}")
            manifest = _agreed(store, known, _manifest(plan, inputs, chunks, target, hello.signature))
            store.create(token_of_run(job.token), manifest.run.encode())
            names = [entry.name for entry in parse_predictors(plan.job.predictors)]
            starter = Starter(store, manifest, plan.engine, leases, retry=again, names=names)
            progress = starter.progress
            for event in others:
                starter.react(event)
            _work(starter, manifest, shown)
            results = Results(store, manifest, plan.job.folder)
            done = results.done()
            return EndedRun(
                manifest, progress, len(done) == len(manifest.chunks), sum(map(results.failed, done)),
                len(undecided(store, set(done))),
            )  # fmt: skip
        finally:
            plan.engine.close()
            store.remove(job.token)
            store.remove(token_of_run(job.token))


def _look_at_results(results: Results, store: Store, *, retry: bool) -> list[Task]:
    """Raises SgdecError if a result of an earlier start cannot be used. Returns the lines to try again."""
    done = results.done()
    with Bar("looking at results", log, unit="chunks", total=len(done)) as bar:
        examined: list[Examined] = []
        for each in results.examine(done):
            examined.append(each)
            bar.advance(1)
    refuse_unusable(store, examined, list(results.unusable_parts(set(done))))
    if gone := sum(each.gone for each in examined):
        log.info(f"Note: {gone:,} files of patterns that lines have read are gone, so they were not compared.")
    return list(failed_before(results, done)) if retry else []


def _greeting(engine: Engine, workers: int, command: str) -> tuple[Hello, list[Event]]:
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
                        f"`sgdec {command}` with the same options to see why, or give fewer --workers if memory is "
                        "short."
                    )


def _target(
    plan: Plan, inputs: list[Input], chunks: ChunkTable, known: Manifest | None, store: Store
) -> tuple[list[Input], ChunkTable]:
    """The file of the outputs to score and its lines for each chunk; none if lines are decoded."""
    if plan.target is None or plan.job.scoring is None:
        return [], ChunkTable(())
    old_weight = plan.job.scoring["old_weight"]
    file, own = survey_target(
        plan.target, inputs, chunks, store, nbest_list=plan.job.scoring["nbest_list"],
        check=lambda entry: require_total(entry, old_weight), known=known,
    )  # fmt: skip
    return [file], own


def _manifest(
    plan: Plan,
    inputs: list[Input],
    chunks: ChunkTable,
    target: tuple[list[Input], ChunkTable],
    signature: Mapping[str, str],
) -> Manifest:
    return Manifest(
        list(plan.arguments), plan.job.folder, dict(signature), plan.job.output_format, plan.job.ledger, plan.chunk,
        inputs, sum(each.lines for each in inputs), chunks, targets=target[0],
        nbest_list=plan.job.scoring is not None and plan.job.scoring["nbest_list"], target_chunks=target[1],
    )  # fmt: skip


def _agreed(store: Store, known: Manifest | None, now: Manifest) -> Manifest:
    if known is None:
        return write_manifest(store, now)
    refuse_other(known, now, store)
    return known


def _work(starter: Starter, manifest: Manifest, shown: Callable[[Manifest, CorpusProgress], None]) -> None:
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
