"""Matrix products with weights that no longer change: packed once for the processor, in fp32, bf16 or 8 bits.

A `Product` maps x [..., K] to x W^T + b [..., N]. The functions that make products, from the simplest to the fastest:

- `plain_linear`: computes `torch.nn.functional.linear`, on any device in any precision;
- `packed_linear`: packs weights in fp32 or bf16 once in oneDNN's layout. This was measured to be 1.3 to 2 times as
  fast, and in fp32 row i of a product does not depend on the number of rows. PyTorch's public interface to packed
  weights, `torch.utils.mkldnn`, is no faster than the plain product, because it converts every input and output;
- `int8_linear`: weights and inputs in 8 bits, summed in 32 bits (GNMT, Wu et al. 2016, section 6). The range of the
  input is fixed beforehand, never measured over a batch, so a row's result depends, bit for bit, on that row alone;
- `int8_by_row`: the same for inputs of unknown range: each row has its own, and its result depends on that row alone.

The fast products use operators that only PyTorch's compiler is meant to call (``torch.ops.mkldnn``,
``torch.ops.onednn``), or that PyTorch will remove together with its quantised tensors (``torch.ops.quantized``). Each
operator is tested once, on small products. If it is missing or wrong (on another processor or with another PyTorch),
the next one is used, and finally the plain product, which is slower but correct.

The 8-bit product is oneDNN's if the processor has VNNI and no AMX instructions, otherwise FBGEMM's: oneDNN's layout
of weights is for VNNI only, and with AMX a row depends on the number of rows. Measured with AVX2 on one core, FBGEMM
takes 0.3 to 0.5 of oneDNN's time for 5 rows, and 0.85 to 1.15 for 80 and 320 rows (``benchmarks/quantised.py
--operators``).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cache
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor

Product = Callable[[Tensor], Tensor]
"""x [..., K] to [..., N]."""
Int8Maker = Callable[[Tensor, Tensor, Tensor | None, float, int], Product]
"""Arguments: int8 weight [N, K], the value of one weight step per row [N], bias, the bound of inputs, and the number
of input steps up to that bound."""

LEVELS = 127
"""Equation 12: weights are integers in [-127, 127], and so are inputs if the processor adds without overflow."""
NARROW_LEVELS = 63
"""Processors without VNNI add two 8-bit products in 16 bits; with unsigned inputs of 7 bits the sum always fits."""
SMALLEST = 1e-30
"""The smallest range of a row of inputs."""
ROWS = 64
"""The number of rows for which weights are packed; any number of rows can be multiplied."""
TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp64": torch.float64}
"""The precisions of products in floating point."""
PACKED = {torch.float32: 1e-4, torch.bfloat16: 0.25}
"""The precisions of packed weights, each with the largest error of a test whose results are up to 35."""


class Kernels:
    """Makes the products of a frozen model, called by `Seq2Seq.freeze` for each product. Here all are in fp32.

    A subclass may override `bounded`, for the products that GNMT section 6 quantises: all except the attention's.
    """

    keeps: torch.dtype | None = None
    """The precision in which a model keeps the keys and values of tokens; None = its own."""

    def linear(self, weight: Tensor, bias: Tensor | None = None) -> Product:
        """A product that stays in floating point: weight [N, K], bias [N]."""
        return packed_linear(weight, bias)

    def bounded(self, name: str, weight: Tensor, bias: Tensor | None, bound: float | None) -> Product:
        """A product that may be quantised: no input's absolute value is above ``bound`` (None: unknown).

        ``name`` is unique within the model and does not change between versions.
        """
        return self.linear(weight, bias)


class RowKernels(Kernels):
    """All products in 8 bits, with a range for each row of inputs, for models that allow it (`Model.int8_by_row`)."""

    def __init__(self) -> None:
        self.keeps = torch.bfloat16 if packs(torch.bfloat16) else None

    def linear(self, weight: Tensor, bias: Tensor | None = None) -> Product:
        return int8_by_row(weight, bias)


def plain_linear(weight: Tensor, bias: Tensor | None = None) -> Product:
    """x W^T + b for weight [N, K] and bias [N], with their current values at each call."""
    return lambda x: F.linear(x, weight, bias)


def packed_linear(weight: Tensor, bias: Tensor | None = None) -> Product:
    """x W^T + b for weights that will not change; packed if they are on a CPU whose operator works."""
    weight, bias = weight.detach(), None if bias is None else bias.detach().clone()
    if weight.device.type != "cpu" or not packs(weight.dtype):
        return plain_linear(weight.clone(), bias)
    return _packed(weight, bias)


def quantise_rows(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Equation 12: int8 WQ [N, K] and fp32 s [N] with W[i, j] = WQ[i, j] s_i / 127, rounded, for finite W [N, K].

    s_i is the largest absolute value of row i, whose WQ becomes 127 or -127; a row of zeros has s_i = 0.

    >>> quantise_rows(torch.tensor([[0.5, -2.0, 0.1], [0.0, 0.0, 0.0]]))
    (tensor([[  32, -127,    6],
            [   0,    0,    0]], dtype=torch.int8), tensor([2., 0.]))
    """
    scale = weight.detach().abs().amax(1)  # [N]
    divisor = scale.where(scale > 0, 1.0)
    return (weight.detach() / divisor[:, None] * LEVELS).round().to(torch.int8), scale.float()


def int8_linear(weight: Tensor, scale: Tensor, bias: Tensor | None, bound: float) -> Product:
    """The product with int8 ``weight`` [N, K] of equation 12 and its ``scale`` [N], for inputs in [-bound, bound].

    Inputs are rounded to the nearest of 255 steps (of 127 on processors without VNNI) and clipped to the bound. The
    products are summed exactly, in 32 bits; the result is fp32. CPU only.
    """
    make, levels = int8_way()
    if bound == levels:  # would mean inputs in steps
        bound = math.nextafter(bound, math.inf)
    return make(weight, scale / LEVELS, bias, bound, levels)


def int8_by_row(weight: Tensor, bias: Tensor | None = None) -> Product:
    """x W^T + b in 8 bits for finite weights [N, K] in fp32; the range of inputs is that of each row.

    The products are summed as in `int8_linear`; their scale, one for each row, is applied afterwards. CPU only.
    """
    make, levels = int8_way()
    whole, scale = quantise_rows(weight)
    product = make(whole, scale / LEVELS / levels, None, float(levels), levels)  # its inputs are whole steps
    constant = torch.zeros(len(weight)) if bias is None else bias.detach().float().clone()

    def by_row(x: Tensor) -> Tensor:
        largest = x.abs().amax(-1, keepdim=True).clamp_(min=SMALLEST)
        return torch.addcmul(constant, product(x * (levels / largest)), largest)

    return by_row


def quantise_input(x: Tensor, bound: float, levels: int = LEVELS) -> Tensor:
    """x in [-bound, bound], rounded to the nearest step, as unsigned integers, which processors need.

    0 becomes ``levels`` + 1. The conversion to signed integers takes a fifth of the time of that to unsigned ones.

    >>> quantise_input(torch.tensor([0.0, 1.0, -1.0, 0.012, -5.0]), 1.0).tolist()
    [128, 255, 1, 130, 1]
    """
    steps = x * (levels / bound)
    return _unsigned(steps.clamp_(-levels, levels).round_(), levels)


def _unsigned(steps: Tensor, levels: int) -> Tensor:
    """Whole numbers in [-levels, levels] plus ``levels`` + 1, modulo 256."""
    return steps.to(torch.int8).view(torch.uint8).add_(levels + 1)


def _packed(weight: Tensor, bias: Tensor | None) -> Product:
    packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), ROWS)
    multiply = torch.ops.mkldnn._linear_pointwise.default
    return lambda x: cast(Tensor, multiply(x, packed, bias, "none", [], ""))


def onednn_int8(weight: Tensor, scale: Tensor, bias: Tensor | None, bound: float, levels: int) -> Product:
    """The 8-bit product of oneDNN; if the bound is the number of steps, inputs are in steps, and within the bound."""
    packed = torch.ops.onednn.qlinear_prepack(weight.contiguous(), [ROWS, weight.size(1)])
    no_zero_points = torch.zeros(len(weight), dtype=torch.long)
    multiply = torch.ops.onednn.qlinear_pointwise.default
    step, constant = bound / levels, (None if bias is None else bias.detach().float())

    def product(x: Tensor) -> Tensor:
        steps = _unsigned(x.round(), levels) if bound == levels else quantise_input(x, bound, levels)
        return cast(Tensor, multiply(
            steps, step, levels + 1, packed, scale, no_zero_points, constant, 1.0, 0, torch.float32, "none", [], ""
        ))  # fmt: skip

    return product


def fbgemm_int8(weight: Tensor, scale: Tensor, bias: Tensor | None, bound: float, levels: int) -> Product:
    """The 8-bit product of FBGEMM, which quantises its inputs itself and rounds a half to the even step."""
    quantised, engine = torch.backends.quantized, torch.backends.quantized.engine
    try:
        quantised.engine = "fbgemm"  # decides for which operator the weights are packed
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "torch.quantize_per_tensor")  # deprecated, see the module docstring
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
    """The 8-bit product with sums in float64, which represents these integers exactly."""
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
"""The 8-bit products and their numbers of input steps, the best first."""


@cache
def packs(dtype: torch.dtype) -> bool:
    """Whether packed products work here in this precision."""
    if dtype not in PACKED:
        return False
    x, weight, bias = torch.linspace(-1, 1, 240).view(5, 48), torch.linspace(-1, 1, 336).view(7, 48), torch.ones(7)
    expected = F.linear(x, weight, bias)
    try:
        result = _packed(weight.to(dtype), bias.to(dtype))(x.to(dtype))
    except (AttributeError, NotImplementedError, RuntimeError):
        return False
    return result.dtype == dtype and torch.allclose(result.float(), expected, atol=PACKED[dtype])


@dataclass(frozen=True)
class MatrixProducts:
    """How a model computes its matrix products here; its text is for the last lines of a run."""

    precision: str
    device: str
    packed: bool
    """Whether all of its products are those of `Kernels`."""

    def __str__(self) -> str:
        if self.device != "cpu":
            return f"{self.precision} on {self.device}"
        if self.precision != "int8":
            packed = packs(TYPES[self.precision])
            return f"{self.precision}, weights {'packed by oneDNN' if packed else 'as they are'}"
        make, levels = int8_way()
        names: dict[Int8Maker, str] = {onednn_int8: "oneDNN", fbgemm_int8: "FBGEMM"}
        library = names.get(make, "float64, which is slow")
        return f"8 bits by {library}" + ("" if levels == LEVELS else ", inputs in 7 bits")

    def agree(self, threads: Collection[int]) -> bool:
        """Whether scores are the same, bit for bit, with each of these numbers of PyTorch's threads.

        Packed products in fp32 and 8 bits were measured to be (``benchmarks/threads.py``), those in other forms not:
        their sums are split among threads. Tested here on products of several sizes. What models compute besides,
        PyTorch computes row by row.
        """
        return self.device != "cpu" or (self.packed and _agree(self.precision, tuple(sorted(threads))))


@cache
def _agree(precision: str, threads: tuple[int, ...]) -> bool:
    if precision == "fp32" and packs(torch.float32):
        make: Callable[[Tensor, None], Product] = _packed
    elif precision == "int8":
        make = int8_by_row
    else:
        return False
    present = torch.get_num_threads()
    try:
        for outputs, inputs in ((48, 64), (1000, 256), (512, 2048), (2048, 512)):
            product = make(torch.arange(outputs * inputs).float().sin().view(outputs, inputs), None)
            for rows in (1, 5, 64, 320):
                x, results = torch.arange(rows * inputs).float().cos().view(rows, inputs), []
                for number in threads:
                    torch.set_num_threads(number)
                    results.append(product(x))
                if not all(torch.equal(result, results[0]) for result in results):
                    return False
    finally:
        torch.set_num_threads(present)
    return True


@cache
def int8_way() -> tuple[Int8Maker, int]:
    """The first of `INT8_WAYS` that is correct on this machine, or `plain_int8`."""
    return next((way for way in INT8_WAYS if is_right(*way)), (plain_int8, LEVELS))


def is_right(make: Int8Maker, levels: int) -> bool:
    """Whether an 8-bit operator exists here, adds without overflow, and computes each row as if it were alone.

    Sums are tested on the largest possible products, rows on two small ones: with AMX instructions, oneDNN rounds a
    single row in another way than many.
    """
    inputs, weight, scale = 512, torch.full((32, 512), LEVELS, dtype=torch.int8), torch.ones(32)
    try:
        results = [make(weight, scale, None, 1.0, levels)(torch.ones(rows, inputs)) for rows in (1, ROWS)]
        apart = all(_rows_are_apart(make, levels, *shape) for shape in ((64, 48), (33, 130)))
    except (AttributeError, NotImplementedError, RuntimeError):
        return False
    return apart and all(bool((result / (inputs * LEVELS) - 1).abs().max() < 1e-5) for result in results)


def _rows_are_apart(make: Int8Maker, levels: int, outputs: int, inputs: int) -> bool:
    """Whether the rows of a product [100, N] are those of the products of fewer rows, bit for bit."""
    steps, scale = quantise_rows(torch.arange(outputs * inputs).float().sin().view(outputs, inputs))
    x = torch.arange(100 * inputs).float().cos().view(100, inputs)
    product = make(steps, scale / LEVELS, scale, 1.0, levels)
    together = product(x)
    return all(torch.equal(product(x[:rows]), together[:rows]) for rows in (1, 2, 5, 17, ROWS))
