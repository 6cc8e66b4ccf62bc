"""Text as token ids, cut into batches of similar lengths: pairs of lines for translation, lines for a language model.

The order of an epoch is a function of (seed, epoch) alone, so a run can be resumed at any batch. A batch holds
examples of nearly equal lengths, so little is computed for padding. `reading.py` defines which lines are left out.
The texts here are held in memory; `shards.py` is for texts that are too long for that.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from sgdec.arrays import Ints
from sgdec.context import EOS
from sgdec.text.vocabulary import StoredVocabulary
from sgdec.training.data.batch import TrainingBatch, make_batch
from sgdec.training.data.budget import BatchBudget, cut
from sgdec.training.data.reading import LengthLimits, LineBlock, read_blocks, require_some

A = TypeVar("A")


class Text(ABC):
    """Examples as token ids, numbered from 0. Each has a target and, except for a language model, a source."""

    left_out: Mapping[str, int]
    """The number of examples left out for each reason."""

    @property
    @abstractmethod
    def unit(self) -> str:
        """The plural noun for examples in messages, such as "pairs"."""

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """The number of examples and a hash of their tokens: it identifies the text, whatever its file names."""

    @abstractmethod
    def __len__(self) -> int:
        """The number of examples."""

    @abstractmethod
    def batches(self, budget: int | BatchBudget, *, order: tuple[int, int] | None = None) -> Sequence[Sequence[int]]:
        """The example numbers of each batch; a batch is within the budget or has one example.

        ``budget``: an int means `TokenCounts`. ``order``: (seed, epoch), shuffles the examples of equal lengths, and
        the batches. The number of batches is the same in every order.
        """

    @abstractmethod
    def batch(self, examples: Sequence[int]) -> TrainingBatch:
        """The tensors of these examples, which must be one of the `batches` or a part of one."""

    @abstractmethod
    def sample(self) -> tuple[Sequence[int], Ints]:
        """A representative sample: the numbers of its examples and their lengths [examples, sides], target first."""

    @abstractmethod
    def target_counts(self, vocab_size: int) -> Ints:
        """[V] the number of occurrences of each token in the targets, without ``</s>``."""

    def log_frequencies(self, vocab_size: int) -> Tensor:
        """[V] ln of the relative frequency of each target token, including ``</s>``, with add-one smoothing."""
        counts = self.target_counts(vocab_size) + 1
        counts[EOS] += len(self)
        return torch.from_numpy(np.log(counts / counts.sum())).float()


class TextInMemory(Text):
    """Examples in lists in memory."""

    targets: list[list[int]]
    lines: list[int]
    """The line number of each example."""

    @abstractmethod
    def lengths(self) -> Ints:
        """[examples, sides] the lengths in tokens, the target first."""

    @abstractmethod
    def _tokens(self) -> Iterator[Sequence[int]]:
        """The token ids of all lines of all sides."""

    def __len__(self) -> int:
        return len(self.lines)

    def batches(self, budget: int | BatchBudget, *, order: tuple[int, int] | None = None) -> list[list[int]]:
        return cut(self.lengths(), budget, None if order is None else np.random.default_rng(order))

    @cached_property
    def fingerprint(self) -> str:
        digest = hashlib.sha256(self.lengths().tobytes())
        for tokens in self._tokens():
            digest.update(np.array(tokens, dtype=np.int64).tobytes())
        return f"{len(self)} {self.unit} {digest.hexdigest()[:12]}"

    def sample(self) -> tuple[Sequence[int], Ints]:
        return range(len(self)), self.lengths()

    def target_counts(self, vocab_size: int) -> Ints:
        return np.bincount([token for target in self.targets for token in target], minlength=vocab_size)


@dataclass(frozen=True)
class ParallelText(TextInMemory):
    """Line pairs."""

    unit = "pairs"
    sources: list[list[int]]
    targets: list[list[int]]
    lines: list[int]
    source_lines: list[str]
    target_lines: list[str]
    left_out: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def read(
        cls,
        paths: Sequence[str],
        source: StoredVocabulary,
        target: StoredVocabulary,
        limits: LengthLimits | None = None,
    ) -> ParallelText:
        """Read files with the same number of lines, the target last, and leave out bad pairs (`reading.py`).

        Raises `SgdecError` if the files differ in their number of lines, one cannot be read, or no pair is left.
        """
        text = cls.of(list(read_blocks(paths, (source, target), limits)))
        require_some(len(text), text.left_out, paths, "pair")
        return text

    @classmethod
    def of(cls, blocks: Sequence[LineBlock]) -> ParallelText:
        """The text of blocks that have been read already."""
        return cls(
            _joined(block.sides[0] for block in blocks),
            _joined(block.sides[1] for block in blocks),
            _joined(block.lines for block in blocks),
            _joined(block.texts[0] for block in blocks),
            _joined(block.texts[1] for block in blocks),
            sum((block.left_out for block in blocks), Counter()),
        )

    def _tokens(self) -> Iterator[Sequence[int]]:
        yield from self.sources
        yield from self.targets

    def lengths(self) -> Ints:
        return np.array([(len(t), len(s)) for s, t in zip(self.sources, self.targets, strict=True)])

    def batch(self, examples: Sequence[int]) -> TrainingBatch:
        targets, sources = [self.targets[n] for n in examples], [self.sources[n] for n in examples]
        return make_batch([self.lines[n] for n in examples], targets, sources)


@dataclass(frozen=True)
class MonolingualText(TextInMemory):
    """Lines of one language."""

    unit = "lines"
    targets: list[list[int]]
    lines: list[int]
    left_out: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def read(cls, path: str, vocabulary: StoredVocabulary, limits: LengthLimits | None = None) -> MonolingualText:
        """Read a file and leave out bad lines (`reading.py`). Raises `SgdecError` as `ParallelText.read` does."""
        text = cls.of(list(read_blocks([path], [vocabulary], limits)))
        require_some(len(text), text.left_out, [path], "line")
        return text

    @classmethod
    def of(cls, blocks: Sequence[LineBlock]) -> MonolingualText:
        """The text of blocks that have been read already."""
        return cls(
            _joined(block.sides[0] for block in blocks),
            _joined(block.lines for block in blocks),
            sum((block.left_out for block in blocks), Counter()),
        )

    def _tokens(self) -> Iterator[Sequence[int]]:
        yield from self.targets

    def lengths(self) -> Ints:
        return np.array([(len(target),) for target in self.targets])

    def batch(self, examples: Sequence[int]) -> TrainingBatch:
        return make_batch([self.lines[n] for n in examples], [self.targets[n] for n in examples])


def read_text(
    paths: Sequence[str],
    source: StoredVocabulary | None,
    target: StoredVocabulary,
    limits: LengthLimits | None = None,
) -> Text:
    """Pairs from two files, or three for two sources; with ``source`` None, the lines of one file.

    Raises `SgdecError` as `ParallelText.read` does.
    """
    if source is None:
        (path,) = paths
        return MonolingualText.read(path, target, limits)
    return ParallelText.read(paths, source, target, limits)


def _joined(parts: Iterable[list[A]]) -> list[A]:
    return list(chain.from_iterable(parts))
