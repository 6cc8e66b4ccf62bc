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
from sgdec.models.kernels import (
    INT8_WAYS,
    LEVELS,
    NARROW_LEVELS,
    Int8Maker,
    MatrixProducts,
    Product,
    fbgemm_int8,
    int8_by_row,
    int8_linear,
    is_right,
    onednn_int8,
    packed_linear,
    plain_int8,
    plain_linear,
    quantise_input,
    quantise_rows,
)

pytestmark = pytest.mark.slow

ROWS = (1, 2, 5, 16, 17, 64, 100)
SHAPES = [(7, 5), (64, 48), (33, 130), (1, 64), (2048, 512)]
WAYS = [*INT8_WAYS, (plain_int8, LEVELS), (plain_int8, NARROW_LEVELS)]
NAMES = [f"{make.__name__} of {levels} steps" for make, levels in WAYS]
each_way = pytest.mark.parametrize(("make", "levels"), WAYS, ids=NAMES)


def weights(rows: int, columns: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    torch.manual_seed(rows + columns)
    return torch.randn(rows, columns, dtype=dtype), torch.randn(rows, dtype=dtype)


def whole(kind: str, rows: int, columns: int, largest: int) -> Tensor:
    """Integers [rows, columns] in [-largest, largest]; "pairs" are neighbours of one sign."""
    if kind == "random":
        return torch.randint(-largest, largest + 1, (rows, columns))
    if kind == "largest":
        return torch.full((rows, columns), largest)
    signs = torch.randint(0, 2, (rows, columns)) * 2 - 1
    return largest * (signs if kind == "ends" else signs.repeat_interleave(2, 1)[:, :columns])


def skip_unless_right(make: Int8Maker, levels: int) -> None:
    if not is_right(make, levels):
        pytest.skip("not on this processor, or not in this PyTorch")


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


def test_float64_is_multiplied_as_ever() -> None:
    weight, bias = weights(7, 5, torch.float64)
    x = torch.randn(3, 5, dtype=torch.float64)
    assert torch.equal(packed_linear(weight, bias)(x), F.linear(x, weight, bias))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_products_in_bf16_are_those_of_float64_rounded(shape: tuple[int, int]) -> None:
    weight, bias = weights(*shape, torch.bfloat16)
    product = packed_linear(weight, bias)
    for rows in ROWS:
        x = torch.randn(rows, shape[1]).bfloat16()
        expected = F.linear(x.double(), weight.double(), bias.double())
        assert product(x).dtype == torch.bfloat16
        torch.testing.assert_close(product(x).double(), expected, rtol=2**-8, atol=2**-8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_packed_product_does_not_follow_its_weights(dtype: torch.dtype) -> None:
    weight, bias = weights(7, 5, dtype)
    packed, plain, x = packed_linear(weight, bias), plain_linear(weight, bias), torch.randn(3, 5, dtype=dtype)
    before = packed(x)
    weight.zero_()
    bias.zero_()
    assert torch.equal(packed(x), before) and not plain(x).any()


@pytest.mark.slow
@each_way
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("biased", "bound"), [(True, 1.0), (False, 2.5)])
def test_int8_products_are_those_of_equation_12(
    make: Int8Maker, levels: int, shape: tuple[int, int], biased: bool, bound: float
) -> None:
    """Inputs are near a step, for two ways may round what is half-way between two each in its own manner."""
    skip_unless_right(make, levels)
    weight, bias = weights(*shape)
    constant = bias if biased else None
    whole, scale = quantise_rows(weight)
    product = make(whole, scale / LEVELS, constant, bound, levels)
    expected = whole_numbers(weight, constant, bound, levels)
    for rows in ROWS:
        steps = torch.randint(-levels, levels + 1, (rows, shape[1])) + (torch.rand(rows, shape[1]) - 0.5) * 0.99
        x = (steps * (bound / levels)).clamp(-bound, bound)
        torch.testing.assert_close(product(x).double(), expected(x), rtol=1e-5, atol=1e-4)


@pytest.mark.slow
@each_way
@pytest.mark.parametrize("shape", [(1, 64), (33, 130), (70, 1023), (32, 4096)], ids=str)
@pytest.mark.parametrize("kind", ["random", "ends", "pairs", "largest"])
def test_sums_are_those_of_whole_numbers(make: Int8Maker, levels: int, shape: tuple[int, int], kind: str) -> None:
    """No overflow on the way, up to 66 million, where numbers and neighbours are at their ends."""
    skip_unless_right(make, levels)
    torch.manual_seed(shape[1])
    weight = whole(kind, *shape, LEVELS)
    for sign in (1, -1):
        product = make((sign * weight).to(torch.int8), torch.ones(shape[0]), None, float(levels), levels)
        for rows in ROWS:
            x = whole(kind, rows, shape[1], levels)
            sums = sign * x @ weight.T  # int64
            torch.testing.assert_close(product(x.float()).double(), sums.double(), rtol=1e-6, atol=0)


def test_an_operator_that_overflows_is_not_right() -> None:
    """As processors without VNNI do: two products of 8 bits each, summed in 16 and cut off there."""

    def narrow(weight: Tensor, scale: Tensor, bias: Tensor | None, bound: float, levels: int) -> Product:
        def product(x: Tensor) -> Tensor:
            terms = (quantise_input(x, bound, levels).long()[:, None] * weight.long()).unflatten(-1, (-1, 2))
            sums = terms.sum(-1).clamp(-(2**15), 2**15 - 1).sum(-1) - (levels + 1) * weight.long().sum(-1)
            return sums * scale * (bound / levels)

        return product

    assert is_right(narrow, NARROW_LEVELS) and not is_right(narrow, LEVELS)
    assert not is_right(lambda *given: lambda x: torch.zeros(len(x), len(given[0])), NARROW_LEVELS)


@each_way
def test_int8_is_as_near_the_exact_product_as_rounding_allows(make: Int8Maker, levels: int) -> None:
    """Rounding is noise of a twelfth of a squared step in each input and each weight, independent of one another."""
    skip_unless_right(make, levels)
    weight, bias = weights(512, 1024)
    x = torch.rand(20, 1024) * 2 - 1
    steps, scale = quantise_rows(weight)
    error = make(steps, scale / LEVELS, bias, 1.0, levels)(x) - F.linear(x.double(), weight.double(), bias.double())
    noise = 1024 * ((1 / levels) ** 2 * weight.var() + (scale / LEVELS).square().mean() * x.var()) / 12
    assert error.std().item() == pytest.approx(noise.sqrt().item(), rel=0.1)


@pytest.mark.parametrize("way", [None, *WAYS], ids=["fp32", *NAMES])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_row_is_the_same_bit_for_bit_whatever_the_other_rows(
    way: tuple[Int8Maker, int] | None, shape: tuple[int, int]
) -> None:
    weight, bias = weights(*shape)
    if way is None:
        product = packed_linear(weight, bias)
    else:
        skip_unless_right(*way)
        make, levels = way
        steps, scale = quantise_rows(weight)
        product = make(steps, scale / LEVELS, bias, 2.0, levels)
    x = torch.randn(100, shape[1])
    together = product(x)
    for rows in ROWS:
        assert torch.equal(product(x[:rows].clone()), together[:rows])
        assert torch.equal(product(x[-rows:].clone()), together[-rows:])
    assert torch.equal(product(x.view(5, 20, -1)), together.view(5, 20, -1)), "more dimensions are more rows"


@each_way
def test_a_row_of_inputs_has_its_own_steps(
    make: Int8Maker, levels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of very different size are equally exact, and none depends on the others."""
    skip_unless_right(make, levels)
    monkeypatch.setattr(kernels, "int8_way", lambda: (make, levels))
    weight, bias = weights(40, 96)
    product, unbiased = int8_by_row(weight, bias), int8_by_row(weight)
    x = torch.randn(6, 96) * torch.tensor([1e-6, 1e-3, 1.0, 30.0, 1e5, 0.0])[:, None]
    found = unbiased(x)
    expected = F.linear(x.double(), weight.double())
    error = (found - expected).square().mean(1).sqrt() / expected.square().mean(1).sqrt().clamp(min=1e-30)
    assert error[:5].max() < 2.5 / levels and not found[5].any()
    torch.testing.assert_close(product(x), found + bias)
    for row in range(6):
        assert torch.equal(product(x[row : row + 1]), product(x)[row : row + 1])
    assert product(torch.full((1, 96), float("nan"))).isnan().all()


@each_way
def test_inputs_beyond_the_bound_count_as_the_bound(make: Int8Maker, levels: int) -> None:
    skip_unless_right(make, levels)
    weight, bias = weights(9, 16)
    steps, scale = quantise_rows(weight)
    product = make(steps, scale / LEVELS, bias, 0.5, levels)
    x = torch.tensor([3.0, -7.0, 0.5, -0.5, float("inf"), 0.0, 0.1, -0.2]).repeat(2)[None]
    assert torch.equal(product(x), product(x.clamp(-0.5, 0.5)))


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
    monkeypatch.setattr(kernels, "packs", lambda dtype: False)
    monkeypatch.setattr(kernels, "int8_way", lambda: (plain_int8, LEVELS))
    torch.testing.assert_close(packed_linear(weight, bias)(x), fast[0])
    torch.testing.assert_close(int8_linear(*quantise_rows(weight), bias, 1.0)(x), fast[1], rtol=0, atol=0.5)


def test_a_missing_operator_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*args: object) -> Product:
        raise NotImplementedError

    monkeypatch.setattr(kernels, "_packed", missing)
    assert not any(kernels.packs.__wrapped__(dtype) for dtype in kernels.PACKED)
    monkeypatch.setattr(kernels, "INT8_WAYS", [(missing, LEVELS), (plain_int8, NARROW_LEVELS)])
    assert kernels.int8_way.__wrapped__() == (plain_int8, NARROW_LEVELS), "the next one"
    monkeypatch.setattr(kernels, "INT8_WAYS", [(missing, LEVELS)])
    assert kernels.int8_way.__wrapped__() == (plain_int8, LEVELS)


def test_packing_leaves_the_engine_of_quantised_products_as_it_was() -> None:
    quantised = torch.backends.quantized
    before = quantised.engine
    others = [engine for engine in quantised.supported_engines if engine not in ("none", "fbgemm")]
    try:
        for engine in others:
            quantised.engine = engine
            is_right(fbgemm_int8, NARROW_LEVELS)
            assert quantised.engine == engine
    finally:
        quantised.engine = before


@pytest.mark.slow
def test_inputs_are_narrower_where_the_processor_would_overflow() -> None:
    """As on a processor without VNNI: two products of 8 bits, added in 16."""
    code = (
        "import torch; from sgdec.models.kernels import int8_linear, int8_way, quantise_rows; "
        "torch.set_num_threads(1); product = int8_linear(*quantise_rows(torch.ones(32, 512)), None, 1.0); "
        "assert (product(torch.ones(5, 512)) / 512 - 1).abs().max() < 1e-5; print(*int8_way())"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], env={**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2"}, check=True,
        capture_output=True, text=True,
    )  # fmt: skip
    make, levels = done.stdout.split()[1], int(done.stdout.split()[-1])
    assert levels == NARROW_LEVELS or make == "plain_int8", "no VNNI in AVX2; plain where operators are missing"


def test_a_run_says_how_products_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "packs", lambda dtype: dtype in kernels.PACKED)
    assert str(MatrixProducts("bf16", "cpu", packed=True)) == "bf16, weights packed by oneDNN"
    assert str(MatrixProducts("fp64", "cpu", packed=True)) == "fp64, weights as they are"
    assert str(MatrixProducts("fp32", "cuda", packed=True)) == "fp32 on cuda"
    monkeypatch.setattr(kernels, "packs", lambda dtype: False)
    assert str(MatrixProducts("fp32", "cpu", packed=True)) == "fp32, weights as they are"
    for way, said in (
        ((onednn_int8, LEVELS), "8 bits by oneDNN"),
        ((fbgemm_int8, NARROW_LEVELS), "8 bits by FBGEMM, inputs in 7 bits"),
        ((plain_int8, LEVELS), "8 bits by float64, which is slow"),
    ):
        monkeypatch.setattr(kernels, "int8_way", lambda way=way: way)
        assert str(MatrixProducts("int8", "cpu", packed=True)) == said


def test_a_bound_that_is_the_number_of_steps_is_a_bound() -> None:
    weight = torch.eye(64)
    for bound in (127.0, 63.0):
        product = int8_linear(*quantise_rows(weight), None, bound)
        x = torch.tensor([[1000.0, -1000.0, bound / 2, 0.0] * 16])
        torch.testing.assert_close(product(x), x.clamp(-bound, bound), rtol=0, atol=bound / 63)
