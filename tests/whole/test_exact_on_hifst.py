"""On the 60 real HiFST lattices of the data folder exact decoders find what pynini finds.

Their costs are partly negative. The oracles are `pynini.shortestpath`, for one path and for the ten shortest with
different strings; OpenFst adds up in single precision.
"""

from __future__ import annotations

import gzip
import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from sgdec_decoders.astar import AStarDecoder
from sgdec_decoders.bucket import BucketDecoder
from sgdec_decoders.dfs import DfsDecoder
from sgdec_decoders.restarting import RestartingDecoder
from sgdec_predictors.fst import FstPredictor

from sgdec import Decoder, Node, Result, Source
from sgdec.search.constellation import Constellation
from sgdec.search.space import SearchSpace
from tests.helpers.optional import optional

pytestmark = pytest.mark.slow

DATA = os.environ.get("SGDEC_DATA")
FOLDER = Path(DATA or "") / "data" / "lattices" / "hifst_ruen" / "fst"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(DATA is None, reason="SGDEC_DATA does not name the data folder"),
]
every_lattice = pytest.mark.parametrize("sentence", range(1, 61))


@every_lattice
def test_every_exact_decoder_finds_the_shortest_path(sentence: int) -> None:
    pynini = optional("pynini")
    fst = pynini_lattice(sentence)
    path = pynini.shortestpath(fst)
    cost = float(pynini.shortestdistance(path, reverse=True)[path.start()])
    for decoder in (
        AStarDecoder(),
        DfsDecoder(recombine=True),
        RestartingDecoder(recombine=True),
        BucketDecoder(recombine=True),
    ):
        result, space = search(decoder, sentence)
        (best,) = result.hypotheses
        assert -best.score == pytest.approx(cost, abs=1e-3), decoder
        assert result.proven
        if isinstance(decoder, AStarDecoder):
            assert space.expansions <= 2 * (len(best.tokens) + 1)


@every_lattice
def test_the_ten_best_of_astar_are_the_ten_shortest_strings(sentence: int) -> None:
    pynini = optional("pynini")
    paths = pynini.shortestpath(pynini_lattice(sentence), nshortest=10, unique=True).paths()
    expected = []
    while not paths.done():
        expected.append((float(paths.weight()), tuple(label for label in paths.ilabels() if label > 2)))
        paths.next()
    expected.sort()
    result, _ = search(AStarDecoder(), sentence, nbest=10)
    assert [-h.score for h in result.hypotheses] == pytest.approx([cost for cost, _ in expected], abs=1e-3)
    assert result.proven
    found = {h.tokens for h in result.hypotheses}
    last, _ = expected[-1]
    for cost, tokens in expected:
        assert tokens in found or cost > last - 1e-3  # of equal costs at the end of a list either will do


def pynini_lattice(sentence: int) -> Any:
    pynini = optional("pynini")

    return pynini.Fst.read_from_string(gzip.decompress((FOLDER / f"{sentence}.fst.gz").read_bytes()))


@cache
def opened(sentence: int) -> tuple[Constellation, Node]:
    """Both tests read a lattice once."""
    constellation = Constellation.of({"fst": FstPredictor(str(FOLDER / "{id}.fst.gz"))})
    (root,) = constellation.roots([Source(sentence, ())])
    return constellation, root


def search(decoder: Decoder, sentence: int, nbest: int = 1) -> tuple[Result, SearchSpace]:
    constellation, root = opened(sentence)
    space = SearchSpace(constellation, root, nbest=nbest)
    return decoder.decode(space), space
