"""The promise of the schema: the file in the documentation is the one that the reader uses, and is complete."""

from __future__ import annotations

import json
import re
from typing import Any, get_args

from sgdec.trace import Fate, lines, reading
from tests.helpers.places import ROOT

FILE = ROOT / "docs" / "_static" / "trace.schema.json"


def test_the_file_is_the_schema() -> None:
    written = json.dumps(lines.json_schema(), indent=2) + "\n"
    command = "import json; from sgdec.trace.lines import json_schema; print(json.dumps(json_schema(), indent=2))"
    assert FILE.read_text(encoding="utf-8") == written, (
        f"{FILE.name} is not the schema of sgdec.trace.lines; write it again:\n"
        f"python -c {command!r} > {FILE.relative_to(ROOT)}"
    )


def test_every_line_and_every_field_is_described() -> None:
    definitions: dict[str, Any] = lines.json_schema()["$defs"]
    assert {line.__name__ for line in get_args(lines.Line)} <= set(definitions)
    for name, definition in definitions.items():
        assert definition["description"], name
        for field, about in definition["properties"].items():
            assert "description" in about or field == "event", f"{name}.{field}"


def test_the_reader_reads_this_version() -> None:
    assert lines.json_schema()["$defs"]["HeaderLine"]["properties"]["version"]["const"] == reading.VERSION


def test_the_lines_that_the_guide_shows_are_lines_of_a_trace() -> None:
    text = (ROOT / "docs" / "howto" / "traces.md").read_text(encoding="utf-8")
    shown = [line for line in text.splitlines() if line.startswith("{")]
    events = [lines.SCHEMA.validate_json(line)["event"] for line in shown]
    assert events[0] == "trace" and events[-1] == "end" and {"pieces", "batch", "sentence", "expand"} <= set(events)


def test_the_guide_explains_every_fate() -> None:
    text = (ROOT / "docs" / "howto" / "traces.md").read_text(encoding="utf-8")
    table = text.partition("## What became of a child")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| `([\w ]+)` \|", table, re.MULTILINE)) == set(Fate)
