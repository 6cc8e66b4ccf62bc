"""Damage that hypothesis draws and shrinks: of bytes, and of the content of each kind of file.

Each kind of file has a list of suitable mutations. Simple mutations come first, because hypothesis shrinks towards
the beginning of a list.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import struct
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeAlias

from hypothesis import strategies as st

from fuzz import values
from fuzz.case import Content
from fuzz.values import FLOATS, INTEGERS, JSON, NUMBERS, RAW, WORDS

Mutation: TypeAlias = Callable[[st.DrawFn, bytes], bytes]

SEPARATORS = re.compile(rb"(\s+|\|\|\||[=:,_\[\]{}\"])")
BETWEEN = (b"", b" ", b"\t", b"\n", b"\r\n", b"\xc2\xa0", b"\xe2\x80\xa8", b"  ", b"|||")
"""Replacements of separators."""
HOW_MANY = (1, 1, 1, 2, 2, 4)
"""The number of mutations of one file: after many mutations a file is rarely read to its end."""
DEPTH = 100_000
"""The number of brackets around a value: more than any recursion limit."""
MOST_UNPACKED = 10_000
"""The maximum size in bytes of a packed file that is unpacked here."""
BOMB = 3 << 10
"""The size in MiB to which a small packed file unpacks."""


@st.composite
def damaged(draw: st.DrawFn, data: bytes, kind: str) -> bytes:
    """A file of this kind after one or a few mutations."""
    for _ in range(draw(st.sampled_from(HOW_MANY))):
        data = draw(st.sampled_from(KINDS[kind]))(draw, data)
    return data


# Bytes.


def cut(draw: st.DrawFn, data: bytes) -> bytes:
    return data[: draw(st.integers(0, max(0, len(data) - 1)))]


def leave_out(draw: st.DrawFn, data: bytes) -> bytes:
    begin, end = span(draw, data)
    return data[:begin] + data[end:]


def repeat(draw: st.DrawFn, data: bytes) -> bytes:
    begin, end = span(draw, data)
    return data[:end] + data[begin:end] * draw(st.sampled_from([1, 2, 100])) + data[end:]


def insert(draw: st.DrawFn, data: bytes) -> bytes:
    at = draw(st.integers(0, len(data)))
    return data[:at] + draw(st.sampled_from(RAW) | st.binary(min_size=1, max_size=8)) + data[at:]


def overwrite(draw: st.DrawFn, data: bytes) -> bytes:
    at = draw(st.integers(0, max(0, len(data) - 1)))
    new = draw(st.binary(min_size=1, max_size=4))
    return data[:at] + new + data[at + len(new) :]


def flip(draw: st.DrawFn, data: bytes) -> bytes:
    if not data:
        return b"\0"
    at = draw(st.integers(0, len(data) - 1))
    return data[:at] + bytes([data[at] ^ 1 << draw(st.integers(0, 7))]) + data[at + 1 :]


def number_in_place(draw: st.DrawFn, data: bytes) -> bytes:
    """Replace some bytes by an integer or a float of 1 to 8 bytes."""
    return _with_number(draw, data, draw(st.integers(0, max(0, len(data) - 1))))


def aligned_number(draw: st.DrawFn, data: bytes) -> bytes:
    """The same at positions where formats store numbers, counted from the end because headers have any length."""
    return _with_number(draw, data, max(0, len(data) - 4 * draw(st.integers(1, max(1, len(data) // 4)))))


def _with_number(draw: st.DrawFn, data: bytes, at: int) -> bytes:
    width = draw(st.sampled_from([4, 8, 2, 1]))
    if width >= 4 and draw(st.booleans()):
        new = struct.pack("<f" if width == 4 else "<d", draw(st.sampled_from(FLOATS)))
    else:
        new = (draw(st.sampled_from(INTEGERS)) % (1 << 8 * width)).to_bytes(width, "little")
    return data[:at] + new + data[at + width :]


def nothing(draw: st.DrawFn, data: bytes) -> bytes:
    return b""


def span(draw: st.DrawFn, data: bytes) -> tuple[int, int]:
    begin = draw(st.integers(0, len(data)))
    return begin, draw(st.integers(begin, min(len(data), begin + 64)))


# Text: lines of fields.


def change_field(draw: st.DrawFn, data: bytes) -> bytes:
    """Replace a number or a word by another one."""
    return _with_field(draw, data, draw(nasty_field()))


def move_field(draw: st.DrawFn, data: bytes) -> bytes:
    """Replace one field by another."""
    fields = SEPARATORS.split(data)
    return _with_field(draw, data, fields[2 * draw(st.integers(0, len(fields) // 2))])


def change_separator(draw: st.DrawFn, data: bytes) -> bytes:
    parts = SEPARATORS.split(data)
    if len(parts) > 1:
        at = 2 * draw(st.integers(0, (len(parts) - 3) // 2)) + 1
        parts[at] = draw(st.sampled_from(BETWEEN))
    return b"".join(parts)


def _with_field(draw: st.DrawFn, data: bytes, new: bytes) -> bytes:
    parts = SEPARATORS.split(data)
    parts[2 * draw(st.integers(0, len(parts) // 2))] = new
    return b"".join(parts)


def nasty_field() -> st.SearchStrategy[bytes]:
    return st.sampled_from(NUMBERS + WORDS).map(str.encode) | st.sampled_from(RAW)


def change_line(draw: st.DrawFn, data: bytes) -> bytes:
    """Remove, double, swap or empty a line."""
    lines = data.splitlines(keepends=True) or [b""]
    one, other = (draw(st.integers(0, len(lines) - 1)) for _ in range(2))
    way = draw(st.sampled_from(["leave", "twice", "swap", "empty", "join"]))
    if way == "leave":
        del lines[one]
    elif way == "twice":
        lines.insert(other, lines[one])
    elif way == "swap":
        lines[one], lines[other] = lines[other], lines[one]
    else:
        lines[one] = b"\n" if way == "empty" else lines[one].rstrip(b"\n")
    return b"".join(lines)


def encode_otherwise(draw: st.DrawFn, data: bytes) -> bytes:
    way = draw(st.sampled_from(["\r\n", "\r", "utf-8-sig", "utf-16", "latin-1"]))
    if way.startswith("\r"):
        return data.replace(b"\n", way.encode())
    return data.decode("utf-8", "replace").encode(way, "replace")


# JSON, and tensors after a JSON header.


def change_json(
    draw: st.DrawFn, data: bytes, names: Sequence[str] = ("", "x", "\0", "model", "width"), pool: Sequence[Any] = JSON
) -> bytes:
    """Change a value or a key of a line of JSON, or of the whole file. ``names``, ``pool``: new keys and values."""
    try:
        return json.dumps(_changed(draw, json.loads(data), names, pool)).encode("utf-8", "surrogatepass")
    except (ValueError, RecursionError):
        pass
    lines = data.split(b"\n")
    at = draw(st.integers(0, len(lines) - 1))
    try:
        lines[at] = json.dumps(_changed(draw, json.loads(lines[at]), names, pool)).encode()
    except (ValueError, RecursionError):
        return change_line(draw, data)
    return b"\n".join(lines)


class _Same(str):
    """A key that a dictionary takes beside an equal one."""

    __slots__ = ()
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other


def _changed(draw: st.DrawFn, tree: Any, names: Sequence[str] = ("", "x"), pool: Sequence[Any] = JSON) -> Any:
    places = list(_places(tree))
    new = _copied(draw(st.sampled_from(JSON) | st.sampled_from(pool)))
    if not places:
        return new
    node, key = places[draw(st.integers(0, len(places) - 1))]
    way = draw(st.sampled_from(["value", "leave", "name", "wrap", "add", "twice", "other"]))
    value = node[key]
    if way == "leave":
        del node[key]
    elif way == "name" and isinstance(node, dict):
        node[draw(st.sampled_from(names))] = node.pop(key)
    elif way == "wrap":
        node[key] = draw(st.sampled_from([[value], {"x": value}, [value, value], str(value)]))
    elif way == "add" and isinstance(node, dict):
        node[draw(st.sampled_from(names))] = new
    elif way == "twice" and isinstance(node, dict):
        node[_Same(key)] = new
    elif way in ("add", "twice"):
        node[key:key] = [value if way == "twice" else new] * draw(st.sampled_from([1, 2, 100]))
    elif way == "other":
        other, place = places[draw(st.integers(0, len(places) - 1))]
        node[key] = _copied(other[place])
    elif isinstance(value, int) and draw(st.booleans()):
        node[key] = draw(st.sampled_from([value + 1, value - 1, 2 * value, -value, float(value), 1 << 40]))
    else:
        node[key] = new
    return tree


def _copied(tree: Any) -> Any:
    return json.loads(json.dumps(tree))


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    inside = tree.items() if isinstance(tree, dict) else enumerate(tree if isinstance(tree, list) else ())
    for key, value in list(inside):
        yield tree, key
        yield from _places(value)


def nest_json(draw: st.DrawFn, data: bytes) -> bytes:
    """A deeply nested value."""
    values = [found.start() for found in re.finditer(rb"(?<=[:\[,]) ?[\d\"\[{]", data)] or [0]
    at = values[draw(st.integers(0, len(values) - 1))]
    return data[:at] + b"[" * DEPTH + draw(st.sampled_from([b"", b"]" * DEPTH])) + data[at:]


def change_header(draw: st.DrawFn, data: bytes) -> bytes:
    """Change the header of a safetensors file: eight bytes with the length of a JSON header, the header, the
    numbers."""
    length = int.from_bytes(data[:8], "little")
    try:
        tree = json.loads(data[8 : 8 + length])
    except (ValueError, RecursionError):
        return number_in_place(draw, data)
    if draw(st.booleans()):  # a kind of number
        tensors = [entry for entry in tree.values() if isinstance(entry, dict) and "dtype" in entry]
        if tensors:
            kinds = ["F64", "F16", "BF16", "I64", "U8", "I8", "BOOL", "F8_E4M3", "x"]
            tensors[draw(st.integers(0, len(tensors) - 1))]["dtype"] = draw(st.sampled_from(kinds))
    else:
        tree = _changed(draw, tree)
    header = json.dumps(tree).encode()
    return len(header).to_bytes(8, "little") + header + data[8 + length :]


# Packed files.


def unpacked(kind: str) -> Mutation:
    """Damage inside."""

    def change(draw: st.DrawFn, data: bytes) -> bytes:
        if len(data) > MOST_UNPACKED:  # a bomb
            return flip(draw, data)
        try:
            inside = gzip.decompress(data)
        except (OSError, EOFError, zlib.error):
            return flip(draw, data)
        return gzip.compress(draw(damaged(inside, kind)), 1, mtime=0)

    return change


def bomb(draw: st.DrawFn, data: bytes) -> bytes:
    """A packed file of kilobytes that unpacks to gigabytes: one member per MiB, without line ends."""
    filling = draw(st.sampled_from([b"\0", b"9", b" "]))
    return data + _packed(filling) * draw(st.sampled_from([BOMB, 1]))


@cache
def _packed(filling: bytes) -> bytes:
    """One MiB of that file."""
    return gzip.compress(filling * (1 << 20), 9, mtime=0)


# Results of corpora: zip files.


def change_members(draw: st.DrawFn, data: bytes) -> bytes:
    """Rename, damage, leave out, double or exchange members; a member that unpacks to 1 GiB."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as file:
            members = [(entry.filename, file.read(entry)) for entry in file.infolist()]
    except Exception:  # each method of compression raises its own
        return flip(draw, data)
    at = draw(st.integers(0, max(0, len(members) - 1)))
    name, content = members.pop(at) if members else ("rows", b"")
    way = draw(st.sampled_from(["damage", "leave", "name", "twice", "add", "empty", "link", "large"]))
    other = name if way == "twice" else draw(st.sampled_from(values.MEMBERS))
    if way == "damage":
        members.insert(at, (name, draw(damaged(content, "text" if name == "rows" else "json"))))
    elif way == "name":
        members.insert(at, (other, content))
    elif way in ("twice", "add"):
        members[at:at] = [(name, content), (other, b"x\n")]
    elif way in ("empty", "link", "large"):
        members.insert(at, (name, {"empty": b"", "link": b"/dev/zero", "large": b"x\n" * (1 << 20)}[way]))
    buffer = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(buffer, "w") as file:
        warnings.simplefilter("ignore")  # of two equal names
        for inside, part in members:
            entry = zipfile.ZipInfo(inside)
            ways = [zipfile.ZIP_DEFLATED] * 3 + [zipfile.ZIP_STORED, zipfile.ZIP_LZMA]
            entry.compress_type = draw(st.sampled_from(ways))
            if way == "link" and inside == name:
                entry.external_attr = 0o120777 << 16
            file.writestr(entry, part)
    return buffer.getvalue()


def rearranged(draw: st.DrawFn, files: Mapping[str, Content], folder: str) -> dict[str, Content]:
    """Leave out, empty, exchange, copy or replace by a link some files of a folder."""
    found = dict(files)
    for _ in range(draw(st.sampled_from([1, 1, 2, 4]))):
        inside = [path for path in found if path.startswith(f"{folder}/")]
        if len(inside) < 2:
            break
        one, other = (inside[draw(st.integers(0, len(inside) - 1))] for _ in range(2))
        way = draw(st.sampled_from(["leave", "empty", "exchange", "copy", "link", "elsewhere", "below", "number"]))
        if way == "leave":
            del found[one]
        elif way == "empty":
            found[one] = b""
        elif way == "exchange":
            found[one], found[other] = found[other], found[one]
        elif way == "copy":
            found[one] = found[other]
        elif way == "link":
            found[one] = Path(draw(st.sampled_from(values.LINKS)))
        elif way == "elsewhere":
            found[f"{folder}/{draw(st.sampled_from(values.PLACES))}"] = found[one]
        elif way == "below":
            found[f"{one}/x"] = found.pop(one)
        else:
            new = draw(st.sampled_from(["000000009", "-1", "1e9", "000000000", "99999999999999999999"]))
            found[re.sub(r"\d{9}(?=[^/]*$)", new, one)] = found.pop(one)
    return {path: found[path] for path in found if not any(other.startswith(f"{path}/") for other in found)}


# SentencePiece models: messages of protocol buffers.


def change_message(draw: st.DrawFn, data: bytes) -> bytes:
    """Leave out, double, exchange or damage fields of a message, whose lengths stay right."""
    fields = list(_fields(data))
    if not fields:
        return flip(draw, data)
    one, other = (draw(st.integers(0, len(fields) - 1)) for _ in range(2))
    way = draw(st.sampled_from(["damage", "damage", "inside", "leave", "twice", "exchange"]))
    head, content = fields[one]
    if way == "leave":
        del fields[one]
    elif way == "twice":
        fields[other:other] = [fields[one]] * draw(st.sampled_from([1, 100]))
    elif way == "exchange":
        fields[one], fields[other] = fields[other], fields[one]
    elif content is not None:
        fields[one] = head, change_message(draw, content) if way == "inside" else draw(damaged(content, "binary"))
    return b"".join(head + (b"" if inside is None else _varint(len(inside)) + inside) for head, inside in fields)


def _fields(data: bytes) -> Iterator[tuple[bytes, bytes | None]]:
    """The fields as tag and content; a field without a length is all tag."""
    at = 0
    while at < len(data):
        begin = at
        tag, at = _number(data, at)
        if tag & 7 == 2:
            head = data[begin:at]
            length, at = _number(data, at)
            yield head, data[at : at + length]
            at += length
        else:
            at = _number(data, at)[1] if tag & 7 == 0 else at + (8 if tag & 7 == 1 else 4)
            yield data[begin:at], None


def _number(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data):
        value |= (data[at] & 127) << shift
        shift += 7
        at += 1
        if data[at - 1] < 128:
            break
    return value, at


def _varint(value: int) -> bytes:
    parts = [value >> shift & 127 for shift in range(0, max(1, value.bit_length()), 7)]
    return bytes([*(part | 128 for part in parts[:-1]), parts[-1]])


# Patterns, grammars and lists of words.


def pattern_line(draw: st.DrawFn, data: bytes) -> bytes:
    """Another regular expression in a line."""
    return _with_line(draw, data, _pattern(draw, 3))


def _pattern(draw: st.DrawFn, depth: int) -> str:
    way = draw(st.sampled_from(["atom", "repeat", "repeat", "join", "or", "group"])) if depth else "atom"
    if way == "atom":
        return draw(st.sampled_from(values.ATOMS))
    if way == "repeat":
        return _pattern(draw, depth - 1) + draw(st.sampled_from(values.REPEATS))
    if way == "group":
        return f"({_pattern(draw, depth - 1)}){draw(st.sampled_from(values.REPEATS))}"
    return ("|" if way == "or" else "").join(_pattern(draw, depth - 1) for _ in range(draw(st.integers(2, 3))))


def grammar_line(draw: st.DrawFn, data: bytes) -> bytes:
    """Another line of a grammar, or one more."""
    new = draw(st.sampled_from(values.LARK)).encode("utf-8", "surrogatepass")
    return data + new + b"\n" if draw(st.booleans()) else _with_line(draw, data, new.decode("utf-8", "surrogatepass"))


def long_line(draw: st.DrawFn, data: bytes) -> bytes:
    """A line with many or long words, or many lines."""
    fields = st.sampled_from(["a", "b", "c", "ab", "é", "日本", " ", "▁", "\\", *WORDS[:40]])
    words = draw(st.lists(fields, min_size=1, max_size=4))
    separator = draw(st.sampled_from([" ", "", "|", " | ", "\t", " ||| ", "\n"]))
    return _with_line(draw, data, separator.join(words * draw(st.sampled_from([1, 2, 30, 1000, 3000]))))


def _with_line(draw: st.DrawFn, data: bytes, new: str) -> bytes:
    lines = data.split(b"\n")
    lines[draw(st.integers(0, max(0, len(lines) - 2)))] = new.encode("utf-8", "surrogatepass")
    return b"\n".join(lines)


BYTES: tuple[Mutation, ...] = (cut, nothing, leave_out, repeat, insert, overwrite, flip)
TEXT: tuple[Mutation, ...] = (change_field, change_line, move_field, change_separator)
BINARY: tuple[Mutation, ...] = (number_in_place, aligned_number)


def _with(names: Sequence[str], pool: Sequence[Any]) -> Mutation:
    return partial(change_json, names=names, pool=pool)


KINDS: dict[str, tuple[Mutation, ...]] = {
    "text": (*TEXT, *TEXT, *TEXT, *TEXT, encode_otherwise, *BYTES),
    "binary": (*BINARY, *BINARY, *BINARY, *BINARY, *BYTES),
    "json": (change_json, change_json, change_json, change_json, nest_json, change_field, *BYTES),
    "safetensors": (change_header, change_header, change_header, change_header, aligned_number, *BYTES),
    "config": (_with(values.OF_CONFIG, values.IN_CONFIG),) * 9 + (nest_json, change_field, *BYTES[:1]),
    "tokenizer": (_with(values.OF_TOKENIZER, values.IN_TOKENIZER),) * 9 + (nest_json, change_field, *BYTES[:1]),
    "index": (_with(values.FILES, values.FILES),) * 9 + (nest_json, change_field, *BYTES[:1]),
    "schema": (_with(values.OF_SCHEMA, values.IN_SCHEMA),) * 9 + (nest_json, change_field, *BYTES[:1]),
    "lark": (grammar_line, grammar_line, *TEXT, *BYTES),
    "patterns": (*(pattern_line,) * 12, *TEXT, *BYTES),
    "words": (*(long_line,) * 6, *TEXT, encode_otherwise, *BYTES),
    "zip": (*(change_members,) * 8, *BYTES),
    "spm": (*(change_message,) * 8, *BINARY, *BYTES),
    "packed": BYTES,
    "gzip-text": (unpacked("text"), unpacked("text"), unpacked("text"), bomb, *BYTES),
    "gzip-binary": (unpacked("binary"), unpacked("binary"), unpacked("binary"), bomb, *BYTES),
}
"""The mutations for each kind of file content."""
