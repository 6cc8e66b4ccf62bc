"""Writing the shards of `shards.py`: examples are dealt to the shards at random, some millions of tokens at a time.

First the tokenised text is written to disk in its own order, in stretches of about a shard's tokens each. Once all of
it is tokenised, the number of shards is known, and the examples of each stretch in turn are dealt to all shards.

Whatever the order of the text, each example is equally likely to be dealt to any shard. The expected size of a shard
is therefore at most ``shard_tokens`` tokens; only chance makes one larger. The standard deviation is below
sqrt(shard_tokens L), with L the number of tokens of the longest example. This is the standard deviation if each
example drew its shard independently; a stretch is dealt in equal shares, which vary less. For 5 million tokens and
L = 500 it is 1 %.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from logging import Logger
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sgdec.arrays import Ints
from sgdec.checkpoints import files
from sgdec.terminal import track
from sgdec.training.data.reading import LineBlock
from sgdec.training.data.shards import FORMAT, MANIFEST, NUMBER, shard_file


class Examples(NamedTuple):
    """Some examples as arrays."""

    rows: npt.NDArray[Any]
    """[n, 1 + sides] line number and lengths, the target's first"""
    tokens: list[npt.NDArray[Any]]
    """One flat array of token ids per side, the target's first"""


def write_shards(
    folder: Path,
    blocks: Iterable[LineBlock],
    shard_tokens: int,
    vocab_sizes: Sequence[int],
    log: Logger,
    **facts: Any,
) -> None:
    """Write all examples into shards of at most ``shard_tokens`` tokens on average, and ``facts`` into the manifest.

    ``vocab_sizes``: the vocabulary size of each side, in the order of the blocks. The shard of an example depends
    only on the text and ``shard_tokens``. Memory holds about ``shard_tokens`` tokens; the disk holds the whole text
    once, and one more stretch. Raises OSError if the disk is full.
    """
    kinds = [np.dtype("<u2" if size <= 1 << 16 else "<u4") for size in _target_first(vocab_sizes)]
    parts = ["examples", *(f"side-{side}" for side in range(len(kinds)))]
    left_out: Counter[str] = Counter()
    stretches = tokens = 0
    for examples in _gathered(blocks, kinds, shard_tokens, left_out):
        _store(_stretch(folder, stretches), examples)
        stretches += 1
        tokens += sum(map(len, examples.tokens))

    shards = math.ceil(tokens / shard_tokens)
    for number in range(shards):
        for part in parts:
            shard_file(folder, number, part).touch()
    totals = np.zeros((len(parts), shards), dtype=np.int64)  # examples, then tokens of each side
    digest, generator = hashlib.sha256(), np.random.default_rng(shards)
    for number in track(range(stretches), f"dealing to {shards} shards", log, unit="parts", total=stretches):
        examples = _take(_stretch(folder, number))
        shard_of = generator.permutation(shards)[generator.permutation(len(examples.rows)) % shards]
        for array in (shard_of, examples.rows, *examples.tokens):
            digest.update(array.tobytes())
        totals += _deal(folder, examples, shard_of, shards)
    contents: Mapping[str, Any] = {
        "format": FORMAT,
        "types": [kind.str for kind in kinds],
        "examples": totals[0].tolist(),
        "tokens": totals[1:].tolist(),
        "left_out": left_out,
        "hash": digest.hexdigest()[:12],
    }
    files.write_json(folder / MANIFEST, {**contents, **facts})


def _target_first(sides: Sequence[Any]) -> list[Any]:
    return [sides[-1], *sides[:-1]]


def _gathered(
    blocks: Iterable[LineBlock], kinds: Sequence[np.dtype[Any]], hold: int, left_out: Counter[str]
) -> Iterator[Examples]:
    """The examples of consecutive blocks, joined until they have ``hold`` tokens; adds to the counts ``left_out``."""
    waiting: list[Examples] = []
    tokens = 0
    for block in blocks:
        left_out += block.left_out
        waiting.append(_arrays(block, kinds))
        tokens += block.tokens
        if tokens >= hold:
            yield _together(waiting)
            waiting, tokens = [], 0
    if waiting:
        yield _together(waiting)


def _stretch(folder: Path, number: int) -> Path:
    return folder / f"stretch-{number:05}.npz"


def _store(file: Path, examples: Examples) -> None:
    np.savez(file, examples.rows, *examples.tokens)


def _take(file: Path) -> Examples:
    """Read the stored examples and remove the file."""
    with np.load(file) as stored:
        rows, *tokens = (stored[name] for name in stored.files)
    file.unlink()
    return Examples(rows, tokens)


def _arrays(block: LineBlock, kinds: Sequence[np.dtype[Any]]) -> Examples:
    sides = _target_first(block.sides)
    rows = np.array([block.lines, *([len(tokens) for tokens in side] for side in sides)], dtype=NUMBER).T
    return Examples(rows, [np.fromiter(chain.from_iterable(s), kind) for s, kind in zip(sides, kinds, strict=True)])


def _together(parts: Sequence[Examples]) -> Examples:
    rows, tokens = zip(*parts, strict=True)
    return Examples(np.concatenate(rows), [np.concatenate(side) for side in zip(*tokens, strict=True)])


def _deal(folder: Path, examples: Examples, shard_of: Ints, shards: int) -> Ints:
    """Append each example to its shard.

    Returns [1 + sides, shards]: the number of examples that each shard received, then of its tokens per side.
    """
    order = np.argsort(shard_of, kind="stable")
    rows = examples.rows[order]
    ends = np.searchsorted(shard_of[order], np.arange(shards), "right")  # [shards] positions in ``order``
    _append(folder, "examples", rows, ends)
    totals = [np.diff(ends, prepend=0)]
    for side, tokens in enumerate(examples.tokens):
        before = examples.rows[:, 1 + side].astype(np.int64)
        lengths, starts = before[order], (np.cumsum(before) - before)[order]
        placed = np.cumsum(lengths)  # end of each example's tokens, in ``order``
        dealt = tokens[np.repeat(starts - (placed - lengths), lengths) + np.arange(len(tokens))]
        token_ends = np.concatenate([[0], placed])[ends]
        _append(folder, f"side-{side}", dealt, token_ends)
        totals.append(np.diff(token_ends, prepend=0))
    return np.stack(totals)


def _append(folder: Path, part: str, array: npt.NDArray[Any], ends: Ints) -> None:
    """Cut an array at ``ends`` and append each piece to the file of its shard."""
    for number, piece in enumerate(np.split(array, ends[:-1])):
        if len(piece):
            with open(shard_file(folder, number, part), "ab") as file:
                file.write(piece.tobytes())
