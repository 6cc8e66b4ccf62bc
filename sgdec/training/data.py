"""Text as token ids, cut into batches of similar lengths: pairs of lines for translation, lines for a language model.

The order of an epoch is a function of (seed, epoch) alone, so that a run can be taken up at any batch. A batch
holds examples of nearly equal lengths: hardly anything is computed for padding. `reading.py` says which lines are
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
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sgdec.context import BOS, EOS
from sgdec.text.vocabulary import StoredVocabulary
from sgdec.training.budget import Budget, Tokens
from sgdec.training.reading import Block, Limits, read_blocks, require_some

A = TypeVar("A")


class Batch(NamedTuple):
    """Some examples; what lies behind a line's length is padding."""

    source: Tensor | None
    """[B, S] without ``<s>`` and ``</s>``; None for a language model"""
    lengths: Tensor | None
    """[B] of the sources, on the CPU"""
    target_in: Tensor
    """[B, T] ``<s> y_1 ... y_n``"""
    target_out: Tensor
    """[B, T] ``y_1 ... y_n </s>``"""
    mask: Tensor
    """[B, T] true where there is a target token"""
    lines: list[int]
    """[B] line numbers from 1, in the files"""
    weights: Tensor | None = None
    """[B, T] what target tokens count in the objective (`weights.py`); None: 1 each"""

    @property
    def weight(self) -> Tensor:
        """The sum of the weights of all target tokens, by which the update's mean loss is divided."""
        return self.mask.sum() if self.weights is None else self.weights[self.mask].sum()

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """What a model's ``forward`` takes."""
        if self.source is None or self.lengths is None:
            return (self.target_in,)
        return self.source, self.lengths, self.target_in

    def to(self, device: str) -> Batch:
        """The same on a device; the lengths stay where packing needs them."""
        source = None if self.source is None else self.source.to(device)
        weights = None if self.weights is None else self.weights.to(device)
        moved = {name: getattr(self, name).to(device) for name in ("target_in", "target_out", "mask")}
        return self._replace(source=source, weights=weights, **moved)


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
    """Pairs from two files, three where there are two sources, or lines from one where there is no source.

    Raises `SgdecError` as their readers do.
    """
    if source is None:
        (path,) = paths
        return MonolingualText.read(path, target, limits)
    return ParallelText.read(paths, source, target, limits)


def cut(
    lengths: npt.NDArray[np.int64], budget: int | Budget, generator: np.random.Generator | None
) -> list[list[int]]:
    """Examples with these lengths [examples, sides] in batches, as `Text.batches` says; shuffled by a generator."""
    budget = Tokens(budget) if isinstance(budget, int) else budget
    ties = np.arange(len(lengths)) if generator is None else generator.permutation(len(lengths))
    rows = lengths.tolist()
    batches: list[list[int]] = []
    longest: list[int] = []
    for n in np.lexsort((ties, *lengths.T[::-1])).tolist():  # by target, then source, then at random
        grown = list(map(max, longest, rows[n]))
        if not batches or budget.cost(len(batches[-1]) + 1, grown) > budget.room:
            batches.append([])
            grown = rows[n]
        batches[-1].append(n)
        longest = grown
    if generator is not None:
        generator.shuffle(batches)
    return batches


def make_batch(lines: list[int], targets: Sequence[Sequence[int]], sources: Sequence[Sequence[int]] = ()) -> Batch:
    """The tensors of examples; without sources for a language model."""
    source, lengths = pad(sources) if sources else (None, None)
    return Batch(source, lengths, *pad_targets(targets), lines)


def _joined(parts: Iterable[list[A]]) -> list[A]:
    return list(chain.from_iterable(parts))


def take(batch: Batch, rows: Sequence[int]) -> Batch:
    """Some sentences of a batch, without padding that they do not need."""
    chosen = torch.tensor(rows)
    width = int(batch.mask[chosen].sum(1).max())
    source, lengths = batch.source, batch.lengths
    if source is not None and lengths is not None:
        lengths = lengths[chosen]
        source = source[chosen, : int(lengths.max())]
    return Batch(
        source,
        lengths,
        batch.target_in[chosen, :width],
        batch.target_out[chosen, :width],
        batch.mask[chosen, :width],
        [batch.lines[row] for row in rows],
        None if batch.weights is None else batch.weights[chosen, :width],
    )


def pad_targets(targets: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor, Tensor]:
    """``target_in``, ``target_out`` and ``mask`` of a `Batch`."""
    target_in, lengths = pad([[BOS, *target] for target in targets])
    target_out, _ = pad([[*target, EOS] for target in targets])
    return target_in, target_out, torch.arange(target_in.size(1)) < lengths[:, None]


def pad(rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Rows of ids as [B, longest], padded with ``</s>``, and their lengths [B].

    >>> pad([[5], [6, 7]])[0].tolist()
    [[5, 2], [6, 7]]
    """
    lengths = torch.tensor([len(row) for row in rows])
    longest = int(lengths.max())
    return torch.tensor([[*row, *[EOS] * (longest - len(row))] for row in rows]), lengths
