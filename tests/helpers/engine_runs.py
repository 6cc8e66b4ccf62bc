"""A corpus of token ids and an engine that works on it, without a starter; and the processes that are left."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from sgdec.corpus.checking import usable_result
from sgdec.corpus.engine import Done, Engine, Event, Job, Limits, Ready, Task
from sgdec.corpus.manifest import Manifest, existing_manifest, survey, write_manifest
from sgdec.corpus.stores import FolderStore
from sgdec.corpus.targets import survey_target
from sgdec.corpus.work import token_of_run
from tests.helpers.places import ROOT

PLUGIN = str(ROOT / "tests" / "helpers" / "freezing.py")
PATIENCE = 120.0
MARK = "SGDEC_TEST_MARK"
"""A variable of the environment whose value tells the processes of one test from others."""


def corpus(
    folder: Path, lines: Sequence[str], chunk: int, target: str | None = None, nbest_list: bool = False, **job: object
) -> Job:
    """The job of a corpus with these lines in a new folder; ``job`` replaces some of its fields.

    ``target``: the content of a file of outputs, which are scored.
    """
    (folder / "in.ids").write_text("".join(f"{line}\n" for line in lines))
    store = FolderStore(str(folder / "d"))
    inputs, chunks = survey([str(folder / "in.ids")], chunk, store)
    store.create("tokens/seen", b"")
    output_format = str(job.get("output_format", "ids"))
    manifest = Manifest([], str(folder), {}, output_format, False, chunk, inputs, len(lines), chunks)
    if target is not None:
        (folder / "target").write_text(target)
        file, own = survey_target(
            str(folder / "target"), inputs, chunks, store, nbest_list=nbest_list, check=lambda entry: None
        )
        manifest = replace(manifest, targets=[file], nbest_list=nbest_list, target_chunks=own)
        penalties = {"alpha": 0.0, "beta": 0.0, "normalize": "gnmt"}
        job["scoring"] = {"nbest_list": nbest_list, "old_weight": 0.0, "target_format": "ids", **penalties}
    write_manifest(store, manifest)
    store.create(token_of_run("tokens/seen"), manifest.run.encode())
    made = Job(
        str(folder / "d"), str(folder), "tokens/seen", "freezing", "greedy", {}, {"batch_size": 1, "window": 1},
        plugin_files=(PLUGIN,), input_format="ids", output_format="ids",
    )  # fmt: skip
    return replace(made, **job)  # type: ignore[arg-type]


@contextmanager
def started(engine: Engine, job: Job, workers: int = 1, limits: Limits = Limits()) -> Iterator[Engine]:  # noqa: B008
    try:
        engine.start(job, workers, limits)
        yield engine
    finally:
        engine.close()


def until(engine: Engine, condition: Callable[[Event], bool]) -> list[Event]:
    """All events up to the first one for which the condition holds."""
    found: list[Event] = []
    limit = time.monotonic() + PATIENCE
    while not any(map(condition, found)):
        assert time.monotonic() < limit, found
        found += engine.events(0.5)
    return found


def ready(engine: Engine, workers: int = 1) -> list[Ready]:
    """Wait for these workers."""
    found: list[Ready] = []
    while len(found) < workers:
        events = until(engine, lambda event: isinstance(event, Ready))
        found += [event for event in events if isinstance(event, Ready)]
    return found


def work(engine: Engine, tasks: Sequence[Task]) -> list[Event]:
    """Submit tasks as the engine wants them; all events until they are done."""
    left, found, done = list(tasks), list[Event](), 0
    limit = time.monotonic() + PATIENCE
    while done < len(tasks):
        assert time.monotonic() < limit, found
        for _ in range(min(engine.wanted(), len(left))):
            engine.submit(left.pop(0))
        new = engine.events(0.5)
        done += sum(isinstance(event, Done) for event in new)
        found += new
    return found


def rows(job: Job, chunk: int) -> list[str]:
    """The published lines of a chunk."""
    store = FolderStore(job.store)
    found = usable_result(store, existing_manifest(store), Task(chunk))
    assert found is not None
    return found[0].rows.decode().splitlines()


def marked(mark: str, command: str) -> list[int]:
    """The living processes with this mark whose command has this word."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            words = (place / "cmdline").read_bytes().decode(errors="replace")
            if f"{MARK}={mark}".encode() in (place / "environ").read_bytes() and command in words:
                found.append(int(place.name))
        except OSError:  # it has just ended, or belongs to somebody else
            continue
    return sorted(set(found) - {os.getpid()})


def descendants(process: int) -> list[int]:
    """The living processes that a process has started, and those that these have."""
    parents: dict[int, list[int]] = {}
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
            parents.setdefault(parent, []).append(int(place.name))
    found, left = list[int](), [process]
    while left:
        children = parents.get(left.pop(), [])
        found += children
        left += children
    return found


def lives(process: int) -> str:
    """The command of a process; empty if it has ended."""
    try:
        return Path(f"/proc/{process}/cmdline").read_text(errors="replace").replace("\0", " ").strip()
    except OSError:
        return ""


def gone(mark: str, command: str = "", seconds: float = 20.0) -> bool:
    """Whether no such process is left after this time."""
    limit = time.monotonic() + seconds
    while marked(mark, command):
        if time.monotonic() > limit:
            return False
        time.sleep(0.1)
    return True
