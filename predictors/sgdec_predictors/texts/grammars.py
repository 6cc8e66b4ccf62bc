"""Grammars from files: Lark grammars and JSON schemas, in the form that llguidance compiles.

A JSON schema becomes a Lark grammar of one line, ``start: %json {...}``, with blanks around it where blanks are
flexible: JSON allows them there, and many models begin with a blank or end with a line end. In both forms the option
``no_forcing`` is appended. Without it, llguidance allows only the tokens that its own tokenizer would choose for text
that is forced; with it, every token whose text can follow.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Literal, TypeAlias

from sgdec.errors import SgdecError
from sgdec.files import parse_json, read_lines

Kind: TypeAlias = Literal["auto", "lark", "json"]
Whitespace: TypeAlias = Literal["compact", "spaced", "flexible"]
BLANKS = r"[ \t\r\n]{1,64}"
"""Flexible blanks: those of JSON. They are limited so that no search continues with blanks for ever; an indent of
four blanks reaches 15 levels."""
SEPARATORS: dict[Whitespace, dict[str, Any]] = {
    "compact": {"whitespace_flexible": False},
    "spaced": {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "},
    "flexible": {"whitespace_pattern": BLANKS},
}
"""llguidance's options for the blanks between the parts of a JSON text."""
DIRECTIVES = '\n%llguidance {"no_forcing": true}\n'
NOT_OF_TEXT = re.compile(
    r'"(?:\\.|[^"\\\n])*" | /(?:\\.|[^/\\\n])+/ | //[^\n]* | \#[^\n]* | (?P<tokens> <\[ | <\| | \bmax_tokens\b)',
    re.VERBOSE,
)
"""Strings, regular expressions and comments of a Lark grammar; and the constructs that are about tokens."""
MOST = 1 << 19
"""The most characters of a grammar: llguidance follows rules by recursion, at some 400 bytes of stack for each."""
PLACE = re.compile(r"(?:at )?(\d+)\((\d+)\): (.)")
"""The beginning of llguidance's errors about a place in the grammar: line, column, message."""
EXPRESSION = re.compile("^error: (.*)$", re.MULTILINE)
LIMITED = re.compile("too (many|big|large|complex)|limit|fuel")
LESS_WORK = "Simplify the grammar, or raise --grammar.effort."
ONE_OF = "oneOf constraints are not supported"
SCHEMA = "failed to compile JSON schema: "
FORMATS = {"date", "time", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "uri", "uuid"}
"""Those that llguidance enforces. Others it refuses for strings, but not the format called ``unknown``, and ignores
for other types."""
WITH_SCHEMAS = ("allOf", "anyOf", "oneOf", "items", "prefixItems", "additionalProperties")
WITH_NAMED_SCHEMAS = ("properties", "patternProperties", "$defs", "definitions")


@dataclass(frozen=True)
class Grammar:
    """A grammar as llguidance reads it."""

    lark: str
    path: str
    """The file that it is from."""
    of_schema: bool
    literals: str = ""
    """The characters of its literal texts, as far as they are known."""
    ignored_formats: tuple[str, ...] = ()
    """The formats of a lenient schema that are not enforced."""

    def error(self, message: str) -> SgdecError:
        """The error for what llguidance says about this grammar: file, line and column, and its first line."""
        place = PLACE.match(message)
        what = first_line(message[place.start(3) :] if place else message).removeprefix(SCHEMA)
        if LIMITED.search(what):
            return SgdecError(f"{self.path}: {what}. {LESS_WORK}")
        if self.of_schema:
            if unknown := _unknown(what):
                return _unsupported(self.path, f"keywords that are not supported: {unknown}")
            if ONE_OF in what:
                return SgdecError(
                    f"{self.path}: oneOf is supported only if llguidance sees that its schemas exclude each other. "
                    'Use anyOf, or add "x-guidance": {"coerce_one_of": true}, which reads oneOf as anyOf.'
                )
            return SgdecError(f"{self.path}: {what}.")
        return SgdecError(f"{self.path}: {f'line {place[1]}, column {place[2]}: ' if place else ''}{what}.")

    def warnings(self, messages: Iterable[str]) -> Iterator[str]:
        """The warnings for this grammar, about which llguidance says ``messages``."""
        if self.ignored_formats:
            yield f"formats that are ignored: {', '.join(self.ignored_formats)}"
        for message in messages:
            if unknown := _unknown(message):
                yield f"keywords that are ignored: {unknown}"
            elif not (self.ignored_formats and message.startswith("Unknown format")):
                yield first_line(message)


def read_grammar(
    path: str, kind: Kind = "auto", whitespace: Whitespace = "flexible", lenient: bool = False
) -> Grammar:
    """The grammar in a file. ``auto``: a schema if the file is called ``.json``, otherwise a Lark grammar.

    ``whitespace`` and ``lenient`` (ignore unsupported keywords and formats) concern schemas; a schema's own
    ``x-guidance`` has priority. Raises SgdecError, naming the file, if it cannot be read, is not a schema, or has
    unsupported formats. Errors in the grammar itself are found when it is compiled.
    """
    text = "\n".join(read_lines(path))
    if len(text) > MOST:
        raise SgdecError(f"{path}: a grammar of {len(text):,} characters. Expected at most {MOST:,}.")
    if not text.strip():
        raise SgdecError(f"{path}: empty. Expected a Lark grammar with a rule 'start', or a JSON schema.")
    if kind == "json" or (kind == "auto" and _is_json(path)):
        schema = _schema(text, path, {**SEPARATORS[whitespace], "lenient": lenient})
        formats = tuple(sorted(set(_formats(schema)) - FORMATS))
        if formats and not schema["x-guidance"]["lenient"]:
            raise _unsupported(path, f"formats that are not supported: {', '.join(formats)}")
        around = f"/({BLANKS})?/" if schema["x-guidance"].get("whitespace_pattern") == BLANKS else ""
        lark = f"start: {around} %json {json.dumps(schema)} {around}{DIRECTIVES}"
        literals = "".join(_literals_of_schema(schema))
        return Grammar(lark, path, of_schema=True, literals=literals, ignored_formats=formats)
    if text.lstrip().startswith("{"):  # llguidance would take it for a grammar in its own JSON format
        raise SgdecError(
            f"{path}: begins with '{{'. Expected a Lark grammar; a JSON schema takes --grammar.kind json."
        )
    for found in NOT_OF_TEXT.finditer(text):
        if found["tokens"]:
            line = text.count("\n", 0, found.start()) + 1
            raise SgdecError(
                f"{path}: line {line}, column {found.start() - text.rfind(chr(10), 0, found.start())}: "
                f"{found['tokens']} is about tokens, and grammars are about text. Use the text itself"
                f"{', or --predictors maxlength' if found['tokens'] == 'max_tokens' else ''}."
            )
    return Grammar(text + DIRECTIVES, path, of_schema=False, literals="".join(_literals_of_lark(text)))


def _is_json(path: str) -> bool:
    """Also if it is packed."""
    suffixes = PurePath(path).suffixes
    return ".json" in (suffixes[-2:] if suffixes[-1:] in ([".gz"], [".zst"]) else suffixes[-1:])


def _schema(text: str, path: str, options: dict[str, Any]) -> dict[str, Any]:
    """The schema with llguidance's options. Raises SgdecError if the text is not a schema."""
    try:
        schema = parse_json(text)
    except json.JSONDecodeError as error:
        raise SgdecError(
            f"{path}: line {error.lineno}, column {error.colno}: not JSON ({error.msg}). Expected a JSON schema, or "
            "--grammar.kind lark."
        ) from None
    except ValueError as error:
        raise SgdecError(f"{path}: {error}.") from None
    if schema is True:
        schema = {}
    if not isinstance(schema, dict):
        raise SgdecError(f"{path}: {text.strip()[:40]} is not a JSON schema. Expected an object, such as {{}}.")
    own = schema.get("x-guidance", {})
    if not isinstance(own, dict):
        raise SgdecError(f"{path}: 'x-guidance' must be an object of llguidance's options.")
    if "whitespace_flexible" in own:  # the pattern would have priority
        options = {name: value for name, value in options.items() if name != "whitespace_pattern"}
    return {**schema, "x-guidance": {**options, **own}}


def _formats(schema: Any) -> Iterator[str]:
    """The values of ``format`` in a schema, or in a list of schemas, and in the schemas within."""
    if isinstance(schema, list):
        for inner in schema:
            yield from _formats(inner)
    if isinstance(schema, dict):
        if isinstance(schema.get("format"), str):
            yield schema["format"]
        yield from _formats([schema[key] for key in WITH_SCHEMAS if key in schema])
        for key in WITH_NAMED_SCHEMAS:
            if isinstance(schema.get(key), dict):
                yield from _formats(list(schema[key].values()))


def _literals_of_schema(schema: Any) -> Iterator[str]:
    """The names of properties, and the values that are listed."""
    if isinstance(schema, dict):
        for key, value in schema.items():
            if key in ("enum", "const"):
                listed = value if key == "enum" and isinstance(value, list) else [value]
                yield from (json.dumps(each, ensure_ascii=False, separators=(",", ":")) for each in listed)
            elif key == "properties" and isinstance(value, dict):
                yield "".join(value)
                yield from _literals_of_schema(list(value.values()))
            elif key != "x-guidance":
                yield from _literals_of_schema(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from _literals_of_schema(value)


def _literals_of_lark(text: str) -> Iterator[str]:
    """The strings; none if a part of the grammar is JSON, whose strings are not those of texts."""
    if not re.search(r"%(json|regex|llguidance)\b", text):
        for found in NOT_OF_TEXT.finditer(text):
            if found[0].startswith('"'):
                with suppress(ValueError):  # an escape that JSON does not have
                    yield json.loads(found[0])


def _unsupported(path: str, what: str) -> SgdecError:
    return SgdecError(f"{path}: {what}. Remove them from the schema, or ignore them with --grammar.lenient true.")


def _unknown(message: str) -> str | None:
    """The keywords that are not supported, if llguidance's message is about such."""
    keys = re.fullmatch(r"Unimplemented keys: (\[.*\])", message.strip())
    return ", ".join(json.loads(keys[1])) if keys else None


def first_line(message: str) -> str:
    """The first line of an error of llguidance; excerpts and the state of the parser follow it, or what is wrong in a
    regular expression."""
    line = message.strip().partition("\n")[0].rstrip(". ")
    error = EXPRESSION.search(message)
    return f"{line} {error[1]}" if line.endswith(":") and error else line
