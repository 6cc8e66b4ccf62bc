"""One input: a command line, the files in its folder, and the permitted results.

A case is stored as a TOML file that a person can read and write; `fuzz/regressions` has the cases that were findings.
"""

from __future__ import annotations

import base64
import gzip
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

CORPUS = Path(__file__).parent / "corpus"
"""A tiny correct file of each format."""

Content: TypeAlias = bytes | Path
"""The content of a file; a path is the target of a symbolic link."""


@dataclass(frozen=True)
class Case:
    """One run, and its promises in addition to those of every run."""

    target: str
    """The part of the program that it tests."""
    args: tuple[str, ...]
    """The command line after ``sgdec``."""
    files: Mapping[str, Content]
    """The files by path in the folder where the command runs."""
    stdin: str = ""
    """The file that is standard input; empty = standard input is empty."""
    rows: int | None = None
    """The number of lines of a complete output; None = unknown."""
    kept: Mapping[int, str] = field(default_factory=dict)
    """Lines of the output, counted from 1, that damage elsewhere must not change."""
    survives: bool = False
    """Whether the run must reach its end: damage affects single sentences at most."""
    statuses: tuple[int, ...] = (0, 1, 2)
    """The permitted exit statuses."""
    writes: tuple[str, ...] = ()
    """Files, or folders, that the run may change if it does not end in an error."""
    file_size: int | None = None
    """The maximum size of a file in bytes, to simulate a full disk."""
    closed: tuple[int, ...] = ()
    """Standard streams that are closed when the command begins: 0 is input, 1 is output."""


NOT_UTF8 = "\ue0ff"
"""The representation in TOML, which is UTF-8, of the byte FF in a command line (in Python a lone surrogate)."""


def from_corpus(names: Mapping[str, str]) -> dict[str, Content]:
    """The contents by path of files or folders of the corpus."""
    found: dict[str, Content] = {}
    for path, name in names.items():
        origin = CORPUS / name
        if not origin.is_dir():
            found[path] = _content(origin)
            continue
        for entry in sorted(origin.rglob("*")):
            if entry.is_symlink() or entry.is_file():
                found[f"{path}/{entry.relative_to(origin)}"] = _content(entry)
    return found


def _content(path: Path) -> Content:
    return path.readlink() if path.is_symlink() else path.read_bytes()


def write_files(files: Mapping[str, Content], folder: Path) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.symlink_to(content)


def to_toml(case: Case, about: Mapping[str, Any]) -> str:
    """A case as TOML, with further keys in ``about``."""
    args = [arg.replace("\udcff", NOT_UTF8) for arg in case.args]
    keys: dict[str, Any] = {**about, "target": case.target, "args": args, "stdin": case.stdin}
    keys |= {"rows": case.rows, "file_size": case.file_size} | {
        name: list(value)
        for name, value in (("statuses", case.statuses), ("writes", case.writes), ("closed", case.closed))
    }
    lines = [f"{key} = {_value(value)}" for key, value in keys.items() if value not in (None, "", [])]
    lines += ["survives = true"] if case.survives else []
    lines += ["", "[kept]", *(f"{row} = {_value(text)}" for row, text in case.kept.items())] if case.kept else []
    known = {path.read_bytes(): str(path.relative_to(CORPUS)) for path in CORPUS.rglob("*") if path.is_file()}
    lines += ["", "[files]"]
    for name, content in case.files.items():
        lines.append(f"{_value(name)} = {_described(content, known)}")
    return "\n".join([*lines, ""])


def _described(content: Content, known: Mapping[bytes, str]) -> str:
    if isinstance(content, Path):
        return f"{{ link = {_value(str(content))} }}"
    if content in known:
        return f"{{ corpus = {_value(known[content])} }}"
    try:
        text = content.decode()
    except UnicodeDecodeError:
        text = "\0"
    if text.isprintable() or all(c.isprintable() or c in "\n\t\r" for c in text):
        return f"{{ text = {_value(text)} }}"
    return f'{{ base64 = """\n{base64.encodebytes(content).decode()}""" }}'


def _value(value: Any) -> str:
    """A string, number or list in the common syntax of TOML and JSON."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")


def from_toml(path: Path) -> tuple[Case, dict[str, Any]]:
    """A case, and the further keys of its file."""
    keys = tomllib.loads(path.read_text(encoding="utf-8"))
    files: dict[str, Content] = {}
    for name, content in keys.pop("files", {}).items():
        if "corpus" in content:
            files |= from_corpus({name: content["corpus"]})
        else:
            files[name] = Path(content["link"]) if "link" in content else _made(content)
    case = Case(
        target=keys.pop("target", path.stem),
        args=tuple(arg.replace(NOT_UTF8, "\udcff") for arg in keys.pop("args")),
        files=files,
        kept={int(row): text for row, text in keys.pop("kept", {}).items()},
        statuses=tuple(keys.pop("statuses", (0, 1, 2))),
        writes=tuple(keys.pop("writes", ())),
        closed=tuple(keys.pop("closed", ())),
        **{name: keys.pop(name) for name in ("stdin", "rows", "survives", "file_size") if name in keys},
    )
    return case, keys


def _made(content: Any) -> bytes:
    """``text``, ``base64``, repeated (``times``), packed (``gzip``), repeated (``members``); lists are joined."""
    if isinstance(content, list):
        return b"".join(map(_made, content))
    if "base64" in content:
        data = base64.b64decode(content["base64"])
    else:
        data = str(content["text"]).encode("utf-8", "surrogateescape")
    data *= content.get("times", 1)
    if content.get("gzip"):
        data = gzip.compress(data, mtime=0)
    members: int = content.get("members", 1)
    return data * members
