"""Computations that share only their matrix products, so that a sentence's results do not depend on its batch.

In an ordinary batch, the last bits of a sentence's numbers can depend on the other sentences: sums include padding,
and functions are vectorised except at the end of an array. `jointly` therefore runs the computation of each sentence
separately, on its own arrays, in a coroutine. At a matrix product, where most of the time is spent, the coroutine
waits for the others, and one product is computed for the rows of all.

This is exact if a row of a product does not depend on the number of rows. No library promises that, so
`JointKernels.independent` tests it, for each product and every number of rows that can occur.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from greenlet import getcurrent, greenlet
from torch import Tensor

from sgdec.models.kernels import Kernels, Product

BLOCK = 32
"""The largest number of rows that are multiplied at a time."""

Found = TypeVar("Found")


class JointKernels(Kernels):
    """Wraps the products of other kernels, so that `jointly` can share them."""

    def __init__(self, kernels: Kernels) -> None:
        self._kernels, self.keeps = kernels, kernels.keeps
        self.products: list[JointProduct] = []

    def linear(self, weight: Tensor, bias: Tensor | None = None) -> Product:
        return self._joint(self._kernels.linear(weight, bias), weight)

    def bounded(self, name: str, weight: Tensor, bias: Tensor | None, bound: float | None) -> Product:
        return self._joint(self._kernels.bounded(name, weight, bias, bound), weight)

    def independent(self) -> bool:
        """Whether a row of each product is bit-equal in any position among 1 to `BLOCK` rows.

        The test uses PyTorch's present number of threads.
        """
        return all(product.independent() for product in self.products)

    def _joint(self, product: Product, weight: Tensor) -> Product:
        joint = JointProduct(product, weight.size(1), len(self.products), weight.dtype)
        self.products.append(joint)
        return joint


class JointProduct:
    """A product x [..., K] to [..., N]; inside `jointly` it is computed for several sentences together."""

    def __init__(self, product: Product, inputs: int, number: int, dtype: torch.dtype) -> None:
        self._product = product
        self._inputs, self._dtype = inputs, dtype
        self.number = number

    def __call__(self, x: Tensor) -> Tensor:
        computation = getcurrent()
        if not isinstance(computation, _Computation):
            return self._product(x)
        assert computation.parent is not None
        result: Tensor = computation.parent.switch((self, x))
        return result

    def all(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """The products of several arrays [..., K], computed for at most `BLOCK` rows at a time."""
        rows = [x.reshape(-1, self._inputs) for x in inputs]
        blocks = torch.split(torch.cat(rows), BLOCK)
        parts = torch.split(torch.cat([self._product(block) for block in blocks]), [len(part) for part in rows])
        return [part.view(*x.shape[:-1], -1) for part, x in zip(parts, inputs, strict=True)]

    def independent(self) -> bool:
        """As `JointKernels.independent`, for this product."""
        row = torch.linspace(-1, 1, self._inputs).to(self._dtype)
        alone = self._product(row[None])
        return all(bool((self._product(row.repeat(n, 1)) == alone).all()) for n in range(2, BLOCK + 1))


class _Computation(greenlet):  # type: ignore[misc]  # greenlet is untyped
    """A coroutine that is suspended at each product until the result is there."""


class Stopwatch:
    """The time that `jointly` spent on shared products and on everything else."""

    def __init__(self) -> None:
        self.shared = self.alone = 0.0
        """Seconds."""

    def __str__(self) -> str:
        return f"shared products {self.shared:.1f} s; the rest, sentence by sentence, {self.alone:.1f} s"


def jointly(computations: Sequence[Callable[[], Found]], watch: Stopwatch) -> list[Found]:
    """The result of each computation, equal to that of running it alone. An exception in one ends all.

    The earliest product that computations wait for is computed first, so that later computations catch up.
    """
    running = [_Computation(computation) for computation in computations]
    started = time.perf_counter()
    found = [computation.switch() for computation in running]  # result, or (product, input) if suspended
    while waiting := [place for place, computation in enumerate(running) if not computation.dead]:
        product = min((found[place][0] for place in waiting), key=lambda asked: asked.number)
        served = [place for place in waiting if found[place][0] is product]
        asked = time.perf_counter()
        results = product.all([found[place][1] for place in served])
        answered = time.perf_counter()
        for place, result in zip(served, results, strict=True):
            found[place] = running[place].switch(result)
        watch.alone += asked - started
        watch.shared += answered - asked
        started = answered
    watch.alone += time.perf_counter() - started
    return found
