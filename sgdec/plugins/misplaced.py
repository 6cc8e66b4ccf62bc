"""The option of a part that somebody meant who wrote ``--beam 4``, ``beam=4`` or ``size=4``."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from sgdec.errors import SgdecError
from sgdec.plugins.host import Host
from sgdec.plugins.options import Option, check, describe

ANY: Any = object()
"""A value that is not known."""
KINDS = ("predictor", "decoder")


def option_of(host: Host, name: str, value: Any = ANY) -> str | None:
    """The first option of the plugin ``name`` that takes this value, required ones first; None if there is none.

    >>> option_of(Host(), "beam", 4), option_of(Host(), "fst", "a.fst"), option_of(Host(), "no", 4)
    ('size', 'path', None)
    """
    return next((option for cls in _classes(host, name) for option in _taking(cls, value)), None)


def owner_of(host: Host, names: Iterable[str], option: str, value: Any) -> str | None:
    """The first of some plugins with an option of this name that takes the value; None if there is none.

    >>> owner_of(Host(), ["wc", "beam"], "size", 4)
    'beam'
    """
    return next((name for name in names for cls in _classes(host, name) if option in _taking(cls, value)), None)


def kind_of(host: Host, name: str) -> str | None:
    """Whether a name is that of a ``predictor`` or of a ``decoder``; None = of neither."""
    return next((entry.kind for entry in host.names() if entry.name == name and entry.kind in KINDS), None)


def options_of(host: Host, name: str) -> list[str]:
    """The options of the plugin ``name``; none if there is no such plugin."""
    return [option.name for cls in _classes(host, name) for option in describe(cls)]


def _classes(host: Host, name: str) -> Iterable[type[Any]]:
    for entry in host.names():
        if entry.name == name and entry.kind in KINDS:
            with suppress(SgdecError):  # it is broken, or something that it needs is not installed
                yield host.load(entry.kind, name)


def _taking(cls: type[Any], value: Any) -> list[str]:
    """The options of a class that take a value."""
    return [
        option.name
        for option in sorted(describe(cls), key=lambda option: not option.required)
        if value is ANY or (value is not None and _takes(cls, option, value))
    ]


def _takes(cls: type[Any], option: Option, value: Any) -> bool:
    with suppress(SgdecError):
        check(cls, {option.name: value}, name=None)
        return True
    return False
