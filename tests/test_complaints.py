"""The promise of errors about values: plain words, none of pydantic's own phrases, whatever the value is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails
from pydantic_core.core_schema import ErrorType

from sgdec.checkpoints.files import write_json
from sgdec.complaints import PHRASES, complaint
from sgdec.errors import SgdecError, UsageError
from sgdec.plugins.host import Host
from sgdec.plugins.options import configure, describe, parameters
from sgdec.settings import Settings
from sgdec.trace.lines import SCHEMA
from sgdec.training.config import TrainConfig
from sgdec.training.run.progress import TrainingProgress

PYDANTICS = re.compile(
    r"\binput|\bvalid\b|\bfield\b|permitted|unable to|\binstance of|dictionary|greater than|less than|string should|"
    r"list should|validation|keyword argument|\bNone\b|unsuitable|\(\d"
)
"""Words of pydantic's messages, which say nothing to those who know no Python."""
VALUES: list[Any] = [
    None, True, "", "x", "1_0", "1.5", "9" * 5000, 0, -1, 2.5, 1e300, float("nan"), float("inf"), 2**70, [], ["x"],
    [[]], [1, 2.5], {}, {"x": 1}, {1: 1}, b"\xff", "\ud800",
]  # fmt: skip
OF_THIRD_PARTIES = re.compile(
    "date|time|url|uuid|decimal|fraction|complex|bytes|counter|deque|enum|callable|instance|subclass|attribute|frozen|"
    "named_tuple|model|ordered|positional|keyword|argument|json_type|needs_python|recursion|iteration|default|"
    "sentinel|ellipsis|dataclass_exact|hashable|ascii|assertion|value_error"
)
"""Types of errors that only other annotations, or a program, can cause."""


def of_options(cls: type[Any]) -> Iterator[str]:
    """The errors of a class's options for all the values."""
    needed = {option.name: None for option in describe(cls) if option.required}
    for option in describe(cls):
        for value in VALUES:
            try:
                configure(cls, {**needed, option.name: value}, name="it")
            except SgdecError as error:
                yield str(error)


def words_of(line: str) -> str:
    """A line without the values that it quotes and the description of the option."""
    return re.sub(r"\(.*\)|'[^']*'|\bb'.*?'|^--[\w.-]+: \S+ ", "", line)


@pytest.mark.parametrize("kind", ["predictor", "decoder", "model", "engine"])
def test_options_of_plugins(kind: str) -> None:
    host = Host(autoload=False)
    classes = [host.load(kind, entry.name) for entry in host.names(kind)]
    errors = [error for cls in classes for error in of_options(cls)]
    assert errors or not any(map(parameters, classes))
    assert [error for error in errors if PYDANTICS.search(words_of(error))] == []


def test_settings_of_a_run() -> None:
    errors = list(of_options(Settings))
    assert errors and [error for error in errors if PYDANTICS.search(words_of(error))] == []


def test_settings_of_training() -> None:
    good = {"train": ("a", "b"), "valid": ("a", "b"), "tokenizer": ("t",), "output": "out"}
    errors = []
    for name in [field.name for field in fields(TrainConfig)] + ["widht"]:
        for value in VALUES:
            try:
                TrainConfig(**{**good, name: value})
            except UsageError as error:
                errors.append(str(error))
    assert "--widht is unknown." in errors
    assert [error for error in errors if PYDANTICS.search(words_of(error))] == []
    with pytest.raises(UsageError, match=r"^--output is missing\.$"):
        TrainConfig(**{key: value for key, value in good.items() if key != "output"})


@pytest.mark.slow
def test_the_progress_of_a_run(tmp_path: Path) -> None:
    file = tmp_path / "progress.json"
    for name in [field.name for field in fields(TrainingProgress)] + ["more"]:
        for value in (None, "x", -1, 2.5, 2**70, ["x"], [-1], {}):
            write_json(file, {name: value})
            try:
                TrainingProgress.read(file)
            except SgdecError as error:
                assert not PYDANTICS.search(str(error).replace(str(file), "")), error
    write_json(file, {"step": "x"})
    with pytest.raises(SgdecError, match=r"progress\.json: step should be an integer\. It is damaged, or another"):
        TrainingProgress.read(file)


def errors_of(schema: TypeAdapter[Any], value: Any) -> list[ErrorDetails]:
    try:
        schema.validate_python(value)
    except ValidationError as error:
        return error.errors()
    return []


def test_lines_of_a_trace() -> None:
    """Each key of each kind of line, with each value, and without it."""
    found: list[ErrorDetails] = []
    for name, definition in SCHEMA.json_schema()["$defs"].items():
        if "event" in (keys := definition["properties"]):
            line = dict.fromkeys(keys, None) | {"event": keys["event"]["const"]}
            for key in keys:
                found += errors_of(SCHEMA, {other: value for other, value in line.items() if other != key})
                for value in VALUES:
                    found += errors_of(SCHEMA, {**line, key: value, name: 1})
    kinds = {error["type"] for error in found}
    assert {"missing", "extra_forbidden", "int_type", "union_tag_invalid", "string_type"} <= kinds <= PHRASES.keys()
    said = [complaint("it", error) for error in found]
    assert [line for line in said if PYDANTICS.search(words_of(line))] == []


def test_every_other_type_of_error_is_one_that_only_other_annotations_have() -> None:
    others = set(get_args(ErrorType)) - PHRASES.keys() - {"string_sub_type"}  # in strict mode, before pydantic 2.14
    assert [name for name in sorted(others) if not OF_THIRD_PARTIES.search(name)] == []


@pytest.mark.parametrize("name", sorted(PHRASES))
def test_a_phrase_needs_no_more_than_the_context_that_pydantic_gives(name: str) -> None:
    given = partial(dict.fromkeys, [
        "discriminator", "tag", "expected_tags", "gt", "ge", "lt", "le", "multiple_of", "expected", "min_length",
        "max_length", "pattern", "actual_length",
    ])  # fmt: skip
    line = complaint("it", {"type": name, "ctx": given("9")})
    assert line.startswith("it ") and "{" not in line and not PYDANTICS.search(line)
