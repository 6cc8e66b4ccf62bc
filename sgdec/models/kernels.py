"""Matrix products with weights that no longer change: packed once for the processor, in fp32 or in 8 bits.

A `Product` maps x [..., K] to x W^T + b [..., N]. Makers of products, from the plain to the fast:

- `plain_linear`: what `torch.nn.functional.linear` does; any device and precision;
- `packed_linear`: fp32 weights laid out once as oneDNN wants them. Here that is 1.3 to 2 times as fast, and row i of
  a product does not depend on how many rows there are. `torch.utils.mkldnn`, the public way to packed weights, gains
  nothing: it converts every input and output;
- `int8_linear`: weights and inputs in 8 bits, summed in 32: GNMT (Wu et al. 2016) section 6. The input's range is
  fixed beforehand, never measured over a batch, so a row's result depends, bit for bit, on that row alone.

The fast ones use operators of PyTorch that only its compiler is meant to call (``torch.ops.mkldnn``,
``torch.ops.onednn``) or that it will drop together with its quantised tensors (``torch.ops.quantized``). They are
tried out once, on small products; where one is missing or wrong (another processor, another PyTorch) the next takes
its place, at last the plain way, slower but right.

Which 8-bit operator: oneDNN's where the processor has instructions for it (VNNI). Elsewhere FBGEMM's, because oneDNN
lays weights out for VNNI only. Measured with AVX2 on one core, FBGEMM takes 0.3 to 0.5 of oneDNN's time for 5 rows,
and 0.85 to 1.15 for 80 and 320 (``benchmarks/quantised.py --operators``).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor

Product = Callable[[Tensor], Tensor]
"""x [..., K] to [..., N]."""
Int8Maker = Callable[[Tensor, Tensor, Tensor | None, float, int], Product]
"""int8 weight [N, K], what its steps are worth [N], bias, the inputs' bound, and how many steps that is."""

LEVELS = 127
"""Equation 12: weights are integers in [-127, 127]; inputs are too, where the processor adds without overflow."""
NARROW_LEVELS = 63
"""Processors without VNNI add two products of 8 bits in 16: with unsigned inputs of 7 bits they always fit."""
ROWS = 64
"""The number of rows for which fp32 weights are laid out; any number can be multiplied."""


class Kernels:
    """Who makes the products of a frozen model; `Seq2Seq.freeze` asks for each. Here all are in fp32.

    A subclass decides otherwise for the products that GNMT section 6 quantises: all but those of the attention.
    """

    def linear(self, weight: Tensor, bias: Tensor | None = None) -> Product:
        """A product that stays in floating point: weight [N, K], bias [N]."""
        return packed_linear(weight, bias)

    def bounded(self, name: str, weight: Tensor, bias: Tensor | None, bound: float | None) -> Product:
        """A product that may be quantised: no input's absolute value is above ``bound``; None: nobody knows.

        ``name`` is unique within the model and stays the same from version to version.
        """
        return self.linear(weight, bias)


def plain_linear(weight: Tensor, bias: Tensor | None = None) -> Product:
    """x W^T + b for weight [N, K] and bias [N], as they are at the time of each call."""
    return lambda x: F.linear(x, weight, bias)


def packed_linear(weight: Tensor, bias: Tensor | None = None) -> Product:
    """The same for weights that will not change, packed where they are fp32 on a CPU that gains by it."""
    weight, bias = weight.detach(), None if bias is None else bias.detach().clone()
    if weight.device.type != "cpu" or weight.dtype != torch.float32 or not _packs():
        return plain_linear(weight.clone(), bias)
    return _packed(weight, bias)


def quantise_rows(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Equation 12: int8 WQ [N, K] and fp32 s [N] with W[i, j] = WQ[i, j] s_i / 127, for finite W [N, K].

    s_i is the largest absolute value of row i, so that its WQ is 127 or -127; a row of zeros has s_i = 0.

    >>> quantise_rows(torch.tensor([[0.5, -2.0, 0.1], [0.0, 0.0, 0.0]]))
    (tensor([[  32, -127,    6],
            [   0,    0,    0]], dtype=torch.int8), tensor([2., 0.]))
    """
    scale = weight.detach().abs().amax(1)  # [N]
    divisor = scale.where(scale > 0, 1.0)
    return (weight.detach() / divisor[:, None] * LEVELS).round().to(torch.int8), scale.float()


def int8_linear(weight: Tensor, scale: Tensor, bias: Tensor | None, bound: float) -> Product:
    """The product with int8 ``weight`` [N, K] of equation 12 and its ``scale`` [N], for inputs in [-bound, bound].

    Inputs are rounded to the nearest of 255 steps (of 127, on processors without VNNI); one beyond the bound counts
    as the bound. The products are summed exactly, in 32 bits; fp32 comes out. CPU only.
    """
    make, levels = int8_way()
    return make(weight, scale / LEVELS, bias, bound, levels)


def quantise_input(x: Tensor, bound: float, levels: int = LEVELS) -> Tensor:
    """x in [-bound, bound] to the nearest of its steps: unsigned integers, as processors want them.

    0 becomes ``levels`` + 1. The conversion cuts off what follows the point.

    >>> quantise_input(torch.tensor([0.0, 1.0, -1.0, 0.012, -5.0]), 1.0).tolist()
    [128, 255, 1, 130, 1]
    """
    steps = torch.add(torch.tensor(levels + 1.5), x, alpha=levels / bound)
    return steps.clamp_(1, 2 * levels + 1).to(torch.uint8)


def _packed(weight: Tensor, bias: Tensor | None) -> Product:
    packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), ROWS)
    multiply = torch.ops.mkldnn._linear_pointwise
    return lambda x: cast(Tensor, multiply(x, packed, bias, "none", [], ""))


def onednn_int8(weight: Tensor, scale: Tensor, bias: Tensor | None, bound: float, levels: int) -> Product:
    """A product of oneDNN."""
    packed = torch.ops.onednn.qlinear_prepack(weight.contiguous(), [ROWS, weight.size(1)])
    no_zero_points = torch.zeros(len(weight), dtype=torch.long)
    multiply = torch.ops.onednn.qlinear_pointwise
    step, constant = bound / levels, (None if bias is None else bias.detach().float())

    def product(x: Tensor) -> Tensor:
        steps = quantise_input(x, bound, levels)
        return cast(Tensor, multiply(
            steps, step, levels + 1, packed, scale, no_zero_points, constant, 1.0, 0, torch.float32, "none", [], ""
        ))  # fmt: skip

    return product


def fbgemm_int8(weight: Tensor, scale: Tensor, bias: Tensor | None, bound: float, levels: int) -> Product:
    """The same of FBGEMM, which quantises its inputs itself, a half to the even step."""
    quantised, engine = torch.backends.quantized, torch.backends.quantized.engine
    try:
        quantised.engine = "fbgemm"  # decides what the weights are packed for
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "torch.quantize_per_tensor")  # deprecated: see above
            tensor = torch._make_per_channel_quantized_tensor(
                weight.contiguous(), scale.double(), torch.zeros(len(weight), dtype=torch.long), 0
            )
        packed = torch.ops.quantized.linear_prepack(tensor, None if bias is None else bias.detach().float())
    finally:
        quantised.engine = engine
    multiply = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32
    step = bound / levels
    return lambda x: cast(Tensor, multiply(x.clamp(-bound, bound), step, levels + 1, packed))


def plain_int8(weight: Tensor, scale: Tensor, bias: Tensor | None, bound: float, levels: int) -> Product:
    """The same sums of whole numbers, in float64, which holds them exactly."""
    wide = weight.double()

    def product(x: Tensor) -> Tensor:
        sums = F.linear(quantise_input(x, bound, levels).double() - (levels + 1), wide)
        scaled = (sums * (scale.double() * (bound / levels))).float()
        return scaled if bias is None else scaled + bias

    return product


INT8_WAYS: tuple[tuple[Int8Maker, int], ...] = (
    (onednn_int8, LEVELS),
    (fbgemm_int8, NARROW_LEVELS),
    (onednn_int8, NARROW_LEVELS),
)
"""How to multiply in 8 bits and with how many steps of the input, the best first."""


@cache
def _packs() -> bool:
    """Whether packed fp32 products work here."""
    x, weight, bias = torch.linspace(-1, 1, 240).view(5, 48), torch.linspace(-1, 1, 336).view(7, 48), torch.ones(7)
    try:
        result = _packed(weight, bias)(x)
    except (AttributeError, NotImplementedError, RuntimeError):
        return False
    return torch.allclose(result, F.linear(x, weight, bias), atol=1e-4)


@cache
def int8_way() -> tuple[Int8Maker, int]:
    """The first of `INT8_WAYS` that is right here, or `plain_int8`."""
    return next((way for way in INT8_WAYS if is_right(*way)), (plain_int8, LEVELS))


def is_right(make: Int8Maker, levels: int) -> bool:
    """Whether an 8-bit operator is here and adds without overflow: the products tried are the largest there are."""
    inputs, weight, scale = 512, torch.full((32, 512), LEVELS, dtype=torch.int8), torch.ones(32)
    try:
        results = [make(weight, scale, None, 1.0, levels)(torch.ones(rows, inputs)) for rows in (1, ROWS)]
    except (AttributeError, NotImplementedError, RuntimeError):
        return False
    return all(bool((result / (inputs * LEVELS) - 1).abs().max() < 1e-5) for result in results)
