"""Bundled decoders are leaves: abstract bases hold what they share, and nothing concrete is inherited from."""

from __future__ import annotations

import inspect
from importlib import import_module
from importlib.metadata import entry_points

import numpy as np
import pytest
from sgdec_decoders._beams import BeamSearch, StoppingBeamSearch
from sgdec_decoders._exact import ExactDecoder
from sgdec_decoders.beam import BreadthFirst

from sgdec import Decoder
from sgdec.testing import Table
from tests.helpers.oracles import tiny
from tests.helpers.random_spaces import search

BASES = [BeamSearch, BreadthFirst, ExactDecoder, StoppingBeamSearch]
CLASSES: dict[str, type[Decoder]] = {
    name: decoder
    for point in entry_points(group="sgdec")
    if point.name.startswith("decoder.") and point.value.startswith("sgdec_decoders.")
    for name, decoder in import_module(point.value).sgdec_decoders().items()
}
FAMILIES = {name: decoder for name, decoder in CLASSES.items() if issubclass(decoder, tuple(BASES))}


def test_who_belongs_to_a_family() -> None:
    exact = {"astar", "bucket", "dfs", "lendfs", "restarting"}
    beams = {"beam", "bestfirst", "sepbeam", "syncbeam", "vanilla"}
    assert {name for name, decoder in CLASSES.items() if issubclass(decoder, ExactDecoder)} == exact
    assert {name for name, decoder in CLASSES.items() if issubclass(decoder, BeamSearch)} == beams


@pytest.mark.parametrize("base", BASES)
def test_a_base_cannot_be_made(base: type[Decoder]) -> None:
    with pytest.raises(TypeError, match="abstract"):
        base()


@pytest.mark.parametrize("decoder", CLASSES.values(), ids=CLASSES)
def test_a_decoder_inherits_from_nothing_concrete(decoder: type[Decoder]) -> None:
    above = [base for base in decoder.__mro__[1:] if issubclass(base, Decoder)]
    assert above and all(inspect.isabstract(base) for base in above)


@pytest.mark.parametrize("decoder", FAMILIES.values(), ids=FAMILIES)
def test_a_decoder_of_a_family_is_final(decoder: type[Decoder]) -> None:
    assert getattr(decoder, "__final__", False)


@pytest.mark.parametrize("name", CLASSES)
def test_only_the_space_counts_expansions(name: str) -> None:
    decoder = CLASSES[name](**{"symbol": 3} if name == "syncbeam" else {})
    result, space = search(decoder, tiny(4, a=Table(np.zeros((5, 5)))))
    assert result.hypotheses and space.expansions > 0
    assert result.expansions == 0  # which the framework fills in from the space
