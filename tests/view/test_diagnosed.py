"""The search errors of a diagnosis are read for the run that it is about, and for no other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sgdec.errors import SgdecError
from sgdec.view.diagnosed import read_search_errors
from sgdec.view.runs import SearchError
from tests.helpers.traced_runs import traced

RUN = traced(sources=[[3, 4], [5], [6, 7]])


def line(id: int, error: str, by: float | None, gap: float | None, **others: Any) -> dict[str, Any]:
    """A line of a diagnosis of `RUN`, with more than is read."""
    tokens = RUN.by_id[id].hypotheses[0].tokens if id in RUN.by_id else ()
    search = {"error": error, "by": by, "gap": gap, "better": None, "decision": None}
    return {"id": id, "output": {"text": "a", "tokens": tokens, "score": -1.0}, "search": search, **others}


def read(folder: Path, *lines: object) -> Any:
    path = folder / "diagnosis.jsonl"
    path.write_text("".join(f"{each if isinstance(each, str) else json.dumps(each)}\n" for each in lines))
    return read_search_errors(path, RUN)


def test_what_is_known_of_each_sentence_is_read(tmp_path: Path) -> None:
    found = read(
        tmp_path, line(1, "proven", 2.5, 2.5), line(2, "none", 0.0, 0.0), line(3, "unknown", 0.0, 1.5),
        line(4, "proven", 1.0, 1.0),
    )  # fmt: skip
    assert found == {
        1: SearchError(2.5, at_most=False), 2: SearchError(0.0, at_most=False), 3: SearchError(1.5, at_most=True),
    }  # fmt: skip
    assert read(tmp_path, line(1, "witnessed", 2.5, None), line(2, "unknown", 0.0, None)) == {
        1: SearchError(2.5, at_most=False)
    }


def test_a_sentence_without_an_output_agrees_with_a_trace_that_has_none(tmp_path: Path) -> None:
    with pytest.raises(SgdecError, match="another output of sentence 1"):
        read(tmp_path, line(1, "proven", None, None, output=None))


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["text"], "line 1 is not a line of a diagnosis (it is not JSON that can be read)"),
        ([line(1, "none", 0.0, 0.0), {"id": 2}], "line 2 is not a line of a diagnosis (output is missing)"),
        ([line(1, "error", 0.0, 0.0)], "search.error should be 'proven', 'witnessed', 'none' or 'unknown'"),
        ([line(1, "proven", -1.0, 0.0)], "search.by should be at least 0"),
        ([line(1, "none", 0.0, 0.0, output={"tokens": [3]})], "line 1 is about another output of sentence 1"),
        ([line(9, "none", 0.0, 0.0)], "is about no sentence of run.jsonl"),
        ([], "is about no sentence of run.jsonl"),
        (["[" * 100_000], "line 1 is not a line of a diagnosis"),
        ([line(1, "none", float("nan"), 0.0)], "search.by should be a finite number"),
    ],
)  # fmt: skip
def test_other_files_are_refused_in_one_line(tmp_path: Path, lines: list[object], expected: str) -> None:
    with pytest.raises(SgdecError) as caught:
        read(tmp_path, *lines)
    said = str(caught.value)
    assert expected in said and "\n" not in said and len(said) < 500 + len(str(tmp_path))
