"""The promise: a decoder that ranks by its own criterion says so in ``ranks_by``, and then keeps the contract.

`DiverseList` has a criterion that is no number of each hypothesis, so its lists have an order of their own.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from sgdec_decoders.beam import BeamDecoder

import sgdec
from sgdec.cli.main import main
from sgdec.context import EOS
from sgdec.protocol import Decoder, Hypothesis, Result
from sgdec.search.space import SearchSpace
from sgdec.testing import DecoderContract, Lattice
from tests.helpers.mbr_decoder import MbrDecoder

FILE = """
import sgdec
from tests.testing.test_own_criterion import DiverseList, Tiny

@sgdec.hookimpl
def sgdec_decoders():
    return {"diverse": DiverseList}

@sgdec.hookimpl
def sgdec_predictors():
    return {"tiny": Tiny}
"""


class DiverseList(Decoder):
    """The list of a beam. Next is always the hypothesis that shares the fewest tokens with those before it."""

    ranks_by = "diversity"

    def decode(self, space: SearchSpace) -> Result:
        with space.asking_for(8):
            left = BeamDecoder(size=8, stop="full").decode(space).hypotheses
        listed: list[Hypothesis] = []
        while left and len(listed) < space.nbest:
            seen = {token for each in listed for token in each.tokens}
            listed.append(min(left, key=lambda each: len(seen & set(each.tokens))))
            left.remove(listed[-1])
        return Result(listed)


class Undeclared(DiverseList):
    ranks_by = "ranking"


class Overstated(DiverseList):
    exact: ClassVar[bool] = True


class Unsorted(MbrDecoder):
    """Its criterion is a number, so its lists have to be sorted by it."""

    def decode(self, space: SearchSpace) -> Result:
        return Result(super().decode(space).hypotheses[::-1])


class TestDiverseList(DecoderContract):
    nbests = (1, 4)

    def make(self) -> Decoder:
        return DiverseList()


@pytest.mark.parametrize(
    ("cls", "test", "said"),
    [
        (Undeclared, "test_hypotheses_come_best_first", "a decoder with its own criterion names it in ranks_by"),
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


class Tiny(Lattice):
    """Allows 4 5, 4 and 6, in this order of probability."""

    def __init__(self) -> None:
        start, after_4, end = 0, 1, 2
        super().__init__({
            start: {4: (np.log(0.8), after_4), 6: (np.log(0.2), end)},
            after_4: {5: (np.log(0.6), end), EOS: (np.log(0.4), end)},
            end: {EOS: (0.0, end)},
        })  # fmt: skip


def test_a_run_lists_hypotheses_in_the_decoders_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (found,) = sgdec.load({"tiny": Tiny}, DiverseList, nbest=3).decode([[3]])
    assert [each.tokens for each in found.hypotheses] == [(4, 5), (6,), (4,)]
    assert [np.exp(each.rank_score) for each in found.hypotheses] == pytest.approx([0.48, 0.2, 0.32])
    (tmp_path / "diverse.py").write_text(FILE)
    (tmp_path / "in").write_text("3\n")
    words = ["--predictors", "tiny", "--decoder", "diverse", "--plugin-file", str(tmp_path / "diverse.py")]
    words += ["--nbest", "3", "--input-format", "ids", "--output-format", "jsonl", str(tmp_path / "in")]
    assert main(["decode", *words]) == 0
    line = json.loads(capsys.readouterr().out)
    assert [each["tokens"] for each in line["hypotheses"]] == [[4, 5], [6], [4]]
