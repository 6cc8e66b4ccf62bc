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

An entry can be a mix of several predictors, ``[NAME=]MIX:PART+PART...``; NAME is then that of the mix, and each part
is written like an entry. A mix inside a wrapper or another mix stands in parentheses, which a shell needs in quotes:

>>> (entry,) = parse_predictors("both=interpolate:l2r=nmt+temperature:(contrast:hf+hf)")
>>> entry.said(lambda part: f"{part.name}={part.plugin}")
'both=interpolate:l2r=nmt+temperature=temperature:(contrast=contrast:hf=hf+hf2=hf)'
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

from sgdec.errors import UsageError
from sgdec.plugins.host import AT_DISTRIBUTION, NAME, name_of
from sgdec.settings import Says

_EXPECTED = "Expected a comma list of [NAME=][WRAPPER:]...PREDICTOR, such as 'nmt,fst' or 'l2r=nmt,fst'."
_EXPECTED_OF_MIXES = (
    "Expected [NAME=]MIX:PART+PART..., such as 'interpolate:nmt+rnnlm', in parentheses where it is a part."
)


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
    """One entry of the list: its wrappers, outermost first, then the predictor or a mix."""

    parts: tuple[ListPart, ...]
    mixed: tuple[ListEntry, ...] = ()
    """The parts of the mix."""

    @property
    def every(self) -> tuple[ListPart, ...]:
        """All plugins, from left to right."""
        return (*self.parts, *(part for inside in self.mixed for part in inside.every))

    def said(self, say: Callable[[ListPart], str]) -> str:
        """The entry as it is written, with each plugin as ``say`` writes it."""
        *outer, last = map(say, self.parts)
        if self.mixed:
            nested = [inside.said(say) for inside in self.mixed]
            whole = [
                f"({text})" if inside.mixed and len(inside.parts) == 1 else text
                for inside, text in zip(self.mixed, nested, strict=True)
            ]
            last = f"{last}:{'+'.join(whole)}"
            last = f"({last})" if outer else last
        return ":".join([*outer, last])

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
    try:
        items = _split(text, ",")
    except _Malformed as error:
        raise UsageError(f"--predictors: {error}. {_EXPECTED_OF_MIXES}") from None
    for number, item in enumerate(items, start=1):
        try:
            entries.append(_entry(item, counts))
        except _Malformed as error:
            expected = _EXPECTED_OF_MIXES if "+" in item or "(" in item else _EXPECTED
            raise UsageError(f"--predictors {text!r}: {error} in entry {number}. {expected}") from None
    _refuse_clashes(text, [part.name for entry in entries for part in entry.every], list(taken))
    return tuple(entries)


def entries_of(predictors: str | Mapping[str, Any], taken: Iterable[str] = ()) -> tuple[ListEntry, ...]:
    """The entries of a list, or of a mapping from names to ``[WRAPPER:]...PREDICTOR``, mixes, classes or objects.

    In a mapping a name is that of the outermost part of its entry.

    >>> [entry.parts for entry in entries_of({"spelled": "fsttok:nmt"})]
    [(ListPart(name='spelled', plugin='fsttok'), ListPart(name='nmt', plugin='nmt'))]
    """
    if isinstance(predictors, str):
        return parse_predictors(predictors, taken)
    if not isinstance(predictors, Mapping):
        raise UsageError(
            f"predictors: {predictors!r} is neither text, such as 'nmt,fst', nor a mapping of names. Write "
            f"{_instead_of(predictors)}."
        )
    counts: Counter[str] = Counter()
    entries = []
    for name, given in predictors.items():
        try:
            _require_name(name)
            whole = isinstance(given, str)
            entries.append(_entry(given, counts, name) if whole else ListEntry((ListPart(name, given),)))
        except _Malformed as error:
            raise UsageError(f"predictors: {error}. Expected a name such as 'nmt2' or 'lm'.") from None
    if not entries:
        raise UsageError("predictors: none is given. Expected a mapping of names, or a list such as 'nmt,fst'.")
    text = ",".join(map(str, predictors))
    _refuse_clashes(text, [part.name for entry in entries for part in entry.every], list(taken))
    return tuple(entries)


def _instead_of(predictors: object) -> str:
    """The argument that was meant by one that is neither text nor a mapping."""
    if isinstance(predictors, bytes):
        return repr(predictors.decode(errors="replace"))
    listed = list(predictors) if isinstance(predictors, (list, tuple, set)) else []
    if not listed or not all(isinstance(each, str) for each in listed):
        return "{NAME: PREDICTOR}, with a plugin's name, a class or an object for each"
    return repr(",".join(sorted(listed) if isinstance(predictors, set) else listed))


class _Malformed(Exception):
    """An error in an entry, in words."""


def _entry(text: str, counts: Counter[str], outermost: str | None = None) -> ListEntry:
    """One entry, or one part of a mix. ``outermost``: the name of its outermost part, if it is given."""
    text = text.strip()
    mixed = _split(text, "+")
    if len(mixed) > 1:
        return _mix(text, counts, outermost)
    *names, chain = _split(text, "=")
    given = "=".join(names).strip() if names else None
    if given is not None:
        _require_name(given)
    *wrappers, innermost = (word.strip() for word in _split(chain, ":"))
    for word in wrappers:
        _require_plugin(word)
    own = [outermost, *[None] * len(wrappers)]
    if given is not None:
        own[-1] = given
    parts = [_named(word, name, counts) for word, name in zip(wrappers, own, strict=False)]
    if innermost.startswith("(") and innermost.endswith(")"):
        inside = _mix(innermost[1:-1], counts, own[-1])
        return ListEntry((*parts, *inside.parts), inside.mixed)
    _require_plugin(innermost)
    return ListEntry((*parts, _named(innermost, own[-1], counts)))


def _mix(text: str, counts: Counter[str], outermost: str | None = None) -> ListEntry:
    """``[NAME=]MIX:PART+PART...``"""
    mix, colon, parts = text.strip().partition(":")
    given, equals, plugin = mix.rpartition("=")
    if equals:
        _require_name(given.strip())
    if not colon:
        raise _Malformed(f"{text!r} does not say how its parts are mixed,")
    _require_plugin(plugin.strip())
    own = _named(plugin.strip(), given.strip() if equals else outermost, counts)
    listed = _split(parts, "+")
    if len(listed) < 2:
        raise _Malformed(f"the mix {text!r} has one part only")
    return ListEntry((own,), tuple(_entry(part, counts) for part in listed))


def _split(text: str, at: str) -> list[str]:
    """The pieces between these characters outside of parentheses."""
    pieces, depth = [""], 0
    for character in text:
        depth += (character == "(") - (character == ")")
        if depth < 0:
            break
        if character == at and depth == 0:
            pieces.append("")
        else:
            pieces[-1] += character
    if depth:
        raise _Malformed(f"a parenthesis of {text!r} has no partner")
    return pieces


def _require_name(word: Any) -> None:
    if not isinstance(word, str) or not NAME.fullmatch(word):
        raise _Malformed(f"{word!r} is not a name" if word else "a name is missing")


def _require_plugin(word: str) -> None:
    if not AT_DISTRIBUTION.fullmatch(word):
        raise _Malformed(f"{word!r} is not a name" if word else "a name is missing")


def _named(plugin: str, given: str | None, counts: Counter[str]) -> ListPart:
    return _numbered(plugin, counts) if given is None else ListPart(given, plugin)


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
