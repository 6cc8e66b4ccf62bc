"""`bestfirst` finds exactly what `beam` finds where scores never rise, for no more expansions."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from sgdec_decoders.beam import BeamDecoder
from sgdec_decoders.bestfirst import BestFirstDecoder

from sgdec import EOS
from sgdec.testing import Lattice, Table, TinySpace
from tests.helpers.breadth import examples
from tests.helpers.oracles import tiny
from tests.helpers.random_spaces import KINDS, random_spaces, search

falling = random_spaces(kinds=KINDS, weights=[1.0, 0.5, 0.0], highest=0.0)


@settings(max_examples=examples(120))
@given(space=falling, size=st.integers(1, 4), nbest=st.integers(1, 3), recombine=st.booleans())
def test_it_is_beam_search_for_no_more_expansions(
    space: TinySpace, size: int, nbest: int, recombine: bool
) -> None:
    """Scores are coarse in half of the spaces: ties, too, come out alike."""
    beam, there = search(BeamDecoder(size, recombine=recombine), space, nbest)
    first, here = search(BestFirstDecoder(size, recombine=recombine), space, nbest)
    assert first.hypotheses == beam.hypotheses
    assert here.expansions <= there.expansions


@settings(max_examples=examples(60))
@given(
    space=falling,
    size=st.integers(1, 4),
    alpha=st.sampled_from([0.0, 1.0]),
    prune_local=st.sampled_from([0.0, 1.0]),
    normalize=st.sampled_from(["gnmt", "length"]),
)
def test_it_is_beam_search_with_every_option_that_it_shares(
    space: TinySpace, size: int, alpha: float, prune_local: float, normalize: str
) -> None:
    options = {"alpha": alpha, "prune_local": prune_local, "normalize": normalize}
    beam, there = search(BeamDecoder(size, **options), space, 2)  # type: ignore[arg-type]
    first, here = search(BestFirstDecoder(size, **options), space, 2)  # type: ignore[arg-type]
    assert first.hypotheses == beam.hypotheses
    assert here.expansions <= there.expansions


@settings(max_examples=examples(20))
@given(space=random_spaces(kinds=["batch"], weights=[1.0], highest=0.0), size=st.integers(1, 4))
def test_it_is_beam_search_with_a_coverage_penalty(space: TinySpace, size: int) -> None:
    beam, _ = search(BeamDecoder(size, beta=0.5), space)
    first, _ = search(BestFirstDecoder(size, beta=0.5), space)
    assert first.hypotheses == beam.hypotheses


def test_what_beam_search_only_keeps_for_its_width_is_not_expanded() -> None:
    table = np.full((6, 6), -9.0)
    table[:, 3] = -0.1
    table[3, EOS] = -0.05
    beam, there = search(BeamDecoder(4), tiny(4, a=Table(table)))
    first, here = search(BestFirstDecoder(4), tiny(4, a=Table(table)))
    assert first.hypotheses == beam.hypotheses
    assert (here.expansions, there.expansions) == (2, 4)


def test_what_only_a_full_beam_could_take_is_not_expanded() -> None:
    """Both continuations of "3" are ahead of "4", which beam search expands in vain."""
    steps = {
        0: {3: (-0.1, 1), 4: (-5.0, 2)},
        1: {3: (-0.1, 3), 4: (-0.2, 3)},
        2: {3: (-0.1, 3)},
        3: {EOS: (0.0, 9)},
    }
    beam, there = search(BeamDecoder(2), tiny(a=Lattice(steps)), 2)
    first, here = search(BestFirstDecoder(2), tiny(a=Lattice(steps)), 2)
    assert first.hypotheses == beam.hypotheses and len(first.hypotheses) == 2
    assert (here.expansions, there.expansions) == (4, 5)


def test_a_finished_hypothesis_that_the_beam_pushes_out_is_listed_without_going_on() -> None:
    """ "3 3 3" is ahead of ``</s>`` until both slots are taken; what follows cannot beat it."""
    steps = {
        0: {EOS: (-2.0, 9), 3: (-0.5, 1)},
        1: {3: (-0.5, 2), 4: (-0.5, 2)},
        2: {3: (-4.0, 3)},
        3: {EOS: (0.0, 9)},
    }
    beam, there = search(BeamDecoder(2), tiny(a=Lattice(steps)))
    first, here = search(BestFirstDecoder(2), tiny(a=Lattice(steps)))
    assert first.hypotheses == beam.hypotheses and first.hypotheses[0].tokens == ()
    assert (here.expansions, there.expansions) == (4, 6)


def test_a_finished_hypothesis_without_a_slot_is_lost() -> None:
    """The longer one is ahead of ``</s>`` up to its third token, and takes the only slot."""
    steps = {0: {EOS: (-2.0, 9), 3: (-0.5, 1)}, 1: {3: (-0.5, 2)}, 2: {3: (-4.0, 3)}, 3: {EOS: (0.0, 9)}}
    space = tiny(a=Lattice(steps))
    for size in (1, 2):
        beam, _ = search(BeamDecoder(size), space)
        first, _ = search(BestFirstDecoder(size), space)
        assert first.hypotheses == beam.hypotheses
    assert search(BestFirstDecoder(1), space)[0].hypotheses[0].tokens == (3, 3, 3)
    assert search(BestFirstDecoder(2), space)[0].hypotheses[0].tokens == ()
