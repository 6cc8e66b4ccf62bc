"""What the class of a plugin can declare, and what is wrong with one that declares something else.

Abilities, traits and class hooks are optional, so a misspelt one would be absent without a word; and a predictor
whose state cannot be saved would score the wrong prefix. A class is checked once, when it is loaded or lifted.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any
from weakref import WeakSet

from sgdec.errors import SgdecError

SIMPLE: Mapping[str, tuple[int, ...]] = {
    "initialize": (1,), "predict_next": (0, 1), "consume": (1,), "get_state": (0,), "set_state": (1,),
}  # fmt: skip
"""The verbs of the simple form, with the numbers of arguments that they are called with."""
BATCH: Mapping[str, tuple[int, ...]] = {"initialize_batch": (1,), "predict_batch": (1, 2), "consume_batch": (2,)}
ABILITIES: Mapping[str, tuple[int, ...]] = {
    "best_remaining": (1,), "worst_remaining": (1,), "state_key": (1,), "attention": (1,), "steps": (2,),
    "summary": (0,),
}  # fmt: skip
"""Methods that a predictor may have."""
HOOKS = ("read_vocabularies", "inner_context")
"""Class methods that a predictor may have; they are called with its options."""
TRAITS = ("on_demand", "max_score", "independent_rows")
DECODING: Mapping[str, tuple[int, ...]] = {"decode": (1,), "decode_batch": (1,), "caveat": (2,)}
DECODER_TRAITS = ("exact", "ranking", "ranks_by")
FORMER = {"never_positive": "say max_score = 0.0 (or another highest score of any token)"}
"""Names that once meant something, and what to do instead."""
NEAR = 0.85
"""How much a name has to be like a known one to be taken for a slip of the pen."""
_SOUND: WeakSet[type[Any]] = WeakSet()
"""Classes that were checked before."""


def require_sound(cls: type[Any]) -> None:
    """SgdecError, with class, file and line, for a predictor's or decoder's class that cannot mean what it says."""
    if cls in _SOUND:
        return
    problem = next(_problems(cls), None)
    if problem is not None:
        raise SgdecError(f"class {cls.__qualname__}{_place(cls)}: {problem}")
    _SOUND.add(cls)


def _problems(cls: type[Any]) -> Iterator[str]:
    from sgdec.protocol import BatchPredictor, Decoder, Predictor

    if issubclass(cls, Decoder):
        methods, traits = DECODING, DECODER_TRAITS
    elif issubclass(cls, Predictor):
        methods, traits = {**SIMPLE, **ABILITIES}, TRAITS
    elif issubclass(cls, BatchPredictor):
        methods, traits = {**BATCH, **ABILITIES}, TRAITS
    else:
        return
    for name in _declared(cls):
        yield from _misspelt(cls, name, methods, traits)
    for name, counts in methods.items():
        yield from _wrong_arguments(cls, name, counts)
    for name in traits:
        if inspect.isfunction(inspect.getattr_static(cls, name, None)):
            yield f"{name} has to be a class attribute or a property, not a method."
    for name in HOOKS:
        hook = inspect.getattr_static(cls, name, None)
        if hook is not None and not isinstance(hook, classmethod):
            yield f"{name} has to be a classmethod: it is called before there is an instance."
    if issubclass(cls, Predictor):
        yield from _half_a_state(cls, Predictor)


def _declared(cls: type[Any]) -> list[str]:
    """The public names of a class and its bases outside the protocol."""
    ours = {"sgdec.protocol", "builtins", "abc", "typing"}
    return [name for base in cls.__mro__ if base.__module__ not in ours for name in vars(base) if name[0] != "_"]


def _misspelt(cls: type[Any], name: str, methods: Mapping[str, Any], traits: tuple[str, ...]) -> Iterator[str]:
    if name in FORMER:
        yield f"{name} means nothing any more: {FORMER[name]}."
    known = (*methods, *HOOKS) if callable(getattr(cls, name, None)) else traits
    near = get_close_matches(name, known, n=1, cutoff=NEAR)
    if near and name not in (*methods, *HOOKS, *traits):
        yield f"it has {name!r}, which nobody asks for. Did you mean {near[0]!r}? If not, call it otherwise."


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


def _half_a_state(cls: type[Any], base: type[Any]) -> Iterator[str]:
    own = {name for name in ("consume", "get_state", "set_state") if getattr(cls, name) is not getattr(base, name)}
    missing = {"get_state", "set_state"} - own
    if own and missing:
        yield (
            f"it has {' and '.join(sorted(own))}, but no {' and no '.join(sorted(missing))}. A search goes from "
            "prefix to prefix, so a predictor with memory needs consume, get_state and set_state."
        )


def _place(cls: type[Any]) -> str:
    try:
        line = inspect.getsourcelines(cls)[1]
    except (OSError, TypeError):  # typed in by hand, say
        return ""
    return f" ({inspect.getsourcefile(cls)}, line {line})"
