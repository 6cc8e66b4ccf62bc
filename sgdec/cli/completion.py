"""Shell completion in addition to click's completion of commands and options.

It proposes names of plugins, also inside the list of ``--predictors``; the options ``--NAME.OPTION`` of the plugins
on the line, with their values; and files, for options and arguments of any text. A plugin is imported only when its
options are needed. For a wrong line or a broken plugin there are neither proposals nor messages.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Iterator, Sequence
from copy import copy
from itertools import pairwise
from typing import Any, NamedTuple

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
)

from sgdec.errors import SgdecError
from sgdec.plugins.host import KINDS, Host, name_of
from sgdec.plugins.options import Option, describe, is_dotted, separate_dotted
from sgdec.plugins.predictor_list import EntryOptions, parse_predictors
from sgdec.plugins.summaries import summaries

_WORD_BREAKS = re.compile("[:=@]+")


class WordPart(NamedTuple):
    """A plugin on the line, and the prefix of its options."""

    name: str
    kind: str
    plugin: str
    outermost: bool = False
    """Whether it names an entry of the list, which has options of its own (`EntryOptions`)."""


class PluginName(click.types.StringParamType):
    """Completes the name of a plugin of one of these kinds."""

    name = "plugin"

    def __init__(self, host: Host, *kinds: str) -> None:
        self.host = host
        self.kinds = kinds
        self.entries = [entry for kind in kinds for entry in host.names(kind)]

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        names = [entry.whole_name if "@" in incomplete else self.host.call(entry) for entry in self.entries]
        lines = zip(names, summaries(self.entries), strict=True)
        return [CompletionItem(name, help=line) for name, line in lines if name.startswith(incomplete)]


class PredictorList(PluginName):
    """``[NAME=][WRAPPER:]...PREDICTOR,...``: completes the text after the last separator."""

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        word = re.split("[,:=]", incomplete)[-1]
        before = incomplete.removesuffix(word)
        items = super().shell_complete(ctx, param, word)
        return [CompletionItem(before + item.value, help=item.help) for item in items]


class InnerPlugin(PluginName):
    """``NAME:OPTION=VALUE,OPTION=VALUE`` (`sgdec.nesting`): completes the name, the last option, or its value.

    Behind a double quote it proposes nothing.
    """

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        plugin, colon, given = incomplete.partition(":")
        if not colon:
            return super().shell_complete(ctx, param, incomplete)
        from sgdec.nesting import InnerOptions, NoOptions  # imports the search, as decoders do

        last = given.rpartition(",")[2]
        name, equals, value = last.partition("=")
        try:
            (kind,) = self.kinds
            own = InnerOptions if kind == "decoder" else NoOptions
            options = [*describe(self.host.load(kind, plugin)), *describe(own)]
        except SgdecError:
            return []
        if '"' in given:
            return []
        if not equals:
            before = incomplete.removesuffix(last)
            named = (option for option in options if option.name.startswith(last))
            return [CompletionItem(f"{before}{option.name}=", help=option.description) for option in named]
        before = incomplete.removesuffix(value)
        items = (
            item
            for option in options
            if option.name == name.replace("-", "_")
            for item in _kind(option, self.host).shell_complete(ctx, param, value)
        )
        return [CompletionItem(before + item.value, help=item.help) for item in items if item.type == "plain"]


class ChainLinks(click.types.StringParamType):
    """``NAME=VALUE+NAME=VALUE`` (`sgdec.chain`): completes the name of the last link."""

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from sgdec.chain import LINKS  # imports numpy

        last = incomplete.rpartition("+")[2]
        before = incomplete.removesuffix(last)
        return [CompletionItem(f"{before}{name}=") for name in LINKS if name.startswith(last)]


class CompletedCommand(click.Command):
    """A command during completion; ``words`` follow its name on the line."""

    def __init__(self, name: str, command: click.Command, words: Sequence[str]) -> None:
        self._words = words
        self._host = _host(_values(words, "--plugin-file"))
        types = {
            "predictors": PredictorList(self._host, "predictor"),
            "decoder": PluginName(self._host, "decoder"),
            "engine": PluginName(self._host, "engine"),
            "device": click.Choice(["cpu", "cuda"]),
            **({"model": PluginName(self._host, "model")} if name == "train" else {}),
            **({"name": PluginName(self._host, *KINDS)} if name == "plugins" else {}),
        }
        parameters = [copy(parameter) for parameter in command.params]
        for parameter in parameters:
            if isinstance(parameter.type, click.types.StringParamType):
                parameter.type = types.get(str(parameter.name), click.Path())
        super().__init__(name, params=parameters)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, separate_dotted(args)[0])

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Only a plugin's option if the line ends with it, because its value comes next."""
        last = self._words[-1] if self._words else ""
        options = self._plugin_options(last) if is_dotted(last) else ()
        return [*super().get_params(ctx), *(option for option in options if last in option.opts)]

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        if not incomplete.startswith("-"):
            return [CompletionItem(incomplete, type="file")]
        plugins = (CompletionItem(option.opts[0], help=option.help) for option in self._plugin_options(incomplete))
        return [
            *super().shell_complete(ctx, incomplete),
            *(item for item in plugins if item.value.startswith(incomplete)),
        ]

    def _plugin_options(self, word: str) -> Iterator[click.Option]:
        """Yields the options of the plugins whose prefix begins with ``word``, or with which ``word`` begins. No
        other plugin is imported."""
        for part in self._parts():
            prefix = f"--{part.name}."
            if prefix.startswith(word) or word.startswith(prefix):
                with contextlib.suppress(SgdecError):
                    options = describe(self._host.load(part.kind, part.plugin))
                    yield from (_click_option(prefix, option, self._host) for option in options)
                if part.outermost:
                    yield from (_click_option(prefix, option, self._host) for option in describe(EntryOptions))

    def _parts(self) -> Iterator[WordPart]:
        for parameter in self.params:
            given = _values(self._words, parameter.opts[0])
            if isinstance(parameter.type, PredictorList):
                yield from _parts_of_list(given[-1] if given else "")
            elif isinstance(parameter.type, PluginName) and isinstance(parameter, click.Option):
                plugin = given[-1] if given else str(parameter.default)
                yield WordPart(name_of(plugin), parameter.type.kinds[0], plugin)


def _parts_of_list(text: str) -> Iterator[WordPart]:
    try:
        entries = parse_predictors(text)
    except SgdecError:
        return
    for entry in entries:
        for part in entry.every:
            yield WordPart(part.name, "predictor", part.plugin, outermost=part.name == entry.name)


def _click_option(prefix: str, option: Option, host: Host) -> click.Option:
    """The option with its name and its help."""
    return click.Option([prefix + option.name, "plugin_option"], type=_kind(option, host), help=option.description)


def _kind(option: Option, host: Host) -> click.ParamType[Any]:
    """The type that completes the values of an option."""
    values = option.type.split(" | ")
    for kind in ("decoder", "utility"):
        if kind in values:
            return InnerPlugin(host, kind)
    if "chain" in values:
        return ChainLinks()
    if len(values) > 1 and not {"int", "float", "text"} & set(values):
        return click.Choice(values)
    return click.Path() if "text" in values else click.STRING


def _host(plugin_files: Sequence[str]) -> Host:
    try:
        return Host(plugin_files)
    except SgdecError:
        return Host()


def _values(words: Sequence[str], flag: str) -> list[str]:
    """The values given on the line to an option that takes one value.

    >>> _values(["--decoder", "beam", "--decoder=dfs", "--decoder"], "--decoder")
    ['beam', 'dfs']
    """
    apart = [word for first in words for word in (first.split("=", 1) if first.startswith("-") else [first])]
    return [value for name, value in pairwise(apart) if name == flag]


class _WholeLine(ShellComplete):
    """Makes proposals for ``--option=value`` whole words, like all other proposals; and proposes the options of
    ``sgdec decode`` after ``sgdec corpus ... --``, where click expects only arguments."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        if args[:1] == ["corpus"] and "--" in args:
            args = ["decode", *args[args.index("--") + 1 :]]
        flag, equals, value = incomplete.partition("=")
        if not (flag.startswith("-") and equals):
            return super().get_completions(args, incomplete)
        items = super().get_completions([*args, flag], value)
        for item in items:
            item.value = f"{flag}={item.value}"
        return items


class Bash(_WholeLine, BashComplete):
    """Bash treats ``:``, ``=`` and ``@`` as separate words and completes only the text after the last one."""

    _settled = ""
    """The beginning of the word that bash does not replace."""

    def get_completion_args(self) -> tuple[list[str], str]:
        args, incomplete = super().get_completion_args()
        (*args, incomplete), self._settled = join_words([*args, incomplete])
        return args, incomplete

    def format_completion(self, item: CompletionItem) -> str:
        item.value = item.value.removeprefix(self._settled)
        return super().format_completion(item)


def join_words(words: Sequence[str]) -> tuple[list[str], str]:
    """The words as they were typed, the last one incomplete; and the beginning of the last word that bash does not
    replace.

    >>> join_words(["--predictors", "nmt,l2r", "=", "fsttok", ":", "n"])
    (['--predictors', 'nmt,l2r=fsttok:n'], 'nmt,l2r=fsttok:')
    >>> join_words(["--predictors", "fsttok", ":"])
    (['--predictors', 'fsttok:'], 'fsttok:')
    >>> join_words(["--predictors", "fsttok:", ""])
    (['--predictors', 'fsttok:', ''], '')
    """
    joined: list[str] = []
    settled, after_break = "", False
    for word in words:
        is_break = _WORD_BREAKS.fullmatch(word) is not None
        if joined and word and (is_break or after_break):
            settled = joined[-1] + (word if is_break else "")
            joined[-1] += word
        else:
            settled = ""
            joined.append(word)
        after_break = is_break
    return joined, settled


class Zsh(_WholeLine, ZshComplete):
    """Click's class, with `_WholeLine`."""


class Fish(_WholeLine, FishComplete):
    """Click's class, with `_WholeLine`."""


def register() -> None:
    """Register these classes instead of click's, and keep warnings out of the line that is being typed."""
    logging.getLogger("sgdec").addHandler(logging.NullHandler())
    for shell in (Bash, Zsh, Fish):
        add_completion_class(shell)
