"""The constructor is the configuration: typed parameters of ``__init__`` are the options of a plugin.

    def __init__(self, size: Annotated[int, Field(ge=1, description="hypotheses kept per step")] = 4): ...

defines ``--beam.size 5`` on the command line, ``size = 5`` under ``[beam]`` in a TOML file, a line of the help, and
the check that refuses -1. Nothing else has to be registered. The fields of a dataclass are options as well. The
parameters in `NEVER` come from the framework and are not options.
"""

from __future__ import annotations

import inspect
import math
import re
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Union

from sgdec.complaints import complaint, shown
from sgdec.errors import SgdecError, UsageError
from sgdec.suggest import suggest

if TYPE_CHECKING:
    from pydantic import TypeAdapter

NEVER = frozenset({"self", "inner", "context"})
"""Parameters that are not options. ``inner`` is a wrapper's predictor; all parts of a run share the ``context``."""

FROM_SGNMT = "docs/from-sgnmt.md has the counterpart of each option of SGNMT."
"""The end of errors about options and files that SGNMT could have."""

_SEQUENCES = ("list_type", "tuple_type", "set_type", "frozen_set_type", "sequence_str", "iterable_type")
"""Pydantic's error types for a string where a collection is expected."""


class Section(str):
    """The heading under which the help of commands lists a setting; it stands in the annotation of the setting."""


class _Mark(str):
    """Stands in the annotation of an option."""


EXECUTES = _Mark("starts a program")
"""The mark of an option that names a program to start. A config file, which may be untrusted, must not set it."""


class Option(NamedTuple):
    """One option of a plugin, for help texts."""

    name: str
    type: str
    """The type in words: ``int >= 1``, ``gnmt | length``, ``true | false``."""
    default: Any
    """`inspect.Parameter.empty` if the option is required."""
    description: str
    section: str = ""
    """That of its annotation, if it has one (`Section`)."""

    @property
    def required(self) -> bool:
        return self.default is inspect.Parameter.empty


def is_dotted(argument: str) -> bool:
    """Whether a word of a command line is ``--NAME.OPTION`` or ``--NAME.OPTION=VALUE``."""
    return argument.startswith("--") and "." in argument.partition("=")[0]


def separate_dotted(args: Sequence[str]) -> tuple[list[str], list[str]]:
    """A command line without its plugin options, and the plugin options with their values. ``--`` ends the options.

    >>> separate_dotted(["--nbest", "3", "--beam.size", "5", "input.txt", "--fst.path=a.fst"])
    (['--nbest', '3', 'input.txt'], ['--beam.size', '5', '--fst.path=a.fst'])
    """
    rest: list[str] = []
    dotted: list[str] = []
    words = iter(args)
    for word in words:
        if word == "--":
            return [*rest, word, *words], dotted
        if not is_dotted(word):
            rest.append(word)
            continue
        dotted.append(word)
        if "=" not in word:
            dotted += [value for value in [next(words, None)] if value is not None]
    return rest, dotted


def split_dotted(args: Sequence[str]) -> dict[str, dict[str, str]]:
    """Plugin options by plugin; if an option is repeated, the last one counts. Raises UsageError for other words.

    >>> split_dotted(["--beam.size", "5", "--fst.use-weights=false", "--beam.alpha", "-0.5"])
    {'beam': {'size': '5', 'alpha': '-0.5'}, 'fst': {'use_weights': 'false'}}
    """
    given: dict[str, dict[str, str]] = {}
    words = iter(args)
    for word in words:
        key, equals, value = word.partition("=")
        name, _, option = key.removeprefix("--").partition(".")
        if not is_dotted(word) or not name or not option:
            raise UsageError(f"unexpected {word!r}. Expected --NAME.OPTION VALUE, such as --beam.size 5.")
        if not equals:
            value = next(words, "--")
            if value.startswith("--"):
                raise UsageError(f"{key} needs a value: {key} VALUE.")
        given.setdefault(name, {})[option.replace("-", "_")] = value
    return given


def load_config(path: str | Path) -> dict[str, Any]:
    """Read a TOML file with the options of the run at the top and one table per plugin.

    Hyphens in keys become underscores. Raises UsageError that names the file, and the line of a syntax error. A key
    that would load code is an error, too: a config file may come from an untrusted source.
    """
    from sgdec.io.documents import parse_toml, read_document
    from sgdec.io.limits import CONFIG

    try:
        config = parse_toml(read_document(path, CONFIG))
    except OSError as error:
        raise UsageError(f"--config {path}: {error.strerror}.") from error
    except SgdecError as error:
        raise UsageError(f"--config {error}") from None
    except ValueError as error:
        raise UsageError(
            f"--config {path} is not a TOML file: {' '.join(str(error).split())}. Expected lines such as nbest = 5, "
            f"and tables such as [beam]. {FROM_SGNMT}"
        ) from error
    if (key := _code_in(config)) is not None:
        raise UsageError(
            f"--config {path}: {key!r} would execute code, which a config file must not. "
            "Give --plugin-file on the command line."
        )
    tables = {key: _underscored(table) for key, table in config.items() if isinstance(table, dict)}
    return {**_underscored(config), **tables}


def split_config(config: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """The options of the run, and the tables of the plugins.

    >>> split_config({"nbest": 3, "beam": {"size": 5}})
    ({'nbest': 3}, {'beam': {'size': 5}})
    """
    run = {key: value for key, value in config.items() if not isinstance(value, dict)}
    return run, {key: dict(value) for key, value in config.items() if isinstance(value, dict)}


def merge_options(
    config: Mapping[str, Mapping[str, Any]], given: Mapping[str, Mapping[str, Any]]
) -> dict[str, dict[str, Any]]:
    """The plugin options of a config file and of the command line together; the command line wins.

    >>> merge_options({"beam": {"size": 4, "alpha": 1.0}}, {"beam": {"size": "8"}, "fst": {"path": "a"}})
    {'beam': {'size': '8', 'alpha': 1.0}, 'fst': {'path': 'a'}}
    """
    names = dict.fromkeys([*config, *given])
    return {name: {**config.get(name, {}), **given.get(name, {})} for name in names}


def refuse_unused(
    given: Iterable[str], used: Iterable[str], way_out: Callable[[str], str | None] = lambda name: None
) -> None:
    """Raise UsageError if options are given for a name that this run does not use.

    ``way_out``: returns advice for a name, or None; without advice the error suggests names that are used.
    """
    used = list(used)
    for name in given:
        if name not in used:
            advice = way_out(name) or suggest(name, used)
            raise UsageError(f"options for {name!r}, which this run does not use. {advice}")


def configure(cls: type[Any], given: Mapping[str, Any], *, name: str | None) -> dict[str, Any]:
    """Keyword arguments for ``cls``: the given values, checked and converted to the types of its constructor.

    Values are strings from a command line, or TOML values. A string is split at commas if a collection is expected.
    ``name``: the user's name for the plugin; None = the options are those of the run itself. Raises UsageError for an
    unknown or missing option, and for an invalid value.
    """
    options = _known(cls, given, name)
    for option in options.values():
        if option.required and option.name not in given:
            needed = flag(option.name, name)
            raise UsageError(f"{needed} is missing. Give {needed} VALUE ({_explain(option)}).")
    return {key: _convert(given[key], cls, flag(key, name), options[key]) for key in given}


def check(cls: type[Any], given: Mapping[str, Any], *, name: str | None) -> dict[str, Any]:
    """Convert options of a config file, of which some may be missing. Raises the UsageError of `configure`."""
    options = _known(cls, given, name)
    refuse_programs(cls, given, lambda key: flag(key, name))
    return {key: _convert(value, cls, flag(key, name), options[key]) for key, value in given.items()}


def configure_inside(
    cls: type[Any], given: Mapping[str, Any], name: str, where: str, more: Iterable[str] = ()
) -> dict[str, Any]:
    """Convert the options of a plugin called ``name`` that is the value of an option, as `configure` does.

    Errors begin with ``where``. ``more``: names of options that it has besides, for suggestions.
    """
    options = {option.name: option for option in describe(cls)}
    for key in given:
        if key not in options:
            raise UsageError(f"{where}: {name} has no option {key!r}. {suggest(key, [*options, *more])}")
    for option in options.values():
        if option.required and option.name not in given:
            raise UsageError(f"{where}: {name} needs {option.name}=VALUE ({_explain(option)}).")
    return {key: _convert(value, cls, f"{where}: {name}: {key}", options[key]) for key, value in given.items()}


def refuse_programs(cls: type, given: Iterable[str], where: Callable[[str], str]) -> None:
    """Raise UsageError if one of these options, which come from a file, starts a program (`EXECUTES`).

    ``where``: the beginning of the error about an option.
    """
    executing = {key for key, _, hint in parameters(cls) if EXECUTES in getattr(hint, "__metadata__", ())}
    for key in given:
        if key in executing:
            raise UsageError(
                f"{where(key)} starts a program, which a config file must not. Give it on the command line."
            )


def _known(cls: type[Any], given: Iterable[str], name: str | None) -> dict[str, Option]:
    """The options of a class. Raises UsageError if one is given that it does not have."""
    options = {option.name: option for option in describe(cls)}
    for key in given:
        if key not in options:
            known = [flag(option, name) for option in options]
            raise UsageError(f"no option {flag(key, name)}. {suggest(flag(key, name), known)}")
    return options


def flag(option: str, name: str | None) -> str:
    """An option as the user types it: an option of the part ``name``, or of the run if ``name`` is None.

    >>> flag("size", "beam"), flag("batch_size", None)
    ('--beam.size', '--batch-size')
    """
    return f"--{option.replace('_', '-')}" if name is None else f"--{name}.{option}"


def describe(cls: type) -> list[Option]:
    """The options of a plugin, in the order of its constructor.

    >>> from pydantic import Field
    >>> class Beam:
    ...     def __init__(self, size: Annotated[int, Field(ge=1, description="kept per step")] = 4): ...
    >>> describe(Beam)
    [Option(name='size', type='int >= 1', default=4, description='kept per step', section='')]
    """
    return list(_described(cls))


# These are cached: a command asks for the same few classes again and again, annotations take long to resolve, and
# pydantic takes longer to make an adapter than to convert a value with it.


@lru_cache(maxsize=64)
def _described(cls: type) -> tuple[Option, ...]:
    return tuple(
        Option(key, _type_text(hint), default, _description(hint), _section(hint))
        for key, default, hint in parameters(cls)
    )


@lru_cache(maxsize=256)
def _adapter(cls: type, option: str) -> TypeAdapter[Any]:
    """The conversion of one option to its type; raises PydanticUserError for a type that pydantic does not know."""
    from pydantic import TypeAdapter

    hints = {key: hint for key, _, hint in parameters(cls)}
    return TypeAdapter(hints[option])


@lru_cache(maxsize=64)
def parameters(cls: type[Any]) -> tuple[tuple[str, Any, Any], ...]:
    """The name, default and annotation of each constructor parameter that is an option."""
    constructor: Callable[..., None] = cls.__init__
    if constructor is object.__init__:
        return ()
    owner = next(base for base in cls.__mro__ if "__init__" in vars(base))
    says = owner if "__signature__" in vars(owner) else constructor  # pydantic's dataclasses take *args
    parameters = [
        parameter
        for parameter in inspect.signature(says).parameters.values()
        if parameter.name not in NEVER and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    return tuple((parameter.name, parameter.default, _hint(cls, constructor, parameter)) for parameter in parameters)


def _hint(cls: type[Any], constructor: Callable[..., None], parameter: inspect.Parameter) -> Any:
    """The annotation of one option. Others are not resolved, because only the type checker may know their names."""
    if parameter.annotation is parameter.empty:
        return Any
    scope = getattr(inspect.unwrap(constructor), "__globals__", {})
    field = getattr(cls, "__dataclass_fields__", {}).get(parameter.name)
    if field is not None and field.type == parameter.annotation:  # its class may be in another module
        owner = next(base for base in cls.__mro__ if parameter.name in vars(base).get("__annotations__", {}))
        scope = {**scope, **getattr(sys.modules.get(owner.__module__), "__dict__", {})}
    wanted = types.SimpleNamespace(__annotations__={parameter.name: parameter.annotation})
    try:
        hints = typing.get_type_hints(wanted, globalns=scope, include_extras=True)
    except Exception as error:
        raise SgdecError(f"{cls.__qualname__}: unreadable annotations of __init__: {error}.") from error
    return hints[parameter.name]


def _convert(value: Any, cls: type, flag: str, option: Option) -> Any:
    from pydantic import PydanticUserError, ValidationError

    try:
        adapter = _adapter(cls, option.name)
    except PydanticUserError:
        raise SgdecError(
            f"{flag}: {value!r} cannot become a value of the type {option.type!r}, which only a program can pass; "
            "options are numbers, text, true or false, and lists of these."
        ) from None
    try:
        try:
            converted = adapter.validate_python(value)
        except ValidationError as error:
            if not isinstance(value, str) or not any(e["type"] in _SEQUENCES for e in error.errors()):
                raise
            value = [item.strip() for item in value.split(",")]
            converted = adapter.validate_python(value)
    except ValidationError as error:
        errors = [e for e in error.errors() if e["type"] != "too_short"]  # an invalid item also counts as missing
        errors = errors or error.errors()
        first, *others = dict.fromkeys(complaint(shown(e["input"]), e) for e in errors)
        repeated = f"{shown(errors[0]['input'])} should be "  # 'x' should be an integer or text
        why = " or ".join([first, *(other.removeprefix(repeated) for other in others)])
        raise UsageError(f"{flag}: {why} ({_explain(option)}).") from error
    if (unfit := flaw(converted) or underscored(value, converted) or truth(value, converted)) is not None:
        raise UsageError(f"{flag}: {unfit} ({_explain(option)}).")
    return converted


def flaw(value: Any) -> str | None:
    """The reason why a value is invalid for every option, or None: NaN, infinity, over 62 bits, NUL; also in lists.

    With 62 bits, integers of 64 bits have room for sums with a size that is given.

    >>> flaw((0.5, float("inf"))), flaw(1 << 62), flaw(-3)
    ('inf should be a finite number', '4611686018427387904 should be below 2^62', None)
    """
    if isinstance(value, float) and not math.isfinite(value):
        return f"{value} should be a finite number"
    if isinstance(value, int) and not -(1 << 62) <= value < 1 << 62:
        shown = str(value) if abs(value) < 1 << 99 else "the number"
        return f"{shown} should be below 2^62"
    if isinstance(value, str) and "\0" in value:
        return f"{value!r} has a NUL character"
    if isinstance(value, (list, tuple, set, frozenset)):
        return next(filter(None, map(flaw, value)), None)
    return None


def truth(given: Any, converted: Any) -> str | None:
    """The reason why true or false, as in a config file, is not a number, or None; also in lists.

    >>> truth(True, 1), truth(True, True), truth([2, False], (2, 0.0))
    ('True should be a number', None, 'False should be a number')
    """
    if isinstance(given, bool) and not isinstance(converted, bool) and isinstance(converted, (int, float)):
        return f"{given} should be a number"
    if isinstance(given, (list, tuple)) and isinstance(converted, (list, tuple)):
        return next(filter(None, map(truth, given, converted)), None)
    return None


def underscored(given: Any, converted: Any) -> str | None:
    """The reason why a text is not a number, or None; also for texts in lists.

    Python and pydantic read ``1_0`` as 10.

    >>> underscored("1_0", 10), underscored("a_b", "a_b"), underscored(["1", "1_0"], (1, 10))
    ("'1_0' should be a number without underscores", None, "'1_0' should be a number without underscores")
    """
    if isinstance(given, str) and "_" in given and isinstance(converted, (int, float)):
        return f"{given!r} should be a number without underscores"
    if isinstance(given, (list, tuple)) and isinstance(converted, (list, tuple)):
        return next(filter(None, map(underscored, given, converted)), None)
    return None


def _explain(option: Option) -> str:
    return f"{option.type}: {option.description}" if option.description else option.type


def _description(annotation: Any) -> str:
    for metadata in getattr(annotation, "__metadata__", ()):
        if getattr(metadata, "description", None):
            return " ".join(metadata.description.split()).rstrip(".")
    return ""


def _section(annotation: Any) -> str:
    return next((each for each in getattr(annotation, "__metadata__", ()) if isinstance(each, Section)), "")


def _type_text(annotation: Any) -> str:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        constraints = [_constraint(c) for m in arguments[1:] for c in getattr(m, "metadata", [m])]
        return f"{_type_text(arguments[0])} {', '.join(filter(None, constraints))}".rstrip()
    if origin is Literal:
        return " | ".join(str(argument) for argument in arguments)
    if origin in (Union, types.UnionType):
        return " | ".join(_type_text(a) for a in arguments if a is not types.NoneType)
    if origin is not None and arguments:
        items = dict.fromkeys(_type_text(argument) for argument in arguments if argument is not Ellipsis)
        return f"{', '.join(items)},..."
    names = {bool: "true | false", str: "text", Any: "value"}
    said = names.get(annotation) or getattr(annotation, "option_type", None)
    return said or getattr(annotation, "__name__", str(annotation)).lower()


def _constraint(constraint: object) -> str:
    signs = {"Gt": ("gt", ">"), "Ge": ("ge", ">="), "Lt": ("lt", "<"), "Le": ("le", "<=")}
    attribute, sign = signs.get(type(constraint).__name__, ("", ""))
    return f"{sign} {getattr(constraint, attribute)}" if attribute else ""


def _code_in(table: Any) -> str | None:
    """The first key, at any depth and in any spelling, that is the option ``plugin_file``, which loads code."""
    if isinstance(table, list):
        return next(filter(None, map(_code_in, table)), None)
    if not isinstance(table, dict):
        return None
    spelled = (key for key in table if re.sub(r"[\W_]", "", key).lower() in ("pluginfile", "pluginfiles"))
    return next(spelled, None) or next(filter(None, map(_code_in, table.values())), None)


def _underscored(table: Mapping[str, Any]) -> dict[str, Any]:
    """Replace hyphens in keys by underscores, except in the names of tables."""
    return {key if isinstance(item, dict) else key.replace("-", "_"): item for key, item in table.items()}
