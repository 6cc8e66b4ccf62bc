"""A decoder inside another one, by name with options: ``sample:samples=256,chain=top_k=50+min_p=0.05``.

An option of a decoder can be a decoder itself. Its constructor annotates the parameter with `DecoderSpec`:

    def __init__(self, first: Annotated[DecoderSpec, Field(description="...")] = DecoderSpec("beam")): ...

The user gives it as a text, or in Python and in a TOML file also as a table of one name:

    --best.first 'beam:size=8'        best={"first": {"beam": {"size": 8}}}        [best.first.beam]
                                                                                   size = 8

The framework checks name and options like those of ``--decoder`` before the run, constructs the inner decoder, and
passes a `DecoderSpec` whose `decode` searches the space of the outer decoder.

The text is ``NAME`` or ``NAME:OPTION=VALUE,OPTION=VALUE``, where NAME may be ``NAME@DISTRIBUTION``. A value ends at
the next comma and may have any other characters, such as ``=`` and ``+``. A value with a comma, with spaces at its
ends, or with a double quote at its beginning is written in double quotes, with the escapes of JSON:

>>> spec = DecoderSpec.parse('sample:samples=256,chain=top_k=50+min_p=0.05')
>>> spec.options
{'samples': '256', 'chain': 'top_k=50+min_p=0.05'}
>>> print(DecoderSpec("two", {"words": ["a", "b"], "other": DecoderSpec("beam", {"size": 2, "alpha": 1})}))
two:words="a,b",other="beam:size=2,alpha=1"
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from json import JSONDecodeError, JSONDecoder, dumps
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, Self, TypeVar, cast

from annotated_types import Ge

from sgdec.context import Context
from sgdec.decoder import Decoder
from sgdec.errors import UsageError
from sgdec.plugins.host import AT_DISTRIBUTION, Host, name_of
from sgdec.plugins.options import configure_inside, describe, parameters, refuse_programs
from sgdec.plugins.parts import Part, construct
from sgdec.protocol import Result
from sgdec.search.results import require_result
from sgdec.search.space import SearchSpace
from sgdec.settings import Says, plain
from sgdec.utility import Utility

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema

P = TypeVar("P")
EXPECTED = "expected NAME or NAME:OPTION=VALUE,..., such as beam:size=8"
DEEPEST = 8
"""The most decoders inside each other: one that is by default in itself would have no end."""


@dataclass
class NoOptions:
    """None besides the plugin's own."""


@dataclass
class InnerOptions:
    """The options that every inner decoder has besides its own."""

    nbest: Annotated[int | None, Ge(1), Says("hypotheses that it lists; default: as the outer decoder asks")] = None
    seed: Annotated[int | None, Says("seed of its random numbers; default: that of the run")] = None


@dataclass(frozen=True)
class _Ready:
    """The parts of a checked spec."""

    part: Part
    own: Any
    """An object of `PluginSpec.own_options`."""
    where: str
    """The beginning of errors about it."""


class PluginSpec(Generic[P]):
    """A plugin with options, as the option of a decoder. Equal specs have equal plugins and options."""

    option_type: ClassVar[str]
    """The kind of plugin, which is the type in helps of options."""
    base: ClassVar[type]
    """The base class of these plugins."""
    own_options: ClassVar[type] = NoOptions
    """The options that every plugin has inside a decoder, besides its own."""

    def __init__(self, plugin: str | type[P] | P, options: Mapping[str, Any] | None = None) -> None:
        """``plugin``: ``NAME`` or ``NAME@DISTRIBUTION``, a class, or an object, which has no options.

        ``options``: values as in a TOML file, or texts. Hyphens in names count as underscores; None = not given.
        Raises ValueError for any other plugin, and for options of an object.
        """
        is_object = isinstance(plugin, self.base)
        is_class = isinstance(plugin, type) and issubclass(plugin, self.base)
        if not (AT_DISTRIBUTION.fullmatch(plugin) if isinstance(plugin, str) else is_object or is_class):
            said = f"{plugin!r} is" if isinstance(plugin, str) else "that is"
            raise ValueError(f"{said} not the name of a {self.option_type}; {EXPECTED}")
        given = {str(key).replace("-", "_"): plain(value) for key, value in (options or {}).items()}
        given = {key: value for key, value in given.items() if value is not None}
        if given and is_object:
            raise ValueError(f"{type(plugin).__name__} is an object; its options are already set")
        self.plugin = plugin
        self.options: dict[str, Any] = given
        self._ready: _Ready | None = None
        self._made: P | None = cast(P, plugin) if is_object else None

    @classmethod
    def parse(cls, text: str) -> Self:
        """The spec of a text. Raises ValueError in one clause."""
        name, colon, rest = text.partition(":")
        spec = cls(name.strip())
        while colon:
            option, equals, rest = rest.partition("=")
            option = option.strip().replace("-", "_")
            if not equals or not option.isidentifier():
                raise ValueError(f"{option!r} after {name.strip()!r} is not OPTION=VALUE; {EXPECTED}")
            if option in spec.options:
                raise ValueError(f"{name.strip()} has {option!r} twice")
            spec.options[option], colon, rest = _split_value(option, rest)
        return spec

    @classmethod
    def of(cls, given: Any) -> Self:
        """The spec of an option's value: a text, a table of one name, a class, an object, or a spec.

        >>> DecoderSpec.of({"beam": {"size": 8}})
        DecoderSpec('beam:size=8')
        """
        if isinstance(given, str):
            return cls.parse(given)
        if isinstance(given, Mapping):
            if len(given) != 1 or not isinstance(options := next(iter(given.values())), Mapping):
                raise ValueError("a table should have one name, with a table of its options: {beam = {size = 8}}")
            return cls(next(iter(given)), options)
        return given if isinstance(given, cls) else cls(given)

    @property
    def name(self) -> str:
        """The plugin's name, or that of its class."""
        if isinstance(self.plugin, str):
            return name_of(self.plugin)
        return (self.plugin if isinstance(self.plugin, type) else type(self.plugin)).__name__

    @property
    def made(self) -> P:
        """The plugin's object. Outside a run it is constructed on first use, with the installed plugins."""
        if self._made is None or self._ready is None:
            built_now = built(checked(self, Host(), self.name), Context())
            self._ready, self._made = built_now._ready, built_now._made
        assert self._made is not None
        return self._made

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, type(self)):
            return NotImplemented
        return (self.plugin, self.options) == (other.plugin, other.options)

    def __hash__(self) -> int:
        return hash((self.name, frozenset(self.options)))  # values can be lists

    def __str__(self) -> str:
        plugin = self.plugin if isinstance(self.plugin, str) else self.name
        listed = ",".join(f"{key}={_quoted(_text(value))}" for key, value in self.options.items())
        return f"{plugin}:{listed}" if listed else plugin

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        from pydantic_core import core_schema

        return core_schema.no_info_plain_validator_function(cls.of)


class DecoderSpec(PluginSpec[Decoder]):
    """A decoder with options, as the option of another decoder.

    >>> from sgdec.testing import tiny_spaces
    >>> space = tiny_spaces()[0].open(nbest=1)
    >>> found = DecoderSpec("beam", {"size": 3, "stop": "full"}).decode(space, nbest=3)
    >>> len(found.hypotheses), space.expansions == found.expansions > 0
    (3, True)
    """

    option_type = "decoder"
    base = Decoder
    own_options = InnerOptions

    @property
    def decoder(self) -> Decoder:
        """The inner decoder."""
        return self.made

    def decode(self, space: SearchSpace, nbest: int | None = None, *, distinct: bool = True) -> Result:
        """The result of the inner decoder for the sentence of ``space``, with the number of its own expansions.

        ``nbest``: the number of hypotheses that it lists, if its own options do not say it; None = as the space. It
        searches in a space with its own ranking and counts (`SearchSpace.inside`). ``distinct``: its list has each
        text once if the run wants that.
        """
        decoder = self.made
        assert self._ready is not None
        own = cast(InnerOptions, self._ready.own)
        listed = own.nbest or nbest or space.nbest
        with space.inside(decoder.ranking, listed, seed=own.seed, distinct=distinct) as inside:
            found = require_result(decoder, decoder.decode(inside))
        return replace(found, expansions=inside.expansions)


class UtilitySpec(PluginSpec[Utility]):
    """A utility with options, as the option of a decoder.

    >>> utility = UtilitySpec.parse("chrf:word_order=2").utility
    >>> utility.pairwise(["a b"], ["a b", "c d"], None).round(1).tolist()
    [[100.0, 0.0]]
    """

    option_type = "utility"
    base = Utility

    @property
    def utility(self) -> Utility:
        """The utility."""
        return self.made


Spec = TypeVar("Spec", bound=PluginSpec[Any])


def checked(spec: Spec, host: Host, where: str, depth: int = 1) -> Spec:
    """A spec whose plugin is found and whose options are checked, those of decoders inside it too.

    ``depth``: the number of decoders around it. Raises UsageError, which begins with ``where``, for unknown names,
    wrong values, and a depth above `DEEPEST`.
    """
    if spec._ready is not None:
        return spec
    if depth > DEEPEST:
        raise UsageError(f"{where}: more than {DEEPEST} decoders are inside each other.")
    cls = _class_of(spec, host, where)
    known = {option.name for option in describe(cls)}
    more = [option.name for option in describe(spec.own_options) if option.name not in known]
    own = {key: value for key, value in spec.options.items() if key in more}
    given = {key: value for key, value in spec.options.items() if key not in more}
    ours = configure_inside(spec.own_options, own, spec.name, where)
    if isinstance(spec.plugin, spec.base):
        part = Part(spec.name, cls, {}, spec.plugin)
    else:
        part = Part(spec.name, cls, configure_inside(cls, given, spec.name, where, more))
        part = with_inner_checked(part, host, lambda option: f"{where}: {spec.name}: {option}", depth)
    found = type(spec)(spec.plugin, spec.options)
    found._ready = _Ready(part, spec.own_options(**ours), where)
    return found


def built(spec: Spec, context: Context) -> Spec:
    """A checked spec with a new object. Raises the errors of constructors; a UsageError says where."""
    ready = spec._ready
    assert ready is not None
    seed = getattr(ready.own, "seed", None)
    inside = context if seed is None else replace(context, seed=seed)
    found = type(spec)(spec.plugin, spec.options)
    found._ready, part = ready, with_inner_built(ready.part, inside)
    try:
        found._made = construct(part, inside)
    except UsageError as error:
        raise UsageError(f"{ready.where}: {error}") from None
    return found


def configured(spec: PluginSpec[Any]) -> Mapping[str, Any]:
    """The options of a checked spec, after conversion for the constructor."""
    return {} if spec._ready is None else spec._ready.part.options


def _class_of(spec: PluginSpec[Any], host: Host, where: str) -> type[Any]:
    if not isinstance(spec.plugin, str):
        return spec.plugin if isinstance(spec.plugin, type) else type(spec.plugin)
    try:
        return host.load(spec.option_type, spec.plugin)
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from None


def with_inner_checked(part: Part, host: Host, where: Callable[[str], str], depth: int = 0) -> Part:
    """A part with checked specs as options in place of specs; those that are defaults of its class become options.

    ``where``: the beginning of errors about an option. ``depth``: the number of decoders around the part. Raises the
    errors of `checked`.
    """
    cls: type = part.cls
    defaults = {key: default for key, default, _ in parameters(cls) if isinstance(default, PluginSpec)}
    options = {
        key: checked(value, host, where(key), depth + 1) if isinstance(value, PluginSpec) else value
        for key, value in {**defaults, **part.options}.items()
    }
    return replace(part, options=options)


def refuse_inner_programs(part: Part, where: Callable[[str], str]) -> None:
    """Raise UsageError if a plugin inside a checked part, which comes from a file, is given a program to start."""
    for key, value in part.options.items():
        if isinstance(value, PluginSpec) and value._ready is not None:
            inside = value._ready.part
            within = partial("{}: {}: {}".format, where(key), inside.name)
            refuse_programs(inside.cls, inside.options, within)
            refuse_inner_programs(inside, within)


def with_inner_built(part: Part, context: Context) -> Part:
    """A part with new decoders in its checked specs."""
    options = {
        key: built(value, context) if isinstance(value, PluginSpec) else value for key, value in part.options.items()
    }
    return replace(part, options=options)


def is_timed(value: Any) -> bool:
    """Whether a value is a spec of a decoder that ends after some time, so that its results depend on the machine."""
    if not isinstance(value, DecoderSpec):
        return False
    options = {**{o.name: o.default for o in describe(type(value.decoder))}, **configured(value)}
    return any(is_timed(each) or (key.endswith("seconds") and each) for key, each in options.items())


def _split_value(option: str, text: str) -> tuple[str, str, str]:
    """The value at the beginning of a text, the comma behind it or "", and what follows."""
    quoted = text.lstrip()
    if not quoted.startswith('"'):
        value, comma, rest = text.partition(",")
        return value.strip(), comma, rest
    try:
        value, end = JSONDecoder(strict=False).raw_decode(quoted)
    except JSONDecodeError:
        raise ValueError(f"{option}={quoted} begins with a quote and has no text in double quotes") from None
    rest = quoted[end:].lstrip()
    if rest and not rest.startswith(","):
        raise ValueError(f"{option}={quoted[:end]} is followed by {rest!r}, not by a comma")
    return value, rest[:1], rest[1:]


def _quoted(text: str) -> str:
    plain = "," not in text and not text.startswith('"') and text == text.strip()
    return text if plain else dumps(text, ensure_ascii=False)


def _text(value: Any) -> str:
    """A value as the command line would have it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        with suppress(ValueError):  # else no option takes it
            return str(DecoderSpec.of(value))
    if isinstance(value, (list, tuple)):
        return ",".join(map(_text, value))
    return str(value)
