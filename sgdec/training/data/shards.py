"""Text on disk, for corpora larger than memory: token ids in shards, each a random sample of the whole text.

    TEXT/shard-00000.examples    one row per example, uint32: line number, tokens of the target, tokens of the source
         shard-00000.side-0      the target's token ids, one example after the other: uint16 or uint32
         shard-00000.side-1      the source's token ids, if any
         manifest.json           the files and settings it was made from, and sizes; written last
         batches.json            the number of batches of each shard, once they are counted

All numbers are little-endian. `dealing.py` deals examples to shards at random, so each shard has examples from all
parts of the text, even if the files are sorted. Therefore one shard at a time in memory is enough: an epoch visits
the shards in random order and cuts each into batches as it cuts a text in memory. The number of batches of a shard is
the same in every order. So the shard of batch n of an epoch is known without cutting the shards before it. The
batches are counted once, which takes some seconds per million examples.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from sgdec.arrays import Ints
from sgdec.checkpoints import files
from sgdec.errors import SgdecError
from sgdec.training.data.batch import TrainingBatch, make_batch
from sgdec.training.data.budget import BatchBudget, TokenCounts, cut
from sgdec.training.data.text import Text

FORMAT = 1
MANIFEST, COUNTS = "manifest.json", "batches.json"
NUMBER = np.dtype("<u4")
AGAIN = "Continue with --resume: the text is prepared again."


class Shard(NamedTuple):
    """One shard in memory."""

    lines: Ints
    """[n] line numbers"""
    lengths: Ints
    """[n, sides] tokens, the target first"""
    starts: Ints
    """[n, sides] position of an example's first token"""
    tokens: tuple[npt.NDArray[Any], ...]
    """One flat array of token ids per side"""

    def rows(self, side: int, examples: Sequence[int]) -> list[list[int]]:
        """The token ids of one side of some examples."""
        starts, lengths = self.starts[examples, side].tolist(), self.lengths[examples, side].tolist()
        return [self.tokens[side][s : s + n].tolist() for s, n in zip(starts, lengths, strict=True)]


class ShardedText(Text):
    """A text in a folder. Its examples are numbered consecutively through the shards."""

    def __init__(self, folder: Path) -> None:
        """Raises `SgdecError` if a file that the manifest lists is missing or has another size."""
        self.folder = folder
        self.manifest = files.read_json(folder / MANIFEST)
        if self.manifest.get("format") != FORMAT:
            raise SgdecError(f"{folder}: text of format {self.manifest.get('format')!r}, expected {FORMAT}.")
        self.left_out = self.manifest["left_out"]
        self.made_of: dict[str, Any] = self.manifest["made_of"]
        self.sides = len(self.manifest["types"])
        self.examples = np.array(self.manifest["examples"])  # [shards]
        self.first = np.cumsum(self.examples) - self.examples
        self._check_sizes()
        self._shard = lru_cache(maxsize=1)(self._read)
        self._counts: dict[BatchBudget, Ints] = {}

    @property
    def unit(self) -> str:
        return str(self.manifest["unit"])

    @property
    def fingerprint(self) -> str:
        return f"{len(self)} {self.unit} {self.manifest['hash']} in {len(self.examples)} shards"

    def __len__(self) -> int:
        return int(self.examples.sum())

    def batches(self, budget: int | BatchBudget, *, order: tuple[int, int] | None = None) -> Sequence[list[int]]:
        return ShardedBatches(self, TokenCounts(budget) if isinstance(budget, int) else budget, order)

    def batch(self, examples: Sequence[int]) -> TrainingBatch:
        number = int(np.searchsorted(self.first, examples[0], "right")) - 1
        shard = self._shard(number)
        own = [n - int(self.first[number]) for n in examples]
        return make_batch(shard.lines[own].tolist(), *(shard.rows(side, own) for side in range(self.sides)))

    def sample(self) -> tuple[Sequence[int], Ints]:
        number = int(self.examples.argmax())
        first = int(self.first[number])
        return range(first, first + int(self.examples[number])), self._rows(number)[:, 1:]

    def target_counts(self, vocab_size: int) -> Ints:
        counts = np.zeros(vocab_size, dtype=np.int64)
        for number in range(len(self.examples)):
            counts += np.bincount(self._tokens(number, 0), minlength=vocab_size)
        return counts

    def counts(self, budget: BatchBudget) -> Ints:
        """[shards] the number of batches of each shard. The folder stores the counts for the latest budget."""
        if budget not in self._counts:
            counts = self._stored_counts(budget)
            if counts is None:
                counts = [len(self.cut(n, budget)) for n in range(len(self.examples))]
                self._store_counts(budget, counts)
            self._counts = {budget: np.array(counts)}
        return self._counts[budget]

    def _stored_counts(self, budget: BatchBudget) -> list[int] | None:
        """The counts in the folder; None if they are missing, damaged, or of another text or budget."""
        try:
            stored = files.read_json(self.folder / COUNTS)
        except SgdecError:
            return None
        same = (stored.get("text"), stored.get("budget")) == (self.fingerprint, repr(budget))
        counts = stored.get("batches")
        return counts if same and isinstance(counts, list) and len(counts) == len(self.examples) else None

    def _store_counts(self, budget: BatchBudget, counts: list[int]) -> None:
        """Write the counts in one atomic operation, because ranks may write the same content at the same time.

        On a full disk nothing is stored.
        """
        stored = {"text": self.fingerprint, "budget": repr(budget), "batches": counts}
        with contextlib.suppress(OSError), tempfile.TemporaryDirectory(dir=self.folder) as folder:
            files.write_json(Path(folder) / COUNTS, stored)
            (Path(folder) / COUNTS).replace(self.folder / COUNTS)

    def cut(self, number: int, budget: BatchBudget, generator: np.random.Generator | None = None) -> list[list[int]]:
        """The batches of a shard, as numbers of its examples from 0."""
        return cut(self._rows(number)[:, 1:], budget, generator)

    def _read(self, number: int) -> Shard:
        rows = self._rows(number)
        lengths = rows[:, 1:]
        tokens = tuple(self._tokens(number, side) for side in range(self.sides))
        return Shard(rows[:, 0], lengths, np.cumsum(lengths, axis=0) - lengths, tokens)

    def _rows(self, number: int) -> Ints:
        """[examples, 1 + sides] line number and lengths."""
        numbers = self._numbers(number, "examples", NUMBER)
        return numbers.reshape(-1, 1 + self.sides).astype(np.int64)

    def _tokens(self, number: int, side: int) -> npt.NDArray[Any]:
        return self._numbers(number, f"side-{side}", np.dtype(self.manifest["types"][side]))

    def _numbers(self, number: int, part: str, kind: np.dtype[Any]) -> npt.NDArray[Any]:
        file = shard_file(self.folder, number, part)
        try:
            return np.fromfile(file, kind)
        except OSError as error:
            raise SgdecError(f"{file}: cannot be read ({error.strerror}). {AGAIN}") from None

    def _check_sizes(self) -> None:
        row = NUMBER.itemsize * (1 + self.sides)
        sizes = {"examples": [row * n for n in self.manifest["examples"]]}
        for side, kind in enumerate(self.manifest["types"]):
            sizes[f"side-{side}"] = [np.dtype(kind).itemsize * n for n in self.manifest["tokens"][side]]
        for part, expected in sizes.items():
            for number, size in enumerate(expected):
                file = shard_file(self.folder, number, part)
                if not file.is_file() or file.stat().st_size != size:
                    raise SgdecError(f"{file}: the file is missing or damaged. {AGAIN}")


class ShardedBatches(Sequence[list[int]]):
    """The batches of one epoch, with examples numbered as in the text. A shard is cut when a batch of it is read."""

    def __init__(self, text: ShardedText, budget: BatchBudget, order: tuple[int, int] | None) -> None:
        self.text, self.budget, self.order = text, budget, order
        self.counts = text.counts(budget)
        self.shards = np.arange(len(self.counts))
        if order is not None:
            np.random.default_rng(order).shuffle(self.shards)
        self.ends = np.cumsum(self.counts[self.shards])
        self._cut = lru_cache(maxsize=1)(self._cut_shard)

    def __len__(self) -> int:
        return int(self.ends[-1])

    @overload
    def __getitem__(self, n: int) -> list[int]: ...
    @overload
    def __getitem__(self, n: slice) -> list[list[int]]: ...
    def __getitem__(self, n: int | slice) -> list[int] | list[list[int]]:
        if isinstance(n, slice):
            return [self[k] for k in range(*n.indices(len(self)))]
        n = range(len(self))[n]
        place = int(np.searchsorted(self.ends, n, "right"))
        batches = self._cut(int(self.shards[place]))
        return batches[n - int(self.ends[place])]  # counted from the shard's end

    def _cut_shard(self, number: int) -> list[list[int]]:
        generator = None if self.order is None else np.random.default_rng((*self.order, number + 1))
        first = int(self.text.first[number])
        batches = self.text.cut(number, self.budget, generator)
        if len(batches) != self.counts[number]:
            raise SgdecError(
                f"{self.text.folder / COUNTS}: {self.counts[number]} batches for shard {number}, but it has "
                f"{len(batches)}. Remove the file: the batches are then counted again."
            )
        return [[first + n for n in batch] for batch in batches]


def shard_file(folder: Path, number: int, part: str) -> Path:
    """The file of one part of a shard."""
    return folder / f"shard-{number:05}.{part}"
