"""The promise: a decoder that asks a utility fails as its utility does: a sentence, or the run, in one line."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sgdec_decoders.beam import BeamDecoder

import sgdec
from sgdec import Decoder, Result, SearchSpace, Utility
from sgdec.arrays import Floats
from sgdec.errors import UsageError
from sgdec.utility import pairwise


class Choosing(Decoder):
    """The hypothesis of a beam with the highest utility, on average over the others; texts are ids."""

    ranks_by = "expected utility"

    def __init__(self, utility: Utility) -> None:
        self.utility = utility

    def decode(self, space: SearchSpace) -> Result:
        with space.asking_for(4):
            listed = BeamDecoder(4).decode(space).hypotheses
        texts = [" ".join(map(str, hypothesis.tokens)) for hypothesis in listed]
        expected = pairwise(self.utility, texts, texts, space.source.text).mean(axis=1)
        order = np.argsort(-expected, kind="stable")[: space.nbest].tolist()
        return Result([replace(listed[place], rank_score=float(expected[place])) for place in order])


class Sums(Utility):
    """Higher ids are better."""

    def pairwise(self, hypotheses: Sequence[str], references: Sequence[str], source: str | None) -> Floats:
        return np.array([[float(sum(map(int, text.split())))] * len(references) for text in hypotheses])


def decode(utility: Utility, lines: list[str]) -> list[tuple[tuple[int, ...] | None, str]]:
    run = sgdec.load("wc", Choosing(utility), vocab_size=5, max_length=3, tokenizer=None, wc={"weight": -1.0})
    found = run.decode([[int(word) for word in line.split()] for line in lines])
    return [(each.best.tokens if each.hypotheses else None, str(each.error or "")) for each in found]


def test_the_best_is_that_of_the_utility() -> None:
    (highest, first) = (decode(each, ["3"])[0][0] for each in (Sums(), sgdec.load_utility("exact")))
    assert highest is not None and sum(highest) > 0 and first == (0, 0, 0), "all are equal, so the first of the beam"


def test_a_program_that_fails_a_sentence_fails_that_sentence_alone(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import json, sys\nprint('{}', flush=True)\n"
        "for number, line in enumerate(sys.stdin):\n"
        "    size = len(json.loads(line)['hypotheses'])\n"
        "    value = float('nan') if number == 1 else 1\n"
        "    print(json.dumps({'utilities': [[value] * size] * size}), flush=True)\n"
        "    if number == 3: sys.exit('out of memory')\n"
    )
    program = sgdec.load_utility("command", command=f"'{sys.executable}' '{tmp_path / 'program.py'}'", seconds=20)
    first, second, third = decode(program, ["3", "4", "3"])
    assert first[1] == "" and first == third and second[0] is None
    assert "answered nan for hypothesis 1 ('0 0 0') and reference 1" in second[1]
    with pytest.raises(UsageError, match=r"ended \(exit status 1\); it last said: out of memory"):
        decode(program, ["3", "4", "3"])
