"""Two beam searches that must find the same: one over nodes, sentence by sentence, one on arrays, all at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st
from sgdec_decoders.beam import BeamDecoder
from sgdec_decoders.vanilla import VanillaDecoder

from sgdec import Decoder, Result, SearchSpace, Source
from sgdec.search.constellation import Constellation

V = 7
SOURCES = [
    Source(n, tokens, max_length=length)
    for n, (tokens, length) in enumerate(
        [((5,), 2), ((3, 4, 5, 3, 6, 4, 4), 9), ((6, 6), 0), ((3, 4), 5), ((4, 3, 5), 12), ((5,), 1)], 1
    )
]
OPTIONS: list[dict[str, Any]] = [
    {},
    {"size": 1},
    {"size": 3, "stop": "full"},
    {"size": 5, "stop": "full", "alpha": 0.7},
    {"size": 4, "alpha": -0.3, "normalize": "length"},
    {"size": 4, "stop": "full", "prune_local": 0.6},
    {"size": 4, "stop": "full", "alpha": 1.0, "prune_final": 0.4},
    {"size": 4, "prune_local": 1.5, "prune_final": 1.0},
    {"size": 3, "stop": "proven"},
    {"size": 4, "stop": "proven", "alpha": 0.9, "normalize": "length", "prune_final": 0.2},
    {"size": 60, "stop": "proven"},
    {"size": 3, "stop": "length", "alpha": 1.0},
]
WITH_COVERAGE = [
    {"size": 4, "stop": "full", "alpha": 0.6, "beta": 0.4},
    {"size": 3, "beta": 0.2},
    {"size": 4, "stop": "proven", "alpha": 0.6, "beta": 0.3, "prune_final": 0.5},
]


def opened(
    constellation: Constellation, sources: Sequence[Source], decoder: Decoder, nbest: int
) -> list[SearchSpace]:
    roots = constellation.roots(sources)
    return [SearchSpace(constellation, root, ranking=decoder.ranking, nbest=nbest) for root in roots]


def compare(
    constellation: Constellation,
    sources: Sequence[Source],
    options: dict[str, Any],
    nbest: int = 3,
    tolerance: float = 1e-9,
) -> list[Result]:
    """Both search all sentences, one of them all at once, and agree; what they found."""
    vanilla, beam = VanillaDecoder(**options), BeamDecoder(**options)
    ours, theirs = (opened(constellation, sources, decoder, nbest) for decoder in (vanilla, beam))
    results = vanilla.decode_batch(ours)
    for one, other, result in zip(ours, theirs, results, strict=True):
        expected = beam.decode(other)
        at = f"sentence {one.source.id}, {options}"
        assert [h.tokens for h in result.hypotheses] == [h.tokens for h in expected.hypotheses], at
        assert one.expansions == other.expansions, at
        assert (result.proven, result.gap) == (expected.proven, expected.gap), at
        for found, wanted in zip(result.hypotheses, expected.hypotheses, strict=True):
            assert found.score == pytest.approx(wanted.score, abs=tolerance), at
            assert found.rank_score == pytest.approx(wanted.rank_score, abs=tolerance), at
            assert found.weights == wanted.weights, at
            assert np.allclose(found.ledger, wanted.ledger, rtol=0, atol=tolerance), at
            assert np.shape(found.ledger) == np.shape(wanted.ledger), at
    return results


@st.composite
def options(draw: st.DrawFn) -> dict[str, Any]:
    return {
        "size": draw(st.integers(1, 6)),
        "alpha": draw(st.sampled_from([0.0, 0.5, 1.0, -0.4])),
        "normalize": draw(st.sampled_from(["gnmt", "length"])),
        "prune_local": draw(st.sampled_from([0.0, 0.5, 2.0])),
        "prune_final": draw(st.sampled_from([0.0, 0.5, 2.0])),
        "stop": draw(st.sampled_from(["best", "full", "length", "proven"])),
    }
