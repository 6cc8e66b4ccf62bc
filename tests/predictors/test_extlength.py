"""The external length predictor allows exactly the listed lengths, each with its score."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sgdec_predictors.extlength import ExternalLength

from sgdec import SgdecError, Source
from sgdec.search.constellation import Constellation
from sgdec.testing import enumerate_space
from tests.helpers.contracts import PluginContract, SearchContract

pytestmark = pytest.mark.slow


def written(folder: Path, text: str) -> str:
    (folder / "lengths").write_text(text)
    return str(folder / "lengths")


def by_length(path: str, source: Source) -> dict[int, float]:
    """The lengths of a space, and their totals."""
    constellation = Constellation.of({"extlength": ExternalLength(path)}, vocab_size=3)
    return {len(found.tokens): found.total for found in enumerate_space(constellation, source)}


def test_each_sentence_has_the_lengths_of_its_line(tmp_path: Path) -> None:
    path = written(tmp_path, "1:-0.5 3:0.25\n0 2\n4\n")
    assert by_length(path, Source(1, ())) == {1: -0.5, 3: 0.25}
    assert by_length(path, Source(2, ())) == {0: 0.0, 2: 0.0}
    assert by_length(path, Source(3, ())) == {4: 0.0}


def test_a_length_beyond_the_limit_is_out_of_reach(tmp_path: Path) -> None:
    path = written(tmp_path, "1:-0.5 3:0.25\n")
    assert by_length(path, Source(1, (), max_length=2)) == {1: -0.5}
    assert by_length(path, Source(1, (), max_length=0)) == {}


@pytest.mark.parametrize("limit", [None, 4, 2, 0])
def test_bounds_are_exactly_the_best_and_worst_lengths_in_reach(tmp_path: Path, limit: int | None) -> None:
    listed = {1: -0.5, 2: 2.0, 4: 0.25}
    predictor = ExternalLength(written(tmp_path, "2:2 1:-0.5 4:0.25\n"))
    states = predictor.initialize_batch([Source(1, (), max_length=limit)])
    for n in range(6):
        ends = [score for length, score in listed.items() if n <= length <= (9 if limit is None else limit)]
        assert predictor.best_remaining(states) == [max(ends, default=-math.inf)]
        assert predictor.worst_remaining(states) == [min(ends, default=math.inf)]
        states = predictor.consume_batch(states, [3])


class TestExternalLengthInSearch(SearchContract):
    vocab_size = 4
    limits = (None, 5, 3, 1, 0)

    def draw(self, rng: np.random.Generator) -> ExternalLength:
        listed = rng.choice(5, rng.integers(1, 5), replace=False).tolist()
        line = " ".join(f"{length}:{rng.choice([-1.0, 0.0, 1.5])}" for length in listed)
        return ExternalLength(written(self.folder, line + "\n"))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (None, r"extlength: .*lengths: cannot be read \(No such file"),
        ("1 2\n3:x\n", "lengths: line 2: '3:x' is not a length"),
        ("-1\n", "line 1: '-1' is not a length"),
        ("1:-1_0\n", "line 1: '1:-1_0' is not a length"),
        ("1:nan\n", "line 1: '1:nan' is not a length"),
        ("2:-inf\n", "line 1: '2:-inf' is not a length"),
        ("1 2 1:3\n", "line 1: length 1 is listed twice"),
        ("1\n\n2\n", "line 2: lists no length"),
    ],
)
def test_a_mistake_is_one_line(tmp_path: Path, text: str | None, complaint: str) -> None:
    path = str(tmp_path / "lengths") if text is None else written(tmp_path, text)
    with pytest.raises(SgdecError, match=complaint) as error:
        ExternalLength(path)
    assert "\n" not in str(error.value)


def test_a_sentence_without_a_line_is_one_line(tmp_path: Path) -> None:
    predictor = ExternalLength(written(tmp_path, "1\n2\n"))
    with pytest.raises(SgdecError, match=r"lengths has 2 lines, so none for sentence 3\."):
        predictor.initialize_batch([Source(3, ())])


class TestExternalLength(PluginContract):
    plugin = "extlength"

    def prepare(self, folder: Path) -> dict[str, Any]:
        return {"path": written(folder, "1:-0.5 4:1.25 7\n0:0.5 2:-2\n3\n")}
