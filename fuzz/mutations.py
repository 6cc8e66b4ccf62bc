"""Damage that hypothesis draws and shrinks: of bytes, and of the content of each kind of file.

Each kind of file has a list of suitable mutations. Simple mutations come first, because hypothesis shrinks towards
the beginning of a list.
"""

from __future__ import annotations

import gzip
import json
import re
import struct
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, TypeAlias

from hypothesis import strategies as st

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


def change_json(draw: st.DrawFn, data: bytes) -> bytes:
    """Change a value or a key of a line of JSON, or of the whole file."""
    try:
        return json.dumps(_changed(draw, json.loads(data))).encode("utf-8", "surrogatepass")
    except (ValueError, RecursionError):
        pass
    lines = data.split(b"\n")
    at = draw(st.integers(0, len(lines) - 1))
    try:
        lines[at] = json.dumps(_changed(draw, json.loads(lines[at]))).encode()
    except (ValueError, RecursionError):
        return change_line(draw, data)
    return b"\n".join(lines)


def _changed(draw: st.DrawFn, tree: Any) -> Any:
    places = list(_places(tree))
    if not places:
        return draw(st.sampled_from(JSON))
    node, key = places[draw(st.integers(0, len(places) - 1))]
    way = draw(st.sampled_from(["value", "leave", "name", "wrap"]))
    value = node[key]
    if way == "leave":
        del node[key]
    elif way == "name" and isinstance(node, dict):
        node[draw(st.sampled_from(["", "x", "\0", "model", "width"]))] = node.pop(key)
    elif way == "wrap":
        node[key] = draw(st.sampled_from([[value], {"x": value}, [value, value], str(value)]))
    elif isinstance(value, int) and draw(st.booleans()):
        node[key] = draw(st.sampled_from([value + 1, value - 1, 2 * value, -value, float(value), 1 << 40]))
    else:
        node[key] = draw(st.sampled_from(JSON))
    return tree


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


BYTES: tuple[Mutation, ...] = (cut, nothing, leave_out, repeat, insert, overwrite, flip)
TEXT: tuple[Mutation, ...] = (change_field, change_line, move_field, change_separator)
BINARY: tuple[Mutation, ...] = (number_in_place, aligned_number)
KINDS: dict[str, tuple[Mutation, ...]] = {
    "text": (*TEXT, *TEXT, *TEXT, *TEXT, encode_otherwise, *BYTES),
    "binary": (*BINARY, *BINARY, *BINARY, *BINARY, *BYTES),
    "json": (change_json, change_json, change_json, change_json, nest_json, change_field, *BYTES),
    "safetensors": (change_header, change_header, change_header, change_header, aligned_number, *BYTES),
    "packed": BYTES,
    "gzip-text": (unpacked("text"), unpacked("text"), unpacked("text"), bomb, *BYTES),
    "gzip-binary": (unpacked("binary"), unpacked("binary"), unpacked("binary"), bomb, *BYTES),
}
"""The mutations for each kind of file content."""
