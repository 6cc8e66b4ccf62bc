"""A trace file has every batch that a sentence refers to, in whatever order the searches end."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from sgdec.trace import read_trace
from tests.helpers.traced_runs import Model, traced, write_trace


def test_batches_of_searches_that_alternate_are_all_written(tmp_path: Path) -> None:
    """The first sentence to end was in odd batches only, the second in even ones."""
    run = traced("greedy", {"nmt": Model(1)}, sources=[[3, 4], [5, 6]], nbest=1)
    numbers = iter(range(1, 1000))
    sentences = []
    for place, trace in enumerate(run.sentences):
        own = {batch.number: 2 * next(numbers) - place for batch in trace.batches}
        sentences.append(replace(
            trace,
            batches=tuple(replace(batch, number=own[batch.number]) for batch in trace.batches),
            expansions=tuple(replace(each, batch=own[each.batch or 0]) for each in trace.expansions),
        ))  # fmt: skip
        numbers = iter(range(1, 1000))
    write_trace(tmp_path / "t", replace(run, sentences=sentences))
    for written, read in zip(sentences, read_trace(tmp_path / "t").sentences, strict=True):
        assert [batch.number for batch in read.batches] == [batch.number for batch in written.batches]
