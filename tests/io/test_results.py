"""The promise of the writers: each format as documented, a line (or lattice) a sentence, nothing lost on the way."""

from __future__ import annotations

import io
import json
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sgdec.errors import SgdecError, UsageError
from sgdec.io.lattice import read_lattice
from sgdec.io.results import JsonWriter, LineWriter, NbestWriter, Writer, make_writer, open_rows
from sgdec.protocol import Hypothesis, Result, Source
from sgdec.search.outcome import Outcome

BEST = Hypothesis(
    (7, 4), -2.5, -1.25, ledger=((-1.0, 0.5), (-0.5, 0.0), (-1.5, 1.0)), weights=((1.0, 0.5),) * 2 + ((1.0, None),)
)
SECOND = Hypothesis((7,), -3.0, -3.0, ledger=((-1.0, 0.5), (-2.0, 0.0)), weights=((1.0, 0.5),) * 2)
FOUND = Outcome(Source(4, (3,)), Result([BEST, SECOND], proven=False, gap=0.5, expansions=17), 0.25)
NOTHING = Outcome(Source(5, ()), Result([]), 0.0, SgdecError("empty"))
NAMES = ("nmt", "fst")


@contextmanager
def open_writer(format: str, path: str) -> Iterator[Writer]:
    with open_rows(path, lambda: {"input": None}) as rows:
        yield make_writer(format, path, rows, None, NAMES)


def spell(tokens: object) -> str:
    return f"<{tokens}>"


def test_lines_hold_the_best_hypothesis_and_never_shift() -> None:
    output = io.StringIO()
    writer = LineWriter(output, spell)
    for outcome in (FOUND, NOTHING, FOUND):
        assert writer.write(outcome) is None
    assert output.getvalue() == "<(7, 4)>\n\n<(7, 4)>\n"


def test_nbest_lists_are_those_of_moses() -> None:
    output = io.StringIO()
    writer = NbestWriter(output, spell, NAMES)
    for outcome in (FOUND, NOTHING):
        assert writer.write(outcome) is None
    assert output.getvalue().splitlines() == [
        "4 ||| <(7, 4)> ||| nmt= -3.000000 fst= 1.500000 ||| -2.500000",
        "4 ||| <(7,)> ||| nmt= -3.000000 fst= 0.500000 ||| -3.000000",
    ]


def test_json_lines_hold_all_that_is_known() -> None:
    output = io.StringIO()
    writer = JsonWriter(output, spell, NAMES)
    for outcome in (FOUND, NOTHING):
        assert writer.write(outcome) is None
    found, nothing = map(json.loads, output.getvalue().splitlines())
    assert found == {
        "id": 4,
        "hypotheses": [
            {
                "tokens": [7, 4], "text": "<(7, 4)>", "score": -2.5, "rank_score": -1.25,
                "scores": {"nmt": -3.0, "fst": 1.5}, "weights": {"nmt": 1.0, "fst": None},
            },
            {
                "tokens": [7], "text": "<(7,)>", "score": -3.0, "rank_score": -3.0,
                "scores": {"nmt": -3.0, "fst": 0.5}, "weights": {"nmt": 1.0, "fst": 0.5},
            },
        ],
        "proven": False,
        "gap": 0.5,
        "expansions": 17,
        "bounds": None,
        "seconds": 0.25,
    }  # fmt: skip
    assert nothing["hypotheses"] == [] and nothing["error"] == "empty"


def test_json_has_no_infinity() -> None:
    output = io.StringIO()
    JsonWriter(output, spell, NAMES).write(Outcome(Source(1, ()), Result([], proven=False, gap=math.inf), 0.0))
    assert json.loads(output.getvalue(), parse_constant=pytest.fail)["gap"] is None


@pytest.mark.parametrize("format", ["text", "ids", "nbest", "jsonl"])
def test_each_sentence_is_on_the_disk_before_the_next_one_starts(tmp_path: Path, format: str) -> None:
    path, partial = tmp_path / "out", tmp_path / "out.partial"
    with open_writer(format, str(path)) as writer:
        writer.write(FOUND)
        first = partial.read_text()
        assert "7 4" in first and first.endswith("\n")
        writer.write(FOUND)
        assert partial.read_text() == first + first and not path.exists()
    assert path.read_text() == first + first and not partial.exists()


def test_ids_are_written_where_there_is_no_vocabulary(tmp_path: Path) -> None:
    with open_writer("text", str(tmp_path / "out")) as writer:
        writer.write(FOUND)
    assert (tmp_path / "out").read_text() == "7 4\n"


def test_lattices_are_written_one_a_sentence_with_folders_as_needed(tmp_path: Path) -> None:
    with open_writer("fst", str(tmp_path / "new" / "{id}.fst")) as writer:
        assert writer.write(FOUND) is None
        assert writer.write(NOTHING) is None
    assert len(read_lattice(tmp_path / "new" / "4.fst").arcs) > 1
    assert read_lattice(tmp_path / "new" / "5.fst").start == -1


def test_hypotheses_that_a_lattice_cannot_hold_are_reported(tmp_path: Path) -> None:
    unknown = Hypothesis((0, 4), -1.0, -1.0, ledger=((-0.5, 0.0),) * 3, weights=((1.0, 0.5),) * 3)
    outcome = Outcome(Source(6, (3,)), Result([unknown, BEST]), 0.0)
    with open_writer("fst", str(tmp_path / "{id}.fst")) as writer:
        warning = writer.write(outcome)
    assert warning is not None and f"{tmp_path}/6.fst lacks 1 hypothesis with token 0" in warning


def test_an_output_that_cannot_be_opened_is_a_wrong_call(tmp_path: Path) -> None:
    path = str(tmp_path / "none" / "out.txt")
    with pytest.raises(UsageError, match=f"--output {path}: No such file or directory"), open_rows(path, dict):
        pass


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
@pytest.mark.parametrize("format", ["text", "nbest", "jsonl"])
def test_a_full_disk_names_the_output(format: str) -> None:
    with (
        pytest.raises(SgdecError, match="--output /dev/full: No space left on device"),
        open_writer(format, "/dev/full") as writer,
    ):
        writer.write(FOUND)
