"""The promise of options: a constructor is the whole configuration, and a wrong value is one clear line."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from inspect import Parameter
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any, Literal

import pydantic.dataclasses
import pytest
from pydantic import Field

from sgdec.errors import SgdecError, UsageError
from sgdec.plugins.host import Entry, Host
from sgdec.plugins.options import (
    Option,
    configure,
    describe,
    load_config,
    merge_options,
    refuse_unused,
    separate_dotted,
    split_config,
    split_dotted,
)

if TYPE_CHECKING:
    from sgdec.context import Context
    from sgdec.protocol import BatchPredictor


class Everything:
    """A constructor with each kind of parameter."""

    def __init__(
        self,
        inner: BatchPredictor,
        path: Annotated[str, Field(description="a lattice per sentence,\n   such as '{id}.fst'.")],
        context: Context,
        *,
        size: Annotated[int, Field(ge=1, lt=100, description="hypotheses kept")] = 4,
        alpha: float = 0.0,
        recombine: bool = False,
        normalize: Literal["gnmt", "length"] = "gnmt",
        words: Path | None = None,
        lambdas: Annotated[list[float] | None, Field(description="one a feature")] = None,
        tokens: Sequence[int] = (),
    ) -> None: ...


GOOD: dict[str, object] = {"path": "a.fst"}


@dataclass
class AsDataclass:
    size: Annotated[int, Field(ge=1)] = 3


class Inherits(AsDataclass):
    pass


class Bare:
    pass


class Loose:
    def __init__(self, anything=None, *args: int, **rest: int) -> None:  # type: ignore[no-untyped-def]
        ...


@pytest.mark.parametrize(
    ("option", "text", "value"),
    [
        ("size", "7", 7),
        ("size", 7, 7),
        ("alpha", "-0.5", -0.5),
        ("recombine", "true", True),
        ("recombine", "false", False),
        ("recombine", True, True),
        ("normalize", "length", "length"),
        ("words", "w.txt", Path("w.txt")),
        ("lambdas", "0.5, 1,2", [0.5, 1.0, 2.0]),
        ("lambdas", "0.5", [0.5]),
        ("lambdas", [1, 2.5], [1.0, 2.5]),
        ("tokens", "3,4", [3, 4]),
        ("path", "a,b", "a,b"),
    ],
)
def test_values_become_what_the_constructor_asks_for(option: str, text: object, value: object) -> None:
    converted = configure(Everything, {**GOOD, option: text}, name="x")[option]
    assert converted == value
    assert type(converted) is type(value)


def test_only_what_was_given_is_passed_on() -> None:
    assert configure(Everything, GOOD, name="x") == GOOD


@pytest.mark.parametrize(
    ("option", "given", "message"),
    [
        (
            "size",
            "huge",
            "--x.size: 'huge' should be an integer "
            "(int >= 1, < 100: hypotheses kept).",
        ),
        (
            "size",
            "0",
            "--x.size: '0' should be at least 1 (int >= 1, < 100: hypotheses kept).",
        ),
        ("size", 2.5, "--x.size: 2.5 should be an integer"),
        (
            "alpha",
            "a",
            "--x.alpha: 'a' should be a number (float).",
        ),
        ("size", "1_0", "--x.size: '1_0' should be a number without underscores (int >= 1, < 100: hypotheses kept)."),
        ("alpha", "1_0.5", "--x.alpha: '1_0.5' should be a number without underscores (float)."),
        ("size", True, "--x.size: True should be a number (int >= 1, < 100: hypotheses kept)."),
        ("alpha", False, "--x.alpha: False should be a number (float)."),
        ("lambdas", [1, True], "--x.lambdas: True should be a number"),
        ("lambdas", "1, 2_0", "--x.lambdas: '2_0' should be a number without underscores"),
        ("alpha", "nan", "--x.alpha: nan should be a finite number (float)."),
        ("alpha", "inf", "--x.alpha: inf should be a finite number (float)."),
        ("alpha", float("-inf"), "--x.alpha: -inf should be a finite number (float)."),
        ("lambdas", "1,1e999", "--x.lambdas: inf should be a finite number"),
        ("path", "a\0b", "--x.path: 'a\\x00b' has a NUL character"),
        ("recombine", "perhaps", "--x.recombine: 'perhaps' should be true or false (true | false)."),
        ("normalize", "GNMT", "--x.normalize: 'GNMT' should be 'gnmt' or 'length' (gnmt | length)."),
        ("lambdas", "1,b", "--x.lambdas: 'b' should be a number"),
        ("path", 5, "--x.path: 5 should be text"),
    ],
)
def test_a_value_that_does_not_fit_says_what_was_given_and_expected(option: str, given: object, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        configure(Everything, {**GOOD, option: given}, name="x")
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_an_unknown_option_names_the_nearest_and_all_others() -> None:
    with pytest.raises(UsageError, match=r"no option --x.sizes. Did you mean '--x.size'\? Available: --x.alpha, "):
        configure(Everything, {**GOOD, "sizes": "3"}, name="x")


def test_a_missing_option_says_what_it_is() -> None:
    expected = r"^--x.path is missing. Give --x.path VALUE \(text: a lattice per sentence, such as '{id}.fst'\)\.$"
    with pytest.raises(UsageError, match=expected):
        configure(Everything, {}, name="x")


class Opaque:
    """A type of which pydantic knows nothing."""


def test_a_type_that_no_text_can_become_is_one_line() -> None:
    class Mine:
        def __init__(self, model: Opaque) -> None: ...

    with pytest.raises(SgdecError, match=r"^--x.model: 'a' cannot become a value of the type 'opaque', which o"):
        configure(Mine, {"model": "a"}, name="x")


@pytest.mark.parametrize("name", ["self", "inner", "context"])
def test_what_the_framework_gives_is_never_an_option(name: str) -> None:
    assert name not in [option.name for option in describe(Everything)]
    with pytest.raises(UsageError, match=f"no option --x.{name}"):
        configure(Everything, {**GOOD, name: "1"}, name="x")


def test_describe_tells_types_defaults_and_help() -> None:
    assert describe(Everything) == [
        Option("path", "text", Parameter.empty, "a lattice per sentence, such as '{id}.fst'"),
        Option("size", "int >= 1, < 100", 4, "hypotheses kept"),
        Option("alpha", "float", 0.0, ""),
        Option("recombine", "true | false", False, ""),
        Option("normalize", "gnmt | length", "gnmt", ""),
        Option("words", "path", None, ""),
        Option("lambdas", "float,...", None, "one a feature"),
        Option("tokens", "int,...", (), ""),
    ]
    assert [option.name for option in describe(Everything) if option.required] == ["path"]


@pytest.mark.parametrize("entry", Host(autoload=False).names(), ids=lambda entry: f"{entry.kind}.{entry.name}")
def test_every_option_of_a_bundled_plugin_has_a_description(entry: Entry) -> None:
    options = describe(Host(autoload=False).load(entry.kind, entry.name))
    assert [option.name for option in options if not option.description] == []


def test_inherited_and_generated_constructors_count_too() -> None:
    assert [option.name for option in describe(Inherits)] == ["size"]
    assert configure(Inherits, {"size": "5"}, name="x") == {"size": 5}
    assert describe(Bare) == []
    with pytest.raises(UsageError, match=r"no option --x.size. Available: none."):
        configure(Bare, {"size": "5"}, name="x")


def test_a_field_means_what_it_means_where_it_was_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    """`Size` is known in the module of the base class alone; `Path` means something else there."""
    base = ModuleType("elsewhere")
    monkeypatch.setitem(sys.modules, base.__name__, base)
    written = (
        "from __future__ import annotations\nfrom dataclasses import dataclass\nSize, Path = int, float\n"
        "@dataclass(kw_only=True)\nclass Base:\n    size: Size = 4\n    alpha: Path = 0.0\n"
    )
    exec(written, vars(base))

    @dataclass
    class Leaf(base.Base):  # type: ignore[name-defined, misc]
        width: Annotated[int, Field(ge=1)] = 2

    assert [(option.name, option.type) for option in describe(Leaf)] == [
        ("width", "int >= 1"),
        ("size", "int"),
        ("alpha", "float"),
    ]


def test_a_dataclass_of_pydantic_has_its_fields_as_options() -> None:
    """Its constructor takes ``*args``; a subclass with a constructor of its own has the parameters of that one."""

    @pydantic.dataclasses.dataclass
    class Checked:
        size: Annotated[int, Field(ge=1, description="kept a step")] = 4

    class Own(Checked):
        def __init__(self, width: int = 2) -> None:
            super().__init__(width)

    assert describe(Checked) == [Option("size", "int >= 1", 4, "kept a step")]
    assert configure(Checked, {"size": "5"}, name="x") == {"size": 5}
    assert [option.name for option in describe(Own)] == ["width"]


def test_parameters_without_a_type_take_anything_and_stars_are_no_options() -> None:
    assert describe(Loose) == [Option("anything", "value", None, "")]
    assert configure(Loose, {"anything": "5"}, name="x") == {"anything": "5"}


def test_an_annotation_that_means_nothing_at_run_time_is_reported() -> None:
    def constructor(self: Any, size: NoSuchType = 1) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    cls = type("Odd", (), {"__init__": constructor})
    with pytest.raises(SgdecError, match="Odd: unreadable annotations of __init__: name 'NoSuchType'"):
        describe(cls)


def test_the_last_of_equal_options_counts() -> None:
    assert split_dotted(["--a.b", "1", "--a.b=2"]) == {"a": {"b": "2"}}


def test_a_value_may_hold_dots_commas_and_equal_signs() -> None:
    assert split_dotted(["--a.b=c.d=e,f", "--a.c", "-1.5"]) == {"a": {"b": "c.d=e,f", "c": "-1.5"}}


@pytest.mark.parametrize(
    "args",
    [
        ["--beam.size"],
        ["--beam.size", "--nbest"],
        ["--nbest", "1"],
        ["x"],
        ["--.size", "1"],
        ["--beam.", "1"],
    ],
)
def test_what_is_no_plugin_option_is_refused(args: list[str]) -> None:
    with pytest.raises(UsageError, match=r"--NAME.OPTION VALUE|needs a value"):
        split_dotted(args)


def test_two_hyphens_end_the_plugin_options() -> None:
    rest, dotted = separate_dotted(["--a.b", "1", "--", "--c.d", "2"])
    assert rest == ["--", "--c.d", "2"]
    assert dotted == ["--a.b", "1"]


def test_a_configuration_file_holds_options_of_the_run_and_a_table_a_plugin(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text(
        'predictors = "nmt,fst"\nmax-length-factor = 1.5\nbeam.size = 8\n'
        '[fst]\npath = "{id}.fst"\nuse-weights = false\n[nmt]\nweight = 0.5\n'
    )
    run, plugins = split_config(load_config(path))
    assert run == {"predictors": "nmt,fst", "max_length_factor": 1.5}
    assert plugins == {
        "beam": {"size": 8},
        "fst": {"path": "{id}.fst", "use_weights": False},
        "nmt": {"weight": 0.5},
    }


def test_the_command_line_wins_over_the_file() -> None:
    merged = merge_options({"fst": {"path": "a", "use_weights": False}}, split_dotted(["--fst.path", "b"]))
    assert merged == {"fst": {"path": "b", "use_weights": False}}


@pytest.mark.parametrize(("content", "message"), [(b"a = \n", "line 1"), (b'a = "\xff"', "utf-8"), (None, "No such")])
def test_a_bad_configuration_file_is_one_line(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "run.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=message) as caught:
        load_config(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_options_for_a_plugin_that_the_run_does_not_use_are_refused() -> None:
    refuse_unused(["fst"], ["fst", "beam"])
    with pytest.raises(UsageError, match=r"options for 'fts', which this run does not use. Did you mean 'fst'\?"):
        refuse_unused(["fts"], ["fst", "beam"])
