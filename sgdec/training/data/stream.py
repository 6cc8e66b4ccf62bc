"""Training text of any length: short text is held in memory, long text is tokenised once into shards on disk.

With shards (`shards.py`), memory holds about one shard's tokens and one block of lines. The shards are in the run's
folder, and a resumed run uses them again if files, tokenizers and limits are the same. Otherwise new shards are made
beside the old ones and replace them only if the run accepts the new text. The shards can be removed while no training
is running.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import chain
from logging import Logger
from pathlib import Path
from typing import Any

from sgdec.checkpoints import files
from sgdec.errors import SgdecError, UsageError
from sgdec.terminal import Bar
from sgdec.text.vocabulary import StoredVocabulary
from sgdec.training.data.dealing import write_shards
from sgdec.training.data.reading import LengthLimits, LineBlock, count_lines, read_blocks, require_some
from sgdec.training.data.shards import ShardedText
from sgdec.training.data.text import MonolingualText, ParallelText, Text
from sgdec.training.run.alone import in_turn

FOLDER = "text"
"""The folder of the shards, inside the folder of a run."""


def open_text(
    paths: Sequence[str],
    source: StoredVocabulary | None,
    target: StoredVocabulary,
    limits: LengthLimits,
    *,
    run: Path,
    shard_tokens: int,
    log: Logger,
    accept: Callable[[Text], None] = lambda text: None,
) -> Text:
    """The text in memory, as from `read_text`, if it has at most ``shard_tokens`` tokens (0: always); else in shards.

    ``accept`` raises an error for a text that must not be used. It is called for new shards before they replace
    earlier ones. Raises `SgdecError` as `read_text` does, and if the disk is full. Raises `UsageError` for a long
    text that does not come from regular files.
    """
    vocabularies = (target,) if source is None else (source, target)
    unit = "lines" if source is None else "pairs"
    made_of = {
        "files": [_identity(path) for path in paths],
        "vocabularies": [vocabulary.fingerprint for vocabulary in vocabularies],
        "limits": list(limits),
        "shard_tokens": shard_tokens,
    }
    if shard_tokens and files.unsettled(run / FOLDER):  # another process is writing the shards, or died while writing
        with _in_turn(run, log):
            files.settle(run / FOLDER)
    if shard_tokens and (found := _find(run / FOLDER, made_of, accept)):
        return found
    blocks: list[LineBlock] = []
    tokens = 0
    reader = read_blocks(paths, vocabularies, limits)
    for block in reader:
        blocks.append(block)
        tokens += block.tokens
        if 0 < shard_tokens < tokens:
            break
    else:
        text = MonolingualText.of(blocks) if source is None else ParallelText.of(blocks)
        require_some(len(text), text.left_out, paths, unit.removesuffix("s"))
        accept(text)
        return text

    if not all(Path(path).is_file() for path in paths):
        raise UsageError(
            f"--train: a text of more than {shard_tokens} tokens is read twice to write it into shards, which needs "
            "regular files. Give files, or --shard-tokens 0 to hold the text in memory."
        )
    with _in_turn(run, log):
        if found := _find(run / FOLDER, made_of, accept):
            return found
        with Bar("counting lines", log):
            lines = count_lines(paths)
        log.info(f"{lines} {unit} have more than {shard_tokens} tokens: preparing shards in {run / FOLDER}")
        shown = _shown(chain(_emptying(blocks), reader), lines, log)

        def write(folder: Path) -> None:
            sizes = [vocabulary.size for vocabulary in vocabularies]
            write_shards(folder, shown, shard_tokens, sizes, log, unit=unit, made_of=made_of)
            accept(ShardedText(folder))

        files.write_folder(run / FOLDER, write, advice="Give an --output on a disk with more room.")
    return ShardedText(run / FOLDER)


def _identity(path: str) -> list[Any]:
    """Path, size and time of the last change of a file, to notice that it changed."""
    try:
        status = os.stat(path)
    except OSError:  # its reader reports the error
        return [path]
    return [os.path.abspath(path), status.st_size, status.st_mtime_ns]


def _find(folder: Path, made_of: dict[str, Any], accept: Callable[[Text], None]) -> ShardedText | None:
    """The existing shards, if they are complete and of the same text, else None."""
    if not folder.is_dir():
        return None
    try:
        text = ShardedText(folder)
    except SgdecError:  # damaged, or of another version of sgdec
        return None
    if text.made_of != made_of:
        return None
    accept(text)
    return text


def _in_turn(run: Path, log: Logger) -> AbstractContextManager[None]:
    return in_turn(run, lambda: log.info("waiting for the process that prepares the text"))


def _emptying(blocks: list[LineBlock]) -> Iterator[LineBlock]:
    """The blocks in order; each is removed from the list when it is yielded, which frees its memory."""
    blocks.reverse()
    while blocks:
        yield blocks.pop()


def _shown(blocks: Iterable[LineBlock], lines: int, log: Logger) -> Iterator[LineBlock]:
    """The blocks, with a progress bar on a terminal."""
    with Bar("preparing text", log, unit="lines", total=lines) as bar:
        for block in blocks:
            yield block
            bar.advance(block.size)
