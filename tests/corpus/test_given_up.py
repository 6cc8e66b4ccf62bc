"""The rows of a line that is given up are those that a worker writes for a line that has failed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sgdec.corpus.checking import usable_result
from sgdec.corpus.engine import Task
from sgdec.corpus.given_up import rows_of_given_up
from sgdec.corpus.manifest import existing_manifest
from sgdec.corpus.results import Failure
from sgdec.corpus.stores import FolderStore
from sgdec.corpus.work import Worker
from sgdec.io.documents import parse_json
from tests.helpers.engine_runs import corpus
from tests.helpers.fake_workers import manifest_of


def test_a_name_that_is_not_utf_8_is_escaped_in_rows() -> None:
    manifest = replace(manifest_of([1]), output_format="jsonl")
    rows, _ = rows_of_given_up(manifest, Task(0), Failure(1, "raw\udcff", 1, "raw\udcff, line 1: no"), ())
    assert parse_json(rows)["error"].startswith("raw\udcff")


LINES = "4 4\n9\n4\n"
LIST = "1 ||| 4 ||| a= 1\n2 ||| 9 ||| wc= 1\n2 ||| 9 9\n"  # line 2 has two entries that fail


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "output_format"),
    [
        *((None, output_format) for output_format in ("text", "ids", "jsonl", "nbest", "fst")),
        *((LINES, output_format) for output_format in ("score", "jsonl")),
        *((LIST, output_format) for output_format in ("score", "jsonl", "nbest", "text")),
    ],
)
def test_rows_are_those_of_a_failed_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str | None, output_format: str
) -> None:
    nbest_list = target == LIST
    monkeypatch.chdir(tmp_path)
    bad = "3" if target else "x"  # the outputs cannot be scored, or the line cannot be decoded
    job = corpus(
        tmp_path, ["3", bad, "3"], 3, target=target, nbest_list=nbest_list, predictors="wc", options={},
        settings={"vocab_size": 6, "max_length": 2}, output_format=output_format, plugin_files=(),
    )  # fmt: skip
    assert Worker(job, "1.1").work(Task(0, 1, 1), lambda done: None) is not None
    store = FolderStore(job.store)
    manifest = existing_manifest(store)
    result, _ = usable_result(store, manifest, Task(0, 1, 1)) or (None, None)
    assert result is not None
    (failure,) = result.failed
    rows, files = rows_of_given_up(manifest, Task(0, 1, 1), failure, ["wc"])
    if output_format == "jsonl" and target is None:
        assert {**parse_json(rows), "seconds": 0} == {**parse_json(result.rows), "seconds": 0}
    else:
        assert rows == result.rows
    assert files == result.files
    assert (b"wc2= -inf" in rows) == (nbest_list and output_format == "nbest")
