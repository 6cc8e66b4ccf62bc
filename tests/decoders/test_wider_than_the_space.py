"""The promise: a beam that is wider than its space finds what one as wide as the space finds, however wide it is."""

from __future__ import annotations

from typing import Any

import pytest

from sgdec.plugins.host import Host
from sgdec.plugins.options import flaw
from sgdec.search.outcome import Outcome
from tests.helpers.breadth import some
from tests.helpers.scheduling import GIVEN, MIXES, together

HOST = Host(autoload=False)
STOPS = ("best", "full", "length", "proven")
SEARCHES: list[tuple[str, dict[str, Any]]] = [
    *((name, {"stop": stop}) for name in ("beam", "sepbeam", "vanilla", "syncbeam") for stop in STOPS),
    ("vanilla", {"stop": "full", "prune_final": 0.5}),
    ("beam", {"stop": "proven", "recombine": True}),
    ("bestfirst", {}),
    ("bucket", {}),
]
LARGEST = 2**62 - 1
AS_WIDE = 200
"""More than the hypotheses of any length in these spaces: 7 tokens, at most 2 of them before ``</s>``."""


def found(name: str, size: int, batch_size: int, mix: str, options: dict[str, Any]) -> list[Any]:
    decoder = HOST.load("decoder", name)(size=size, **GIVEN.get(name, {}), **options)
    outcomes: list[Outcome] = together(MIXES[mix](), decoder, batch_size=batch_size)
    return [(outcome.source.id, outcome.result, str(outcome.error)) for outcome in outcomes]


DIFFERENT = ["in batches", "dense and sparse", "a lattice", "restricted"]


@pytest.mark.slow
@pytest.mark.parametrize("mix", DIFFERENT)
@pytest.mark.parametrize(("name", "options"), SEARCHES)
def test_a_size_beyond_the_space_changes_nothing(name: str, options: dict[str, Any], mix: str) -> None:
    if name == "vanilla" and mix in ("a lattice", "restricted"):
        return
    for place, batch_size in enumerate((1, 64)):
        expected = found(name, AS_WIDE, batch_size, mix, options)
        for size in some([10**6, 10**18, LARGEST], DIFFERENT.index(mix) + place):
            assert found(name, size, batch_size, mix, options) == expected


def test_the_largest_size_is_the_largest_number_that_an_option_takes() -> None:
    assert flaw(LARGEST) is None and flaw(LARGEST + 1) is not None
