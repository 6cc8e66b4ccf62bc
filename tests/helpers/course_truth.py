"""The checks of the course without what they would compute again for each submission.

Tests run the same checks with the same seed on a hundred submissions. What a check draws, and the true answers that
it compares with, depend on the seed alone: here they are computed once, by the functions of the checks themselves.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
from grader.assignment import Assignment, load_assignment
from sgdec_decoders.beam import BeamDecoder
from sgdec_decoders.greedy import GreedyDecoder

from sgdec import Decoder
from sgdec.testing import TinySpace, random_space
from tests.helpers.breadth import EXHAUSTIVE

DRAWN = {"beam": ("layered", "falling", "early_end"), "curse": ("falling", "rising"), "lattice": ("random_arcs",)}
"""The functions of ``checks.py`` that draw something with their first argument, a generator."""
FEWER_SENTENCES = {"curse": 4, "decode_this": {"model": 3, "bigrams": 3, "lattices": 8}}
"""A third of the sentences of the checks, each of which has the same way through them; all in `make exhaustive`."""


def load_once(name: str) -> Assignment:
    """An assignment whose checks remember what they have drawn and what is true of it."""
    assignment = load_assignment(name)
    checks = vars(sys.modules[f"sgdec_course_{name}_checks"])
    for function in DRAWN.get(name, ()):
        checks[function] = drawn_once(checks[function])
    if name in FEWER_SENTENCES and not EXHAUSTIVE:
        assert "SENTENCES" in checks
        checks["SENTENCES"] = FEWER_SENTENCES[name]
    if name in ("beam", "curse"):
        checks["search"] = _bundled_once(checks["search"])
    if name == "curse":
        checks["Reference"].of = once(checks["Reference"].of, lambda tiny, size: (tiny, size))
    if name == "lattice":
        checks["visit"] = once(checks["visit"], repr)
    if name == "decode_this":
        checks["random_space"] = drawn_once(random_space)
    if name in ("curse", "decode_this"):  # their spaces are drawn once, and a space is known by its sentence
        key = _Identity()
        checks["enumerate_space"] = once(checks["enumerate_space"], lambda constellation, source: key(source))
    return assignment


def once(function: Callable[..., Any], key: Callable[..., Hashable]) -> Callable[..., Any]:
    """A function whose result is computed once for each key of its arguments."""
    kept: dict[Hashable, Any] = {}

    def remembered(*arguments: Any) -> Any:
        found = key(*arguments)
        if found not in kept:
            kept[found] = function(*arguments)
        return kept[found]

    return remembered


def drawn_once(draw: Callable[..., Any]) -> Callable[..., Any]:
    """The same, by the state of the generator, which is left as after drawing."""
    kept: dict[Hashable, tuple[Any, Any]] = {}

    def drawn(rng: np.random.Generator, *arguments: Any, **options: Any) -> Any:
        key = repr(rng.bit_generator.state), arguments, tuple(options.items())
        if key not in kept:
            kept[key] = draw(rng, *arguments, **options), rng.bit_generator.state
        found, rng.bit_generator.state = kept[key]
        return found

    return drawn


class _Identity:
    """Numbers of objects, which are kept so that no other object takes their place in memory."""

    def __init__(self) -> None:
        self._kept: dict[int, object] = {}

    def __call__(self, each: object) -> int:
        self._kept[id(each)] = each
        return id(each)


def _bundled_once(search: Callable[..., Any]) -> Callable[..., Any]:
    """The search of a check, which runs each decoder of sgdec once in each space, and others each time."""

    def key(decoder: Decoder, tiny: TinySpace, nbest: int = 1) -> Hashable:
        return type(decoder), repr(vars(decoder)), tiny, nbest

    known = once(search, key)

    def found(decoder: Decoder, *arguments: Any) -> Any:
        return (known if type(decoder) in (BeamDecoder, GreedyDecoder) else search)(decoder, *arguments)

    return found
