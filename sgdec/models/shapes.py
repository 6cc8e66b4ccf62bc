"""Builds a model without memory: its parameters have shapes, but no values (PyTorch's device ``meta``)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.overrides import TorchFunctionMode


class TooManyParameters(Exception):
    """A model registers more parameters than it may."""


@contextmanager
def shapes_only(most: int) -> Iterator[None]:
    """Models that are built inside have no memory, however large they are.

    Raises `TooManyParameters` as soon as more than ``most`` parameters are registered, because a model may have
    layers without end. A constructor that reads the values of a tensor raises `NotImplementedError`.

    >>> with shapes_only(1):
    ...     nn.Embedding(10**9, 10**6).weight.shape
    torch.Size([1000000000, 1000000])
    """
    count = 0

    def register(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        nonlocal count
        count += 1
        if count > most:
            raise TooManyParameters

    hook = register_module_parameter_registration_hook(register)
    try:
        with torch.device("meta"), _Undrawn():
            yield
    finally:
        hook.remove()


class _Undrawn(TorchFunctionMode):
    """Draws no initial values: even without values PyTorch would import sympy first, which takes a second.

    The names are those of methods of tensors, and of functions in `torch.nn.init`.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.__name__ in ("normal_", "uniform_"):
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)
