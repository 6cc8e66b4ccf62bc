"""The interface of engines: they run tasks in workers, and know nothing of inputs, results, or the order of chunks.

An engine is a plugin of the kind ``engine`` (`sgdec.plugins.hookspecs.sgdec_engines`). The options of its constructor
are ``--NAME.OPTION``. Its workers are made of a `Job`, each in a process of its own (`sgdec.corpus.work.Worker`), and
get tasks one after the other. Whatever happens to them is told as events.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple, TypeAlias

from sgdec.errors import SgdecError, UsageError


@dataclass(frozen=True)
class Job:
    """All that a worker needs to know before its first task; it is JSON."""

    store: str
    """The folder or URL of the corpus."""
    folder: str
    """The working directory to which paths refer."""
    token: str
    """The name of a file in the store: a worker that does not find it looks at another place."""
    predictors: str
    decoder: str
    options: Mapping[str, Mapping[str, Any]]
    """The options of predictors and decoder, by name."""
    settings: Mapping[str, Any]
    """Those of `sgdec.settings.Settings` that were given."""
    plugin_files: tuple[str, ...] = ()
    input_format: str = "text"
    output_format: str = "text"
    ledger: bool = False
    scoring: Mapping[str, Any] | None = None
    """The options of ``sgdec score`` that are neither predictors' nor `settings`; None: lines are decoded."""

    @property
    def command(self) -> str:
        """The command of ``sgdec`` that does the same in one process: ``decode`` or ``score``."""
        return "decode" if self.scoring is None else "score"

    def with_threads(self, number: int) -> Job:
        """The job with this number of threads for each worker, unless the user has given one."""
        threads = self.settings.get("threads", "auto")
        return replace(self, settings={**self.settings, "threads": number if threads == "auto" else threads})

    def to_json(self) -> str:
        """As text, for another process."""
        return json.dumps(asdict(self))

    @classmethod
    def of_json(cls, text: str) -> Job:
        """The inverse of `to_json`."""
        given = json.loads(text)
        return cls(**{**given, "plugin_files": tuple(given["plugin_files"])})


@dataclass(frozen=True)
class Limits:
    """Limits on a worker; one that exceeds them is killed, which counts as a death."""

    line_seconds: float | None = None
    """The longest time in which it finishes no line, while it has a task."""
    memory: int | None = None
    """The most bytes of its own, without files that are mapped."""
    load_seconds: float | None = None
    """The longest time until it is ready."""


class Task(NamedTuple):
    """Some lines of a chunk.

    >>> print(Task(2), Task(2, first=3, lines=1), sep="; ")
    chunk 2; chunk 2, line 4 of it
    """

    chunk: int
    first: int = 0
    """The first line, counted in the chunk from 0."""
    lines: int | None = None
    """None: the whole chunk, whose result is published as such; otherwise the result is one of a part."""
    again: bool = False
    """Whether these lines have failed before; their outputs are added to the chunk's result, which stays."""

    def __str__(self) -> str:
        if self.lines is None:
            return f"chunk {self.chunk}"
        first, last = self.first + 1, self.first + self.lines
        return f"chunk {self.chunk}, {f'line {first}' if first == last else f'lines {first} to {last}'} of it"


@dataclass(frozen=True)
class Receipt:
    """A published result, without its rows."""

    sha256: str
    """The hash of its file."""
    lines: int
    failed: int
    seconds: float
    worker: str
    run: str
    """The hash of the run (`sgdec.corpus.manifest.Manifest.run`)."""


@dataclass(frozen=True)
class Hello:
    """The first message of a worker, when it has loaded its models."""

    signature: Mapping[str, str]
    host: str
    notes: tuple[str, ...] = ()
    """Warnings about the run, for the user."""


@dataclass(frozen=True)
class Ready:
    """A worker has started and can work."""

    worker: str
    hello: Hello


@dataclass(frozen=True)
class Advanced:
    """A worker has finished this many lines of its task so far."""

    worker: str
    lines: int


@dataclass(frozen=True)
class Done:
    """A worker has published the result of a task."""

    worker: str
    task: Task
    receipt: Receipt | None
    """None: another result was there first, and counts."""


@dataclass(frozen=True)
class Refused:
    """A worker found that the run cannot continue: a wrong option, a folder it does not see, a full disk."""

    worker: str
    reason: str
    exit_status: int = 1

    @property
    def error(self) -> SgdecError:
        """The error with which the run ends."""
        return (UsageError if self.exit_status == UsageError.exit_status else SgdecError)(self.reason)


@dataclass(frozen=True)
class Died:
    """A worker has died or was killed."""

    worker: str
    task: Task | None
    """The task it had; None if it had none, or was still loading."""
    reason: str
    waiting: tuple[Task, ...] = ()
    """Tasks that it had not begun."""
    outside: bool = False
    """Whether the line may have nothing to do with it: somebody or the system killed the worker, or its node was
    lost. Faults of native code, exceptions and exceeded `Limits` are the line's."""


Event: TypeAlias = Ready | Advanced | Done | Refused | Died


class Engine(ABC):
    """Runs tasks in workers. The methods are called by one thread."""

    @abstractmethod
    def start(self, job: Job, workers: int, limits: Limits) -> None:
        """Begin to start this number of workers, and replace each that dies later.

        Raises UsageError if the engine cannot work here.
        """

    @abstractmethod
    def wanted(self) -> int:
        """The number of tasks that it can take now, so that its workers do not wait."""

    @abstractmethod
    def submit(self, task: Task) -> None:
        """Give a task to a worker, now or as soon as one is free."""

    @abstractmethod
    def events(self, seconds: float) -> list[Event]:
        """The events since the last call; waits until there is one, at most this time."""

    @abstractmethod
    def close(self) -> None:
        """Stop all workers at once, whatever they do, and return when they have ended."""
