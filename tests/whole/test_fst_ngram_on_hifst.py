"""On HiFST lattices of the data folder that a language model scores, too, exact decoders find what pynini finds.

The oracle is `pynini.compose` of the lattice and the language model as an acceptor. That has one state for each
history that KenLM tells from others, and from each an arc for every word of the lattice, with KenLM's score: no
back-off arc, which would allow paths that the model does not mean. OpenFst adds up in single precision.
"""

from __future__ import annotations

import gzip
import math
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
from sgdec_predictors.ngram import NGram

from sgdec import BOS, EOS, Decoder, Result, Source
from sgdec.search.constellation import Constellation
from sgdec.search.space import SearchSpace
from tests.helpers.breadth import some
from tests.helpers.optional import optional

pytestmark = pytest.mark.slow

DATA = os.environ.get("SGDEC_DATA")
FOLDER = Path(DATA or "") / "data" / "lattices" / "hifst_ruen"
MODEL = Path(DATA or "") / "data" / "lm" / "moses_lm.en.arpa.gz"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(DATA is None, reason="SGDEC_DATA does not name the data folder"),
]
SMALL = (1, 3, 5, 6, 15, 16, 21, 24, 25, 26, 28, 29, 32, 34, 36, 47, 50, 53, 56, 57, 58, 59, 60)
"""Lattices with at most 1,000 states."""
every_small_lattice = pytest.mark.parametrize("sentence", some(SMALL, first=1))

LN_10 = math.log(10.0)


@every_small_lattice
def test_every_exact_decoder_finds_the_shortest_path_of_the_composition(sentence: int) -> None:
    ((cost, tokens),) = shortest_paths(sentence, 1)
    for decoder in (
        AStarDecoder(recombine=True),
        DfsDecoder(recombine=True),
        RestartingDecoder(recombine=True),
        BucketDecoder(recombine=True),
    ):
        result = search(decoder, sentence, nbest=1)
        (best,) = result.hypotheses
        assert result.proven
        assert -best.score == pytest.approx(cost, abs=1e-3), decoder
        assert best.tokens == tokens, decoder


@every_small_lattice
def test_the_five_best_are_the_five_shortest_paths(sentence: int) -> None:
    expected = shortest_paths(sentence, 5)
    found = search(AStarDecoder(recombine=True), sentence, nbest=5).hypotheses
    assert [-best.score for best in found] == pytest.approx([cost for cost, _ in expected], abs=1e-3)
    by_tokens = {tokens: cost for cost, tokens in expected}
    for best in found:
        assert best.tokens in by_tokens or -best.score == pytest.approx(expected[-1][0], abs=1e-3)


def search(decoder: Decoder, sentence: int, nbest: int) -> Result:
    constellation = loaded()
    (root,) = constellation.roots([Source(sentence, ())])
    return decoder.decode(SearchSpace(constellation, root, nbest=nbest))


@cache
def loaded() -> Constellation:
    ngram = NGram(str(MODEL), words=str(FOLDER / "wmap.en"))
    return Constellation.of({"fst": FstPredictor(str(FOLDER / "fst" / "{id}.fst.gz")), "ngram": ngram})


def shortest_paths(sentence: int, count: int) -> list[tuple[float, tuple[int, ...]]]:
    """Costs and tokens, cheapest first."""
    pynini = optional("pynini")
    paths = pynini.shortestpath(composition(sentence), nshortest=count).paths()
    found = []
    while not paths.done():
        found.append((float(paths.weight()), tuple(label for label in paths.ilabels() if label > EOS)))
        paths.next()
    return sorted(found)


@cache
def composition(sentence: int) -> Any:
    """Of a lattice and the language model."""
    pynini = optional("pynini")
    lattice = pynini.Fst.read_from_string(gzip.decompress((FOLDER / "fst" / f"{sentence}.fst.gz").read_bytes()))
    labels = sorted({arc.ilabel for state in lattice.states() for arc in lattice.arcs(state)} - {BOS, EOS})
    return pynini.compose(lattice.arcsort("olabel"), language_model(labels))


def language_model(labels: list[int]) -> Any:
    """``<s>``, then any of these labels, then ``</s>``; each path costs what KenLM says."""
    pynini = optional("pynini")

    model, words = kenlm_model(), word_map()
    fst = pynini.Fst()
    start, end = fst.add_state(), fst.add_state()
    fst.set_start(start)
    fst.set_final(end)
    first = kenlm_state()
    model.BeginSentenceWrite(first)
    known = {first: fst.add_state()}
    fst.add_arc(start, pynini.Arc(BOS, BOS, 0, known[first]))
    waiting = [first]
    while waiting:
        history = waiting.pop()
        ending = -model.BaseScore(history, "</s>", kenlm_state()) * LN_10
        fst.add_arc(known[history], pynini.Arc(EOS, EOS, ending, end))
        for label in labels:
            after = kenlm_state()
            cost = -model.BaseScore(history, words.get(label, "<unk>"), after) * LN_10
            if after not in known:
                known[after] = fst.add_state()
                waiting.append(after)
            fst.add_arc(known[history], pynini.Arc(label, label, cost, known[after]))
    return fst.arcsort("ilabel")


def kenlm_state() -> Any:
    return optional("kenlm").State()


@cache
def kenlm_model() -> Any:
    kenlm = optional("kenlm")
    config = kenlm.Config()
    config.show_progress = False
    config.arpa_complain = kenlm.ARPALoadComplain.NONE
    return kenlm.Model(str(MODEL), config)


@cache
def word_map() -> dict[int, str]:
    lines = (FOLDER / "wmap.en").read_text(encoding="utf-8").splitlines()
    return {int(token): word for word, token in (line.rsplit(maxsplit=1) for line in lines)}
