"""Functions that read a predictor's scores token by token, and describe differences between two rows.

They do not use the code that combines scores, so that the kit can test it independently.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from sgdec.arrays import Floats
from sgdec.errors import described
from sgdec.protocol import Predictor, Scores, Source, SparseRow

Row: TypeAlias = Floats
"""``[V]``: the score of every token."""


def plain(values: Any) -> Floats:
    """Convert any array or tensor, on any device, to a float64 NumPy array."""
    if hasattr(values, "detach"):
        values = values.detach().cpu().double().numpy()
    return np.asarray(values, dtype=np.float64)


def read_row(scores: Scores, place: int, vocab_size: int) -> Row:
    """The scores ``[V]`` of all tokens in one row. Raises AssertionError if the row does not fit the vocabulary."""
    assert isinstance(scores, Scores), f"a predictor must return Scores, not {described(scores)}"
    assert place < len(scores), f"a batch must have one row per state: row {place} is missing, it has {len(scores)}"
    if scores.values is not None:
        assert not getattr(scores.values, "requires_grad", False), (
            "a predictor must compute its scores without gradients: torch.no_grad()"
        )
        row = plain(scores.values[place])
        assert row.shape == (vocab_size,), (
            f"a dense row must have one score per token: it has shape {row.shape}, V is {vocab_size}"
        )
        return row
    sparse = scores.rows[place]
    row = np.full(vocab_size, float(sparse.default))
    tokens, values = plain_tokens(sparse.tokens), plain(sparse.scores)
    for token in tokens:
        assert 0 <= token < vocab_size, (
            f"a predictor must list only tokens of the vocabulary: it lists {token}, V is {vocab_size}"
        )
    if len(tokens) != len(values):
        raise ValueError(f"a sparse row must have one score per token: {len(tokens)} tokens, {len(values)} scores")
    row[tokens] = values
    return row


def require_hashable(value: object, what: str, at: str) -> None:
    """Raise AssertionError for a list, an array and other values that no dictionary takes as a key."""
    try:
        hash(value)
    except TypeError:
        raise AssertionError(
            f"{what} that are hashable, such as tuples of numbers, not {described(value)} {at}"
        ) from None


def plain_tokens(tokens: Sequence[int]) -> list[int]:
    """The tokens of a sparse row, as integers."""
    values = np.asarray(tokens) if len(tokens) else np.zeros(0, dtype=np.int64)
    assert values.ndim == 1 and values.dtype.kind in "iu", (
        f"a sparse row must list its tokens as a sequence of integers, not {tokens!r}"
    )
    found: list[int] = values.tolist()
    return found


def sparse_rows(scores: Scores) -> list[SparseRow]:
    """The rows of sparse scores; an empty list for dense scores."""
    return [] if scores.values is not None else scores.rows


def restricts(scores: Scores, place: int) -> bool:
    """Whether one row is sparse with a default of -inf."""
    return scores.values is None and scores.rows[place].default == -np.inf


def ask(predictor: Predictor, vocab_size: int, candidates: Sequence[int] | None = None) -> Row:
    """The scores ``[V]`` of all tokens from a predictor in the simple form, in its current state."""
    return read_row(predictor.predict_next(candidates), 0, vocab_size)


def difference(first: Row, second: Row, tolerance: float, tokens: Sequence[int] | None = None) -> str | None:
    """The first token (of ``tokens``, if given) whose scores differ by more than ``tolerance``, in words, or None."""
    wanted = range(len(first)) if tokens is None else tokens
    at = slice(None) if tokens is None else list(tokens)
    if (first[at] == second[at]).all():
        return None  # almost always
    equal = np.isclose(first, second, rtol=tolerance, atol=tolerance, equal_nan=True)
    for token in wanted:
        if not equal[token]:
            return f"token {token} scores {first[token]:g}, but then {second[token]:g}"
    return None


def where(source: Source, prefix: Sequence[int]) -> str:
    """The sentence and prefix of a failure, for its message."""
    return f"(sentence {source.id}, after {' '.join(map(str, prefix)) or '<s>'})"
