"""The lines of a chunk as workers read them, compared with the checksum in the manifest."""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator

from sgdec.corpus.inputs import absolute, read_range
from sgdec.corpus.manifest import Chunk, Input
from sgdec.errors import SgdecError
from sgdec.io.limits import bounded_lines
from sgdec.text.lines import text_lines


def lines_of_chunk(file: Input, chunk: Chunk) -> Iterator[bytes | SgdecError]:
    """The lines of a chunk of this file, with their line ends; an error in the place of a line that is too long.

    Raises SgdecError if they are not those of the manifest.
    """
    if chunk.begin == chunk.end:
        return iter(())
    content = io.BytesIO(_content(file, chunk))
    return bounded_lines(content) if chunk.begin else text_lines(content, file.path)


def _content(file: Input, chunk: Chunk) -> bytes:
    data = read_range(file.place, chunk.begin, chunk.end)
    if zlib.crc32(data) != chunk.crc:
        copy = "" if absolute(file.path) == file.place else f" in its unpacked copy {file.place}"
        remedy = "Remove it, and start again" if copy else "Restore them, or begin another folder"
        raise SgdecError(
            f"input {file.path}: lines {chunk.line} to {chunk.line + chunk.lines - 1} have changed{copy} since the "
            f"folder was begun. {remedy}."
        )
    return data
