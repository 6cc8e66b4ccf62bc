"""Checks the answers of plugins once per batch: a wrong answer is one line that names the plugin.

A row of `Scores` too many, a state too few, or a dict in place of `Scores` would otherwise surface far from its
cause, or shift what belongs to one hypothesis to another.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from sgdec.errors import SgdecError
from sgdec.protocol import BatchDecoder, Decoder, Result, Scores

Floats = npt.NDArray[np.float64]


def require_scores(name: str, found: object, rows: int) -> None:
    """SgdecError unless predictor ``name``, asked about so many states, answered with as many rows of `Scores`."""
    if not isinstance(found, Scores):
        raise SgdecError(
            f"predictor {name!r}: predict_batch returned {described(found)}; expected Scores, such as "
            "Scores.dense(array) with an array [rows, V]."
        )
    if len(found) != rows:
        raise SgdecError(f"predictor {name!r}: predict_batch answered {len(found)} rows to {rows} states.")
    if found.values is not None and getattr(found.values, "requires_grad", False):
        raise SgdecError(f"predictor {name!r}: its scores require gradients; compute them under torch.no_grad().")


def require_one_each(name: str, method: str, found: Any, expected: int) -> None:
    """SgdecError unless predictor ``name`` answered as many things as it was asked about."""
    if not hasattr(found, "__len__"):
        raise SgdecError(
            f"predictor {name!r}: {method} returned {described(found)}; expected a list of {expected}, one each."
        )
    if len(found) != expected:
        raise SgdecError(f"predictor {name!r}: {method} answered {len(found)} to {expected}; expected one each.")


def attention_rows(name: str, found: Sequence[Any]) -> list[Floats]:
    """What predictor ``name`` attends to, ``[source]`` each; SgdecError if it is no number."""
    rows = [np.array(row, dtype=np.float64) for row in found]  # copies: of the matrix of a batch nothing is kept
    if not all(np.isfinite(row).all() for row in rows):
        raise SgdecError(f"predictor {name!r} gave attention that is NaN or infinite; its model is broken.")
    return rows


def require_result(decoder: Decoder, found: object) -> Result:
    """``found``, unless it is no `Result`; then SgdecError."""
    if not isinstance(found, Result):
        method = "decode_batch" if isinstance(decoder, BatchDecoder) else "decode"
        listed = "a list with " if isinstance(decoder, BatchDecoder) else ""
        raise SgdecError(
            f"{type(decoder).__name__}.{method} returned {listed}{described(found)}; expected {listed}a Result."
        )
    return found


def require_results(decoder: BatchDecoder, found: Any, spaces: int) -> list[Result]:
    """A list of one `Result` a space; else SgdecError."""
    method = f"{type(decoder).__name__}.decode_batch"
    if not isinstance(found, (list, tuple)):
        raise SgdecError(f"{method} returned {described(found)}; expected a list of {spaces} Results, one a space.")
    if len(found) != spaces:
        raise SgdecError(f"{method} returned {len(found)} Results for {spaces} spaces; expected one each.")
    return [require_result(decoder, each) for each in found]


def described(found: object) -> str:
    """What kind of thing somebody returned in place of another.

    >>> described(None), described({}), described([1.0])
    ('None', 'a dict', 'a list')
    """
    if found is None:
        return "None"
    name = type(found).__name__
    article = "an" if name[0].lower() in "aeiou" else "a"
    shape = getattr(found, "shape", None)
    return f"{article} {name}" + (f" of shape {list(shape)}" if shape is not None else "")
