"""The rows of a line that is given up, and of scores in the layout of a corpus. No model is needed for them."""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from sgdec.corpus.engine import Task
from sgdec.corpus.manifest import Manifest
from sgdec.corpus.results import Failure, as_utf8
from sgdec.corpus.rows import Layout, marked
from sgdec.corpus.targets import targets_of
from sgdec.errors import SgdecError
from sgdec.io.nbest import NbestEntry
from sgdec.io.results import make_writer
from sgdec.io.scored import ScoreWriter
from sgdec.io.unfinished import UnfinishedRows
from sgdec.protocol import Result, Source
from sgdec.ranking import Ranking
from sgdec.search.outcome import Outcome


class ScoredLines:
    """Writes the scores of consecutive lines."""

    def __init__(
        self, rows: IO[str], manifest: Manifest, ids: range, names: Sequence[str], ranking: Ranking, old_weight: float
    ) -> None:
        """``names``: those of the predictors."""
        self._output = _Marked(rows) if manifest.layout is Layout.MARKED else UnfinishedRows(rows)
        self._output.done = ids.start - 1
        self._ids = ids
        self._writer = ScoreWriter(self._output, manifest.output_format, names, ranking, old_weight)

    def write(self, entry: NbestEntry | None, outcome: Outcome) -> None:
        """Write the outcome of an output; ``entry`` is its entry in an n-best list."""
        if isinstance(self._output, _Marked):
            self._output.id = outcome.source.id
        self._writer.write(entry, outcome)

    def finish(self) -> None:
        """Write what waits for the end of its line."""
        self._writer.finish(self._ids.stop - 1)


class _Marked(UnfinishedRows):
    """Rows of which each is written at once, behind the number of its line."""

    id = 0

    def write(self, text: str, /) -> None:
        super().write(marked(self.id, text))


def rows_of_given_up(
    manifest: Manifest, task: Task, failure: Failure, names: Sequence[str]
) -> tuple[bytes, dict[str, bytes]]:
    """The rows and files of the one line of a task, as a worker writes them for a line that has failed.

    ``names``: those of the predictors. Raises SgdecError if its outputs to score have changed.
    """
    outcome = Outcome(Source(failure.id, ()), Result([]), 0.0, SgdecError(failure.reason))
    rows: Any = io.StringIO()
    with tempfile.TemporaryDirectory() as folder:
        if manifest.targets:
            ids = range(failure.id, failure.id + 1)
            scores = ScoredLines(rows, manifest, ids, names, Ranking(), 0.0)
            for target in targets_of(manifest, task.chunk, ids)[0]:
                scores.write(target.entry, outcome)
            scores.finish()
        else:
            make_writer(manifest.output_format, os.path.join(folder, "{id}.fst"), rows, None, ()).write(outcome)
        files = {file.name: file.read_bytes() for file in Path(folder).iterdir()}
    return as_utf8(rows.getvalue()), files
