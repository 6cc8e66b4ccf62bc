"""The promise: open rows that are added to a matrix say of every token what the rows say, whatever they list and
however the matrix lies in memory."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from sgdec import arrays
from sgdec.protocol import FORBIDDEN
from sgdec.scores import SparseRow
from sgdec.sparse import OpenRows

ROWS, V = 3, 7
KINDS: dict[str, Callable[[Any], Any]] = {
    "rows in memory": np.ascontiguousarray,
    "columns in memory": np.asfortranarray,
    "tensor": torch.tensor,
    "transposed tensor": lambda matrix: torch.tensor(matrix.T).T,
}
LISTED = {
    "masks": [([1, 4], [FORBIDDEN] * 2, 0.0), ([], [], 0.0), ([0, 2, 6], [FORBIDDEN] * 3, -0.5)],
    "masks and scores": [([1, 4], [FORBIDDEN, -2.0], 0.0), ([3], [1.0], -1.0), ([], [], 0.5)],
    "nothing": [([], [], 0.0)] * ROWS,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("listed", LISTED)
@pytest.mark.parametrize("weight", [1.0, 0.5, 0.0])
def test_open_rows_are_added_token_by_token(kind: str, listed: str, weight: float) -> None:
    matrix = np.random.default_rng(1).normal(size=(ROWS, V))
    matrix[0, 1] = math.nan  # a mistake of another predictor is found wherever it is
    rows = [SparseRow(tokens, scores, default) for tokens, scores, default in LISTED[listed]]
    total = KINDS[kind](matrix)
    found = arrays.to_numpy(OpenRows.of(rows).added_to(total, np.full((ROWS, 1), weight)))
    for row, token in np.ndindex(ROWS, V):
        score = rows[row].get(token)
        added = FORBIDDEN if score == FORBIDDEN else weight * score
        assert found[row, token] == pytest.approx(matrix[row, token] + added, nan_ok=True)
    assert np.array_equal(arrays.to_numpy(total), matrix, equal_nan=True)
