"""The versions of the files that lines read: those of patterns such as ``lattices/{id}.fst``.

The signature of a run has only the first file of a pattern. So each result lists what its lines read, and a later
start, the status and the merge compare. Files of a line that failed are not compared: it has no output.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, NamedTuple

from sgdec.errors import SgdecError
from sgdec.io import patterns


class Version(NamedTuple):
    """A file of a pattern as it was."""

    id: int
    """The line that read it."""
    path: str
    """As the option has it: it refers to the working directory of the run."""
    sha256: str | None
    """None: there was no such file."""
    size: int
    modified: int
    """The time of its last change in nanoseconds."""


def patterns_in(options: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The patterns among the options of predictors and decoders."""
    values = (value for of_one in options.values() for value in of_one.values())
    return list(dict.fromkeys(filter(patterns.is_pattern, chain.from_iterable(map(patterns.named, values)))))


def versions_now(listed: Iterable[str], ids: range) -> tuple[Version, ...]:
    """The versions of the files of these patterns for these lines."""
    return tuple(_version(id, patterns.path_of(pattern, id)) for pattern in listed for id in ids)


def refuse_changed_meanwhile(before: Iterable[Version], what: str) -> None:
    """Raises SgdecError if a file has changed while ``what`` (such as "chunk 2 was decoded")."""
    for version in before:
        if _stamp(version.path) != (version.size, version.modified):
            raise SgdecError(f"{version.path} changed while {what}. Start again when it is complete.")


def changed(before: Iterable[Version], folder: str) -> Iterator[Version]:
    """Those of which there is another version now. `gone` counts the files that are not there."""
    for version in before:
        path = os.path.join(folder, version.path)
        now = _stamp(path)
        if now not in ((version.size, version.modified), _NONE) and _hash(path) != version.sha256:
            yield version


def gone(before: Iterable[Version], folder: str) -> int:
    """The number of files that were there and cannot be compared any more."""
    return sum(
        version.sha256 is not None and _stamp(os.path.join(folder, version.path)) == _NONE for version in before
    )


_NONE = (-1, 0)


def _version(id: int, path: str) -> Version:
    size, modified = _stamp(path)
    return Version(id, path, _hash(path), size, modified)


def _hash(path: str) -> str | None:
    from sgdec.signature import content_hash  # slow to import, and most runs have no patterns

    return content_hash(path)


def _stamp(path: str) -> tuple[int, int]:
    """Size and time of a file; they differ after a change."""
    try:
        found = os.stat(path)
    except OSError:
        return _NONE
    return found.st_size, found.st_mtime_ns
