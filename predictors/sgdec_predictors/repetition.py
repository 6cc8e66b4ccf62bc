"""Wrapper: tokens that the hypothesis already has score less (Keskar et al. 2019, "CTRL", section 4.1).

    score(w) = s(w) * p if s(w) < 0, s(w) / p otherwise, for tokens w that occurred; s(w) for all others

s are the inner scores, p is the penalty; p < 1 rewards repetition. This is ``repetition_penalty`` of ``generate()``
in transformers. What the scores are matters, because the rule is not linear: beam search of transformers penalises
log-probabilities, as this wrapper does with the models of sgdec, which return log-probabilities; greedy search and
sampling penalise logits, as it does with an inner predictor that returns logits. The result sums to one only with
``normalize`` (``renormalize_logits`` of transformers, and the distribution from which it samples).

``prompt`` counts the source tokens too, as transformers does for causal models. It also counts the start token of the
decoder, which ``seen`` can name; if that is ``</s>``, as in BART, every ``</s>`` is penalised.

State: the inner state, and the set of tokens so far. Cost: a copy of each row; O(T) for T distinct tokens so far.
Relaxations: the inner ones, each score with and without penalty; none with ``normalize``, whose scores depend on
whole rows.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
from pydantic import Field

import sgdec
from sgdec import BatchPredictor, Context, Scores, Source
from sgdec.arrays import Array, Floats, Ints
from sgdec.derived import DerivedRelaxation
from sgdec.protocol import FORBIDDEN, Candidates, SparseRow, State, ability
from sgdec.relaxations import Relaxation
from sgdec.wrapping import Wrapper
from sgdec_predictors.wrapping.log_softmax import normalized


class _Prefix(NamedTuple):
    inner: State
    seen: frozenset[int]


class Repetition(Wrapper):
    """Multiplies or divides the scores of tokens that occurred by a penalty.

    >>> from sgdec.lifting import lift
    >>> from sgdec.testing import Bonus
    >>> penalised = Repetition(lift(Bonus({7: -1.0, 4: 3.0}, default=-2.0)), penalty=1.5)
    >>> states = penalised.initialize_batch([Source(1, (3,))])
    >>> for token in (7, 4, 9):
    ...     states = penalised.consume_batch(states, [token])
    >>> penalised.predict_batch(states).rows
    [SparseRow({7: -1.5, 4: 2.0, 9: -3.0}, default=-2.0)]
    """

    forwards: ClassVar[tuple[str, ...]] = ("best_remaining", "state_key", "attention", "state_label", "relaxations")

    def __init__(
        self,
        inner: BatchPredictor,
        penalty: Annotated[
            float, Field(gt=0, allow_inf_nan=False, description="p: above 1 penalises repetition, below 1 rewards it")
        ],
        prompt: Annotated[bool, Field(description="true: the source tokens count as seen (one vocabulary)")] = False,
        seen: Annotated[
            tuple[Annotated[int, Field(ge=0)], ...],
            Field(description="tokens that count as seen from the beginning, such as a decoder's start token"),
        ] = (),
        normalize: Annotated[
            bool,
            Field(description="true: normalise each row after the penalty, so that its probabilities sum to one"),
        ] = False,
        context: Context | None = None,
    ) -> None:
        super().__init__(inner)
        self._penalty, self._prompt, self._seen, self._normalize = penalty, prompt, frozenset(seen), normalize
        self._vocab_size = context.vocab_size if context else None
        self.max_score = max(inner.max_score, penalised(inner.max_score, penalty))
        if normalize:
            self.on_demand = False  # it needs all tokens anyway
            self.max_score = 0.0
            self.relaxations = None  # hides that of the inner predictor
        elif penalty < 1.0 and inner.max_score > 0:
            vars(self)["best_remaining"] = None  # hides that of the class

    def inner_states(self, states: Sequence[_Prefix]) -> list[State]:
        return [state.inner for state in states]

    def initialize_batch(self, sources: Sequence[Source]) -> list[State]:
        first = [self._seen.union(source.tokens) if self._prompt else self._seen for source in sources]
        return list(map(_Prefix, self.inner.initialize_batch(sources), first))

    def predict_batch(
        self, states: Sequence[_Prefix], candidates: Sequence[Candidates | None] | None = None
    ) -> Scores:
        """Raises UsageError with ``normalize`` if a row is sparse and open, and V is unknown."""
        inner = self.inner.predict_batch(self.inner_states(states), None if self._normalize else candidates)
        seen = [state.seen for state in states]
        changed = inner.changed(
            lambda values: self._dense(values, seen), lambda row, place: self._sparse(row, seen[place])
        )
        return normalized(changed, self._vocab_size, "repetition") if self._normalize else changed

    def consume_batch(self, states: Sequence[_Prefix], tokens: Sequence[int]) -> list[State]:
        after = self.inner.consume_batch(self.inner_states(states), tokens)
        seen = [state.seen | {token} for state, token in zip(states, tokens, strict=True)]
        return list(map(_Prefix, after, seen))

    def best_remaining(self, states: Sequence[_Prefix]) -> list[float]:
        """The inner bound, times the penalty where that can raise scores, which are not above 0 then."""
        method = ability(self.inner, "best_remaining")
        assert method is not None
        inner = method(self.inner_states(states))
        if self._normalize:
            return [FORBIDDEN if bound == FORBIDDEN else 0.0 for bound in inner]
        return [bound * min(self._penalty, 1.0) if bound < 0 else bound for bound in inner]

    def state_key(self, states: Sequence[_Prefix]) -> list[Hashable]:
        method = ability(self.inner, "state_key")
        assert method is not None
        return [(key, state.seen) for key, state in zip(method(self.inner_states(states)), states, strict=True)]

    def relaxed(self, inner: Relaxation) -> Relaxation:
        return _Penalised(inner, self.inner_states, self._penalty)

    def _dense(self, values: Array, seen: Sequence[frozenset[int]]) -> Array:
        """A copy of ``[rows, V]``."""
        width = int(values.shape[1])
        places = [(row, token) for row, tokens in enumerate(seen) for token in tokens if token < width]
        rows, tokens = np.array(places, np.int64).reshape(-1, 2).T
        if isinstance(values, np.ndarray):
            changed = values.astype(np.float64)  # a copy; products are those of sparse rows, bit for bit
            changed[rows, tokens] = penalised(changed[rows, tokens], self._penalty)
            return changed
        import torch

        at = torch.from_numpy(rows).to(values.device), torch.from_numpy(tokens).to(values.device)
        old = values[at]
        return values.index_put(at, torch.where(old < 0, old * self._penalty, old / self._penalty))

    def _sparse(self, row: SparseRow, seen: frozenset[int]) -> SparseRow:
        """Tokens that share a default are listed once they occurred."""
        lookup = dict(row.lookup)
        for token in sorted(seen):
            if token in lookup or (not row.restricts and self._exists(token)):
                lookup[token] = float(penalised(row.get(token), self._penalty))
        return SparseRow(list(lookup), list(lookup.values()), row.default)

    def _exists(self, token: int) -> bool:
        return self._vocab_size is None or token < self._vocab_size


class _Penalised(DerivedRelaxation):
    """Any token may have occurred, or not."""

    def __init__(self, inner: Relaxation, inner_states: Any, penalty: float) -> None:
        super().__init__(inner, inner_states)
        self._penalty = penalty

    def highest(self, states: Ints, tokens: Ints) -> Floats:
        scores = self.inner.highest(states, tokens)
        found: Floats = np.maximum(scores, penalised(scores, self._penalty))
        return found

    def lowest(self, states: Ints, tokens: Ints) -> Floats:
        scores = self.inner.lowest(states, tokens)
        found: Floats = np.minimum(scores, penalised(scores, self._penalty))
        return found


def penalised(scores: Any, penalty: float) -> Any:
    """A score or an array of scores, of tokens that occurred."""
    if isinstance(scores, (int, float)):
        return scores * penalty if scores < 0 else scores / penalty
    with np.errstate(over="ignore"):
        return np.where(scores < 0, scores * penalty, scores / penalty).astype(scores.dtype)


@sgdec.hookimpl
def sgdec_predictors() -> dict[str, type[BatchPredictor]]:
    return {"repetition": Repetition}
