"""The work on the lines of a task: `Decoding` or `Scoring`. Nothing else in a worker depends on which it is."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import partial
from typing import IO

from sgdec.corpus.checking import lines_of
from sgdec.corpus.chunk_lines import lines_of_chunk
from sgdec.corpus.engine import Job, Task
from sgdec.corpus.given_up import ScoredLines
from sgdec.corpus.manifest import Manifest
from sgdec.corpus.targets import targets_of
from sgdec.io.results import make_writer
from sgdec.library import LoadedRun
from sgdec.protocol import Source
from sgdec.search.outcome import Outcome, Unreadable
from sgdec.settings import OF_SCORES, Penalties
from sgdec.tasks.parts import part_scores
from sgdec.tasks.scoring import Pairing


class Operation(ABC):
    """A command of ``sgdec`` on the lines of one task after the other."""

    decoder: str | None = None
    """The decoder to which errors are attributed."""
    caveat: str | None = None
    """A warning about the run."""

    def __init__(self, job: Job, run: LoadedRun) -> None:
        """Raises UsageError for settings that the operation does not support."""
        self._job, self._run = job, run
        self._reader = run.reader("ids" if job.input_format == "ids" else "text")

    @abstractmethod
    def signature(self) -> dict[str, str]:
        """All that decides its outputs."""

    @abstractmethod
    def outcomes(
        self, manifest: Manifest, task: Task, rows: IO[str], folder: str, advanced: Callable[[int], None]
    ) -> Iterator[Outcome]:
        """The outcomes in order, at least one for each line, after their rows are written; other files go into
        ``folder``. ``advanced`` is called with the number of lines that are done."""

    def _sentences(self, manifest: Manifest, task: Task) -> Iterator[Source | Unreadable]:
        chunk, ids = manifest.chunks[task.chunk], lines_of(manifest, task)
        file = manifest.inputs[chunk.file]
        for number, line in enumerate(lines_of_chunk(file, chunk)):
            if chunk.id + number in ids:
                place = f"{file.path}, line {chunk.line + number}"
                yield self._reader.sentence(chunk.id + number, line, place)


class Decoding(Operation):
    """``sgdec decode``."""

    def __init__(self, job: Job, run: LoadedRun) -> None:
        super().__init__(job, run)
        self.decoder = job.decoder
        self.caveat = None if run.caveat is None else f"{job.decoder}: {run.caveat}"

    def signature(self) -> dict[str, str]:
        return {**self._run.parts.signature, **self._run.shaping(), "input_format": self._job.input_format}

    def outcomes(
        self, manifest: Manifest, task: Task, rows: IO[str], folder: str, advanced: Callable[[int], None]
    ) -> Iterator[Outcome]:
        parts = self._run.parts
        writer = make_writer(
            manifest.output_format, os.path.join(folder, "{id}.fst"), rows, parts.vocabularies.target,
            parts.constellation.names, ledger=manifest.ledger, parts=partial(part_scores, parts.constellation),
        )  # fmt: skip
        for outcome in self._run.scheduler().run(self._sentences(manifest, task), advanced):
            writer.write(self._run.respelled(outcome))
            yield outcome


class Scoring(Operation):
    """``sgdec score``."""

    def __init__(self, job: Job, run: LoadedRun) -> None:
        super().__init__(job, run)
        assert job.scoring is not None
        self._asked = job.scoring
        penalties = {name: job.scoring[name] for name in ("alpha", "beta", "normalize")}
        self._ranking = Penalties.of(penalties).ranking
        self._pairing = Pairing(job.scoring["target_format"], run.parts.vocabularies.target, self._reader.vocabulary)
        run.scorer(self._ranking)  # raises UsageError for a coverage penalty without attention

    def signature(self) -> dict[str, str]:
        """Without those settings of the run that only a search has."""
        asked = {name: str(value) for name, value in self._asked.items() if value is not False}
        chosen = self._run.settings.shaping()
        shaping = {name: chosen[name] for name in (*OF_SCORES, "max_source_length") if name in chosen}
        parts = {name: value for name, value in self._run.parts.signature.items() if name != "decoder"}
        return {**parts, **asked, **shaping, "input_format": self._job.input_format}

    def outcomes(
        self, manifest: Manifest, task: Task, rows: IO[str], folder: str, advanced: Callable[[int], None]
    ) -> Iterator[Outcome]:
        ids = lines_of(manifest, task)
        targets = targets_of(manifest, task.chunk, ids)
        flat = [target for of_line in targets for target in of_line]
        pairs = (
            self._pairing.pair(source, target.text, target.where)
            for source, of_line in zip(self._sentences(manifest, task), targets, strict=True)
            for target in of_line
        )
        names = self._run.parts.constellation.names
        writer = ScoredLines(rows, manifest, ids, names, self._ranking, self._asked["old_weight"])
        scored = self._run.scorer(self._ranking).run(pairs, lambda done: advanced(done * len(ids) // len(flat)))
        for target, outcome in zip(flat, scored, strict=True):
            writer.write(target.entry, outcome)
            yield outcome
        writer.finish()


def operation(job: Job, run: LoadedRun) -> Operation:
    """The operation of a job."""
    return Decoding(job, run) if job.scoring is None else Scoring(job, run)
