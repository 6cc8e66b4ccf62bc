"""Bundled decoders are leaves: abstract bases hold what they share, and nothing concrete is inherited from."""

from __future__ import annotations

import inspect
from importlib import import_module
from importlib.metadata import entry_points

import pytest
from sgdec_decoders._exact import ExactDecoder

from sgdec import Decoder

BASES = [ExactDecoder]
CLASSES: dict[str, type[Decoder]] = {
    name: decoder
    for point in entry_points(group="sgdec")
    if point.name.startswith("decoder.") and point.value.startswith("sgdec_decoders.")
    for name, decoder in import_module(point.value).sgdec_decoders().items()
}
FAMILIES = {name: decoder for name, decoder in CLASSES.items() if issubclass(decoder, tuple(BASES))}


def test_who_belongs_to_a_family() -> None:
    assert set(FAMILIES) == {"astar", "bucket", "dfs", "lendfs", "restarting"}


@pytest.mark.parametrize("base", BASES)
def test_a_base_cannot_be_made(base: type[Decoder]) -> None:
    with pytest.raises(TypeError, match="abstract"):
        base()


@pytest.mark.parametrize("decoder", FAMILIES.values(), ids=FAMILIES)
def test_a_decoder_inherits_from_nothing_concrete(decoder: type[Decoder]) -> None:
    above = [base for base in decoder.__mro__[1:] if issubclass(base, Decoder)]
    assert above and all(inspect.isabstract(base) for base in above)


@pytest.mark.parametrize("decoder", FAMILIES.values(), ids=FAMILIES)
def test_a_decoder_of_a_family_is_final(decoder: type[Decoder]) -> None:
    assert getattr(decoder, "__final__", False)
