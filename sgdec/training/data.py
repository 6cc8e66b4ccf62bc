"""Text as token ids, cut into batches of similar lengths: pairs of lines for translation, lines for a language model.

The order of an epoch is a function of (seed, epoch) alone, so that a run can be taken up at any batch. A batch
holds examples of nearly equal lengths: hardly anything is computed for padding.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sgdec.context import BOS, EOS
from sgdec.errors import SgdecError
from sgdec.text.lines import read_lines
from sgdec.text.vocabulary import StoredVocabulary


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

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """What a model's ``forward`` takes."""
        if self.source is None or self.lengths is None:
            return (self.target_in,)
        return self.source, self.lengths, self.target_in

    def to(self, device: str) -> Batch:
        """The same on a device; the lengths stay where packing needs them."""
        source = None if self.source is None else self.source.to(device)
        moved = {name: getattr(self, name).to(device) for name in ("target_in", "target_out", "mask")}
        return self._replace(source=source, **moved)


class Text(ABC):
    """Examples as token ids, and what was left out. Each has a target; `ParallelText` has sources too."""

    unit: ClassVar[str]
    """What an example is called, in the plural."""
    targets: list[list[int]]
    lines: list[int]
    """The line number of each example."""
    empty: int
    """Examples left out because a side is empty."""
    long: int
    """Examples left out because a side is too long."""

    @abstractmethod
    def lengths(self) -> npt.NDArray[np.int64]:
        """[examples, sides] in tokens, the target first."""

    @abstractmethod
    def batch(self, examples: Sequence[int]) -> Batch:
        """The tensors of these examples."""

    def __len__(self) -> int:
        return len(self.lines)

    def batches(self, batch_tokens: int, *, order: tuple[int, int] | None = None) -> list[list[int]]:
        """Indices of examples, cut so that examples x (longest side + 1) <= ``batch_tokens``, or one example.

        With ``order`` = (seed, epoch) both equal lengths among themselves and the batches are shuffled.
        """
        lengths = self.lengths()
        generator = None if order is None else np.random.default_rng(order)
        ties = np.arange(len(self)) if generator is None else generator.permutation(len(self))
        batches: list[list[int]] = []
        width = 0
        for n in np.lexsort((ties, *lengths.T[::-1])).tolist():  # by target, then source, then at random
            wider = max(width, int(lengths[n].max()) + 1)
            if not batches or (len(batches[-1]) + 1) * wider > batch_tokens:
                batches.append([])
                wider = int(lengths[n].max()) + 1
            batches[-1].append(n)
            width = wider
        if generator is not None:
            generator.shuffle(batches)
        return batches

    def log_frequencies(self, vocab_size: int) -> Tensor:
        """log of the share of each target token, ``</s>`` included, each counted once more than it occurs: [V]."""
        counts = np.bincount([token for target in self.targets for token in (*target, EOS)], minlength=vocab_size) + 1
        return torch.from_numpy(np.log(counts / counts.sum())).float()


@dataclass(frozen=True)
class ParallelText(Text):
    """Line pairs."""

    unit = "pairs"
    sources: list[list[int]]
    targets: list[list[int]]
    lines: list[int]
    source_lines: list[str]
    target_lines: list[str]
    empty: int = 0
    long: int = 0

    @classmethod
    def read(
        cls,
        paths: tuple[str, str],
        source: StoredVocabulary,
        target: StoredVocabulary,
        max_line: int | None = None,
    ) -> ParallelText:
        """Read two files of equally many lines; leave out pairs with an empty or an overlong side.

        Raises `SgdecError` if the files do not fit each other or nothing is left.
        """
        pairs: list[tuple[str, str]] = []
        for pair in zip_longest(*map(read_lines, paths)):
            if None in pair:
                counts = [sum(1 for _ in read_lines(path)) for path in paths]
                raise SgdecError(
                    f"{paths[0]} has {counts[0]} lines but {paths[1]} has {counts[1]}. "
                    "Line N of one must be the translation of line N of the other."
                )
            pairs.append((pair[0], pair[1]))
        sources = source.encode_all([pair[0] for pair in pairs])
        targets = target.encode_all([pair[1] for pair in pairs])
        full = [n for n in range(len(pairs)) if sources[n] and targets[n]]
        kept = [n for n in full if max_line is None or max(len(sources[n]), len(targets[n])) <= max_line]
        if not kept:
            why = f", or more than {max_line} tokens (--max-line)" if full else ""
            raise SgdecError(f"{paths[0]}, {paths[1]}: no pair is left. All {len(pairs)} have an empty side{why}.")
        return cls(
            [sources[n] for n in kept],
            [targets[n] for n in kept],
            [n + 1 for n in kept],
            [pairs[n][0] for n in kept],
            [pairs[n][1] for n in kept],
            empty=len(pairs) - len(full),
            long=len(full) - len(kept),
        )

    def lengths(self) -> npt.NDArray[np.int64]:
        return np.array([(len(t), len(s)) for s, t in zip(self.sources, self.targets, strict=True)])

    def batch(self, examples: Sequence[int]) -> Batch:
        source, lengths = pad([self.sources[n] for n in examples])
        targets = pad_targets([self.targets[n] for n in examples])
        return Batch(source, lengths, *targets, [self.lines[n] for n in examples])


@dataclass(frozen=True)
class MonolingualText(Text):
    """Lines of one language."""

    unit = "lines"
    targets: list[list[int]]
    lines: list[int]
    empty: int = 0
    long: int = 0

    @classmethod
    def read(cls, path: str, vocabulary: StoredVocabulary, max_line: int | None = None) -> MonolingualText:
        """Read a file; leave out empty and overlong lines. Raises `SgdecError` if nothing is left."""
        targets = vocabulary.encode_all(list(read_lines(path)))
        full = [n for n, target in enumerate(targets) if target]
        kept = [n for n in full if max_line is None or len(targets[n]) <= max_line]
        if not kept:
            why = f", or have more than {max_line} tokens (--max-line)" if full else ""
            raise SgdecError(f"{path}: no line is left. All {len(targets)} are empty{why}.")
        return cls(
            [targets[n] for n in kept],
            [n + 1 for n in kept],
            empty=len(targets) - len(full),
            long=len(full) - len(kept),
        )

    def lengths(self) -> npt.NDArray[np.int64]:
        return np.array([(len(target),) for target in self.targets])

    def batch(self, examples: Sequence[int]) -> Batch:
        targets = pad_targets([self.targets[n] for n in examples])
        return Batch(None, None, *targets, [self.lines[n] for n in examples])


def read_text(
    paths: Sequence[str],
    source: StoredVocabulary | None,
    target: StoredVocabulary,
    max_line: int | None = None,
) -> Text:
    """Pairs from two files, or lines from one where there is no source; raises `SgdecError` as their readers do."""
    if source is None:
        (path,) = paths
        return MonolingualText.read(path, target, max_line)
    first, second = paths
    return ParallelText.read((first, second), source, target, max_line)


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
