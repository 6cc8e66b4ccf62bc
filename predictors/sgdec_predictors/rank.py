"""Wrapper: ranks instead of scores, so that predictors of different scales can be added (Borda's count).

Score of token w: ``-(1 + the number of tokens that score higher)``: -1 for the best; tokens with equal scores have
equal ranks, independently of the order of the vocabulary. Forbidden tokens stay forbidden. Ranks are always those
among all tokens, because the score of a token must not depend on other predictors.

State: the inner state. Cost: one sort of V scores per row (of the listed ones, if the inner rows are sparse).
Relaxation: none, because a rank depends on the scores of all tokens; bounds of lattices use the constant -1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import sgdec
from sgdec import BatchPredictor, Context, Scores, UsageError
from sgdec.arrays import Array
from sgdec.protocol import FORBIDDEN, Candidates, SparseRow, State, ability
from sgdec.wrapping import Wrapper


class Rank(Wrapper):
    """-1 for the best token, -2 for the next ...

    >>> from sgdec.lifting import lift
    >>> from sgdec.testing import Bonus
    >>> rank = Rank(lift(Bonus({7: -0.2, 9: -5.0, 2: -0.2}, default=-math.inf)))
    >>> rank.predict_batch(rank.initialize_batch([sgdec.Source(1, (3,))])).rows
    [SparseRow({7: -1.0, 9: -3.0, 2: -1.0}, default=-inf)]
    """

    forwards = ("state_key", "attention", "state_label")

    def __init__(self, inner: BatchPredictor, context: Context | None = None) -> None:
        super().__init__(inner)
        self.on_demand = False  # it needs all tokens anyway
        self.max_score = -1.0
        self._vocab_size = context.vocab_size if context else None

    def predict_batch(self, states: Sequence[State], candidates: Sequence[Candidates | None] | None = None) -> Scores:
        """Raises UsageError if the number of tokens that score higher is unknown, because a row is sparse and V is
        unknown."""
        return self.inner.predict_batch(states).changed(_ranks, self._ranked)

    def best_remaining(self, states: Sequence[State]) -> list[float]:
        """-1: at least ``</s>`` must follow, and at best it has rank 1."""
        method = ability(self.inner, "best_remaining")
        inner = method(states) if method is not None else [0.0] * len(states)
        return [FORBIDDEN if remaining == FORBIDDEN else -1.0 for remaining in inner]

    def _ranked(self, row: SparseRow, _: int) -> SparseRow:
        listed, default = np.asarray(row.scores, dtype=np.float64), row.default
        ranks = _ranks(listed[None])[0]
        lower = listed < default  # so all tokens that are not listed score higher
        if lower[listed != FORBIDDEN].any():
            if self._vocab_size is None:
                raise UsageError("rank: how many tokens score higher is unknown; give --vocab-size.")
            ranks[lower] -= self._vocab_size - len(listed)
        unlisted = default if default == FORBIDDEN or math.isnan(default) else -1.0 - (listed > default).sum()
        return SparseRow(row.tokens, ranks.tolist(), float(unlisted))


def _ranks(values: Array) -> Any:
    """``[rows, n]`` scores -> ranks; -inf and NaN stay as they are."""
    width = values.shape[-1]
    if isinstance(values, np.ndarray):
        ordered = np.sort(values, axis=1)
        at_most = np.stack([np.searchsorted(*row, side="right") for row in zip(ordered, values, strict=True)])
        return np.where(np.isfinite(values), (at_most - width - 1).astype(np.float64), values)
    import torch

    exact = torch.float64 if values.dtype == torch.float64 else torch.float32  # bf16 cannot count to 300
    found = torch.searchsorted(torch.sort(values, dim=1).values, values.contiguous(), right=True)
    return torch.where(torch.isfinite(values), (found - width - 1).to(exact), values.to(exact))


@sgdec.hookimpl
def sgdec_predictors() -> dict[str, type[BatchPredictor]]:
    return {"rank": Rank}
