"""Text as token ids, cut into batches of similar lengths: pairs of lines for translation, lines for a language model.

The order of an epoch is a function of (seed, epoch) alone, so that a run can be taken up at any batch. A batch
holds examples of nearly equal lengths: hardly anything is computed for padding.

Bad training lines are left out and counted, by the reason (`Limits`); in held-out text, where each line counts, only
empty ones are, and a line that is not UTF-8 is an error.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import zip_longest
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sgdec.context import BOS, EOS
from sgdec.errors import SgdecError
from sgdec.text.lines import raw_lines, read_lines
from sgdec.text.vocabulary import StoredVocabulary

EMPTY, LONG, UNEVEN, UNDECODABLE = "empty", "too long", "of absurd lengths", "not UTF-8"
"""Why examples are left out."""


class Limits(NamedTuple):
    """Of training examples; what is beyond them is left out, and so are lines that are not UTF-8."""

    max_line: int
    """Tokens on a side."""
    max_ratio: float = 0.0
    """Tokens on one side for each on the other; 0 = no limit."""

    def fault(self, *lengths: int) -> str | None:
        """What is wrong with an example whose sides have so many tokens, none of them 0.

        >>> Limits(9).fault(8, 10), Limits(9, 3.0).fault(2, 7), Limits(9, 3.0).fault(2, 6)
        ('too long', 'of absurd lengths', None)
        """
        if max(lengths) > self.max_line:
            return LONG
        return UNEVEN if 0 < self.max_ratio < max(lengths) / min(lengths) else None


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
    left_out: Mapping[str, int]
    """How many examples for which reason."""

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

    @cached_property
    def fingerprint(self) -> str:
        """How many examples there are, and a hash of their tokens: the text, whatever its files are called."""
        digest = hashlib.sha256(self.lengths().tobytes())
        for tokens in self._tokens():
            digest.update(np.array(tokens, dtype=np.int64).tobytes())
        return f"{len(self)} {self.unit} {digest.hexdigest()[:12]}"

    @abstractmethod
    def _tokens(self) -> Iterator[Sequence[int]]:
        """All sides of all examples."""

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
    left_out: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def read(
        cls,
        paths: tuple[str, str],
        source: StoredVocabulary,
        target: StoredVocabulary,
        limits: Limits | None = None,
    ) -> ParallelText:
        """Read two files of equally many lines; leave out bad pairs, which are fewer without limits.

        Raises `SgdecError` if the files do not fit each other, cannot be read or nothing is left.
        """
        pairs: list[tuple[str | None, str | None]] = []
        for pair in zip_longest(*(_lines(path, limits) for path in paths), fillvalue=_END):
            if _END in pair:
                counts = [sum(1 for _ in raw_lines(path)) for path in paths]
                raise SgdecError(
                    f"{paths[0]} has {counts[0]} lines but {paths[1]} has {counts[1]}. "
                    "Line N of one must be the translation of line N of the other."
                )
            pairs.append((pair[0], pair[1]))
        source_lines, target_lines = [pair[0] or "" for pair in pairs], [pair[1] or "" for pair in pairs]
        sources, targets = source.encode_all(source_lines), target.encode_all(target_lines)
        faults = [
            UNDECODABLE if None in pair else _fault(limits, len(sources[n]), len(targets[n]))
            for n, pair in enumerate(pairs)
        ]
        kept = _kept(faults, f"{paths[0]}, {paths[1]}", "pair")
        return cls(
            [sources[n] for n in kept],
            [targets[n] for n in kept],
            [n + 1 for n in kept],
            [source_lines[n] for n in kept],
            [target_lines[n] for n in kept],
            Counter(fault for fault in faults if fault),
        )

    def _tokens(self) -> Iterator[Sequence[int]]:
        yield from self.sources
        yield from self.targets

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
    left_out: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def read(cls, path: str, vocabulary: StoredVocabulary, limits: Limits | None = None) -> MonolingualText:
        """Read a file; leave out bad lines, which are fewer without limits. Raises `SgdecError` as for pairs."""
        lines = list(_lines(path, limits))
        targets = vocabulary.encode_all([line or "" for line in lines])
        faults = [
            UNDECODABLE if line is None else _fault(limits, len(target))
            for line, target in zip(lines, targets, strict=True)
        ]
        kept = _kept(faults, path, "line")
        return cls(
            [targets[n] for n in kept],
            [n + 1 for n in kept],
            Counter(fault for fault in faults if fault),
        )

    def _tokens(self) -> Iterator[Sequence[int]]:
        yield from self.targets

    def lengths(self) -> npt.NDArray[np.int64]:
        return np.array([(len(target),) for target in self.targets])

    def batch(self, examples: Sequence[int]) -> Batch:
        targets = pad_targets([self.targets[n] for n in examples])
        return Batch(None, None, *targets, [self.lines[n] for n in examples])


def read_text(
    paths: Sequence[str],
    source: StoredVocabulary | None,
    target: StoredVocabulary,
    limits: Limits | None = None,
) -> Text:
    """Pairs from two files, or lines from one where there is no source; raises `SgdecError` as their readers do."""
    if source is None:
        (path,) = paths
        return MonolingualText.read(path, target, limits)
    first, second = paths
    return ParallelText.read((first, second), source, target, limits)


_END = "\n"
"""What no line can be: the other file has more."""


def _lines(path: str, limits: Limits | None) -> Iterator[str | None]:
    """The lines of a file; of training text, None for one that is not UTF-8."""
    if limits is None:
        yield from read_lines(path)
        return
    for raw in raw_lines(path):
        try:
            yield raw.decode("utf-8")
        except UnicodeDecodeError:
            yield None


def _fault(limits: Limits | None, *lengths: int) -> str | None:
    """Why an example is left out, or None."""
    if not all(lengths):
        return EMPTY
    return None if limits is None else limits.fault(*lengths)


def _kept(faults: Sequence[str | None], where: str, unit: str) -> list[int]:
    """The examples without fault. Raises `SgdecError` if there are none."""
    kept = [n for n, fault in enumerate(faults) if fault is None]
    if not kept:
        reasons = ", ".join(f"{count} {fault}" for fault, count in Counter(faults).items()) or "there was none"
        raise SgdecError(
            f"{where}: no {unit} is left of {len(faults)}: {reasons}. "
            "Give other text, or see --max-line and --max-ratio."
        )
    return kept


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
