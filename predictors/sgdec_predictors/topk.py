"""Wrapper: only the k best tokens of the inner predictor, and ``</s>``, so that others score fewer tokens.

Score of token w: the inner score if w is among the k tokens with the highest inner scores after the prefix (at equal
scores the lowest token first) or ``</s>``; any other token is forbidden. The rows list the tokens that are left, so
predictors on demand beside it score only these. What is searched is not the whole space any more, and a proof is a
proof for what is left: the end of the run reports the mean probability of the tokens that were left out.

State: the inner state. Cost: one partial sort of V scores per row. Bounds and keys: the inner ones, which hold for
fewer tokens, too. Relaxation: none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import numpy as np
from pydantic import Field

import sgdec
from sgdec import EOS, BatchPredictor, Context, Scores, UsageError, arrays
from sgdec.protocol import FORBIDDEN, Candidates, State
from sgdec.topk import top_tokens
from sgdec.wrapping import Wrapper


class TopTokens(Wrapper):
    """The k best tokens of each row.

    >>> from sgdec.testing import BatchTable
    >>> best = TopTokens(BatchTable(np.log([[0.1, 0.1, 0.1, 0.5, 0.2]] * 5)), k=2)
    >>> [row.candidates for row in best.predict_batch(best.initialize_batch([sgdec.Source(1, (3,))])).rows]
    [[2, 3, 4]]
    """

    def __init__(
        self,
        inner: BatchPredictor,
        k: Annotated[int, Field(ge=1, description="number of tokens after each prefix, besides </s>")],
        context: Context | None = None,
    ) -> None:
        """Raises UsageError if ``k`` is above V."""
        super().__init__(inner)
        self.on_demand = False  # which tokens are best is a question about all
        self._k = k
        self._vocab_size = context.vocab_size if context else None
        if self._vocab_size is not None and k > self._vocab_size:
            raise UsageError(
                f"topk: k {k} is more than the {self._vocab_size} tokens of the vocabulary: none would be left out. "
                "Give a smaller --topk.k, or leave out topk."
            )
        self._outside, self._rows = 0.0, 0

    def predict_batch(self, states: Sequence[State], candidates: Sequence[Candidates | None] | None = None) -> Scores:
        """Raises UsageError if a row is sparse and open, and V is unknown."""
        scores = self.inner.predict_batch(states)
        values = scores.values
        if values is None:
            values = np.stack([scores.as_array(place, self._width(scores, place)) for place in range(len(states))])
        size = int(values.shape[1])
        tokens = top_tokens(values, min(self._k, size))  # [rows, k]
        ends = np.full((len(tokens), int(size > EOS)), EOS)
        kept = np.sort(np.concatenate([tokens, ends], axis=1), axis=1)
        first = np.ones_like(kept, bool)
        first[:, 1:] = kept[:, 1:] != kept[:, :-1]
        row = np.arange(len(kept)).repeat(kept.shape[1])
        picked = arrays.to_numpy(arrays.pick(values, row, kept.ravel())).astype(np.float64).reshape(kept.shape)
        self._count(values, np.where(first, picked, FORBIDDEN))
        left = first & (picked > FORBIDDEN)
        offsets = np.append(0, np.cumsum(left.sum(axis=1)))
        return Scores.listed(offsets, kept[left], picked[left])

    def summary(self) -> str | None:
        """The line at the end of a run: the mean probability of what was left out."""
        inner = getattr(self.inner, "summary", None)
        texts = [inner() if inner is not None else None]
        if self._outside:
            mean = self._outside / self._rows
            texts.append(f"k {self._k}: tokens with a mean of {mean:.2g} of the probability were left out")
        return "; ".join(filter(None, texts)) or None

    def _width(self, scores: Scores, place: int) -> int:
        row = scores.rows[place]
        if not row.restricts and self._vocab_size is None:
            raise UsageError("topk: the number of tokens that share a score is unknown; give --vocab-size.")
        return self._vocab_size or 1 + max(row.candidates, default=EOS)

    def _count(self, values: arrays.Array, kept: arrays.Floats) -> None:
        """``values [rows, V]``; ``kept [rows, k + 1]``: those that are left."""
        exact = arrays.to_numpy(values)
        highest = exact.max(axis=1, keepdims=True)
        possible = highest[:, 0] > FORBIDDEN
        whole = np.exp(exact[possible] - highest[possible]).sum(axis=1, dtype=np.float64)
        left = np.exp(kept[possible] - highest[possible]).sum(axis=1)
        fewer = (kept > FORBIDDEN).sum(axis=1) < (exact > FORBIDDEN).sum(axis=1)  # else the rest is rounding
        self._outside += float((1.0 - left / whole).clip(0.0)[fewer[possible]].sum())
        self._rows += int(possible.sum())


@sgdec.hookimpl
def sgdec_predictors() -> dict[str, type[BatchPredictor]]:
    return {"topk": TopTokens}
