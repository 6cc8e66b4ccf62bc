"""Wrong calls: correct command lines with options, values and words changed, for every command and every plugin.

The options are read from click and the plugin host, so a new option is tried from its first day.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import click
from hypothesis import strategies as st

from fuzz import files, options
from fuzz.case import Case
from fuzz.running import Runner
from fuzz.values import NUMBERS, PATHS, WORDS
from sgdec.cli.paths import Read, Written
from sgdec.plugins.options import Option

ROWS_CHANGE = (
    "--output", "--output-format", "--range", "--config", "--help", "-h", "--version", "--nbest-list", "--signature",
)  # fmt: skip
"""Options that change the number of lines on standard output."""
WORK = re.compile(
    r"max[-_]length(-factor)?|max[-_](steps|skips|expansions|seconds)|epochs|iterations|centroids|samples|threads|beam|"
    r"(train|valid|test)-lines|vocab-size|order|accumulate|encoder[-_]layers|.*layers|.*width|.*embedding|hidden|keep|"
    r"feed_forward|heads|workspace|k|capacity|size|watch|effort"
)
"""Options that ask for work, memory or time: a long run that these options ask for is not a finding."""
WAYS = ("plugin option",) * 4 + ("option",) * 3 + ("list", "word")
"""The ways to change a call."""
FITTING = ("0", "1", "2", "3", "7", "0.5", "1.5", "-1")
"""Numbers that are valid for many options."""
SLOW = ("compile",)
"""Options that take long with any value."""
MUCH = 40
"""The largest number for these options."""
SMALL_FILES = (10, 200, 1000, 4000)
"""The sizes in bytes of simulated full disks."""


@dataclass(frozen=True)
class CallTarget:
    """Some correct calls of a command."""

    name: str
    command: tuple[str, ...]
    bases: tuple[Case, ...]
    plugins: tuple[str, ...] = ()
    """The plugins whose options are tried most."""
    light: bool = False

    def undamaged(self, runner: Runner) -> Case:
        return self.bases[0]

    def cases(self, base: Case, rows: Sequence[str]) -> st.SearchStrategy[Case]:
        @st.composite
        def case(draw: st.DrawFn) -> Case:
            base = draw(st.sampled_from(self.bases))
            args, files = list(base.args), {"out": b"precious\n", **base.files}
            for _ in range(draw(st.sampled_from((1, 1, 2, 3)))):
                self._change(draw, args, base)
            if self.command[0] in ("decode", "score") and draw(st.integers(0, 9)) == 9:
                files["more.toml"] = draw(configs(self._plugins(args), list(base.files)))
                args += ["--config", "more.toml"]
            size = draw(st.sampled_from((None,) * 9 + SMALL_FILES))
            closed = draw(st.sampled_from(((),) * 18 + ((0,), (1,))))
            certain = size is None and not set(ROWS_CHANGE) & {arg.partition("=")[0] for arg in args}
            certain = certain and all(arg in args for arg in base.args[len(self.command) :])
            return replace(
                base, target=self.name, args=tuple(args), files=files, rows=base.rows if certain else None,
                file_size=size, closed=closed, writes=tuple(self._written(args)), statuses=(0, 1, 2),
            )  # fmt: skip

        return case()

    def _change(self, draw: st.DrawFn, args: list[str], base: Case) -> None:
        begin = len(self.command)
        way = draw(st.sampled_from(WAYS))
        dotted = [option for plugin in self._plugins(args) for option in _plugin_options().get(plugin, ())]
        if way == "plugin option" and dotted:
            name, option = draw(st.sampled_from(dotted))
            value = draw(plugin_values(option, list(base.files)))
            args += draw(st.sampled_from(([f"--{name}.{option.name}", value], [f"--{name}.{option.name}={value}"])))
        elif way == "list" and "--predictors" in args:
            at = args.index("--predictors") + 1
            args[at : at + 1] = [draw(predictor_lists(args[at] if at < len(args) else ""))]
        elif way == "word" and len(args) > begin:
            at = draw(st.integers(begin, len(args) - 1))
            change = draw(st.sampled_from(("leave", "twice", "value", "end")))
            words = sorted(base.files) + list(PATHS + NUMBERS[:20] + WORDS[:40])
            new = {"leave": [], "twice": [args[at]] * 2, "value": [draw(arguments(words))], "end": [args[at], "--"]}
            args[at : at + 1] = new[change]
        else:
            self._set(draw, args, base)

    def _set(self, draw: st.DrawFn, args: list[str], base: Case) -> None:
        """One of the command's own options."""
        own = [
            p for p in options.commands()[self.command].params if isinstance(p, click.Option) and p.name not in SLOW
        ]
        option = draw(st.sampled_from(own))
        flag = draw(st.sampled_from(option.opts + option.secondary_opts))
        if option.is_flag:
            args.append(flag)
        else:
            value = draw(values(option, list(base.files)))
            args += draw(st.sampled_from(([flag, value], [f"{flag}={value}"])))

    def _plugins(self, args: Sequence[str]) -> list[str]:
        """The plugins one of whose options is changed: first those of the call, then any."""
        named = {word for arg in args for word in re.split(r"[,:=]", arg)}
        used = [name for name in _plugin_options() if name in named]
        default = ("beam",) if self.command == ("decode",) else ()
        return [*self.plugins, *used, *default] or list(_plugin_options())

    def _written(self, args: Sequence[str]) -> list[str]:
        """Values of options that name outputs, if nothing else in the call names the same."""
        flags = {
            flag for p in options.commands()[self.command].params if isinstance(p.type, Written) for flag in p.opts
        }
        written = []
        for at, arg in enumerate(args):
            flag, equals, value = arg.partition("=")
            if flag in flags and (equals or at + 1 < len(args)):
                value = value if equals else args[at + 1]
                if sum(options.names(other.rpartition("=")[2], [value]) for other in args) == 1:
                    written.append(value)
        return written


def mostly(usual: st.SearchStrategy[str], other: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """The second strategy once in seven times, otherwise the first."""
    return st.integers(0, 6).flatmap(lambda n: other if n == 6 else usual)


def arguments(words: Sequence[str]) -> st.SearchStrategy[str]:
    """Arguments that an operating system accepts: without NUL."""
    return st.sampled_from([word for word in words if "\0" not in word])


def numbers(name: str, kind: Callable[[str], float] | None = None) -> st.SearchStrategy[str]:
    """Numbers of this kind, or of any; without those that ask for a lot of work."""
    found = [number for number in NUMBERS if not (WORK.fullmatch(name) and _is_much(name, number))]
    if kind is None:
        return arguments(found)
    fitting, others = (arguments([number for number in some if _is(number, kind)]) for some in (FITTING, found))
    return fitting | others


def _is(number: str, kind: Callable[[str], float]) -> bool:
    try:
        kind(number)
    except ValueError:
        return False
    return True


def _is_much(name: str, number: str) -> bool:
    try:
        value = float(number)
    except ValueError:
        return False
    no_limit = name == "max-length" and value == 0  # 10,000 tokens per sentence
    return no_limit or MUCH < value < float("inf")


def values(option: click.Parameter, files: Sequence[str]) -> st.SearchStrategy[str]:
    """Values for an option of a command."""
    kind, name = option.type, max(option.opts, key=len).removeprefix("--")
    paths = arguments([*sorted(files), *PATHS])
    if isinstance(kind, click.Choice):
        suitable = arguments([str(choice) for choice in kind.choices])
    elif isinstance(kind, click.types.IntParamType | click.types.FloatParamType):
        suitable = numbers(name, int if isinstance(kind, click.types.IntParamType) else float)
    elif isinstance(kind, click.types.BoolParamType):
        suitable = arguments(("true", "false", "yes", "2", ""))
    elif isinstance(kind, Written):
        suitable = paths | st.just("/dev/full")
    elif isinstance(kind, Read):
        suitable = paths
    else:
        suitable = paths | numbers(name) | arguments(("1:2", "2:1", "0:0", ":", "1:", "1:2:3", "nmt", "beam", "cuda"))
    return mostly(suitable, paths | numbers(name) | arguments(WORDS))


def plugin_values(option: Option, files: Sequence[str]) -> st.SearchStrategy[str]:
    """Values for an option of a plugin."""
    name = option.name
    paths = arguments([*sorted(files), *PATHS])
    if "int" in option.type or "float" in option.type:
        suitable = numbers(name, int if "int" in option.type else float)
        if ",..." in option.type:
            suitable |= st.lists(numbers(name), max_size=13).map(",".join)
    elif " | " in option.type:
        suitable = arguments(option.type.split(" | "))
    else:
        suitable = paths | arguments(
            ("4,17", ">3", "<3,>5", ">", "4,,5", "<999999999", ">0", "<3>4", "iter", "iter-0")
        )
    return mostly(suitable, paths | numbers(name) | arguments(WORDS))


@st.composite
def configs(draw: st.DrawFn, plugins: Sequence[str], files: Sequence[str]) -> bytes:
    """A TOML file with options of ``decode`` and of plugins, of the right type or not."""
    own = [p for p in options.commands()["decode",].params if isinstance(p, click.Option)]
    lines = []
    for option in draw(st.lists(st.sampled_from(own), max_size=2, unique=True)):
        lines.append(f"{option.name} = {toml(draw, draw(values(option, files)))}")
    for plugin in draw(st.lists(st.sampled_from(plugins), max_size=2, unique=True)):
        lines.append(f"[{plugin}]")
        listed = [option for _, option in _plugin_options()[plugin]]
        for option in draw(st.lists(st.sampled_from(listed), max_size=2, unique=True)) if listed else ():
            lines.append(f"{option.name} = {toml(draw, draw(plugin_values(option, files)))}")
    return "\n".join([*lines, ""]).encode("utf-8", "surrogateescape")


def toml(draw: st.DrawFn, value: str) -> str:
    """A quoted string, an unquoted value, or a value of another type."""
    quoted = json.dumps(value)
    plain = value in ("true", "false") or value in FITTING
    ways = (quoted, value, f"[{quoted}]", f"[{value}, {value}]", f"{{x = {quoted}}}", "1979-05-27")
    return value if plain else str(draw(arguments(ways)))


@st.composite
def predictor_lists(draw: st.DrawFn, before: str) -> str:
    """Comma-separated lists of plugins, well formed or not."""
    names = st.sampled_from([name for name in _plugin_options() if name not in _kinds()["model"]])
    entries = [before] if draw(st.booleans()) else []
    for _ in range(draw(st.integers(0, 3))):
        wrappers = draw(st.lists(st.sampled_from(_wrappers()), max_size=2))
        name = draw(mostly(names, st.sampled_from(WORDS[:40])))
        called = draw(st.sampled_from(("",) * 9 + ("a=", "wc=", "=", "beam=", "1=", "a=b=")))
        entries.append(":".join([*wrappers, called + name]))
    return draw(st.sampled_from((",",) * 9 + (",,", " , ", ":", ";"))).join(entries).replace("\0", "")


@cache
def _plugin_options() -> dict[str, list[tuple[str, Option]]]:
    return options.options_of_plugins()


@cache
def _kinds() -> dict[str, list[str]]:
    return options.plugins_by_kind()


def _wrappers() -> list[str]:
    return ["rank", "maskvocab", "skipvocab", "idxmap", "altsrc", "fsttok", "word2char", "temperature", "repetition",
            "bytes"]  # fmt: skip


def call(name: str, base: Sequence[files.FileTarget], **more: Any) -> CallTarget:
    found = tuple(target.base() for target in base)
    return CallTarget(name, options.words_of(found[0].args), found, **more)


class _Targets:
    """All targets, made on first use: the base calls of commands are the targets of `fuzz.files`."""

    @cached_property
    def all(self) -> tuple[CallTarget, ...]:
        by_command: dict[tuple[str, ...], list[files.FileTarget]] = {}
        for target in (*files.TARGETS, *MORE):
            if not target.before:
                by_command.setdefault(options.words_of(target.args), []).append(target)
        found = [call(f"call {' '.join(words)}", base) for words, base in by_command.items()]
        return (*found, *(call(f"call {name}", searched(name), plugins=(name,)) for name in _kinds()["decoder"]))


def searched(decoder: str) -> list[files.FileTarget]:
    """Some searches with a decoder."""
    symbol = " --syncbeam.symbol 2" if decoder == "syncbeam" else ""
    search = f" --decoder {decoder}{symbol} --nbest 2"
    vanilla = decoder == "vanilla"
    found = [
        files.decode("nmt", f"nmt --nmt.model model{search}", "model=gnmt"),
        files.decode("wc", f"unkc,wc{search}", ""),
        files.decode("kenlm", f"fst,kenlm --fst.path lattices/{{id}}.fst --kenlm.path model.kenlm{search}",
                     "lattices/1.fst lattices/2.fst lattices/3.fst model.kenlm"),
    ]  # fmt: skip
    return found[:1] if vanilla else found[1:] + found[:1]


MORE: tuple[files.FileTarget, ...] = (
    files.target("plugins", "plugins", ""),
    files.target("plugins of one name", "plugins beam", ""),
    files.target("new-plugin", "new-plugin my-idea --directory new", ""),
    files.target("demo corpus", "demo corpus --directory new --train-lines 3 --valid-lines 2 --test-lines 2", ""),
    files.target(
        "standard input",
        "decode --predictors wc --vocab-size 7 --input-format ids -",
        "in.ids",
        rows=3,
        stdin="in.ids",
    ),
)
"""Commands that read no file, or no named file."""
TARGETS: tuple[CallTarget, ...] = _Targets().all
