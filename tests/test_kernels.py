"""Packed and 8-bit products: right against float64, and each row the same whatever else is multiplied with it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from sgdec.models import kernels
from sgdec.models.kernels import Product, int8_linear, packed_linear, plain_linear, quantise_input, quantise_rows

ROWS = (1, 2, 5, 16, 17, 64, 100)
SHAPES = [(7, 5), (64, 48), (33, 130), (1, 64), (2048, 512)]


def weights(rows: int, columns: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    torch.manual_seed(rows + columns)
    return torch.randn(rows, columns, dtype=dtype), torch.randn(rows, dtype=dtype)


def whole_numbers(weight: Tensor, bias: Tensor | None, bound: float, levels: int) -> Callable[[Tensor], Tensor]:
    """Equation 12 in float64: sums of whole numbers, then the scales."""
    whole, scale = quantise_rows(weight)
    wide = whole.double() * (scale.double() / 127)[:, None]

    def product(x: Tensor) -> Tensor:
        steps = quantise_input(x, bound, levels).double() - (levels + 1)
        return F.linear(steps * (bound / levels), wide, None if bias is None else bias.double())

    return product


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("biased", [True, False])
def test_packed_products_are_those_of_float64(shape: tuple[int, int], biased: bool) -> None:
    weight, bias = weights(*shape)
    product = packed_linear(weight, bias if biased else None)
    for rows in ROWS:
        x = torch.randn(rows, shape[1])
        expected = F.linear(x.double(), weight.double(), bias.double() if biased else None)
        torch.testing.assert_close(product(x).double(), expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_precisions_are_multiplied_as_ever(dtype: torch.dtype) -> None:
    weight, bias = weights(7, 5, dtype)
    x = torch.randn(3, 5, dtype=dtype)
    assert torch.equal(packed_linear(weight, bias)(x), F.linear(x, weight, bias))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_packed_product_does_not_follow_its_weights(dtype: torch.dtype) -> None:
    weight, bias = weights(7, 5, dtype)
    packed, plain, x = packed_linear(weight, bias), plain_linear(weight, bias), torch.randn(3, 5, dtype=dtype)
    before = packed(x)
    weight.zero_()
    bias.zero_()
    assert torch.equal(packed(x), before) and not plain(x).any()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("biased", "bound"), [(True, 1.0), (False, 2.5)])
def test_int8_products_are_those_of_equation_12(shape: tuple[int, int], biased: bool, bound: float) -> None:
    weight, bias = weights(*shape)
    constant = bias if biased else None
    product = int8_linear(*quantise_rows(weight), constant, bound)
    expected = whole_numbers(weight, constant, bound, kernels._int8_levels() or 127)
    for rows in ROWS:
        x = (torch.rand(rows, shape[1]) * 2 - 1) * bound
        torch.testing.assert_close(product(x).double(), expected(x), rtol=1e-5, atol=1e-4)


def test_int8_is_near_the_exact_product() -> None:
    """The error of each term: half a step of the input and half a step of the weight; they add up like noise."""
    weight, bias = weights(512, 1024)
    x = torch.rand(20, 1024) * 2 - 1
    exact = F.linear(x.double(), weight.double(), bias.double())
    error = (int8_linear(*quantise_rows(weight), bias, 1.0)(x).double() - exact).std()
    assert error < 0.01 * exact.std()


@pytest.mark.parametrize("make", [packed_linear, lambda w, b: int8_linear(*quantise_rows(w), b, 2.0)])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_row_is_the_same_bit_for_bit_whatever_the_other_rows(
    make: Callable[[Tensor, Tensor], Product], shape: tuple[int, int]
) -> None:
    product = make(*weights(*shape))
    x = torch.randn(100, shape[1])
    together = product(x)
    for rows in ROWS:
        assert torch.equal(product(x[:rows].clone()), together[:rows])
        assert torch.equal(product(x[-rows:].clone()), together[-rows:])
    assert torch.equal(product(x.view(5, 20, -1)), together.view(5, 20, -1)), "more dimensions are more rows"


def test_inputs_beyond_the_bound_count_as_the_bound() -> None:
    weight, bias = weights(9, 16)
    product = int8_linear(*quantise_rows(weight), bias, 0.5)
    x = torch.tensor([3.0, -7.0, 0.5, -0.5, float("inf"), 0.0, 0.1, -0.2]).repeat(2)[None]
    assert torch.equal(product(x), product(x.clamp(-0.5, 0.5)))


def test_the_largest_sums_do_not_overflow() -> None:
    """All inputs and weights at their ends, 4,096 of them: 66 million, far beyond 16 bits."""
    for sign in (1.0, -1.0):
        product = int8_linear(*quantise_rows(torch.full((32, 4096), 0.25)), None, 1.0)
        torch.testing.assert_close(product(torch.full((3, 4096), sign)), torch.full((3, 32), sign * 1024.0))


@given(st.floats(0.1, 100), st.lists(st.floats(-1, 1), min_size=1, max_size=9), st.sampled_from([63, 127]))
def test_quantised_inputs_are_within_half_a_step(bound: float, shares: list[float], levels: int) -> None:
    x = torch.tensor(shares) * bound
    steps = quantise_input(x, bound, levels)
    assert steps.min() >= 1 and steps.max() <= 2 * levels + 1
    error = ((steps.double() - levels - 1) * bound / levels - x).abs()
    assert error.max() <= 0.5001 * bound / levels


@given(st.lists(st.lists(st.floats(-1e3, 1e3, width=32), min_size=3, max_size=3), min_size=1, max_size=4))
def test_quantised_rows_are_within_half_a_step(rows: list[list[float]]) -> None:
    weight = torch.tensor(rows)
    whole, scale = quantise_rows(weight)
    error = (whole.double() * scale.double()[:, None] / 127 - weight.double()).abs()
    assert (error <= scale.double()[:, None] / 254 * (1 + 1e-3)).all()
    assert whole.abs().amax(1).eq(127).logical_or(scale < 1e-40).all(), "the largest of a row is at the end"


def test_without_the_operators_the_plain_way_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    weight, bias = weights(40, 30)
    x = torch.rand(6, 30) * 2 - 1
    fast = packed_linear(weight, bias)(x), int8_linear(*quantise_rows(weight), bias, 1.0)(x)
    same_steps = kernels._int8_levels() in (None, 127)
    monkeypatch.setattr(kernels, "_packs", lambda: False)
    monkeypatch.setattr(kernels, "_int8_levels", lambda: None)
    torch.testing.assert_close(packed_linear(weight, bias)(x), fast[0])
    tolerance = 1e-5 if same_steps else 0.5
    torch.testing.assert_close(int8_linear(*quantise_rows(weight), bias, 1.0)(x), fast[1], rtol=0, atol=tolerance)


def test_a_missing_operator_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*args: object) -> Product:
        raise NotImplementedError

    monkeypatch.setattr(kernels, "_packed", missing)
    monkeypatch.setattr(kernels, "_int8_packed", missing)
    assert kernels._packs.__wrapped__() is False
    assert kernels._int8_levels.__wrapped__() is None


def test_inputs_are_narrower_where_the_processor_would_overflow() -> None:
    """As on a processor without VNNI: two products of 8 bits, added in 16."""
    code = (
        "import torch; from sgdec.models.kernels import _int8_levels, int8_linear, quantise_rows; "
        "torch.set_num_threads(1); product = int8_linear(*quantise_rows(torch.ones(32, 512)), None, 1.0); "
        "assert (product(torch.ones(5, 512)) / 512 - 1).abs().max() < 1e-5; print(_int8_levels())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2"}, check=True,
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout.strip() in ("63", "None"), "no VNNI in AVX2; None where the operator is missing"
