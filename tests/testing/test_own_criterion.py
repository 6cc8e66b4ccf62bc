"""The promise: a decoder that ranks by its own criterion says so in ``ranks_by``, and then keeps the contract."""

from __future__ import annotations

import json
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

import sgdec
from sgdec.cli.main import main
from sgdec.decoder import Decoder
from sgdec.protocol import Result
from sgdec.search.space import SearchSpace
from sgdec.testing import DecoderContract
from tests.helpers import diverse_list
from tests.helpers.diverse_list import DiverseList, Tiny
from tests.helpers.mbr_decoder import MbrDecoder


class Undeclared(DiverseList):
    ranks_by = "ranking"


class Unnamed(DiverseList):
    """The class has a name for its criterion, so it can be loaded; its objects have none."""

    def __init__(self) -> None:
        super().__init__()
        self.ranks_by = None  # type: ignore[assignment]


class Overstated(DiverseList):
    exact: ClassVar[bool] = True


class Unsorted(MbrDecoder):
    """Its criterion is a number, so its lists have to be sorted by it."""

    def decode(self, space: SearchSpace) -> Result:
        return Result(super().decode(space).hypotheses[::-1])


@pytest.mark.slow
class TestDiverseList(DecoderContract):
    nbests = (1, 4)

    def make(self) -> Decoder:
        return DiverseList()


@pytest.mark.parametrize(
    ("cls", "test", "said"),
    [
        (Undeclared, "test_hypotheses_come_best_first", "a decoder with its own criterion names it in ranks_by"),
        (Unnamed, "test_hypotheses_come_best_first", "ranks_by is None; expected 'ranking'"),
        (Overstated, "test_an_exact_search_equals_enumeration", "a decoder that ranks by diversity must not claim"),
        (Unsorted, "test_hypotheses_come_best_first", "a list must be sorted by rank_score"),
    ],
)
def test_what_the_contract_refuses(cls: type[Decoder], test: str, said: str) -> None:
    class TestIt(DecoderContract):
        nbests = (4,)

        def make(self) -> Decoder:
            return cls()

    with pytest.raises(AssertionError, match=said):
        getattr(TestIt(), test)()


def test_a_run_lists_hypotheses_in_the_decoders_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (found,) = sgdec.load({"tiny": Tiny}, DiverseList, nbest=3).decode([[3]])
    assert [each.tokens for each in found.hypotheses] == [(4, 5), (6,), (4,)]
    assert [np.exp(each.rank_score) for each in found.hypotheses] == pytest.approx([0.48, 0.2, 0.32])
    (tmp_path / "in").write_text("3\n")
    words = ["--predictors", "tiny", "--decoder", "diverse", "--plugin-file", diverse_list.__file__]
    words += ["--nbest", "3", "--input-format", "ids", "--output-format", "jsonl", str(tmp_path / "in")]
    assert main(["decode", *words]) == 0
    line = json.loads(capsys.readouterr().out)
    assert [each["tokens"] for each in line["hypotheses"]] == [[4, 5], [6], [4]]
