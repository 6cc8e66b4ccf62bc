"""Wrapper: hides some tokens from the inner predictor, such as the tags of another predictor's vocabulary.

Score of token w: 0 if w is masked, otherwise the inner score after the tokens that are not masked. So a total is the
inner total of the hypothesis without its masked tokens. ``</s>`` is never masked.

State: the inner state; a masked token does not change it. Cost: one inner row per prefix, and a copy of it.
Relaxations: the inner ones, which masked tokens do not move. An inner lattice is not known as a whole (masked tokens
would be loops at each of its states), so nothing is folded into its distances.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

import sgdec
from sgdec import BatchPredictor, Context, Scores, UsageError
from sgdec.arrays import Array, Floats, Ints
from sgdec.derived import DerivedRelaxation
from sgdec.protocol import Candidates, SparseRow, State
from sgdec.relaxations import Relaxation
from sgdec.wrapping import Wrapper
from sgdec_predictors.tokens.sets import TokenSet


class MaskVocab(Wrapper):
    """Scores 0 for masked tokens and hides them from the inner predictor.

    >>> from sgdec.lifting import lift
    >>> from sgdec.testing import Forced
    >>> masked = MaskVocab(lift(Forced([7])), tokens="4,5")
    >>> states = masked.initialize_batch([sgdec.Source(1, (3,))])
    >>> masked.predict_batch(masked.consume_batch(states, [4])).rows
    [SparseRow({7: 0.0, 4: 0.0, 5: 0.0}, default=-inf)]
    """

    # No attention: a masked token is predicted without attention. Bounds hold: inner continuations are parts of
    # outer ones, so the inner bound covers all outer continuations within the length limit.
    forwards: ClassVar[tuple[str, ...]] = (
        "best_remaining",
        "worst_remaining",
        "state_key",
        "state_label",
        "relaxations",
    )

    def __init__(
        self,
        inner: BatchPredictor,
        tokens: Annotated[str, Field(description="tokens to hide: ids, and ranges >n and <n, such as '4,17,>100'")],
        context: Context | None = None,
    ) -> None:
        """Raises UsageError if the list is malformed, contains ``</s>``, or has ids outside the vocabulary."""
        super().__init__(inner)
        self.max_score = max(inner.max_score, 0.0)
        self._masked = TokenSet.parse(tokens, "maskvocab")
        if not self._masked:
            raise UsageError(f"maskvocab: tokens {tokens!r} names no token.")
        self._masked.require_within(context.vocab_size if context else None, "maskvocab")

    def predict_batch(self, states: Sequence[State], candidates: Sequence[Candidates | None] | None = None) -> Scores:
        wanted: list[Candidates | None] | None = None
        if candidates is not None:
            wanted = [None if some is None else [w for w in some if w not in self._masked] for some in candidates]
        return self.inner.predict_batch(states, wanted).changed(
            lambda values: _with_zeros(values, self._masked.places(values.shape[-1])),
            lambda row, place: self._row(row, None if candidates is None else candidates[place]),
        )

    def consume_batch(self, states: Sequence[State], tokens: Sequence[int]) -> list[State]:
        after = list(states)
        seen = [i for i, token in enumerate(tokens) if token not in self._masked]
        if seen:
            inner = self.inner.consume_batch([states[i] for i in seen], [tokens[i] for i in seen])
            for i, state in zip(seen, inner, strict=True):
                after[i] = state
        return after

    def relaxed(self, inner: Relaxation) -> Relaxation:
        return _Masked(inner, self._masked)

    def _row(self, row: SparseRow, candidates: Candidates | None) -> SparseRow:
        masked = self._masked
        if candidates is not None:
            return SparseRow(candidates, [0.0 if w in masked else row.get(w) for w in candidates], row.default)
        if not masked.finite:  # all other tokens are listed
            return SparseRow(masked.others, list(row.at(masked.others)), 0.0)
        kept = [(w, score) for w, score in row.lookup.items() if w not in masked]
        tokens = [*(w for w, _ in kept), *masked.members]
        return SparseRow(tokens, [*(score for _, score in kept), *[0.0] * len(masked.members)], row.default)


class _Masked(DerivedRelaxation):
    """Masked tokens score 0 and do not move the relaxed state."""

    def __init__(self, inner: Relaxation, masked: TokenSet) -> None:
        super().__init__(inner, lambda states: states)
        self.memory = 0 if inner.size == 1 else None
        self._masked = masked

    def after(self, states: Ints, tokens: Ints) -> Ints:
        found, seen = states.copy(), ~self._masked.contains(tokens)
        found[seen] = self.inner.after(states[seen], tokens[seen])
        return found

    def highest(self, states: Ints, tokens: Ints) -> Floats:
        return self._scores(self.inner.highest, states, tokens)

    def lowest(self, states: Ints, tokens: Ints) -> Floats:
        return self._scores(self.inner.lowest, states, tokens)

    def _scores(self, inner: Callable[[Ints, Ints], Floats], states: Ints, tokens: Ints) -> Floats:
        found, seen = np.zeros(len(tokens)), ~self._masked.contains(tokens)
        found[seen] = inner(states[seen], tokens[seen])
        return found


def _with_zeros(values: Array, columns: np.ndarray) -> Array:
    """A copy with zeros in some columns, also instead of NaN."""
    if isinstance(values, np.ndarray):
        changed = values.copy()
        changed[:, columns] = 0.0
        return changed
    import torch

    return values.index_fill(1, torch.from_numpy(columns).to(values.device), 0.0)


@sgdec.hookimpl
def sgdec_predictors() -> dict[str, type[BatchPredictor]]:
    return {"maskvocab": MaskVocab}
