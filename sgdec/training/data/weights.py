"""The weighted objective: a weight for each target token (Marian, Junczys-Dowmunt et al. 2018, section 3.3).

The loss of an update is the weighted mean over all its target tokens, including ``</s>``, with weights w:

    loss = sum_t w_t (-ln P(y_t | y_<t, x)) / sum_t w_t

Both sums are over all batches of the update. So weight 2 equals seeing the example twice, and equal weights for all
tokens change nothing. Held-out text is never weighted.

The weights can come from a file that is aligned with the text line by line. A line has one weight for all its tokens,
or one for each target token and optionally one more for ``</s>``. Weights can also come from edits, as in
"Approaching Neural Grammatical Error Correction as a Low-Resource Machine Translation Task" (Junczys-Dowmunt et al.
2018): a target token that differs from its aligned source token has weight Lambda, other tokens have weight 1. If
both are given, the weights are multiplied.

The paper aligns words with a statistical model, and its software with a diff. Here the alignment has the fewest edits
(Levenshtein) and, among those, keeps the most tokens. The numerator is the paper's objective. It is divided by the
sum of the weights instead of the number of tokens, so that Lambda does not change the size of the gradients.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sgdec.arrays import Flags, Ints
from sgdec.context import Vocabularies
from sgdec.errors import SgdecError, UsageError, counted
from sgdec.io.limits import real_number
from sgdec.text.lines import read_lines
from sgdec.text.right_left import RightToLeft, pieces_of
from sgdec.training.config import TrainConfig
from sgdec.training.data.batch import TrainingBatch
from sgdec.training.data.text import Text, TextInMemory

TOKEN_WEIGHTS = "training_weights"
"""The key of config.json that holds the fingerprint of the file of weights."""


class Weighting:
    """Assigns the weights of target tokens that a run's settings ask for."""

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

    def __call__(self, batch: TrainingBatch) -> TrainingBatch:
        """The batch with its weights; the batch itself if the settings give no weights."""
        weights = []
        if self.file is not None:
            weights.append(self.file.of(batch, right_left=self.right_left))
        if self.edit != 1:
            weights.append(edit_weights(batch, self.edit, right_left=self.right_left))
        return batch._replace(weights=torch.stack(weights).prod(0)) if weights else batch

    @property
    def fingerprint(self) -> str | None:
        """The fingerprint of the file of weights; None without a file."""
        return None if self.file is None else self.file.fingerprint

    def refuse_others(self, config: TrainConfig, earlier: Mapping[str, Any]) -> None:
        """Raises `UsageError` if the resumed run had other weights; the path of their file may differ."""
        before, now = earlier.get(TOKEN_WEIGHTS), self.fingerprint
        if before != now:
            raise UsageError(
                f"--resume: --token-weights was {before or 'not given'} in {config.output}, now it is "
                f"{now or 'not given'}. Give the same weights, or another --output."
            )


class TokenWeights:
    """The weights of a file, in memory: 4 bytes per weight and 16 per line."""

    def __init__(self, path: str, values: npt.NDArray[np.float32], counts: Ints) -> None:
        """``values``: the weights of all lines; ``counts``: the number of weights of each line."""
        self.path, self.values, self.counts = path, values, counts
        self.first = np.cumsum(counts) - counts
        self.of_lines = bool((counts <= 1).all())
        """Whether each line has one weight for all its tokens."""
        digest = hashlib.sha256(counts.tobytes() + values.tobytes()).hexdigest()
        self.fingerprint = f"{len(counts)} lines {digest[:12]}"

    @classmethod
    def read(cls, path: str) -> TokenWeights:
        """Read a file of numbers >= 0, separated by blanks: one per line in all lines, or one per token in all lines.

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
        """Raises `SgdecError`, naming the line, if the number of weights does not fit the text.

        Raises `UsageError` if the text is not in memory.
        """
        if not isinstance(data, TextInMemory):
            raise UsageError("--token-weights needs the training text in memory. Give --shard-tokens 0.")
        lines = len(data) + sum(data.left_out.values())
        if len(self.counts) != lines:
            raise SgdecError(
                f"{self.path} has {counted(len(self.counts), 'line')}, but the training text has {lines}. "
                "Line N must have the weights of the text's line N."
            )
        used = np.array(data.lines) - 1
        given = self.counts[used]
        tokens = data.lengths()[:, 0]
        fits = given == 1 if self.of_lines else (given == tokens) | (given == tokens + 1)
        if not fits.all():
            bad = int(np.flatnonzero(~fits)[0])
            expected = "one" if self.of_lines else f"{tokens[bad]}, or {tokens[bad] + 1} with that of </s>"
            raise SgdecError(
                f"{self.path}:{data.lines[bad]}: {counted(given[bad], 'weight')} for a target of "
                f"{counted(tokens[bad], 'token')}, expected {expected}. Tokens are those of the --tokenizer."
            )
        positive = np.concatenate([[0], np.cumsum(self.values > 0)])  # number of positive weights before each weight
        nothing = positive[self.first[used] + given] == positive[self.first[used]]
        if nothing.any():
            line = data.lines[int(np.flatnonzero(nothing)[0])]
            raise SgdecError(f"{self.path}:{line}: no weight is above 0. Leave the line out of the training text.")

    def of(self, batch: TrainingBatch, *, right_left: bool = False) -> Tensor:
        """[B, T] the weights of a batch of the checked text; ``</s>`` has weight 1 if its line gives none.

        The file is in the order of the text even if the targets are reversed (``right_left``).
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


def edit_weights(batch: TrainingBatch, weight: float, *, right_left: bool = False) -> Tensor:
    """[B, T] ``weight`` for target tokens that the alignment does not keep, 1 for other tokens and ``</s>``."""
    assert batch.source is not None and batch.lengths is not None
    source, lengths = batch.source.numpy(), batch.lengths.numpy()
    if right_left:  # reverse the source like the target; positions beyond the length do not matter
        columns = (lengths[:, None] - 1 - np.arange(source.shape[1])) % source.shape[1]
        source = np.take_along_axis(source, columns, 1)
    target, tokens = batch.target_out.numpy(), batch.mask.sum(1).numpy() - 1
    edited = ~kept_tokens(source, lengths, target, tokens) & (np.arange(target.shape[1]) < tokens[:, None])
    return torch.from_numpy(np.where(edited, np.float32(weight), np.float32(1)))


def kept_tokens(
    source: Ints,
    source_lengths: Ints,
    target: Ints,
    target_lengths: Ints,
) -> Flags:
    """[B, T] whether the cheapest edit script from ``source`` [B, S] to ``target`` [B, T] keeps a target token.

    The script has the fewest insertions, deletions and replacements; among those it keeps the most tokens. Among
    those, the kept tokens are as far to the right as possible.

    >>> lengths = np.array([3])
    >>> kept_tokens(np.array([[5, 6, 7]]), lengths, np.array([[5, 9, 7]]), lengths)
    array([[ True, False,  True]])
    """
    (rows, sources), targets = source.shape, target.shape[1]
    edit = max(sources, targets) + 1  # costs more than all kept tokens gain together, at 1 each
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
    while len(row := np.flatnonzero((s > 0) & (t > 0))):  # backwards from the end; remaining tokens are edits
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
    value = real_number(word)
    if value is None or not 0 <= value < 1e30:  # true for NaN, too
        raise SgdecError(f"{where}: {word!r} is not a weight. Expected numbers >= 0, separated by blanks.")
    return value
