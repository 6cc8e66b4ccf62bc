"""Text as token ids, cut into batches of similar lengths: pairs of lines for translation, lines for a language model.

The order of an epoch is a function of (seed, epoch) alone, so that a run can be resumed at any batch. A batch
holds examples of nearly equal lengths: little is computed for padding. `reading.py` defines which lines are
left out. Texts here are held in memory; `shards.py` has those that are too long for that.
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
import numpy.typing as npt
import torch
from torch import Tensor

from sgdec.context import EOS
from sgdec.text.vocabulary import StoredVocabulary
from sgdec.training.data.batch import Batch, make_batch
from sgdec.training.data.budget import Budget, cut
from sgdec.training.data.reading import Block, Limits, read_blocks, require_some

A = TypeVar("A")


class Text(ABC):
    """Examples as token ids, by number from 0, and what was left out. Each has a target, and a source or none."""

    left_out: Mapping[str, int]
    """How many examples for which reason."""

    @property
    @abstractmethod
    def unit(self) -> str:
        """What an example is called, in the plural."""

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """How many examples there are, and a hash of their tokens: the text, whatever its files are called."""

    @abstractmethod
    def __len__(self) -> int:
        """How many examples there are."""

    @abstractmethod
    def batches(self, budget: int | Budget, *, order: tuple[int, int] | None = None) -> Sequence[Sequence[int]]:
        """Numbers of examples, cut such that each batch is within the budget (an int: of `Tokens`) or one example.

        With ``order`` = (seed, epoch) both equal lengths among themselves and the batches are shuffled. Their number
        is that of every other order.
        """

    @abstractmethod
    def batch(self, examples: Sequence[int]) -> Batch:
        """The tensors of these examples, which one of `batches` holds."""

    @abstractmethod
    def sample(self) -> tuple[Sequence[int], npt.NDArray[np.int64]]:
        """Some examples to know the text by: their numbers, and their lengths [examples, sides], the target first."""

    @abstractmethod
    def target_counts(self, vocab_size: int) -> npt.NDArray[np.int64]:
        """[V] how often each token is in the targets, without ``</s>``."""

    def log_frequencies(self, vocab_size: int) -> Tensor:
        """log of the share of each target token, ``</s>`` included, each counted once more than it occurs: [V]."""
        counts = self.target_counts(vocab_size) + 1
        counts[EOS] += len(self)
        return torch.from_numpy(np.log(counts / counts.sum())).float()


class TextInMemory(Text):
    """Examples in lists."""

    targets: list[list[int]]
    lines: list[int]
    """The line number of each example."""

    @abstractmethod
    def lengths(self) -> npt.NDArray[np.int64]:
        """[examples, sides] in tokens, the target first."""

    @abstractmethod
    def _tokens(self) -> Iterator[Sequence[int]]:
        """All sides of all examples."""

    def __len__(self) -> int:
        return len(self.lines)

    def batches(self, budget: int | Budget, *, order: tuple[int, int] | None = None) -> list[list[int]]:
        return cut(self.lengths(), budget, None if order is None else np.random.default_rng(order))

    @cached_property
    def fingerprint(self) -> str:
        digest = hashlib.sha256(self.lengths().tobytes())
        for tokens in self._tokens():
            digest.update(np.array(tokens, dtype=np.int64).tobytes())
        return f"{len(self)} {self.unit} {digest.hexdigest()[:12]}"

    def sample(self) -> tuple[Sequence[int], npt.NDArray[np.int64]]:
        return range(len(self)), self.lengths()

    def target_counts(self, vocab_size: int) -> npt.NDArray[np.int64]:
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
        limits: Limits | None = None,
    ) -> ParallelText:
        """Read files of equally many lines, the target last; leave out bad pairs, which are fewer without limits.

        Raises `SgdecError` if the files do not fit each other, cannot be read or nothing is left.
        """
        text = cls.of(list(read_blocks(paths, (source, target), limits)))
        require_some(len(text), text.left_out, paths, "pair")
        return text

    @classmethod
    def of(cls, blocks: Sequence[Block]) -> ParallelText:
        """What has been read already."""
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

    def lengths(self) -> npt.NDArray[np.int64]:
        return np.array([(len(t), len(s)) for s, t in zip(self.sources, self.targets, strict=True)])

    def batch(self, examples: Sequence[int]) -> Batch:
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
    def read(cls, path: str, vocabulary: StoredVocabulary, limits: Limits | None = None) -> MonolingualText:
        """Read a file; leave out bad lines, which are fewer without limits. Raises `SgdecError` as for pairs."""
        text = cls.of(list(read_blocks([path], [vocabulary], limits)))
        require_some(len(text), text.left_out, [path], "line")
        return text

    @classmethod
    def of(cls, blocks: Sequence[Block]) -> MonolingualText:
        """What has been read already."""
        return cls(
            _joined(block.sides[0] for block in blocks),
            _joined(block.lines for block in blocks),
            sum((block.left_out for block in blocks), Counter()),
        )

    def _tokens(self) -> Iterator[Sequence[int]]:
        yield from self.targets

    def lengths(self) -> npt.NDArray[np.int64]:
        return np.array([(len(target),) for target in self.targets])

    def batch(self, examples: Sequence[int]) -> Batch:
        return make_batch([self.lines[n] for n in examples], [self.targets[n] for n in examples])


def read_text(
    paths: Sequence[str],
    source: StoredVocabulary | None,
    target: StoredVocabulary,
    limits: Limits | None = None,
) -> Text:
    """Pairs from two files, three where there are two sources, or lines from one without a source.

    Raises `SgdecError` as their readers do.
    """
    if source is None:
        (path,) = paths
        return MonolingualText.read(path, target, limits)
    return ParallelText.read(paths, source, target, limits)


def _joined(parts: Iterable[list[A]]) -> list[A]:
    return list(chain.from_iterable(parts))
