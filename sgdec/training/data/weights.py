"""The weighted objective: how much each target token counts (Marian, Junczys-Dowmunt et al. 2018, section 3.3).

The loss of an update is the mean over all its target tokens, ``</s>`` included, weighted by w:

    loss = sum_t w_t (-ln P(y_t | y_<t, x)) / sum_t w_t

Both sums go over all batches of the update. So an example whose tokens weigh 2 is the example seen twice, and weights
that are all alike change nothing. Held-out text is never weighted.

The weights come from a file, line by line: one for all tokens of a line, or one for each target token, and where a
line has one more that of ``</s>``. Or they come from the edits of "Approaching Neural Grammatical Error Correction as
a Low-Resource Machine Translation Task" (Junczys-Dowmunt et al. 2018): a target token that differs from the source
token that it is aligned to weighs Lambda, others weigh 1. Where both are given their product counts.

The paper aligns words with a statistical model, and its software with a diff; here the alignment is one with the
fewest edits (Levenshtein), of these one that keeps the most tokens. The numerator is the paper's objective; that it
is divided by the sum of the weights, and not by the number of tokens, keeps gradients of the same size whatever
Lambda is.
"""

from __future__ import annotations

import hashlib
import math
from array import array
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sgdec.context import Vocabularies
from sgdec.errors import SgdecError, UsageError
from sgdec.text.lines import read_lines
from sgdec.text.right_left import RightToLeft, pieces_of
from sgdec.training.config import TrainConfig
from sgdec.training.data.batch import Batch
from sgdec.training.data.text import Text, TextInMemory

TOKEN_WEIGHTS = "training_weights"
"""The key of config.json that holds the fingerprint of the weights' file."""


class Weighting:
    """What a run's settings say about the weights of target tokens."""

    def __init__(self, config: TrainConfig, vocabularies: Vocabularies, data: Text) -> None:
        """Raises `UsageError` for settings that cannot work, `SgdecError` for a file that does not fit the text."""
        self.edit = config.edit_weight
        self.right_left = isinstance(vocabularies.target, RightToLeft)
        self.file = TokenWeights.read(config.token_weights) if config.token_weights else None
        if self.file is not None:
            self.file.check(data)
        if self.edit != 1 and not _one_vocabulary(vocabularies):
            raise UsageError(
                "--edit-weight compares target tokens with source tokens and needs one vocabulary for both. "
                "Give --tokenizer once."
            )

    def __call__(self, batch: Batch) -> Batch:
        """The batch with its weights; without, where all tokens weigh the same."""
        weights = []
        if self.file is not None:
            weights.append(self.file.of(batch, right_left=self.right_left))
        if self.edit != 1:
            weights.append(edit_weights(batch, self.edit, right_left=self.right_left))
        return batch._replace(weights=torch.stack(weights).prod(0)) if weights else batch

    @property
    def fingerprint(self) -> str | None:
        """Of the file, if there is one."""
        return None if self.file is None else self.file.fingerprint

    def refuse_others(self, config: TrainConfig, earlier: Mapping[str, Any]) -> None:
        """Raises `UsageError` if the run to be resumed had other weights; their file may have moved."""
        before, now = earlier.get(TOKEN_WEIGHTS), self.fingerprint
        if before != now:
            raise UsageError(
                f"--resume: --token-weights was {before or 'not given'} in {config.output}, now it is "
                f"{now or 'not given'}. Give the same weights, or another --output."
            )


class TokenWeights:
    """The weights of a file, in memory: 4 bytes each, and 16 a line."""

    def __init__(self, path: str, values: npt.NDArray[np.float32], counts: npt.NDArray[np.int64]) -> None:
        """``values``: all weights, of which line n has ``counts[n - 1]``."""
        self.path, self.values, self.counts = path, values, counts
        self.first = np.cumsum(counts) - counts
        self.of_lines = bool((counts <= 1).all())
        """One weight a line, for all tokens of the line."""
        digest = hashlib.sha256(counts.tobytes() + values.tobytes()).hexdigest()
        self.fingerprint = f"{len(counts)} lines {digest[:12]}"

    @classmethod
    def read(cls, path: str) -> TokenWeights:
        """Numbers >= 0, separated by blanks: in each line one for the line, or else in each one for each token.

        Raises `SgdecError` for anything else.
        """
        values, counts = array("f"), array("q")
        for number, line in enumerate(read_lines(path), 1):
            words = line.split()
            for word in words:
                values.append(_weight(word, f"{path}:{number}"))
            counts.append(len(words))
        return cls(path, np.array(values, dtype=np.float32), np.array(counts, dtype=np.int64))

    def check(self, data: Text) -> None:
        """Raises `SgdecError`, naming the line, unless there are as many weights as the text has tokens.

        Raises `UsageError` for a text that is not in memory.
        """
        if not isinstance(data, TextInMemory):
            raise UsageError("--token-weights needs the training text in memory. Give --shard-tokens 0.")
        lines = len(data) + sum(data.left_out.values())
        if len(self.counts) != lines:
            raise SgdecError(
                f"{self.path} has {len(self.counts)} lines, but the training text has {lines}. "
                "Line N must have the weights of line N."
            )
        used = np.array(data.lines) - 1
        given = self.counts[used]
        tokens = data.lengths()[:, 0]
        fits = given == 1 if self.of_lines else (given == tokens) | (given == tokens + 1)
        if not fits.all():
            bad = int(np.flatnonzero(~fits)[0])
            expected = "one" if self.of_lines else f"{tokens[bad]}, or {tokens[bad] + 1} with that of </s>"
            raise SgdecError(
                f"{self.path}:{data.lines[bad]}: {given[bad]} weights for a target of {tokens[bad]} tokens, "
                f"expected {expected}. Tokens are those of the --tokenizer."
            )
        positive = np.concatenate([[0], np.cumsum(self.values > 0)])  # up to each weight
        nothing = positive[self.first[used] + given] == positive[self.first[used]]
        if nothing.any():
            line = data.lines[int(np.flatnonzero(nothing)[0])]
            raise SgdecError(f"{self.path}:{line}: no weight is above 0. Leave the line out of the training text.")

    def of(self, batch: Batch, *, right_left: bool = False) -> Tensor:
        """[B, T] for a batch of the text that was checked; ``</s>`` weighs 1 where a line does not say.

        The file is in the order of the text also where targets are learnt from ``right_left``.
        """
        weights = torch.ones(batch.target_out.shape)
        lengths = batch.mask.sum(1) - 1  # without </s>
        for row, line, tokens in zip(weights, batch.lines, lengths.tolist(), strict=True):
            first = self.first[line - 1]
            given = torch.from_numpy(self.values[first : first + self.counts[line - 1]])
            if self.of_lines:
                row[:] = given
            else:
                row[: len(given)] = torch.cat([given[:tokens].flip(0), given[tokens:]]) if right_left else given
        return weights


def edit_weights(batch: Batch, weight: float, *, right_left: bool = False) -> Tensor:
    """[B, T]: ``weight`` for a target token that the alignment does not keep, 1 for others and for ``</s>``."""
    assert batch.source is not None and batch.lengths is not None
    source, lengths = batch.source.numpy(), batch.lengths.numpy()
    if right_left:  # as the target is; what lies behind the length does not matter
        columns = (lengths[:, None] - 1 - np.arange(source.shape[1])) % source.shape[1]
        source = np.take_along_axis(source, columns, 1)
    target, tokens = batch.target_out.numpy(), batch.mask.sum(1).numpy() - 1
    edited = ~kept_tokens(source, lengths, target, tokens) & (np.arange(target.shape[1]) < tokens[:, None])
    return torch.from_numpy(np.where(edited, np.float32(weight), np.float32(1)))


def kept_tokens(
    source: npt.NDArray[np.int64],
    source_lengths: npt.NDArray[np.int64],
    target: npt.NDArray[np.int64],
    target_lengths: npt.NDArray[np.int64],
) -> npt.NDArray[np.bool_]:
    """[B, T]: the tokens of ``target`` [B, T] that a cheapest way to it from ``source`` [B, S] keeps.

    The fewest insertions, deletions and replacements; of ways with equally many the one that keeps most; where these
    are several, what is kept lies as far to the right as can be.

    >>> lengths = np.array([3])
    >>> kept_tokens(np.array([[5, 6, 7]]), lengths, np.array([[5, 9, 7]]), lengths)
    array([[ True, False,  True]])
    """
    (rows, sources), targets = source.shape, target.shape[1]
    edit = max(sources, targets) + 1  # dearer than all that keeping can gain, at 1 each
    inserted = edit * np.arange(targets + 1)
    table = np.empty((sources + 1, rows, targets + 1), dtype=np.int64)  # cost from s source to t target tokens
    table[0] = inserted
    for n in range(sources):
        cost = table[n] + edit
        pair = np.where(source[:, n, None] == target, -1, edit)
        cost[:, 1:] = np.minimum(cost[:, 1:], table[n, :, :-1] + pair)
        table[n + 1] = np.minimum.accumulate(cost - inserted, axis=1) + inserted

    kept = np.zeros(target.shape, dtype=bool)
    s, t = source_lengths.copy(), target_lengths.copy()
    while len(row := np.flatnonzero((s > 0) & (t > 0))):  # back from the end; what is left after that is edited
        here, i, j = table[s[row], row, t[row]], s[row] - 1, t[row] - 1
        diagonal = table[i, row, j]
        keeps = (source[row, i] == target[row, j]) & (here == diagonal - 1)
        pairs = keeps | (here == diagonal + edit)
        deletes = ~pairs & (here == table[i, row, t[row]] + edit)
        kept[row[keeps], j[keeps]] = True
        s[row] -= pairs | deletes
        t[row] -= ~deletes
    return kept


def _one_vocabulary(vocabularies: Vocabularies) -> bool:
    source, target = vocabularies.source, vocabularies.target
    assert target is not None
    return source is not None and source.fingerprint == pieces_of(target).fingerprint


def _weight(word: str, where: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = math.nan
    if not 0 <= value < 1e30:  # NaN is not either
        raise SgdecError(f"{where}: {word!r} is no weight. Expected numbers from 0 on, separated by blanks.")
    return value
