"""The syntax of ``--predictors``: a comma list of ``[NAME=][WRAPPER:]...PREDICTOR``.

NAME is the prefix of a part's options. By default it is the plugin's name, without the distribution of
``PLUGIN@DISTRIBUTION``. Repeated names are numbered from left to right, including those of wrappers. ``NAME=`` gives
another name to the innermost predictor of its entry:

>>> for entry in parse_predictors("nmt,l2r=nmt,fsttok:nmt,fsttok:fst@other"):
...     print(entry.name, entry.parts)
nmt (ListPart(name='nmt', plugin='nmt'),)
l2r (ListPart(name='l2r', plugin='nmt'),)
fsttok (ListPart(name='fsttok', plugin='fsttok'), ListPart(name='nmt2', plugin='nmt'))
fsttok2 (ListPart(name='fsttok2', plugin='fsttok'), ListPart(name='fst', plugin='fst@other'))
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

from sgdec.errors import UsageError
from sgdec.plugins.host import AT_DISTRIBUTION, NAME, name_of
from sgdec.settings import Says

_EXPECTED = "Expected a comma list of [NAME=][WRAPPER:]...PREDICTOR, such as 'nmt,fst' or 'l2r=nmt,fst'."


class ListPart(NamedTuple):
    """One plugin of the list: the name that its options belong to, and the plugin."""

    name: str
    plugin: Any
    """The plugin, ``NAME`` or ``NAME@DISTRIBUTION``; a library call can also give a class or an object."""


@dataclass
class EntryOptions:
    """The options that every entry has besides those of its predictor."""

    weight: Annotated[float, Says("factor of its scores")] = 1.0
    renormalize: Annotated[bool, Says("normalise its scores over the tokens that the other predictors allow")] = False


class ListEntry(NamedTuple):
    """One entry of the list: its wrappers, outermost first, then the predictor."""

    parts: tuple[ListPart, ...]

    @property
    def name(self) -> str:
        """The name of the entry's outermost part, which names its ledger column and its `EntryOptions`."""
        return self.parts[0].name


def parse_predictors(text: str, taken: Iterable[str] = ()) -> tuple[ListEntry, ...]:
    """The entries of a list. ``taken``: names that other parts already have, such as the decoder.

    Raises UsageError for a malformed list, and for two parts with the same name.
    """
    counts: Counter[str] = Counter()
    entries = []
    for number, item in enumerate(text.split(","), start=1):
        given, equals, chain = item.rpartition("=")
        *wrappers, innermost = (plugin.strip() for plugin in chain.split(":"))
        given = given.strip()
        words = [(word, AT_DISTRIBUTION) for word in [*wrappers, innermost]] + [(given, NAME)] * bool(equals)
        for word, form in words:
            if not form.fullmatch(word):
                what = f"{word!r} is not a name" if word else "a name is missing"
                raise UsageError(f"--predictors {text!r}: {what} in entry {number}. {_EXPECTED}")
        parts = [_numbered(wrapper, counts) for wrapper in wrappers]
        parts.append(ListPart(given, innermost) if equals else _numbered(innermost, counts))
        entries.append(ListEntry(tuple(parts)))
    _refuse_clashes(text, [part.name for entry in entries for part in entry.parts], list(taken))
    return tuple(entries)


def entries_of(predictors: str | Mapping[str, Any], taken: Iterable[str] = ()) -> tuple[ListEntry, ...]:
    """The entries of a list, or of a mapping from names to ``[WRAPPER:]...PREDICTOR``, classes or objects.

    >>> [entry.parts for entry in entries_of({"spelled": "fsttok:nmt"})]
    [(ListPart(name='spelled', plugin='fsttok'), ListPart(name='nmt', plugin='nmt'))]
    """
    if isinstance(predictors, str):
        return parse_predictors(predictors, taken)
    if not isinstance(predictors, Mapping):
        raise UsageError(f"predictors: {predictors!r} is neither a list, such as 'nmt,fst', nor a mapping of names.")
    counts: Counter[str] = Counter()
    entries = []
    for name, given in predictors.items():
        plugins = [plugin.strip() for plugin in given.split(":")] if isinstance(given, str) else [given]
        words = [(name, NAME), *((plugin, AT_DISTRIBUTION) for plugin in plugins if isinstance(plugin, str))]
        for word, form in words:
            if not isinstance(word, str) or not form.fullmatch(word):
                raise UsageError(f"predictors: {word!r} is not a name. Expected a name such as 'nmt2' or 'lm'.")
        inside = [_numbered(plugin, counts) for plugin in plugins[1:]]
        entries.append(ListEntry((ListPart(name, plugins[0]), *inside)))
    if not entries:
        raise UsageError("predictors: none is given. Expected a mapping of names, or a list such as 'nmt,fst'.")
    text = ",".join(map(str, predictors))
    _refuse_clashes(text, [part.name for entry in entries for part in entry.parts], list(taken))
    return tuple(entries)


def _numbered(plugin: str, counts: Counter[str]) -> ListPart:
    name = name_of(plugin)
    counts[name] += 1
    return ListPart(name if counts[name] == 1 else f"{name}{counts[name]}", plugin)


def _refuse_clashes(text: str, names: list[str], taken: list[str]) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            raise UsageError(f"--predictors {text!r}: {name!r} names two parts. Rename one: NAME=PREDICTOR.")
        if name in taken:
            raise UsageError(f"--predictors {text!r}: {name!r} is the decoder. Rename it: NAME=PREDICTOR.")
