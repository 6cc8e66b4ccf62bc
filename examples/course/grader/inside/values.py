"""Values of a submission as JSON has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any

import numpy as np

from sgdec.protocol import Hypothesis, Result, Scores


def plain(value: Any) -> Any:
    """Numbers, texts, None, and sequences of these; anything else as a text that says what it is."""
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, int | float | np.integer | np.floating):
        return value if isinstance(value, int | float) else value.item()
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, Sequence):
        return [plain(item) for item in value]
    return f"{type(value).__name__} object"


def plain_scores(scores: Any) -> dict[str, Any]:
    """The rows of `Scores`; of anything else its type."""
    if not isinstance(scores, Scores):
        return {"type": type(scores).__name__}
    if scores.values is not None:
        return {"dense": plain(np.asarray(scores.values))}
    rows = [(plain(row.tokens), plain(row.scores), plain(row.default)) for row in scores.rows]
    return {"rows": rows}


def plain_result(result: Any) -> dict[str, Any]:
    """The claims of a decoder; of anything else its type."""
    if not isinstance(result, Result):
        return {"type": type(result).__name__}
    return {
        "hypotheses": [_plain_hypothesis(hypothesis) for hypothesis in result.hypotheses],
        "proven": plain(result.proven),
        "gap": plain(result.gap),
    }


def _plain_hypothesis(hypothesis: Any) -> dict[str, Any]:
    if not isinstance(hypothesis, Hypothesis):
        return {"type": type(hypothesis).__name__}
    return {
        name: plain(getattr(hypothesis, name)) for name in ("tokens", "score", "rank_score", "ledger", "weights")
    }


def image(value: Any, inside: frozenset[int] = frozenset()) -> Any:
    """The contents of a state at any depth, to see whether it changes; other objects by their identity."""
    if id(value) in inside:
        return "..."
    deeper = inside | {id(value)}
    if value is None or isinstance(value, str | bool | int | float):
        return repr(value)
    if isinstance(value, np.ndarray):
        return [str(value.dtype), list(value.shape), value.tobytes().hex()]
    if isinstance(value, Mapping):
        return [[image(key, deeper), image(item, deeper)] for key, item in value.items()]
    if isinstance(value, Set):
        return sorted(map(repr, value))
    if isinstance(value, Sequence):
        return [image(item, deeper) for item in value]
    return f"object {id(value)}"
