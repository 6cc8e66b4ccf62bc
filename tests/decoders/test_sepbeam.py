"""`sepbeam` finds the best hypothesis of any single system, each system scored alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sgdec_decoders.beam import BeamDecoder
from sgdec_decoders.sepbeam import SepBeamDecoder, systems

from sgdec.search.constellation import Constellation
from sgdec.search.member import Member
from sgdec.testing import Bonus, Lattice, Table, TinySpace, enumerate_space
from sgdec.testing.tiny_spaces import LATTICE, OTHER_LATTICE
from tests.helpers.breadth import examples
from tests.helpers.oracles import opened, tiny
from tests.helpers.random_spaces import random_spaces, search


def alone(space: TinySpace) -> list[TinySpace]:
    """The space of each single system."""
    constellation = space.constellation()

    def of(member: Member) -> TinySpace:
        single = Constellation([member], vocab_size=constellation.vocab_size)
        return TinySpace(member.name, lambda: single, space.source)

    return [of(member) for member in constellation.members if member.weight]


def totals(spaces: Sequence[TinySpace]) -> list[float]:
    found = (path.total for space in spaces for path in enumerate_space(space.constellation(), space.source))
    return sorted(found, reverse=True)


bounded = random_spaces(kinds=["table", "batch", "on demand", "bonus"])


@settings(max_examples=examples(40))
@given(space=bounded, nbest=st.integers(1, 4))
def test_a_wide_beam_with_proof_has_the_nbest_of_all_systems_together(space: TinySpace, nbest: int) -> None:
    result, _ = search(SepBeamDecoder(size=1000, stop="proven"), space, nbest)
    assert [h.score for h in result.hypotheses] == pytest.approx(totals(alone(space))[:nbest], abs=1e-9)


def test_each_hypothesis_is_scored_by_one_predictor() -> None:
    space = tiny(None, [0.5, 1.0, 0.0], 5, a=Lattice(LATTICE), b=Lattice(OTHER_LATTICE), c=Bonus({3: 9.0}))
    result, _ = search(SepBeamDecoder(size=50, stop="full"), space, nbest=50)
    for hypothesis in result.hypotheses:
        (weights,) = set(hypothesis.weights)
        assert weights in [(0.5, None, None), (None, 1.0, None)]
        assert sum(1 for total in hypothesis.scores if total) <= 1
    assert {h.weights[0] for h in result.hypotheses} == {(0.5, None, None), (None, 1.0, None)}
    both = [h.tokens for h in result.hypotheses]
    assert len(both) > len(set(both))  # a hypothesis of both systems is there twice


def test_one_system_is_beam_search() -> None:
    space = tiny(3, a=Table(np.random.default_rng(1).normal(size=(5, 5))))
    (beam, there), (separate, here) = search(BeamDecoder(2), space, 2), search(SepBeamDecoder(2), space, 2)
    assert [h.score for h in separate.hypotheses] == [h.score for h in beam.hypotheses]
    assert here.expansions == there.expansions


def test_the_systems_share_one_beam() -> None:
    space = tiny(3, a=Table(np.full((5, 5), -1.0)), b=Table(np.full((5, 5), -2.0)))
    assert len(systems(opened(space))) == 2
    _, here = search(SepBeamDecoder(size=2, stop="full"), space)
    assert here.expansions <= 2 + 2 * 3


def test_systems_without_a_hypothesis_give_an_empty_list() -> None:
    dead = Lattice({0: {3: (0.0, 1)}})
    assert search(SepBeamDecoder(), tiny(a=dead, b=dead))[0].hypotheses == []
