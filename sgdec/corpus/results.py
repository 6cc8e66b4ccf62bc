"""The result of a chunk or of some of its lines: one zip file, complete when it has its name.

    rows            the output of ``sgdec decode`` or ``sgdec score`` for these lines (`sgdec.corpus.rows`)
    ID.fst          for the output format fst: the lattice of a sentence
    failed.jsonl    a line for each sentence that failed: {"id": 17, "input": "a.txt", "line": 17, "reason": "..."}
    versions.jsonl  if options name patterns: a line for each file that these lines read (`sgdec.corpus.versions`)
    about.json      the hash of the run, the first line, lines, failed lines, seconds, and the worker

The first result of a chunk is kept. Its hash is in the record that takes the place of the chunk's lease. Lines that
failed and succeeded later (``--retry-failed``) have results of their own beside it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sgdec.corpus.engine import Receipt, Task
from sgdec.corpus.leases import place_of
from sgdec.corpus.packing import pack, unpack
from sgdec.corpus.stores import Store
from sgdec.corpus.versions import Version
from sgdec.errors import SgdecError
from sgdec.io.documents import parse_json
from sgdec.io.limits import FILE

ROWS, FAILED, VERSIONS, ABOUT = "rows", "failed.jsonl", "versions.jsonl", "about.json"
PARTS, AGAIN = "parts", "again"
"""The folders of results of some lines: of a chunk that is not done, and of lines that had failed."""
_SOME = re.compile(r"([0-9]{1,18})-([0-9]{1,18})\.zip")
_LATTICE = re.compile(r"[1-9][0-9]{0,17}\.fst")


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
class ChunkResult:
    """Outputs of consecutive lines."""

    lines: int
    rows: bytes = b""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Lattices by the name of their file."""
    failed: tuple[Failure, ...] = ()
    seconds: float = 0.0
    worker: str = ""
    run: str = ""
    """`sgdec.corpus.manifest.Manifest.run`."""
    id: int = 1
    """The number of the first line among the lines of all inputs, from 1."""
    versions: tuple[Version, ...] = ()
    """The files of patterns that these lines read."""

    @property
    def ids(self) -> range:
        """The numbers of the lines."""
        return range(self.id, self.id + self.lines)

    def packed(self) -> bytes:
        """The content of its file."""
        about = {
            "run": self.run, "id": self.id, "lines": self.lines, "failed": len(self.failed),
            "seconds": self.seconds, "worker": self.worker,
        }  # fmt: skip
        members = {ROWS: self.rows, FAILED: b"".join(map(line_of, self.failed)), ABOUT: json.dumps(about).encode()}
        if self.versions:
            members[VERSIONS] = b"".join(json.dumps(version).encode() + b"\n" for version in self.versions)
        return pack({**members, **self.files})

    @classmethod
    def unpacked(cls, data: bytes, name: str, lines: int) -> ChunkResult:
        """The result of this number of lines in a file. Raises SgdecError if it is damaged."""
        try:
            members = unpack(data, lines + 4)
            about = parse_json(members.pop(ABOUT))
            rows, listed = members.pop(ROWS), members.pop(FAILED).splitlines()  # text would also be split at U+2028
            failed = tuple(Failure(**parse_json(line)) for line in listed)
            versions = tuple(Version(*parse_json(line)) for line in members.pop(VERSIONS, b"").splitlines())
            for member in members:
                if not _LATTICE.fullmatch(member):
                    raise ValueError(f"it has a member {member!r}")
            counted = about.pop("failed")
            found = cls(rows=rows, files=members, failed=failed, versions=versions, **about)
            if counted != len(failed) or not _is_sound(found):
                raise ValueError(f"{ABOUT} does not agree with the other members")
            return found
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            why = str(error) if isinstance(error, ValueError) else "a part of it is missing"
            raise SgdecError(f"{name}: damaged ({why}). Remove it, and start again.") from None

    @classmethod
    def joined(cls, parts: Iterable[ChunkResult]) -> ChunkResult:
        """The result of a chunk from those of its parts, in order."""
        listed = list(parts)
        return cls(
            sum(part.lines for part in listed),
            b"".join(part.rows for part in listed),
            {name: content for part in listed for name, content in part.files.items()},
            tuple(failure for part in listed for failure in part.failed),
            sum(part.seconds for part in listed),
            ", ".join(dict.fromkeys(part.worker for part in listed if part.worker)),
            listed[0].run,
            listed[0].id,
            tuple(version for part in listed for version in part.versions),
        )


def _is_sound(result: ChunkResult) -> bool:
    """Whether all values have their types, and all failures, files and versions are of its lines."""
    if not all(isinstance(value, int) for value in (result.id, result.lines)):
        return False
    ids = result.ids
    return (
        all(isinstance(value, str) for value in (result.run, result.worker))
        and isinstance(result.seconds, int | float)
        and all(_typed(each, (int, str, int, str)) and each.id in ids for each in result.failed)
        and all(_typed(each, (int, str, (str, type(None)), int, int)) and each.id in ids for each in result.versions)
        and all(int(name.removesuffix(".fst")) in ids for name in result.files)
    )


def _typed(row: tuple[Any, ...], types: tuple[Any, ...]) -> bool:
    return all(isinstance(value, kind) for value, kind in zip(row, types, strict=True))


def receipt_of(result: ChunkResult, data: bytes) -> Receipt:
    """The receipt of a result with this content of its file."""
    digest = hashlib.sha256(data).hexdigest()
    return Receipt(digest, result.lines, len(result.failed), result.seconds, result.worker, result.run)


def name_of(task: Task) -> str:
    """The name of the result of a task."""
    if task.lines is None:
        return f"results/{place_of(task.chunk)}.zip"
    return f"{AGAIN if task.again else PARTS}/{task.chunk:09}/{task.first}-{task.lines}.zip"


def chunks_with(store: Store, kind: str) -> list[int]:
    """The chunks of which there may be `PARTS`, or lines that were tried `AGAIN`."""
    return [int(name) for name in store.names(kind) if name.isdecimal() and name == f"{int(name):09}"]


def results_of_some(store: Store, kind: str, chunk: int) -> list[Task]:
    """The tasks whose results are the `PARTS` of a chunk, or its lines that were tried `AGAIN`, in order."""
    found = map(_SOME.fullmatch, store.names(f"{kind}/{chunk:09}"))
    return sorted(Task(chunk, int(each[1]), int(each[2]), kind == AGAIN) for each in found if each)


def publish_result(store: Store, task: Task, result: ChunkResult) -> Receipt | None:
    """Write a result, unless there is one: then None, and the existing one counts."""
    data = result.packed()
    if len(data) > FILE.value:
        raise SgdecError(f"{task}: its result has {len(data)} bytes. Give a smaller --chunk. {FILE.raising}")
    return receipt_of(result, data) if store.create(name_of(task), data) else None


def read_result(store: Store, task: Task, lines: int) -> tuple[ChunkResult, Receipt] | None:
    """The published result of a task of this number of lines; None if there is none. Raises SgdecError if it is
    damaged."""
    name = name_of(task)
    data = store.read(name, FILE)
    if data is None:
        return None
    result = ChunkResult.unpacked(data, f"{store}/{name}", lines)
    return result, receipt_of(result, data)
