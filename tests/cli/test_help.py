"""The promise of help texts: examples first, sections in which nothing is forgotten, lines that fit the terminal."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Iterator
from itertools import dropwhile

import click
import pytest

from sgdec.cli import sections
from sgdec.cli.main import COMMANDS, SECTIONS, sgdec
from sgdec.cli.sections import Sectioned, SectionedOption
from sgdec.plugins.options import Option, describe
from sgdec.settings import Penalties, Settings
from sgdec.training.config import TrainConfig
from tests.helpers.command_lines import complaint
from tests.helpers.commands import ALL
from tests.helpers.places import ROOT

LONG = {("decode",), ("score",), ("diagnose",), ("corpus",), ("train",)}
"""Commands with sections."""
MANY = 15
"""The most options of a command without sections."""
EVERY = {(): sgdec, **ALL}


def helped(path: tuple[str, ...], width: int = 80) -> list[str]:
    """The lines of a help text on a terminal of ``width`` columns."""
    command, context = EVERY[path], None
    for depth in range(len(path) + 1):
        of = EVERY[path[:depth]]
        context = of.context_class(of, context, (path[:depth] or ("sgdec",))[-1], terminal_width=width - 2)
        context.help_option_names = ["-h", "--help"]
    assert context is not None
    return command.get_help(context).splitlines()


def own(command: click.Command) -> list[click.Option]:
    return [each for each in command.params if isinstance(each, click.Option)]


def paragraphs(command: click.Command) -> list[str]:
    return inspect.cleandoc(command.help or "").split("\n\n")


def examples(command: click.Command) -> Iterator[list[str]]:
    """The lines of each block of examples, as they are typed: those that a backslash continues are one."""
    for block in paragraphs(command):
        if block.startswith(sections.UNWRAPPED):
            yield block.removeprefix(sections.UNWRAPPED).replace("\\\n", " ").splitlines()


def test_every_command_is_in_one_section() -> None:
    listed = [name for section in SECTIONS.values() for name in section]
    files = (ROOT / "sgdec" / "cli").glob("*.py")
    defined = [file.stem for file in files if re.search(r"^def command\(", file.read_text("utf-8"), re.MULTILINE)]
    assert sorted(listed) == sorted(name.replace("_", "-") for name in defined)
    assert list(COMMANDS) == listed


def test_the_help_lists_every_command_under_its_section() -> None:
    shown: dict[str, list[str]] = {}
    for line in helped(()):
        if re.fullmatch(r"\w[^:]*:", line):
            section = shown.setdefault(line[:-1], [])
        elif shown and line:
            section.append(line.split()[0])
    assert shown.pop("Options") == ["--version", "-h,"]
    assert shown == {section: list(commands) for section, commands in SECTIONS.items()}
    assert list(shown) == list(SECTIONS)


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_every_option_of_a_long_command_is_in_a_section(path: tuple[str, ...]) -> None:
    options = own(ALL[path])
    if len(options) > MANY or path in LONG:
        without = [each.opts for each in options if not (isinstance(each, SectionedOption) and each.section)]
        assert without == [], "give these a section, by sgdec.cli.sections.option or in the annotation of a setting"


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_the_help_shows_every_option_once(path: tuple[str, ...]) -> None:
    sections = dropwhile(lambda line: not re.fullmatch(r"\w[^:]*:", line), helped(path))
    typed = [line.split("  ")[1] for line in sections if line.startswith("  -")]
    shown = Counter(flag for text in typed for flag in re.findall(r"--[\w-]+", text))
    flags = {flag for option in own(ALL[path]) for flag in option.opts if flag.startswith("--")}
    assert {flag: shown[flag] for flag in flags} == dict.fromkeys(flags, 1)


@pytest.mark.parametrize(
    ("command", "settings"),
    [("decode", Settings), ("diagnose", Settings), ("score", Settings), ("score", Penalties), ("train", TrainConfig)],
)
def test_an_option_of_a_setting_is_in_the_section_of_the_setting(command: str, settings: type) -> None:
    named = {each.name: each for each in describe(settings) if each.section}
    found = [each for each in own(ALL[command,]) if each.name in named]
    assert len(found) > 2
    for option in found:
        assert isinstance(option, SectionedOption) and option.section == named[str(option.name)].section


def test_every_setting_of_a_run_says_its_section() -> None:
    assert [each.name for of in (Settings, Penalties) for each in describe(of) if not each.section] == []


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_every_option_says_what_it_does_and_what_it_takes(path: tuple[str, ...]) -> None:
    assert [each.opts for each in own(ALL[path]) if not each.help] == []
    assert "RANGE" not in "".join(helped(path))


@pytest.mark.parametrize("path", EVERY, ids=lambda path: " ".join(path) or "sgdec")
def test_lines_fit_the_terminal(path: tuple[str, ...]) -> None:
    """On a narrow one, only commands to be typed are longer: their lines are broken by the reader's own shell."""
    assert [line for line in helped(path) if len(line) > 80] == []
    narrow = [line for line in helped(path, 60) if len(line) > 60]
    assert [line for line in narrow if not re.match(r"  (sgdec|torchrun) |      -", line)] == []
    for width in (80, 60, 52):
        assert not re.search(r"-$", "\n".join(helped(path, width)), re.MULTILINE), "an option is broken at a hyphen"


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_examples_come_first(name: str) -> None:
    _, second, *_ = paragraphs(EVERY[(name,) if name else ()])
    assert second.startswith(sections.UNWRAPPED) and f"sgdec {name}" in second


@pytest.mark.parametrize("path", EVERY, ids=lambda path: " ".join(path) or "sgdec")
def test_a_command_of_an_example_exists(path: tuple[str, ...]) -> None:
    typed = [line for block in examples(EVERY[path]) for line in block if line.startswith("sgdec ")]
    assert [(line, wrong) for line in typed if (wrong := complaint(line)) is not None] == []


def test_options_of_plugins_have_rows_and_are_in_the_usage() -> None:
    for name in ("decode", "score", "diagnose"):
        text = "\n".join(helped((name,)))
        assert "[--NAME.OPTION VALUE]..." in text.partition("\n\n")[0]
        predictors = text.partition("\nPredictors:\n")[2].partition("\n\n")[0]
        assert all(f"  --NAME.{option} " in predictors for option in ("OPTION", "weight", "renormalize"))
    assert "  --MODEL.OPTION VALUE " in "\n".join(helped(("train",)))
    assert "  --ENGINE.OPTION VALUE " in "\n".join(helped(("corpus",)))


def test_options_without_a_section_are_the_rest() -> None:
    def titles(*options: click.Option) -> list[str]:
        command = Sectioned("some", params=list(options))
        return list(command.sections(click.Context(command)))

    plain, sectioned = click.Option(["--plain"]), SectionedOption(["--own"], section="Own")
    assert titles() == ["Options"]
    assert titles(sectioned) == ["Own", "Other"]
    assert titles(plain, sectioned) == ["Options", "Own"]


@pytest.mark.parametrize(
    ("setting", "metavar", "help"),
    [
        (Option("a", "int", 0, "some number", "S"), "INT", "Some number.  [default: 0]"),
        (Option("a", "float >= 0, < 1", None, "a share", "S"), "FLOAT", "A share.  [0<=x<1]"),
        (Option("a", "float > 0, <= 1", 0.5, "a share", "S"), "FLOAT", "A share.  [default: 0.5; 0<x<=1]"),
        (Option("a", "float < 1", 0.5, "a share", "S"), "FLOAT", "A share.  [default: 0.5; x<1]"),
        (Option("a", "true | false", True, "a switch", "S"), "[true|false]", "A switch.  [default: true]"),
        (Option("a", "one | two", "one", "a choice", "S"), "[one|two]", "A choice.  [default: one]"),
        (Option("a", "text", "", "a file", "S"), "TEXT", "A file."),
    ],
)
def test_a_setting_is_shown_as_it_is_typed(setting: Option, metavar: str, help: str) -> None:
    assert sections.of_setting(setting) == {"metavar": metavar, "help": help, "section": "S"}


def test_a_long_left_column_has_its_own_line_and_marks_stay_together() -> None:
    formatter = click.HelpFormatter(width=40)
    one = [("--short", "Some words that take two lines.  [default: 1; x>=2]")]
    two = [("--much-longer-than-most", "Its text."), ("-h", "")]
    sections.write_sections(formatter, {"One": one, "Two": two})
    assert formatter.getvalue() == (
        "One:\n  --short  Some words that take two\n           lines.  [default: 1; x>=2]\n\n"
        "Two:\n  --much-longer-than-most\n           Its text.\n  -h\n"
    ).lstrip("\n")


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("Number.  [default: 1; x>=1]", "Number.  [default: 1]"),
        ("Number.  [x>0]", "Number."),
        ("Number.  [x>=2]", "Number.  [x>=2]"),
        ("Number.  [default: 5; 1<=x<=6]", "Number.  [default: 5; 1<=x<=6]"),
        ("Number.  [x>=10]", "Number.  [x>=10]"),
    ],
)
def test_only_bounds_that_are_evident_are_left_out(written: str, shown: str) -> None:
    assert sections.SELF_EVIDENT.sub("", written) == shown
