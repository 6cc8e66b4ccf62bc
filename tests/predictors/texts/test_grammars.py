"""The promise: a file that is not a grammar or a schema is refused in one line that names the file and the place, and
so is a grammar about tokens, because constraints are about text."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from sgdec_predictors.texts.grammars import BLANKS, Grammar, read_grammar

from sgdec.errors import SgdecError


def written(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def schema_of(grammar: Grammar) -> object:
    return json.JSONDecoder().raw_decode(grammar.lark.partition("%json ")[2])[0]


def test_the_name_of_a_file_says_what_it_is(tmp_path: Path) -> None:
    for name, of_schema in {
        "a.json": True, "a.lark": False, "a": False, "a.json.txt": False, "json": False
    }.items():  # fmt: skip
        assert read_grammar(written(tmp_path, name, "{}" if of_schema else "start:"), "auto").of_schema is of_schema
    assert read_grammar(written(tmp_path, "schema", "{}"), "json").of_schema
    assert not read_grammar(written(tmp_path, "b.json", 'start: "a"'), "lark").of_schema
    (tmp_path / "c.json.gz").write_bytes(gzip.compress("\ufeff{}".encode()))
    assert read_grammar(str(tmp_path / "c.json.gz")).of_schema


def test_the_options_of_a_schema_are_its_own_first(tmp_path: Path) -> None:
    plain = read_grammar(written(tmp_path, "a.json", '{"type": "null"}'))
    assert schema_of(plain) == {"type": "null", "x-guidance": {"whitespace_pattern": BLANKS, "lenient": False}}
    own = read_grammar(written(tmp_path, "b.json", '{"x-guidance": {"whitespace_flexible": true}}'), lenient=True)
    assert schema_of(own) == {"x-guidance": {"whitespace_flexible": True, "lenient": True}}
    assert schema_of(read_grammar(written(tmp_path, "c.json", "true"), whitespace="compact")) == {
        "x-guidance": {"whitespace_flexible": False, "lenient": False}
    }


NOT_USABLE = {
    ("a.lark", " \n"): "a.lark: empty.",
    ("a.json", ""): "a.json: empty.",
    ("a.json", '{\n "type": }'): "a.json: line 2, column 10: not JSON (Expecting value).",
    ("a.json", "[1]"): "a.json: [1] is not a JSON schema.",
    ("a.json", "false"): "a.json: false is not a JSON schema.",
    ("a.json", '{"x-guidance": 3}'): "a.json: 'x-guidance' must be an object",
    ("a.json", "[" * 5000): "a.json: lists and objects lie more than 100 deep",
    ("a.json", '{"maximum": ' + "9" * 5000 + "}"): "a.json: Exceeds the limit",
    ("a.lark", '\n {"type": "null"}'): "a.lark: begins with '{'.",
    ("a.lark", 'start: "a"\n  <[3-5]>'): "a.lark: line 2, column 3: <[ is about tokens",
    ("a.lark", "start: <|end|>"): "a.lark: line 1, column 8: <| is about tokens",
    ("a.lark", "start: x\nx[max_tokens=3]: /a/"): "a.lark: line 2, column 3: max_tokens is about tokens",
}


@pytest.mark.parametrize(("name", "text"), NOT_USABLE)
def test_what_is_no_grammar_is_refused_with_its_place(tmp_path: Path, name: str, text: str) -> None:
    with pytest.raises(SgdecError) as found:
        read_grammar(written(tmp_path, name, text))
    assert str(found.value).startswith(f"{tmp_path}/{NOT_USABLE[name, text]}")
    assert "\n" not in str(found.value) and str(found.value).endswith(".")


@pytest.mark.parametrize(
    "text", ['"<[3]>"', "/max_tokens<[/", "x // <[3]>\nx: /a/", '"\\"<|" # max_tokens', "/\\/<|/"]
)
def test_text_comments_and_expressions_can_look_like_tokens(tmp_path: Path, text: str) -> None:
    assert read_grammar(written(tmp_path, "a.lark", f"start: {text}")).lark.startswith(f"start: {text}\n")


def test_errors_of_llguidance_are_one_line_with_file_and_place() -> None:
    lark, schema = Grammar("", "g.lark", of_schema=False), Grammar("", "s.json", of_schema=True)
    assert str(lark.error('at 3(8): unknown name: "x"\n 3 | y: x')) == 'g.lark: line 3, column 8: unknown name: "x".'
    assert str(lark.error("no start rule found")) == "g.lark: no start rule found."
    message = 'at 1(8): failed to compile JSON schema: Unimplemented keys: ["if", "not"]\n   1 | '
    assert str(schema.error(message)) == (
        "s.json: keywords that are not supported: if, not. Remove them from the schema, or ignore them with "
        "--grammar.lenient true."
    )
