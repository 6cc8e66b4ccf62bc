"""Writing the shards of `shards.py`: examples are dealt to them at random, some millions of tokens at a time."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sgdec.training import files
from sgdec.training.reading import Block
from sgdec.training.shards import FORMAT, MANIFEST, NUMBER, shard_file


class Examples(NamedTuple):
    """Some examples as arrays."""

    rows: npt.NDArray[Any]
    """[n, 1 + sides] line number and lengths, the target's first"""
    tokens: list[npt.NDArray[Any]]
    """A flat array a side, the target's first"""


def write_shards(
    folder: Path, blocks: Iterable[Block], shards: int, vocab_sizes: Sequence[int], *, hold: int, **facts: Any
) -> None:
    """Write all examples into so many shards, and ``facts`` into the manifest.

    ``vocab_sizes``: of the sides, in the order of the blocks; ``hold``: how many tokens may be in memory. Where
    examples go depends on the text, ``shards`` and ``hold`` alone. Raises OSError if the disk is full.
    """
    kinds = [np.dtype("<u2" if size <= 1 << 16 else "<u4") for size in _target_first(vocab_sizes)]
    parts = ["examples", *(f"side-{side}" for side in range(len(kinds)))]
    for number in range(shards):
        for part in parts:
            shard_file(folder, number, part).touch()
    left_out: Counter[str] = Counter()
    totals = np.zeros((len(parts), shards), dtype=np.int64)  # examples, then tokens a side
    digest, generator = hashlib.sha256(), np.random.default_rng(shards)
    for examples in _gathered(blocks, kinds, hold, left_out):
        for array in (examples.rows, *examples.tokens):
            digest.update(array.tobytes())
        totals += _deal(folder, examples, generator.permutation(len(examples.rows)) % shards, shards)
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
    blocks: Iterable[Block], kinds: Sequence[np.dtype[Any]], hold: int, left_out: Counter[str]
) -> Iterator[Examples]:
    """Blocks together until they have ``hold`` tokens; counts what they left out."""
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


def _arrays(block: Block, kinds: Sequence[np.dtype[Any]]) -> Examples:
    sides = _target_first(block.sides)
    rows = np.array([block.lines, *([len(tokens) for tokens in side] for side in sides)], dtype=NUMBER).T
    return Examples(rows, [np.fromiter(chain.from_iterable(s), kind) for s, kind in zip(sides, kinds, strict=True)])


def _together(parts: Sequence[Examples]) -> Examples:
    rows, tokens = zip(*parts, strict=True)
    return Examples(np.concatenate(rows), [np.concatenate(side) for side in zip(*tokens, strict=True)])


def _deal(folder: Path, examples: Examples, shard_of: npt.NDArray[np.int64], shards: int) -> npt.NDArray[np.int64]:
    """Append each example to its shard: [1 + sides, shards] how many examples, and tokens a side, went to each."""
    order = np.argsort(shard_of, kind="stable")
    rows = examples.rows[order]
    ends = np.searchsorted(shard_of[order], np.arange(shards), "right")  # [shards] in the order
    _append(folder, "examples", rows, ends)
    totals = [np.diff(ends, prepend=0)]
    for side, tokens in enumerate(examples.tokens):
        before = examples.rows[:, 1 + side].astype(np.int64)
        lengths, starts = before[order], (np.cumsum(before) - before)[order]
        placed = np.cumsum(lengths)  # where the tokens of an example end, in the order
        dealt = tokens[np.repeat(starts - (placed - lengths), lengths) + np.arange(len(tokens))]
        token_ends = np.concatenate([[0], placed])[ends]
        _append(folder, f"side-{side}", dealt, token_ends)
        totals.append(np.diff(token_ends, prepend=0))
    return np.stack(totals)


def _append(folder: Path, part: str, array: npt.NDArray[Any], ends: npt.NDArray[np.int64]) -> None:
    """Cut an array at ``ends`` and append each piece to the file of its shard."""
    for number, piece in enumerate(np.split(array, ends[:-1])):
        if len(piece):
            with open(shard_file(folder, number, part), "ab") as file:
                file.write(piece.tobytes())
