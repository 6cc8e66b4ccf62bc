"""The promise: the k best tokens are those of a full sort, higher score first, then lower token, on any device."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sgdec.topk import BLOCK, _top_torch, top_tokens

Matrix = npt.NDArray[np.float64]


@st.composite
def matrices(draw: st.DrawFn) -> Matrix:
    """``[rows, V]``, below and above the width at which blocks are used; with many ties, or few, or -inf."""
    rows = draw(st.integers(1, 4))
    width = draw(st.one_of(st.integers(1, 40), st.integers(3 * BLOCK, 12 * BLOCK)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    levels = draw(st.sampled_from((1, 2, 10, 10**6)))
    values = rng.integers(-levels, levels, (rows, width)) / 4.0
    return np.where(rng.random((rows, width)) < draw(st.sampled_from((0.0, 0.5, 0.99, 1.0))), -np.inf, values)


few_or_many = st.one_of(st.integers(1, 5), st.integers(1, 200))
"""Blocks are used where a row has more than 2 k of them."""


def by_sorting(values: Matrix, k: int) -> npt.NDArray[np.intp]:
    order = np.lexsort((np.broadcast_to(np.arange(values.shape[1]), values.shape), -values))
    return order[:, :k]


@given(matrices(), few_or_many, st.sampled_from((np.float32, np.float64)))
def test_the_best_tokens_are_those_of_a_full_sort(values: Matrix, k: int, dtype: type[np.floating]) -> None:
    assert (top_tokens(values.astype(dtype), k) == by_sorting(values, k)).all()


@given(matrices(), few_or_many)
def test_a_tensor_gives_what_an_array_gives(values: Matrix, k: int) -> None:
    tensor = torch.from_numpy(values).float()
    assert (top_tokens(tensor, k) == by_sorting(values, k)).all()


@given(matrices(), few_or_many)
def test_the_way_for_other_devices_gives_the_same(values: Matrix, k: int) -> None:
    k = min(k, values.shape[1])
    assert (_top_torch(torch.from_numpy(values), k) == by_sorting(values, k)).all()


@given(matrices(), few_or_many, st.data())
def test_a_nan_counts_as_the_highest_score(values: Matrix, k: int, data: st.DataObject) -> None:
    token = data.draw(st.integers(0, values.shape[1] - 1))
    values[:, token] = np.nan
    assert (top_tokens(values, k)[:, 0] == token).all()
    assert (_top_torch(torch.from_numpy(values), min(k, values.shape[1]))[:, 0] == token).all()


@given(matrices(), few_or_many)
def test_the_values_are_left_as_they_are(values: Matrix, k: int) -> None:
    before = values.copy()
    top_tokens(values, k)
    assert (values == before).all()


@pytest.mark.parametrize("k", [1, 3, 63, 64, 65, 127, 128, 129, 1000])
def test_when_all_scores_are_equal_the_lowest_tokens_win(k: int) -> None:
    assert top_tokens(np.zeros((2, 1000)), k).tolist() == [list(range(k))] * 2


@pytest.mark.gpu
def test_a_tensor_on_a_gpu_gives_what_an_array_gives() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    values = np.random.default_rng(0).integers(-9, 9, (5, 3000)) / 4.0
    assert (top_tokens(torch.from_numpy(values).cuda(), 40) == by_sorting(values, 40)).all()
