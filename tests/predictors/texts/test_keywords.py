"""The promise: the page on constraints says of every keyword of JSON Schema, and of every extension of Lark that it
lists, what becomes of it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from sgdec_predictors.texts.grammars import read_grammar
from sgdec_predictors.texts.matchers import Language, Tokens

from sgdec.context import EOS
from sgdec.errors import SgdecError
from tests.helpers.characters import CHARACTERS
from tests.helpers.places import ROOT

pytest.importorskip("llguidance")

PAGE = (ROOT / "docs" / "howto" / "constraints.md").read_text(encoding="utf-8")
TOKENS = Tokens(CHARACTERS.spelling, CHARACTERS.size)


class Case(NamedTuple):
    schema: dict[str, Any]
    allowed: list[Any]
    forbidden: list[Any]


INT: dict[str, Any] = {"type": "integer"}
AB = {"type": "object", "properties": {"a": INT, "b": INT}}
ENFORCED = {
    "type": Case(INT, [1], ["a"]),
    "enum": Case({"enum": [1, "a"]}, [1, "a"], [2]),
    "const": Case({"const": 1}, [1], [2]),
    "properties": Case(AB, [{"a": 1}], [{"a": "x"}]),
    "required": Case({**AB, "required": ["a"]}, [{"a": 1}], [{}]),
    "additionalProperties": Case({**AB, "additionalProperties": False}, [{"a": 1}], [{"c": 1}]),
    "patternProperties": Case({"type": "object", "patternProperties": {"^a": INT}}, [{"ab": 1}], [{"ab": "x"}]),
    "minProperties": Case({"type": "object", "minProperties": 1}, [{"a": 1}], [{}]),
    "maxProperties": Case({"type": "object", "maxProperties": 1}, [{"a": 1}], [{"a": 1, "b": 1}]),
    "items": Case({"type": "array", "items": INT}, [[1]], [["a"]]),
    "prefixItems": Case({"type": "array", "prefixItems": [INT], "items": False}, [[1]], [["a"], [1, 1]]),
    "minItems": Case({"type": "array", "minItems": 1}, [[1]], [[]]),
    "maxItems": Case({"type": "array", "maxItems": 1}, [[1]], [[1, 2]]),
    "minimum": Case({**INT, "minimum": 3}, [3], [2]),
    "maximum": Case({**INT, "maximum": 3}, [3], [4]),
    "exclusiveMinimum": Case({**INT, "exclusiveMinimum": 3}, [4], [3]),
    "exclusiveMaximum": Case({**INT, "exclusiveMaximum": 3}, [2], [3]),
    "multipleOf": Case({**INT, "multipleOf": 3}, [9], [10]),
    "minLength": Case({"type": "string", "minLength": 2}, ["ab"], ["a"]),
    "maxLength": Case({"type": "string", "maxLength": 2}, ["aé"], ["abc"]),
    "pattern": Case({"type": "string", "pattern": "^a+$"}, ["aa"], ["b"]),
    "format": Case({"type": "string", "format": "date"}, ["2024-02-03"], ["2024-13-03"]),
    "allOf": Case({"allOf": [{**INT, "minimum": 2}, {**INT, "maximum": 4}]}, [3], [1, 5]),
    "anyOf": Case({"anyOf": [INT, {"type": "null"}]}, [1, None], ["a"]),
    "oneOf": Case({"oneOf": [INT, {"type": "null"}]}, [1, None], ["a"]),
    "$ref": Case({"type": "array", "items": {"$ref": "#"}}, [[[]]], [[1]]),
    "$defs": Case({"$ref": "#/$defs/i", "$defs": {"i": INT}}, [1], ["a"]),
    "$anchor": Case({"$ref": "#here", "$defs": {"i": {"$anchor": "here", **INT}}}, [1], ["a"]),
}
REFUSED: dict[str, Any] = {
    "not": INT, "if": INT, "then": INT, "else": INT, "contains": INT, "minContains": 1, "maxContains": 1,
    "uniqueItems": True, "propertyNames": {"pattern": "a"}, "dependentRequired": {"a": ["b"]},
    "dependentSchemas": {"a": AB}, "unevaluatedProperties": False, "unevaluatedItems": False,
    "$dynamicRef": "#a", "$dynamicAnchor": "a",
}  # fmt: skip
WITHOUT_EFFECT: dict[str, Any] = {
    "title": "x", "description": "x", "default": 3, "examples": [1], "deprecated": True, "readOnly": True,
    "writeOnly": True, "$comment": "x", "$id": "http://example.org/x", "contentEncoding": "base64",
    "contentMediaType": "application/json", "contentSchema": INT,
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$vocabulary": {"https://json-schema.org/draft/2020-12/vocab/core": True},
}  # fmt: skip
LARK: dict[str, tuple[list[str], list[str]] | None] = {
    "X: /[a-z]+/ & ~/.*no.*/": (["ab"], ["ano"]),
    'start: "v=" %json {"type": "integer"}': (["v=3"], ["v=x", "3"]),
    'start: %regex {"substring_words": "ab cd ef"}': (["cd ef", "ab "], ["ab ef", "d e"]),
    "x[lazy]: /a+/": (["a"], ["aa"]),
    'x[suffix=";"]: /[a-z]*/': (["ab;"], ["ab", "ab;c;"]),
    'x[temperature=0.5]: "a"': (["a"], ["b"]),
    "x[max_tokens=3]: /a+/": None,
    "start: <[3-5]>": None,
}
"""What is allowed and what is not; None = the extension is refused."""


def language(folder: Path, text: str, name: str) -> Language:
    (folder / name).write_text(text, encoding="utf-8")
    return Language(TOKENS, read_grammar(str(folder / name)))


def accepts(language: Language, text: str) -> bool:
    prefix = language.empty
    for token in CHARACTERS.encode(text):
        prefix = prefix.then(token)
    return prefix.row().get(EOS) == 0.0


def row(title: str) -> set[str]:
    """The names in the row of the page's table that ends with this cell."""
    (cells,) = re.findall(rf"^\| (.*) \| {title} \|$", PAGE, re.MULTILINE)
    return set(re.findall("`(.*?)`", cells))


def test_the_page_lists_every_keyword_where_it_belongs() -> None:
    assert row("enforced") == set(ENFORCED)
    assert row("refused, by name") == set(REFUSED)
    assert row("allowed without effect, as keywords that JSON Schema does not know") == set(WITHOUT_EFFECT)


@pytest.mark.slow
@pytest.mark.parametrize("keyword", ENFORCED)
def test_enforced_keywords_decide(keyword: str, tmp_path: Path) -> None:
    schema, allowed, forbidden = ENFORCED[keyword]
    found = language(tmp_path, json.dumps(schema), "s.json")
    for values, expected in ((allowed, True), (forbidden, False)):
        for value in values:
            assert accepts(found, json.dumps(value, separators=(",", ":"), ensure_ascii=False)) is expected, value


@pytest.mark.parametrize("keyword", REFUSED)
def test_refused_keywords_are_named(keyword: str, tmp_path: Path) -> None:
    with pytest.raises(SgdecError, match=f"keywords that are not supported: {re.escape(keyword)}\\."):
        language(tmp_path, json.dumps({keyword: REFUSED[keyword]}), "s.json")


@pytest.mark.parametrize("keyword", [*WITHOUT_EFFECT, "unknown"])
def test_keywords_without_effect_change_nothing(keyword: str, tmp_path: Path) -> None:
    schema = {keyword: WITHOUT_EFFECT.get(keyword, 1), "type": "string"}
    found = language(tmp_path, json.dumps(schema), "s.json")
    assert accepts(found, '"é{"') and not accepts(found, "1")


FORMATS = {"date", "time", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "uri", "uuid"}
OTHER_FORMATS = {
    "idn-email", "idn-hostname", "iri", "iri-reference", "json-pointer", "regex", "relative-json-pointer",
    "uri-reference", "uri-template", "anything", "unknown",
}  # fmt: skip


def test_the_page_lists_the_formats(tmp_path: Path) -> None:
    (said,) = re.findall(r"`format` is enforced for (.*?);", PAGE, re.DOTALL)
    assert set(re.findall("`(.*?)`", said)) == FORMATS
    for name in FORMATS:
        assert not accepts(language(tmp_path, json.dumps({"type": "string", "format": name}), "s.json"), '"? ?"')
    for name in OTHER_FORMATS:
        for schema in ({"type": "string"}, {"type": "integer"}, {}):
            with pytest.raises(SgdecError, match=f"formats that are not supported: {name}\\."):
                language(tmp_path, json.dumps({**schema, "format": name}), "s.json")


DETAILS = {
    "order": (AB, ['{"a":1,"b":2}', '{"a":1,"z":2}'], ['{"b":2,"a":1}', '{"z":2,"a":1}']),
    "properties in order": (
        {**AB, "required": ["d", "c", "b"]},
        ['{"b":1,"d":1,"c":1}', '{"a":1,"b":1,"d":1,"c":1,"z":1}'],
        ['{"b":1,"c":1,"d":1}', '{"d":1,"c":1,"b":1}', '{"b":1,"z":1,"d":1,"c":1}', '{"d":1,"c":1}'],
    ),
    "integers": (INT, ["1000", "-1"], ["1000.0", "1e3", "01"]),
    "the integer of an enumeration": ({"enum": [1000.0]}, ["1000"], ["1000.0", "1e3"]),
    "numbers": ({"type": "number"}, ["1000", "1000.0", "1e3", "0.50"], ["01", "1."]),
    "numbers with bounds": ({"type": "number", "minimum": 0}, ["1000", "1000.0", "0.50"], ["1e3"]),
    "escapes": ({"type": "string"}, [r'"\n"', r'"\""', '"/"'], [r'"\u0041"', r'"\/"', '"\n"']),
    "names that repeat": (AB, ['{"a":1,"z":2,"z":3}'], ['{"a":1,"a":2}']),
    "unanchored": ({"type": "string", "pattern": "a"}, ['"bab"'], ['"b"']),
}


@pytest.mark.parametrize("detail", DETAILS)
def test_the_details_are_as_the_page_says(detail: str, tmp_path: Path) -> None:
    schema, allowed, forbidden = DETAILS[detail]
    found = language(tmp_path, json.dumps(schema), "s.json")
    assert [text for text in [*allowed, *forbidden] if accepts(found, text)] == allowed


def test_one_of_is_refused_where_schemas_overlap(tmp_path: Path) -> None:
    schema = {"oneOf": [{**INT, "minimum": 2}, {**INT, "maximum": 4}]}
    with pytest.raises(SgdecError, match="oneOf is supported only if"):
        language(tmp_path, json.dumps(schema), "s.json")
    found = language(tmp_path, json.dumps({**schema, "x-guidance": {"coerce_one_of": True}}), "s.json")
    assert accepts(found, "3")


def test_what_a_regular_expression_cannot_have_is_said(tmp_path: Path) -> None:
    with pytest.raises(SgdecError, match=r"s\.json: regex parse error: look-around, .* is not supported"):
        language(tmp_path, json.dumps({"type": "string", "pattern": "^(?=a)"}), "s.json")
    with pytest.raises(SgdecError, match=r"g\.lark: line 1, column 8: .*: backreferences are not supported"):
        language(tmp_path, r"start: /(a)\1/", "g.lark")


@pytest.mark.parametrize("extension", LARK)
def test_extensions_of_lark_do_what_the_page_says(extension: str, tmp_path: Path) -> None:
    assert f"\n| `{extension}` |" in PAGE
    name = extension.partition(":")[0].partition("[")[0]
    lark = extension if name == "start" else f"start: {name}\n{extension}"
    if (cases := LARK[extension]) is None:
        with pytest.raises(SgdecError, match="is about tokens"):
            language(tmp_path, lark, "g.lark")
        return
    found = language(tmp_path, lark, "g.lark")
    assert [text for text in [*cases[0], *cases[1]] if accepts(found, text)] == cases[0]


PLAIN = {
    'start: "a"~2..3': (["aa", "aaa"], ["a"]),
    'start: "a"{2,3}': (["aa", "aaa"], ["a"]),
    'start: "a".."c"': (["b"], ["d"]),
    'start: "a"i?': (["A", "a", ""], ["b"]),
    'start: "a" "b"\n%ignore / +/': (["a b", "ab"], ["ba"]),
    "%import common.INT\nstart: INT": (["12"], ["a"]),
}


@pytest.mark.parametrize("lark", PLAIN)
def test_plain_lark_is_read(lark: str, tmp_path: Path) -> None:
    found = language(tmp_path, lark, "g.lark")
    assert [text for text in [*PLAIN[lark][0], *PLAIN[lark][1]] if accepts(found, text)] == PLAIN[lark][0]
