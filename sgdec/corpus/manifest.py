"""The manifest of a corpus: its inputs, how they are decoded or scored, and where each chunk begins.

``manifest.json`` has the settings, the signature of the run and the inputs with their hashes. ``chunks.npy`` has one
row of numbers for each chunk (`Chunk`), and if outputs are scored, then one for the outputs of each chunk. Both are
written once, when the folder is made; a later start has to agree with them. Each result names their hash
(`Manifest.run`).
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import os
import uuid
import zipfile
import zlib
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from tokenize import TokenError
from typing import IO, NamedTuple, Protocol, overload

import numpy as np
import numpy.typing as npt

from sgdec.arrays import Ints
from sgdec.corpus.inputs import absolute, is_seekable, opened, state_of
from sgdec.corpus.rows import Layout, layout_of
from sgdec.corpus.stores import FolderStore, Store, publish
from sgdec.errors import SgdecError, UsageError
from sgdec.io.documents import parse_json
from sgdec.io.limits import FILE
from sgdec.terminal import Bar
from sgdec.text.lines import reading, without_mark

log = logging.getLogger(__name__)

MANIFEST, CHUNKS = "manifest.json", "chunks.npy"
FORMAT = 2
"""1 had results that do not name their run."""
BLOCK = 1 << 20
"""The number of bytes that are read at a time."""
SHAPE = ("output_format", "ledger", "chunk", "lines")
"""Settings, besides the signature and the inputs, that a later start has to share."""
FILES = ("inputs", "targets")
"""The lists of files."""
FREE = ("batch_size", "window", "threads")
"""Settings of a signature that only change which sentences share arithmetic."""


class Chunk(NamedTuple):
    """Consecutive lines of one input."""

    file: int
    """The input, from 0."""
    line: int
    """Its first line in this input, from 1."""
    lines: int
    begin: int
    """The place of its first byte in the input."""
    end: int
    """The place after its last byte."""
    crc: int
    """The CRC-32 of its bytes."""
    id: int
    """The number of its first line among the lines of all inputs, from 1."""


class ChunkTable(Sequence[Chunk]):
    """Many chunks, as one array."""

    def __init__(self, rows: Ints | Sequence[int]) -> None:
        self.rows = np.asarray(rows, dtype=np.int64).reshape(-1, len(Chunk._fields))

    @classmethod
    def of(cls, chunks: Iterable[Chunk]) -> ChunkTable:
        return cls(np.array(list(chunks), dtype=np.int64))

    @overload
    def __getitem__(self, place: int) -> Chunk: ...
    @overload
    def __getitem__(self, place: slice) -> ChunkTable: ...
    def __getitem__(self, place: int | slice) -> Chunk | ChunkTable:
        return ChunkTable(self.rows[place]) if isinstance(place, slice) else Chunk(*self.rows[place].tolist())

    def __len__(self) -> int:
        return len(self.rows)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ChunkTable) and np.array_equal(self.rows, other.rows)


@dataclass(frozen=True)
class Input:
    """One file of the corpus."""

    path: str
    """The file as it was given; messages about lines name it."""
    place: str
    """The absolute path of the file that workers read: this one, or an unpacked copy in the folder."""
    size: int
    modified: int
    """The time of the last change of ``place``, in nanoseconds."""
    sha256: str
    lines: int


@dataclass(frozen=True)
class Manifest:
    """A corpus and the way it is decoded or scored."""

    arguments: list[str]
    """Those of the `command`, without inputs and outputs."""
    folder: str
    """The working directory to which their paths refer."""
    signature: dict[str, str]
    output_format: str
    ledger: bool
    chunk: int
    """The most lines of a chunk."""
    inputs: list[Input]
    lines: int
    """Those of all inputs."""
    chunks: ChunkTable = field(repr=False, compare=False)
    format: int = FORMAT
    targets: list[Input] = field(default_factory=list)
    """The file of the outputs to score; none if lines are decoded."""
    nbest_list: bool = False
    """Whether that file is an n-best list."""
    target_chunks: ChunkTable = field(default_factory=lambda: ChunkTable(()), repr=False, compare=False)
    """For each chunk its lines of that file (`sgdec.corpus.targets`)."""

    @property
    def command(self) -> str:
        """The command of ``sgdec`` that writes in one process what is merged: ``decode`` or ``score``. In messages a
        "d" makes it a participle."""
        return "score" if self.targets else "decode"

    @property
    def layout(self) -> Layout:
        """That of the rows of results."""
        return layout_of(self.output_format, nbest_list=self.nbest_list)

    @cached_property
    def run(self) -> str:
        """The SHA-256 of all that decides the outputs: contents of inputs, chunks, `SHAPE`, and the signature without
        what is free. Each result has it."""
        decides = {
            "inputs": [each.sha256 for each in self.inputs],
            **{name: getattr(self, name) for name in SHAPE},
            "signature": {name: value for name, value in self.signature.items() if name not in _free(self.signature)},
        }
        if self.targets:
            decides |= {"targets": [each.sha256 for each in self.targets], "nbest_list": self.nbest_list}
        whole = hashlib.sha256(json.dumps(decides, sort_keys=True).encode())
        whole.update(self.table.rows.astype("<i8").tobytes())
        return whole.hexdigest()

    @property
    def table(self) -> ChunkTable:
        """The content of ``chunks.npy``."""
        return ChunkTable(np.concatenate([self.chunks.rows, self.target_chunks.rows]))


def write_manifest(store: Store, manifest: Manifest) -> Manifest:
    """Write a new manifest; if another starter was faster, its manifest, which has to agree."""
    values = {each.name: getattr(manifest, each.name) for each in fields(manifest)}
    content = {name: value for name, value in values.items() if not isinstance(value, ChunkTable)}
    content["run"] = manifest.run
    content |= {name: [asdict(each) for each in content[name]] for name in FILES}
    buffer = io.BytesIO()
    np.save(buffer, manifest.table.rows, allow_pickle=False)
    if not store.create(CHUNKS, buffer.getvalue()) and _table(store) != manifest.table:
        raise UsageError(
            f"{store}: another start, with other inputs or another --chunk, has written {CHUNKS} and no {MANIFEST} "
            f"yet. If it has ended, remove {CHUNKS}; or give another folder."
        )
    if not store.create(MANIFEST, json.dumps(content, indent=1).encode()):
        found = read_manifest(store)
        assert found is not None
        refuse_other(found, manifest, store)
        return found
    return manifest


def read_manifest(store: Store) -> Manifest | None:
    """The manifest of a corpus; None if the folder has none. Raises SgdecError if it is damaged."""
    content = store.read(MANIFEST)
    if content is None:
        return None
    try:
        given = parse_json(content.decode())
        if given.get("format") != FORMAT:
            raise SgdecError(
                f"{store}: its manifest has format {given.get('format')!r}; this sgdec reads {FORMAT}. Use the "
                "version that made it, or give another folder."
            )
        run = given.pop("run")
        files = {name: [Input(**each) for each in given.get(name, [])] for name in FILES}
        table = _table(store)
        own = len(table) // 2 if files["targets"] else len(table)
        found = Manifest(**{**given, **files}, chunks=table[:own], target_chunks=table[own:])
    except SgdecError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError):
        found = None
    if found is None or not _is_sound(found) or found.run != run:
        raise SgdecError(
            f"{store}: {MANIFEST} or {CHUNKS} is damaged, or they belong to different runs. Restore both, or start "
            "again in another folder."
        )
    return found


def _table(store: Store) -> ChunkTable:
    """The chunks in the store; none if the file is damaged."""
    try:
        rows = np.load(io.BytesIO(store.read(CHUNKS, FILE) or b""), allow_pickle=False)
        if rows.dtype == np.int64 and rows.ndim == 2:
            return ChunkTable(rows)
    except (ValueError, TypeError, AttributeError, EOFError, SyntaxError, TokenError, zipfile.BadZipFile):
        pass
    except MemoryError:  # the shape in its head is wrong
        pass
    return ChunkTable.of(())


def _is_sound(manifest: Manifest) -> bool:
    """Whether all values have their types, and the chunks are those of the inputs."""
    if not (_is_typed(manifest) and all(_is_typed(each) for each in (*manifest.inputs, *manifest.targets))):
        return False
    file, _, lines, begin, end, _, id = manifest.chunks.rows.T
    return (
        bool(((file >= 0) & (file < len(manifest.inputs)) & (lines >= 1) & (begin >= 0) & (begin <= end)).all())
        and bool((end <= np.array([each.size for each in manifest.inputs])[file]).all())
        and int(lines.sum()) == manifest.lines
        and np.array_equal(id, 1 + np.cumsum(lines) - lines)
        and (_targets_are_sound(manifest) if manifest.targets else not manifest.nbest_list)
    )


def _targets_are_sound(manifest: Manifest) -> bool:
    """Whether each chunk has lines of the outputs, one after the other."""
    if len(manifest.targets) != 1 or len(manifest.target_chunks) != len(manifest.chunks):
        return False
    file, line, lines, begin, end, _, id = manifest.target_chunks.rows.T
    offset = manifest.chunks.rows[:, -1] - id
    return (
        bool(((file == 0) & (lines >= 0) & (begin <= end) & (offset == offset[0])).all())
        and offset[0] in (0, 1)
        and np.array_equal(line, 1 + np.cumsum(lines) - lines)
        and np.array_equal(begin, [0, *end[:-1]])
        and (int(end[-1]), int(lines.sum())) == (manifest.targets[0].size, manifest.targets[0].lines)
        and (manifest.nbest_list or np.array_equal(lines, manifest.chunks.rows[:, 2]))
    )


def _is_typed(made: Input | Manifest) -> bool:
    names = ((type(getattr(made, each.name)).__name__, str(each.type)) for each in fields(made))
    return all(found == declared.partition("[")[0] for found, declared in names)


def existing_manifest(store: Store) -> Manifest:
    """The manifest of a corpus. Raises UsageError if there is none, SgdecError if it is damaged."""
    found = read_manifest(store)
    if found is None:
        raise UsageError(
            f"{store}: it has no {MANIFEST}. Expected a folder that `sgdec corpus` wrote; a new one has its manifest "
            "when the first worker has loaded its models."
        )
    return found


def refuse_other(found: Manifest, now: Manifest, store: Store) -> None:
    """Raises UsageError that names the first difference of two manifests."""
    refuse_other_input(found.inputs, now.inputs, store)
    refuse_other_target(found, now.targets, store)
    for name in (*SHAPE, "nbest_list"):
        _refuse(store, f"--{name.replace('_', '-')}", getattr(found, name), getattr(now, name))
    refuse_other_signature(found.signature, now.signature, store)


def refuse_other_signature(found: Mapping[str, str], now: Mapping[str, str], store: Store) -> None:
    """Raises UsageError that names the first difference of two signatures."""
    for name in dict.fromkeys([*found, *now]):
        if name not in _free(now):
            _refuse(store, name, found.get(name, "(none)"), now.get(name, "(none)"))


def _free(signature: Mapping[str, str]) -> tuple[str, ...]:
    return FREE if "deterministic" not in signature else FREE[:2]


def refuse_other_target(found: Manifest, targets: Sequence[Input], store: Store) -> None:
    """Raises UsageError if other outputs are scored, or none."""
    if bool(found.targets) != bool(targets):
        other = "without --score, this has it" if targets else f"with --score {found.targets[0].path}, this has none"
        raise UsageError(f"{store}: was begun {other}. Give the same, or another folder.")
    refuse_other_input(found.targets, targets, store)


def refuse_other_input(then: Sequence[Input], now: Sequence[Input], store: Store) -> None:
    """Raises UsageError that names the first file that differs."""
    if len(then) != len(now):
        _refuse(store, "inputs", len(then), len(now))
    for before, here in zip(then, now, strict=True):
        if before.sha256 != here.sha256:
            raise UsageError(
                f"{store}: was begun with another content of {before.path} ({before.lines:,} lines, sha256 "
                f"{before.sha256[:12]}; now {here.path}, {here.lines:,} lines, {here.sha256[:12]}). Give the same "
                "input, or another folder."
            )


def _refuse(store: Store, name: str, then: object, here: object) -> None:
    if then != here:
        raise UsageError(f"{store}: was begun with {name} {then}, this is {here}. Give that, or another folder.")


def survey(
    paths: Sequence[str], size: int, store: Store, *, known: Manifest | None = None
) -> tuple[list[Input], ChunkTable]:
    """The inputs, and their chunks of at most ``size`` lines.

    Packed inputs and standard input are unpacked into the folder, because workers begin to read in the middle. A file
    whose size and time of change are those of the manifest ``known`` is not read again; workers compare what they
    read with the checksums of their chunks. Raises UsageError for an input that cannot be opened, SgdecError for one
    that cannot be read.
    """
    inputs: list[Input] = []
    tables: list[Ints] = []
    for number, path in enumerate(paths):
        if known is not None and is_unchanged(path, known.inputs[number:]):
            inputs.append(known.inputs[number])
            tables.append(known.chunks.rows[known.chunks.rows[:, 0] == number])
            continue
        found, own = survey_file(path, _Tally(number, sum(each.lines for each in inputs) + 1, size), store)
        inputs.append(found)
        tables.append(own.rows)
    return inputs, ChunkTable(np.concatenate(tables))


def is_unchanged(path: str, before: Sequence[Input]) -> bool:
    """Whether a file is as it was when the first of these was read."""
    if not before or before[0].path != path:
        return False
    then = before[0]
    try:
        return then.place == absolute(path) and state_of(path) == (then.size, then.modified)
    except (OSError, UsageError):
        return False


class LineTally(Protocol):
    """Divides the lines of one file among chunks while it is read."""

    @property
    def sha256(self) -> str:
        """The hash of what was read."""

    @property
    def chunks(self) -> ChunkTable:
        """The lines by chunk."""

    def read(self, file: IO[bytes], name: str, bytes: int | None, copy: IO[bytes] | None = None) -> None:
        """Read all, of this number of bytes if it is known; ``copy`` gets them too. Raises SgdecError for a file with
        which the run cannot begin."""

    def input(self, path: str, place: str, modified: int) -> Input:
        """The file that was read."""


def survey_file(path: str, tally: LineTally, store: Store) -> tuple[Input, ChunkTable]:
    """Read one file once: its hash, and its chunks with their checksums."""
    with reading(path), opened(path) as file:
        if not is_seekable(path, file):
            if not isinstance(store, FolderStore):
                raise UsageError(f"input {path}: cannot be read from the middle. Unpack it to a file first.")
            return _unpack(file, path, tally, Path(os.path.abspath(store.place), "inputs"))
        before = state_of(path)
        tally.read(file, path, before[0])
        if state_of(path) != before:
            raise SgdecError(f"input {path}: changed while it was read. Start again when it is complete.")
        return tally.input(path, absolute(path), before[1]), tally.chunks


def _unpack(file: IO[bytes], path: str, tally: LineTally, folder: Path) -> tuple[Input, ChunkTable]:
    """The same while a copy is written, whose name is its hash, so that another content is another file."""
    folder.mkdir(parents=True, exist_ok=True)
    beside = folder / f".{uuid.uuid4().hex}"
    try:
        with open(beside, "wb") as copy:
            tally.read(file, path, None, copy)
            os.fsync(copy.fileno())
        place = folder / f"{tally.sha256[:16]}.txt"
        if not publish(beside, place) and not _is_copy(place, tally.sha256):
            os.replace(beside, place)  # somebody has changed the copy of an earlier start
        name = "standard input" if path == "-" else path
        log.info(f"{name}: unpacked to {place}, where workers read it.")
        return tally.input(path, str(place), os.stat(place).st_mtime_ns), tally.chunks
    finally:
        beside.unlink(missing_ok=True)


def _is_copy(place: Path, sha256: str) -> bool:
    from sgdec.signature import content_hash  # slow to import

    return content_hash(place) == sha256


class _Tally:
    """Counts the lines of one input while it is read, and divides them into chunks."""

    def __init__(self, number: int, first: int, size: int) -> None:
        self._number, self._first, self._size = number, first, size
        self._digest = hashlib.sha256()
        self._rows = array("q")
        self._lines = self._held = self._begin = self._end = self._crc = 0

    def read(self, file: IO[bytes], name: str, bytes: int | None, copy: IO[bytes] | None = None) -> None:
        """Read all, of this number of bytes if it is known; ``copy`` gets them too.

        Raises SgdecError for UTF-16, which would have other lines.
        """
        last, mark = b"\n", False
        total = None if bytes is None else bytes >> 20
        with Bar(f"reading {name}", log, unit="MiB", total=total) as bar:
            while block := file.read(BLOCK):
                mark = not self._end and not without_mark(block, name)
                self._add(block)
                if copy is not None:
                    copy.write(block)
                bar.advance(len(block) >> 20)
                last = block[-1:]
        self._held += last != b"\n" and not mark  # the last line may lack its end; a byte order mark alone is none
        if self._held:
            self._close()

    @property
    def chunks(self) -> ChunkTable:
        return ChunkTable(np.frombuffer(self._rows, dtype=np.int64))

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    def input(self, path: str, place: str, modified: int) -> Input:
        return Input(path, place, self._end, modified, self.sha256, self._lines)

    def _add(self, block: bytes) -> None:
        self._digest.update(block)
        ends: npt.NDArray[np.intp] = np.flatnonzero(np.frombuffer(block, dtype=np.uint8) == ord("\n")) + 1
        view, begin, used = memoryview(block), 0, 0
        while len(ends) - used >= (missing := self._size - self._held):
            used += missing
            end = int(ends[used - 1])
            self._count(view[begin:end], missing)
            self._close()
            begin = end
        self._count(view[begin:], len(ends) - used)

    def _count(self, piece: memoryview, ends: int) -> None:
        self._crc = zlib.crc32(piece, self._crc)
        self._end += len(piece)
        self._held += ends

    def _close(self) -> None:
        line, id = self._lines + 1, self._first + self._lines
        self._rows.extend(Chunk(self._number, line, self._held, self._begin, self._end, self._crc, id))
        self._lines += self._held
        self._begin, self._crc, self._held = self._end, 0, 0
