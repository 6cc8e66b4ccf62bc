"""Quantised inference: GNMT (Wu et al. 2016), section 6.

What a model hands to `Kernels.bounded` when it is frozen becomes, once, 8-bit weights with a scale for each row
(equation 12), a bias and the bound of its inputs: `quantise`. With these `Int8Kernels` freezes a model again, to
predict. Cells and residual sums, for which the paper has 16 bits, stay in fp32; so do gates, attention and softmax.
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
"""A product NAME is kept as the tensors NAME.int8 [N, K], NAME.scale [N] and, where it has one, NAME.bias [N]."""


@dataclass(frozen=True)
class Quantised:
    """A model in 8 bits."""

    tensors: dict[str, Tensor]
    """Its products, as named above."""
    rest: dict[str, Tensor]
    """Its other parameters: embeddings, attention."""
    bounds: dict[str, float]
    """By product: the largest absolute value that its inputs have."""
    unsettled: str | None
    """What the model's training had not brought to its end (`Model.unsettled`)."""


def quantise(model: Seq2Seq, calibrate: Callable[[Seq2Seq], object] | None = None) -> Quantised:
    """A model in 8 bits; the model itself is frozen.

    Inputs whose bound the model does not know (residual sums of one trained without constraints) are measured
    while ``calibrate`` runs the model on some text. Raises `UsageError` if that is needed and not given, or if the
    model cannot be quantised.
    """
    recorder = Recorder()
    model.freeze(recorder)
    if not recorder.products:
        raise UsageError(f"{type(model).__name__} hands over no products when it is frozen; it cannot be quantised.")
    if recorder.measured:
        if calibrate is None:
            raise UsageError(
                f"the inputs of {', '.join(recorder.measured)} have no known bound. Measure them on text like the "
                "training data with --calibrate SRC TGT, or train with constraints (--gnmt.constrained true)."
            )
        calibrate(model)
        for name, bound in recorder.measured.items():
            if not 0.0 < bound < math.inf:
                raise SgdecError(f"the inputs of {name} were measured as {bound}; expected positive numbers.")
    tensors: dict[str, Tensor] = {}
    for name, (weight, bias) in recorder.products.items():
        tensors[f"{name}.{WEIGHT}"], tensors[f"{name}.{SCALE}"] = quantise_rows(weight)
        if bias is not None:
            tensors[f"{name}.{BIAS}"] = bias.detach().clone()
    rest = {name: value.clone() for name, value in model.state_dict().items() if not name.startswith(model.replaced)}
    return Quantised(tensors, rest, {**recorder.bounds, **recorder.measured}, model.unsettled)


class Recorder(Kernels):
    """Notes what a model hands over, and measures inputs whose bound is not known; computes in fp32."""

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
    """Products from 8-bit weights and stored bounds; the weights that the model itself has are not looked at."""

    def __init__(self, tensors: Mapping[str, Tensor], bounds: Mapping[str, float], where: str) -> None:
        """``where`` names the file in errors."""
        self._tensors, self._bounds, self._where = tensors, bounds, where

    def bounded(self, name: str, weight: Tensor, bias: Tensor | None, bound: float | None) -> Product:
        """Raises `SgdecError` for what is missing, of another size or kind, or not finite."""
        rows, columns = weight.shape
        scale = self._tensor(f"{name}.{SCALE}", torch.float32, (rows,))
        stored = self._tensor(f"{name}.{WEIGHT}", torch.int8, (rows, columns))
        constant = None if bias is None else self._tensor(f"{name}.{BIAS}", torch.float32, (rows,))
        if not self._bounds.get(name, 0.0) > 0.0:
            raise SgdecError(f"{self._where}: no bound for the inputs of {name} is stored. Quantise the model again.")
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
