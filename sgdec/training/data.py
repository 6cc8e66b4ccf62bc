"""Parallel text as token ids, cut into batches of similar lengths.

The order of an epoch is a function of (seed, epoch) alone, so that a run can be taken up at any batch. A batch
holds pairs of nearly equal lengths: hardly anything is computed for padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from sgdec.context import BOS, EOS
from sgdec.errors import SgdecError
from sgdec.text.lines import read_lines
from sgdec.text.sentencepiece import SentencePieceVocabulary


class Batch(NamedTuple):
    """Some pairs; what lies behind a line's length is padding."""

    source: Tensor
    """[B, S] without ``<s>`` and ``</s>``"""
    lengths: Tensor
    """[B] of the sources, on the CPU"""
    target_in: Tensor
    """[B, T] ``<s> y_1 ... y_n``"""
    target_out: Tensor
    """[B, T] ``y_1 ... y_n </s>``"""
    mask: Tensor
    """[B, T] true where there is a target token"""
    lines: list[int]
    """[B] line numbers from 1, in the files"""

    def to(self, device: str) -> Batch:
        """The same on a device; the lengths stay where packing needs them."""
        moved = {name: getattr(self, name).to(device) for name in ("source", "target_in", "target_out", "mask")}
        return self._replace(**moved)


@dataclass(frozen=True)
class ParallelText:
    """Line pairs as token ids, and what was left out."""

    sources: list[list[int]]
    targets: list[list[int]]
    lines: list[int]
    """The line number of each pair."""
    source_lines: list[str]
    target_lines: list[str]
    empty: int = 0
    """Pairs left out because a side is empty."""
    long: int = 0
    """Pairs left out because a side is too long."""

    def __len__(self) -> int:
        return len(self.lines)

    @classmethod
    def read(
        cls,
        paths: tuple[str, str],
        source: SentencePieceVocabulary,
        target: SentencePieceVocabulary,
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

    def batches(self, batch_tokens: int, *, order: tuple[int, int] | None = None) -> list[list[int]]:
        """Indices of pairs, cut so that pairs x (longest side + 1) <= ``batch_tokens``, or one pair.

        With ``order`` = (seed, epoch) both equal lengths among themselves and the batches are shuffled.
        """
        lengths = np.array([(len(t), len(s)) for s, t in zip(self.sources, self.targets, strict=True)])
        generator = None if order is None else np.random.default_rng(order)
        ties = np.arange(len(self)) if generator is None else generator.permutation(len(self))
        batches: list[list[int]] = []
        width = 0
        for n in np.lexsort((ties, lengths[:, 1], lengths[:, 0])).tolist():
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

    def batch(self, pairs: Sequence[int]) -> Batch:
        """The tensors of these pairs."""
        source, lengths = pad([self.sources[n] for n in pairs])
        target_in, target_lengths = pad([[BOS, *self.targets[n]] for n in pairs])
        target_out, _ = pad([[*self.targets[n], EOS] for n in pairs])
        mask = torch.arange(target_in.size(1)) < target_lengths[:, None]
        return Batch(source, lengths, target_in, target_out, mask, [self.lines[n] for n in pairs])


def pad(rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Rows of ids as [B, longest], padded with ``</s>``, and their lengths [B].

    >>> pad([[5], [6, 7]])[0].tolist()
    [[5, 2], [6, 7]]
    """
    lengths = torch.tensor([len(row) for row in rows])
    longest = int(lengths.max())
    return torch.tensor([[*row, *[EOS] * (longest - len(row))] for row in rows]), lengths
