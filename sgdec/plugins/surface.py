"""Checks of a plugin's class against the protocol (`sgdec.protocol`).

Abilities, traits and class hooks are optional, so a misspelt name would be ignored silently. A predictor whose state
cannot be saved would score the wrong prefix. A class is checked once, when it is loaded or lifted.

A class that was valid when `API` got its number is valid still. If it uses an old name, or a name that resembles a
younger one, the check causes a warning.
"""

from __future__ import annotations

import inspect
import logging
import sys
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import cached_property
from numbers import Real
from types import MemberDescriptorType
from typing import Any, NamedTuple
from weakref import WeakSet

import numpy as np

from sgdec import protocol, relaxations
from sgdec.errors import SgdecError
from sgdec.protocol import BatchPredictor, Predictor, Traits
from sgdec.ranking import Ranking
from sgdec.suggest import suggest
from sgdec.utility import Aggregates, Utility
from sgdec.wrapping import FORWARDED, Wrapper

log = logging.getLogger(__name__)

Methods = Mapping[str, tuple[int, ...]]
"""For each method the numbers of arguments that it can be called with."""


def _methods(*pages: type[Any]) -> Methods:
    """The public methods that these classes of the protocol declare."""
    found = {}
    for name, method in (each for page in pages for each in vars(page).items()):
        if inspect.isfunction(method) and not name.startswith("_"):
            parameters = list(inspect.signature(method).parameters.values())[1:]  # without self
            required = sum(parameter.default is parameter.empty for parameter in parameters)
            found[name] = tuple(range(required, len(parameters) + 1))
    return found


ABILITIES = _methods(
    protocol.BestRemaining, protocol.WorstRemaining, protocol.StateKey, protocol.Attention, protocol.StateLabel,
    protocol.Progress, protocol.StepsAhead, protocol.ArcsAhead, protocol.Release, protocol.LengthLimit,
    protocol.Summary, relaxations.Relax,
)  # fmt: skip
OF_BATCHES = _methods(relaxations.Whole, relaxations.Subsets)
"""Abilities of the batch form only."""
HOOKS = ("read_vocabularies", "inner_context")
"""Class methods that a predictor may have."""
PAGES: Mapping[type[Any], tuple[Methods, tuple[str, ...]]] = {
    Predictor: ({**_methods(Predictor), **ABILITIES}, tuple(Traits.__annotations__)),
    BatchPredictor: ({**_methods(BatchPredictor), **ABILITIES, **OF_BATCHES}, tuple(Traits.__annotations__)),
    Utility: (_methods(Utility, Aggregates), tuple(Utility.__annotations__)),
}
"""Methods and traits of predictors, by form, and of utilities."""
DECODERS = "sgdec.decoder"
"""The module of decoders. It is known by name, because it imports the search, which lifts and checks predictors."""
TYPES: Mapping[str, type[Any]] = {
    "on_demand": bool, "independent_rows": bool, "restricts": bool, "arcs_of_tensors": bool, "never_positive": bool,
    "max_score": Real, "exact": bool, "ranks_by": str, "ranking": Ranking,
    "symmetric": bool, "needs_references": bool,
}  # fmt: skip
_WORDS: Mapping[type[Any], str] = {
    bool: "True or False", Real: "a number", str: "the name of a criterion", Ranking: "a sgdec.ranking.Ranking",
}  # fmt: skip
_OF_PREDICTORS = {"weight": "every predictor has an option of this name, the factor of its scores"}
RESERVED: Mapping[type[Any], Mapping[str, str]] = {
    Predictor: _OF_PREDICTORS,
    BatchPredictor: _OF_PREDICTORS,
    Utility: {"inner": "only wrappers of predictors have an inner part"},
}
"""Names of constructor parameters that no option can have, with the reasons."""
RESERVED_BY_DECODERS = RESERVED[Utility]
LATER = frozenset({
    "state_label", "progress", "advancing", "arcs", "release", "relaxations", "whole", "subset", "in_batches",
    "decode_stream", "restricts", "arcs_of_tensors", "way_out", "length_limit",
})  # fmt: skip
"""Names that are younger than the number of `API`. An older plugin may have its own names that are similar."""
NEVER_POSITIVE = "never_positive is an old name: True is read as max_score = 0.0. Set max_score in its place."
NEAR = 0.85
"""A name with at least this similarity to a known one is reported as misspelt."""
_SOUND: WeakSet[type[Any]] = WeakSet()
"""Classes that have passed the check."""
_TOLD: WeakSet[type[Any]] = WeakSet()
"""Classes whose objects have set an old trait, of which the user has been warned."""


def require_sound(cls: type[Any]) -> None:
    """Raise SgdecError, with class, file and line, if the class of a plugin breaks the protocol.

    Warns of names that are old or perhaps misspelt.
    """
    if cls in _SOUND:
        return
    problem = next(_problems(cls), None)
    if problem is not None:
        raise SgdecError(f"class {cls.__qualname__}{place(cls)}: {problem}")
    _SOUND.add(cls)
    for doubt in _doubts(cls):
        log.warning(f"class {cls.__qualname__}{place(cls)}: {doubt}")


def require_sound_traits(predictor: object) -> None:
    """Raise SgdecError if old traits that the constructor has set are wrong. Warns of them."""
    if "_never_positive" not in vars(predictor):
        return
    cls = type(predictor)
    if (problem := _wrong_never_positive(predictor)) is not None:
        raise SgdecError(f"class {cls.__qualname__}{place(cls)}: {problem}")
    if cls not in _TOLD and not hasattr(cls, "_never_positive"):  # else `_doubts` has said so
        _TOLD.add(cls)
        log.warning(f"class {cls.__qualname__}{place(cls)}: {NEVER_POSITIVE}")


class Page(NamedTuple):
    """The part of the protocol that a class belongs to."""

    methods: Methods
    traits: tuple[str, ...]
    reserved: Mapping[str, str]
    """Names of constructor parameters that no option can have, with the reasons."""


def _page(cls: type[Any]) -> Page | None:
    """The page of a class; None if it is neither a predictor nor a decoder nor a utility."""
    for form, (methods, traits) in PAGES.items():
        if issubclass(cls, form):
            return Page(methods, traits, RESERVED[form])
    if any(base.__module__ == DECODERS for base in cls.__mro__):
        home = sys.modules[DECODERS]
        return Page(
            _methods(home.Decoder, home.BatchDecoder), tuple(home.Decoder.__annotations__), RESERVED_BY_DECODERS
        )
    return None


def _problems(cls: type[Any]) -> Iterator[str]:
    page = _page(cls)
    if page is None:
        return
    methods, traits, reserved = page
    yield from (said for near, said in _misspelt(cls, methods, traits) if near not in LATER)
    for name, counts in methods.items():
        yield from _wrong_arguments(cls, name, counts)
    for name in traits:
        if inspect.isfunction(inspect.getattr_static(cls, name, None)):
            yield f"{name} has to be a class attribute or a property, not a method."
        else:
            yield from _wrong_type(cls, name)
    if (wrong := _wrong_never_positive(cls)) is not None:
        yield wrong
    for name in HOOKS:
        hook = inspect.getattr_static(cls, name, None)
        if hook is not None and not isinstance(hook, classmethod):
            yield f"{name} has to be a classmethod: it is called before an instance is created."
    if issubclass(cls, Predictor):
        yield from _half_a_state(cls)
    yield from (said for needed, said in _never_given(cls, reserved) if needed)
    if issubclass(cls, Wrapper):
        yield from _wrong_forwards(cls)


def _doubts(cls: type[Any]) -> Iterator[str]:
    """Remarks about a class that is not refused for them, because it was valid when `API` got its number."""
    page = _page(cls)
    if page is None:
        return
    if hasattr(cls, "_never_positive"):
        yield NEVER_POSITIVE
    yield from (said for near, said in _misspelt(cls, page.methods, page.traits) if near in LATER)
    yield from (said for needed, said in _never_given(cls, page.reserved) if not needed)
    if page.reserved is _OF_PREDICTORS and "renormalize" in inspect.signature(cls.__init__).parameters:
        yield "its option 'renormalize' hides the one that every predictor has. Choose another name."


def _wrong_never_positive(predictor: Any) -> str | None:
    """A sentence about the old trait if an object or a class has set a wrong value, or one that its ``max_score``
    excludes; None if it has not."""
    if not hasattr(predictor, "_never_positive"):
        return None
    said, highest = predictor._never_positive, getattr(predictor, "max_score", None)
    if (wrong := _wrong_value("never_positive", said)) is not None:
        return wrong
    if said and isinstance(highest, Real) and float(highest) > 0:
        return f"never_positive = True and max_score = {highest:g} contradict each other. Set only max_score."
    return None


def _declared(cls: type[Any]) -> list[str]:
    """The public names of a class and its bases outside the protocol."""
    ours = {"sgdec.protocol", "sgdec.utility", DECODERS, "sgdec.renamed", "builtins", "abc", "typing"}
    return [name for base in cls.__mro__ if base.__module__ not in ours for name in vars(base) if name[0] != "_"]


def _misspelt(cls: type[Any], methods: Methods, traits: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Names of the protocol that names of the class resemble, each with a sentence about it."""
    for name in _declared(cls):
        known = (*methods, *HOOKS) if callable(getattr(cls, name, None)) else traits
        near = get_close_matches(name, known, n=1, cutoff=NEAR)
        if near and name not in (*methods, *HOOKS, *traits):
            yield near[0], (
                f"it has {name!r}, which sgdec never uses. Did you mean {near[0]!r}? If not, choose another name."
            )


def _wrong_arguments(cls: type[Any], name: str, counts: tuple[int, ...]) -> Iterator[str]:
    method = inspect.getattr_static(cls, name, None)
    if not inspect.isfunction(method):
        return
    signature = inspect.signature(method)
    for count in counts:
        try:
            signature.bind(*range(count + 1))  # with self
        except TypeError as error:
            arguments = f"{count} argument{'' if count == 1 else 's'}"
            yield f"{name}{signature} is called with {arguments}, which it does not take ({error})."


def _wrong_type(cls: type[Any], trait: str) -> Iterator[str]:
    """A class attribute of another type than the trait's. Traits that are set in ``__init__`` are not seen here."""
    value = inspect.getattr_static(cls, trait, None)
    if isinstance(value, (property, cached_property, MemberDescriptorType)):
        return
    if (wrong := _wrong_value(trait, value)) is not None:
        yield wrong


def _wrong_value(trait: str, value: Any) -> str | None:
    """A sentence about a value of another type than the trait's; None if it fits.

    0 and 1 are read as booleans; a boolean is not a number.
    """
    kind = TYPES.get(trait)
    if kind is None:
        return None
    if kind is bool:
        fits = isinstance(value, (int, np.bool_)) and value in (0, 1)
    else:
        fits = isinstance(value, kind) and not isinstance(value, bool) and value != "" and value == value
    return None if fits else f"{trait} is {value!r}; expected {_WORDS[kind]}."


def _never_given(cls: type[Any], reserved: Mapping[str, str]) -> Iterator[tuple[bool, str]]:
    """Constructor parameters whose names the framework uses for something else: whether one is required, and why."""
    for name, parameter in inspect.signature(cls.__init__).parameters.items():
        if name in reserved:
            needed = parameter.default is parameter.empty
            yield needed, f"its parameter {name!r} can never be given: {reserved[name]}. Call it otherwise."


def _wrong_forwards(cls: type[Wrapper]) -> Iterator[str]:
    if not isinstance(cls.forwards, tuple):
        yield f"forwards is {cls.forwards!r}; expected a tuple of abilities, such as ('state_key',)."
        return
    for name in cls.forwards:
        if name not in FORWARDED:
            yield f"forwards names {name!r}. {suggest(name, FORWARDED)}"


def _half_a_state(cls: type[Any]) -> Iterator[str]:
    verbs = ("consume", "get_state", "set_state")
    own = {name for name in verbs if getattr(cls, name) is not getattr(Predictor, name)}
    missing = {"get_state", "set_state"} - own
    if own and missing:
        yield (
            f"it has {' and '.join(sorted(own))}, but no {' and no '.join(sorted(missing))}. A search switches "
            "between prefixes, so a predictor with memory needs consume, get_state and set_state."
        )


def place(cls: type[Any]) -> str:
    """``(FILE, line N)`` of a class, with a leading space; empty if the source is unknown."""
    try:
        line = inspect.getsourcelines(cls)[1]
    except (OSError, TypeError):  # for example, the class was typed at a prompt
        return ""
    return f" ({inspect.getsourcefile(cls)}, line {line})"
