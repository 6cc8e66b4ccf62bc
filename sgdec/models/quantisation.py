"""Quantised inference: GNMT (Wu et al. 2016), section 6.

When a model is frozen, it passes its weights to `Kernels.bounded`. `quantise` converts them once to 8-bit weights
with a scale per row (equation 12), a bias and the bound of their inputs. `Int8Kernels` uses these when the model is
frozen again, for inference. Cells and residual sums, for which the paper uses 16 bits, stay in fp32, and so do gates,
attention and softmax.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from sgdec.errors import SgdecError, UsageError
from sgdec.models.base import Seq2Seq
from sgdec.models.kernels import Kernels, Product, int8_linear, quantise_rows

WEIGHT, SCALE, BIAS = "int8", "scale", "bias"
"""A product NAME is stored as the tensors NAME.int8 [N, K], NAME.scale [N] and, if it has a bias, NAME.bias [N]."""

LARGEST = torch.finfo(torch.float32).max
"""The largest bound that the arithmetic of products can hold."""


@dataclass(frozen=True)
class Quantised:
    """A model in 8 bits."""

    tensors: dict[str, Tensor]
    """The tensors of its products, under the names above."""
    rest: dict[str, Tensor]
    """Its other parameters: embeddings, attention."""
    bounds: dict[str, float]
    """The largest absolute value of the inputs of each product."""
    unsettled: str | None
    """The model's `Model.unsettled`."""


def quantise(model: Seq2Seq, calibrate: Callable[[Seq2Seq], object] | None = None) -> Quantised:
    """Quantise a model to 8 bits; the model itself is frozen.

    If the model does not know the bound of some inputs (such as residual sums of a model without constraints), they
    are measured while ``calibrate`` runs the model on some text. Raises `UsageError` if ``calibrate`` is needed but
    not given, or if the model cannot be quantised.
    """
    recorder = InputRecorder()
    model.freeze(recorder)
    if not recorder.products:
        way = " It needs no quantised copy: give the model itself to --precision int8." if model.int8_by_row else ""
        raise UsageError(f"{type(model).__name__} has no products that can be quantised.{way}")
    if recorder.measured:
        if calibrate is None:
            raise UsageError(
                f"the inputs of {', '.join(recorder.measured)} have no known bound. Measure them on text like the "
                "training data with --calibrate SRC TGT, or train with constraints (--gnmt.constrained true)."
            )
        calibrate(model)
        for name, bound in recorder.measured.items():
            if not 0.0 < bound < math.inf:
                raise SgdecError(f"the inputs of {name} have the measured bound {bound}; expected a positive number.")
    tensors: dict[str, Tensor] = {}
    for name, (weight, bias) in recorder.products.items():
        tensors[f"{name}.{WEIGHT}"], tensors[f"{name}.{SCALE}"] = quantise_rows(weight)
        if bias is not None:
            tensors[f"{name}.{BIAS}"] = bias.detach().clone()
    rest = {name: value.clone() for name, value in model.state_dict().items() if not name.startswith(model.replaced)}
    return Quantised(tensors, rest, {**recorder.bounds, **recorder.measured}, model.unsettled)


class InputRecorder(Kernels):
    """Records the weights that a model passes, and measures inputs of unknown bound; computes in fp32."""

    def __init__(self) -> None:
        self.products: dict[str, tuple[Tensor, Tensor | None]] = {}
        self.bounds: dict[str, float] = {}
        self.measured: dict[str, float] = {}

    def bounded(self, name: str, weight: Tensor, bias: Tensor | None, bound: float | None) -> Product:
        self.products[name] = weight, bias
        product = self.linear(weight, bias)
        if bound is not None:
            self.bounds[name] = bound
            return product
        self.measured[name] = 0.0

        def measuring(x: Tensor) -> Tensor:
            self.measured[name] = max(self.measured[name], float(x.abs().max()))
            return product(x)

        return measuring


class Int8Kernels(Kernels):
    """Products from stored 8-bit weights and bounds; the model's own weights are ignored."""

    def __init__(self, tensors: Mapping[str, Tensor], bounds: Mapping[str, float], where: str) -> None:
        """``where``: the name of the file, for errors."""
        self._tensors, self._bounds, self._where = tensors, bounds, where

    def bounded(self, name: str, weight: Tensor, bias: Tensor | None, bound: float | None) -> Product:
        """Raises `SgdecError` if a tensor is missing, has another shape or type, or is not finite."""
        rows, columns = weight.shape
        scale = self._tensor(f"{name}.{SCALE}", torch.float32, (rows,))
        stored = self._tensor(f"{name}.{WEIGHT}", torch.int8, (rows, columns))
        constant = None if bias is None else self._tensor(f"{name}.{BIAS}", torch.float32, (rows,))
        if not 0.0 < self._bounds.get(name, 0.0) <= LARGEST:
            raise SgdecError(
                f"{self._where}: no valid bound for the inputs of {name} is stored. Quantise the model again."
            )
        return int8_linear(stored, scale, constant, self._bounds[name])

    def _tensor(self, name: str, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
        tensor = self._tensors.get(name)
        if tensor is None:
            raise SgdecError(f"{self._where}: tensor {name} is missing. Quantise the model again.")
        if tensor.dtype != dtype or tensor.shape != shape:
            found, expected = ("x".join(map(str, sizes)) for sizes in (tensor.shape, shape))
            raise SgdecError(f"{self._where}: tensor {name} is {found} {tensor.dtype}, expected {expected} {dtype}.")
        if not tensor.isfinite().all():
            raise SgdecError(f"{self._where}: tensor {name} holds NaN or infinite numbers. Quantise the model again.")
        return tensor
