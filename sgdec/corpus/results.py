"""The result of a chunk or of a part of it: one zip file, complete when it has its name.

    rows            the output of ``sgdec decode`` for these lines, in its format
    ID.fst          for the output format fst: the lattice of a sentence
    failed.jsonl    a line for each sentence that failed: {"id": 17, "input": "a.txt", "line": 17, "reason": "..."}
    about.json      lines, failed lines, seconds, and the worker

The first result of a chunk is kept. Its hash is in the record that takes the place of the chunk's lease.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from sgdec.corpus.engine import Receipt
from sgdec.corpus.leases import place_of
from sgdec.corpus.stores import Store
from sgdec.errors import SgdecError
from sgdec.io.documents import parse_json

ROWS, FAILED, ABOUT = "rows", "failed.jsonl", "about.json"
_PART = re.compile(r"([0-9]{1,18})-([0-9]{1,18})\.zip")
_THEN = (1980, 1, 1, 0, 0, 0)
"""The time of all members: equal results are equal files."""


class Failure(NamedTuple):
    """A line without an output."""

    id: int
    """Its number among the lines of all inputs, from 1."""
    input: str
    line: int
    """Its number in its input."""
    reason: str


def line_of(failure: Failure) -> bytes:
    """A failed line in a list of failed lines."""
    return as_utf8(json.dumps(failure._asdict(), ensure_ascii=False) + "\n")


def as_utf8(rows: str) -> bytes:
    """Bytes of a file's name that are not UTF-8 become escapes of JSON; only errors in JSON hold names.

    >>> as_utf8('{"error": "raw\\udcff.txt"}')
    b'{"error": "raw\\\\udcff.txt"}'
    """
    return rows.encode("utf-8", "backslashreplace")


@dataclass(frozen=True)
class Result:
    """Outputs of consecutive lines."""

    lines: int
    rows: bytes = b""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Lattices by the name of their file."""
    failed: tuple[Failure, ...] = ()
    seconds: float = 0.0
    worker: str = ""

    def packed(self) -> bytes:
        """The content of its file."""
        about = {"lines": self.lines, "failed": len(self.failed), "seconds": self.seconds, "worker": self.worker}
        failed = b"".join(map(line_of, self.failed))
        members = {ROWS: self.rows, FAILED: failed, ABOUT: json.dumps(about).encode(), **self.files}
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as file:
            for name, content in members.items():
                member = zipfile.ZipInfo(name, _THEN)
                member.compress_type = zipfile.ZIP_DEFLATED
                file.writestr(member, content, compresslevel=1)
        return buffer.getvalue()

    @classmethod
    def unpacked(cls, data: bytes, name: str) -> Result:
        """The result in a file. Raises SgdecError if it is damaged."""
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as file:
                members = {member: file.read(member) for member in file.namelist()}
            about = parse_json(members.pop(ABOUT))
            rows, listed = members.pop(ROWS), members.pop(FAILED).splitlines()  # text would also be split at U+2028
            failed = tuple(Failure(**parse_json(line)) for line in listed)
            return cls(about["lines"], rows, members, failed, about["seconds"], about["worker"])
        except (zipfile.BadZipFile, zlib.error, ValueError, KeyError, TypeError, EOFError, RuntimeError):
            raise SgdecError(f"{name}: damaged. Remove it, and start again: its lines are decoded again.") from None

    @classmethod
    def joined(cls, parts: Iterable[Result]) -> Result:
        """The result of a chunk from those of its parts, in order."""
        listed = list(parts)
        return cls(
            sum(part.lines for part in listed),
            b"".join(part.rows for part in listed),
            {name: content for part in listed for name, content in part.files.items()},
            tuple(failure for part in listed for failure in part.failed),
            sum(part.seconds for part in listed),
            ", ".join(dict.fromkeys(part.worker for part in listed if part.worker)),
        )


def receipt_of(result: Result, data: bytes) -> Receipt:
    """The receipt of a result with this content of its file."""
    digest = hashlib.sha256(data).hexdigest()
    return Receipt(digest, result.lines, len(result.failed), result.seconds, result.worker)


def name_of(chunk: int) -> str:
    return f"results/{place_of(chunk)}.zip"


def name_of_part(chunk: int, first: int, lines: int) -> str:
    """``first``: the first line in the chunk, from 0."""
    return f"parts/{chunk:09}/{first}-{lines}.zip"


def split_chunks(store: Store) -> list[int]:
    """The chunks of which there are parts."""
    return [int(name) for name in store.names("parts") if name.isdecimal() and name == f"{int(name):09}"]


def parts_of(store: Store, chunk: int) -> list[tuple[int, int]]:
    """The first lines and the numbers of lines of the parts of a chunk, in order."""
    found = map(_PART.fullmatch, store.names(f"parts/{chunk:09}"))
    return sorted((int(part[1]), int(part[2])) for part in found if part)


def publish_result(store: Store, name: str, result: Result) -> Receipt | None:
    """Write a result, unless there is one: then None, and the existing one counts."""
    data = result.packed()
    return receipt_of(result, data) if store.create(name, data) else None


def read_result(store: Store, name: str) -> tuple[Result, Receipt] | None:
    """A published result; None if there is none. Raises SgdecError if it is damaged."""
    data = store.read(name)
    if data is None:
        return None
    result = Result.unpacked(data, f"{store}/{name}")
    return result, receipt_of(result, data)


def failed_rows(output_format: str, failure: Failure) -> tuple[bytes, dict[str, bytes]]:
    """The rows and files of a line without an output, as a worker writes them."""
    from sgdec.io.results import make_writer
    from sgdec.protocol import Result as Searched
    from sgdec.protocol import Source
    from sgdec.search.outcome import Outcome

    rows: Any = io.StringIO()
    with tempfile.TemporaryDirectory() as folder:
        writer = make_writer(output_format, os.path.join(folder, "{id}.fst"), rows, None, ())
        source = Source(failure.id, ())
        writer.write(Outcome(source, Searched([]), 0.0, SgdecError(failure.reason)))
        files = {file.name: file.read_bytes() for file in Path(folder).iterdir()}
    return as_utf8(rows.getvalue()), files
