"""The 60 real HiFST lattices of the data folder: negative costs, up to 3,800 states, `<s>` and `</s>` arcs.

Beam search with recombination, a beam as wide as the lattice has states, and a proof finds pynini's shortest path.
"""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Any

import pytest
from sgdec_decoders.beam import BeamDecoder
from sgdec_predictors.fst import FstPredictor

from sgdec.io.lattice import read_lattice
from sgdec.protocol import Source
from sgdec.search.constellation import Constellation
from sgdec.search.space import SearchSpace
from tests.helpers.breadth import some
from tests.helpers.optional import optional

pytestmark = pytest.mark.slow

DATA = os.environ.get("SGDEC_DATA")
FOLDER = Path(DATA or "") / "data" / "lattices" / "hifst_ruen" / "fst"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(DATA is None, reason="SGDEC_DATA does not name the data folder"),
]


@pytest.mark.parametrize("sentence", some(range(1, 61)))
def test_the_best_hypothesis_is_the_shortest_path(sentence: int) -> None:
    pynini = optional("pynini")
    constellation = Constellation.of({"fst": FstPredictor(str(FOLDER / "{id}.fst.gz"))})
    (root,) = constellation.roots([Source(sentence, ())])
    states = len(read_lattice(FOLDER / f"{sentence}.fst.gz").arcs)
    space = SearchSpace(constellation, root)
    bound = root.total + space.bound([root])[0]
    best, *_ = BeamDecoder(size=states, recombine=True, stop="proven").decode(space).hypotheses

    fst = pynini.Fst.read_from_string(gzip.decompress((FOLDER / f"{sentence}.fst.gz").read_bytes()))
    path = pynini.shortestpath(fst)
    cost = float(pynini.shortestdistance(path, reverse=True)[path.start()])
    assert -best.score == pytest.approx(cost, abs=1e-3)  # OpenFst adds up in single precision
    assert -bound == pytest.approx(cost, abs=1e-3)
    assert -best.score == pytest.approx(_cost(fst, best.tokens), abs=1e-6)


def _cost(fst: Any, tokens: tuple[int, ...]) -> float:
    """Of the one path with these tokens, walked arc by arc."""
    cost, state = 0.0, fst.start()
    for label in (1, *tokens, 2):
        (arc,) = [arc for arc in fst.arcs(state) if arc.ilabel == label]
        cost, state = cost + float(arc.weight), arc.nextstate
    return cost + float(fst.final(state))
