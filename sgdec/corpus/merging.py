"""The results of all chunks as one output, in the order of the input."""

from __future__ import annotations

import logging
import zipfile
from collections.abc import Callable, Iterator
from typing import IO

from sgdec.corpus.checking import Results
from sgdec.corpus.manifest import Manifest
from sgdec.corpus.results import ChunkResult, Failure
from sgdec.corpus.rows import Layout, as_output
from sgdec.corpus.stores import Store
from sgdec.errors import SgdecError

log = logging.getLogger(__name__)

_THEN = (1980, 1, 1, 0, 0, 0)


def results(store: Store, manifest: Manifest) -> Iterator[ChunkResult]:
    """The results of the chunks in order, one in memory at a time.

    Raises SgdecError if one is missing or cannot be used.
    """
    known, gone = Results(store, manifest), 0
    for number, chunk in enumerate(manifest.chunks):
        found = known.checked(number)
        if found is None:
            raise SgdecError(
                f"{store}: chunk {number} (lines {chunk.id} to {chunk.id + chunk.lines - 1}) has no result yet. "
                "Start `sgdec corpus` with the same options again: it continues."
            )
        if not found.recorded:
            try:
                known.settle(number, found.receipt)
            except SgdecError as error:  # a folder that can only be read has all that the merge needs
                log.debug(str(error))
        gone += found.gone
        yield found.result
    if gone:
        log.info(f"Note: {gone:,} files of patterns that lines have read are gone, so they were not compared.")


def merge(
    store: Store,
    manifest: Manifest,
    output: IO[bytes],
    failed: Callable[[Failure], object],
    advanced: Callable[[int], object] = lambda lines: None,
) -> int:
    """Write all rows, as one process does; for lattices a zip file with one for each line. Returns the number of
    failed lines.

    ``failed`` gets each failed line, ``advanced`` the number of lines of each chunk.
    """
    if manifest.layout is Layout.FILES:
        with zipfile.ZipFile(output, "w") as packed:
            return _merge(store, manifest, lambda result: _add(packed, result), failed, advanced)
    return _merge(
        store, manifest, lambda result: output.write(as_output(manifest.layout, result.rows)), failed, advanced
    )


def _merge(
    store: Store,
    manifest: Manifest,
    put: Callable[[ChunkResult], object],
    failed: Callable[[Failure], object],
    advanced: Callable[[int], object],
) -> int:
    failures = 0
    for result in results(store, manifest):
        put(result)
        for failure in result.failed:
            failed(failure)
        failures += len(result.failed)
        advanced(result.lines)
    return failures


def _add(packed: zipfile.ZipFile, result: ChunkResult) -> None:
    for name, content in sorted(result.files.items(), key=lambda item: (len(item[0]), item[0])):
        member = zipfile.ZipInfo(name, _THEN)
        member.compress_type = zipfile.ZIP_DEFLATED
        packed.writestr(member, content)
