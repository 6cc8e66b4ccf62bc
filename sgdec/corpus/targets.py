"""The outputs to score: which lines of their file belong to which chunk of the inputs.

Line N of the file belongs to line N of all inputs, and an entry of an n-best list to the line that its id names. The
lines of a chunk are a `Chunk` too, which can be empty for a list: ``line`` and ``lines`` count in the file. ``id`` is
the number that a list has for the first line of the chunk, so it is one less in a list that counts from 0.
"""

from __future__ import annotations

import hashlib
import logging
import zlib
from collections.abc import Callable, Sequence
from typing import IO, NamedTuple

import numpy as np

from sgdec.corpus.chunk_lines import lines_of_chunk
from sgdec.corpus.manifest import BLOCK, Chunk, ChunkTable, Input, Manifest, is_unchanged, survey_file
from sgdec.corpus.stores import Store
from sgdec.errors import SgdecError, counted
from sgdec.io.limits import bounded_lines
from sgdec.io.nbest import NbestEntry, offset_of, parse_entry, refuse_descent, shifted
from sgdec.terminal import Bar
from sgdec.text.lines import name_of, without_mark

log = logging.getLogger(__name__)


class Target(NamedTuple):
    """An output to score."""

    text: str
    """Text or token ids, as in the file."""
    where: str
    """``FILE: line N``, for errors."""
    entry: NbestEntry | None
    """Its entry, if the file is an n-best list."""


def targets_of(manifest: Manifest, number: int, ids: range) -> list[list[Target]]:
    """For each of these lines of a chunk its outputs: one, or the entries of a list.

    Raises SgdecError if the file has changed.
    """
    (file,) = manifest.targets
    chunk, own = manifest.chunks[number], manifest.target_chunks[number]
    found: dict[int, list[Target]] = {id: [] for id in ids}
    for place, line in enumerate(lines_of_chunk(file, own)):
        where = f"{name_of(file.path)}: line {own.line + place}"
        text, entry, id = _text(line, where), None, chunk.id + place
        if manifest.nbest_list:
            entry = shifted(parse_entry(text, where), chunk.id - own.id)
            text, id = entry.text, entry.id
        if id in found:
            found[id].append(Target(text, where, entry))
    return list(found.values())


def survey_target(
    path: str,
    inputs: Sequence[Input],
    chunks: ChunkTable,
    store: Store,
    *,
    nbest_list: bool,
    check: Callable[[NbestEntry], object],
    known: Manifest | None = None,
) -> tuple[Input, ChunkTable]:
    """The file of the outputs, and its lines for each chunk of the inputs.

    It is read before work begins, because a defect that ends ``sgdec score`` must not be found after days: raises
    SgdecError for lines that do not match those of the inputs, that are not UTF-8 or no entries of a list. ``check``
    may raise it too, for an entry. A file that has not changed since the manifest ``known`` is not read again.
    """
    if known is not None and is_unchanged(path, known.targets):
        return known.targets[0], known.target_chunks
    read_from = " and ".join(name_of(each.path) for each in inputs)
    tally: _Tally = _ListTally(path, read_from, chunks, check) if nbest_list else _Tally(path, read_from, chunks)
    return survey_file(path, tally, store)


def _text(line: bytes | SgdecError, where: str) -> str:
    if isinstance(line, SgdecError):
        raise SgdecError(f"{where}: {line}")
    try:
        return line.rstrip(b"\r\n").decode()
    except UnicodeDecodeError as error:
        raise SgdecError(f"{where} is not UTF-8 (byte {error.start + 1} of it). Convert the file.") from None


class _Tally:
    """Divides the lines of a file of outputs among the chunks of the inputs while it is read."""

    def __init__(self, path: str, read_from: str, chunks: ChunkTable) -> None:
        self._name, self._read_from = name_of(path), read_from
        self._last: list[int] = np.cumsum(chunks.rows[:, 2]).tolist()
        """The last line of each chunk, among those of all inputs."""
        self._digest = hashlib.sha256()
        self._rows: list[Chunk] = []
        self._lines = self._held = self._begin = self._end = self._crc = 0

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    @property
    def chunks(self) -> ChunkTable:
        return ChunkTable.of(self._rows)

    def input(self, path: str, place: str, modified: int) -> Input:
        return Input(path, place, self._end, modified, self.sha256, self._lines)

    def read(self, file: IO[bytes], name: str, bytes: int | None, copy: IO[bytes] | None = None) -> None:
        total = None if bytes is None else bytes // BLOCK
        with Bar(f"reading {name}", log, unit="MiB", total=total) as bar:
            for raw in bounded_lines(file):
                if isinstance(raw, SgdecError):
                    raise SgdecError(f"{self._name}: line {self._lines + 1}: {raw}")
                line = raw if self._end else without_mark(raw, self._name)
                if line:  # otherwise the file has only the mark
                    self._count(_text(line, f"{self._name}: line {self._lines + 1}"))
                bar.advance((self._end + len(raw)) // BLOCK - self._end // BLOCK)
                self._digest.update(raw)
                self._crc = zlib.crc32(raw, self._crc)
                self._end += len(raw)
                if copy is not None:
                    copy.write(raw)
        self._finish()

    def _count(self, text: str) -> None:
        """Take note of the next line, and close the chunks before the one to which it belongs."""
        line = self._line_of(text)
        while len(self._rows) < len(self._last) - 1 and line > self._last[len(self._rows)]:
            self._close()
        self._lines += 1
        self._held += 1

    def _line_of(self, text: str) -> int:
        """The line of the inputs to which the next line belongs."""
        return self._lines + 1

    def _first_id(self) -> int:
        """The number of the first line of the inputs, as the file counts."""
        return 1

    def _close(self) -> None:
        number = len(self._rows)
        id = self._first_id() + (self._last[number - 1] if number else 0)
        first = self._lines - self._held + 1
        self._rows.append(Chunk(0, first, self._held, self._begin, self._end, self._crc, id))
        self._begin, self._crc, self._held = self._end, 0, 0

    def _finish(self) -> None:
        if self._lines != self._last[-1]:
            raise SgdecError(
                f"{self._name} has {counted(self._lines, 'line')}, and there are {self._last[-1]:,} in "
                f"{self._read_from}. Expected one output for each; --nbest-list, after `--`, reads an n-best list."
            )
        self._close()


class _ListTally(_Tally):
    """The same for an n-best list."""

    def __init__(
        self, path: str, read_from: str, chunks: ChunkTable, check: Callable[[NbestEntry], object]
    ) -> None:
        super().__init__(path, read_from, chunks)
        self._check = check
        self._offset: int | None = None
        self._listed = self._id = 0
        """The lines of the inputs with entries, and the last one of them."""

    def _line_of(self, text: str) -> int:
        entry = parse_entry(text, f"{self._name}: line {self._lines + 1}")
        if self._offset is None:
            self._offset = offset_of(entry)
        entry = shifted(entry, self._offset)
        if entry.id != self._id:
            refuse_descent(entry, self._id)
            if entry.id > self._last[-1]:
                raise SgdecError(f"{entry.where}: {self._read_from} has no sentence {entry.id}.")
            self._listed, self._id = self._listed + 1, entry.id
        self._check(entry)
        return entry.id

    def _first_id(self) -> int:
        return 1 - (self._offset or 0)

    def _finish(self) -> None:
        while len(self._rows) < len(self._last):
            self._close()
        if missing := self._last[-1] - self._listed:
            of = f"{self._last[-1]} sentences of {self._read_from}"
            log.warning(f"{missing} of {of} have no entry in {self._name}.")
