"""Rows of scores as distributions: divided by a temperature, and normalised over all tokens."""

from __future__ import annotations

import math

import numpy as np

from sgdec import Scores, UsageError
from sgdec.arrays import Array
from sgdec.protocol import FORBIDDEN, SparseRow


def normalized(scores: Scores, vocab_size: int | None, who: str, temperature: float = 1.0) -> Scores:
    """``log softmax(scores / temperature)``, row by row; rows that forbid everything stay as they are.

    Raises UsageError, naming ``who``, if a sparse row has a default for tokens whose number is unknown.
    """
    return scores.changed(
        lambda values: _dense(values, temperature), lambda row, _: _sparse(row, vocab_size, who, temperature)
    )


def _dense(values: Array, temperature: float) -> Array:
    """``[rows, V]``, in float32 at least."""
    if isinstance(values, np.ndarray):
        values = values.astype(np.promote_types(values.dtype, np.float32))
        highest = values.max(axis=1, keepdims=True)  # [rows, 1]
        with np.errstate(divide="ignore", over="ignore"):
            scaled = (values - np.where(highest == FORBIDDEN, 0.0, highest)) / temperature
            sums = np.log(np.exp(scaled).sum(axis=1, keepdims=True))
        found: Array = scaled - np.where(sums == FORBIDDEN, 0.0, sums)
        return found
    import torch

    exact = values.to(torch.promote_types(values.dtype, torch.float32))
    highest_of = exact.amax(dim=1, keepdim=True)
    shifted = (exact - highest_of.masked_fill(highest_of == FORBIDDEN, 0.0)) / temperature
    sums_of = shifted.logsumexp(dim=1, keepdim=True)
    return shifted - sums_of.masked_fill(sums_of == FORBIDDEN, 0.0)


def _sparse(row: SparseRow, vocab_size: int | None, who: str, temperature: float) -> SparseRow:
    listed = np.asarray(row.scores, dtype=np.float64)
    others = 0
    if not row.restricts:
        if vocab_size is None:
            raise UsageError(f"{who}: the number of tokens that share a score is unknown; give --vocab-size.")
        others = vocab_size - len(listed)
    everything = np.append(listed, row.default if others else FORBIDDEN)
    highest = float(everything.max())
    if highest == FORBIDDEN:
        return row
    with np.errstate(over="ignore"):
        scaled = (everything - highest) / temperature
    weights = np.exp(scaled)
    weights[-1] *= others
    scaled -= math.log(weights.sum())
    default = (row.default - highest) / temperature - math.log(weights.sum())
    return SparseRow(row.tokens, scaled[:-1].tolist(), default)
