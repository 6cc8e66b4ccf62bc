"""The promise of `sgdec.models.jointly`: computations share products, and each has the numbers it has alone."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import Tensor

from sgdec.models.jointly import BLOCK, JointKernels, JointProduct, Stopwatch, jointly
from sgdec.models.kernels import Kernels, Product


class Counting(Kernels):
    """Notes how many rows each product is asked for."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, int]] = []

    def linear(self, weight: Tensor, bias: Tensor | None = None) -> Product:
        product, number = super().linear(weight, bias), len(self.rows)
        self.made = number

        def counted(x: Tensor, outputs: int = weight.size(0)) -> Tensor:
            self.rows.append((outputs, len(x)))
            return product(x)

        return counted


@pytest.fixture
def chain() -> tuple[Counting, Product, Product]:
    """Two products, 16 to 16 and 16 to 24, that may be shared."""
    torch.manual_seed(1)
    counting = Counting()
    joint = JointKernels(counting)
    return counting, joint.linear(torch.randn(16, 16)), joint.linear(torch.randn(24, 16), torch.randn(24))


def walk(steps: int, x: Tensor, recurrent: Product, last: Product) -> Tensor:
    """Some steps of the one, then the other."""
    for _ in range(steps):
        x = torch.tanh(recurrent(x))
    return last(x)


def test_results_are_those_of_each_computation_alone_bit_for_bit(chain: tuple[Counting, Product, Product]) -> None:
    _, *products = chain
    inputs = [torch.randn(n, 16) for n in (1, 5, 2, 70, 3)]
    work = [partial(walk, steps, x, *products) for steps, x in zip((3, 1, 4, 1, 5), inputs, strict=True)]
    for ours, alone in zip(jointly(work, Stopwatch()), [each() for each in work], strict=True):
        assert torch.equal(ours, alone)


def test_whoever_is_ahead_waits_so_that_products_are_shared(chain: tuple[Counting, Product, Product]) -> None:
    counting, *products = chain
    jointly([partial(walk, steps, torch.randn(2, 16), *products) for steps in (1, 3, 2)], Stopwatch())
    assert counting.rows == [(16, 6), (16, 4), (16, 2), (24, 6)]


def test_no_more_rows_are_multiplied_at_a_time_than_were_tried(chain: tuple[Counting, Product, Product]) -> None:
    counting, *products = chain
    jointly([partial(walk, 1, torch.randn(BLOCK - 1, 16), *products) for _ in range(3)], Stopwatch())
    assert max(rows for _, rows in counting.rows) == BLOCK


def test_inputs_may_have_any_number_of_dimensions(chain: tuple[Counting, Product, Product]) -> None:
    _, *products = chain
    inputs = [torch.randn(2, 3, 16), torch.randn(16), torch.randn(4, 16)]
    found = jointly([partial(walk, 2, x, *products) for x in inputs], Stopwatch())
    assert [tuple(result.shape) for result in found] == [(2, 3, 24), (24,), (4, 24)]


def test_an_exception_of_one_computation_is_raised(chain: tuple[Counting, Product, Product]) -> None:
    _, *products = chain

    def broken() -> Tensor:
        products[0](torch.randn(2, 16))
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        jointly([partial(walk, 3, torch.randn(2, 16), *products), broken], Stopwatch())


def test_nothing_to_compute_gives_nothing() -> None:
    assert jointly([], Stopwatch()) == []


def test_products_whose_rows_depend_on_each_other_are_found_out() -> None:
    class Dependent(Kernels):
        """The last bits depend on whether rows are many."""

        def linear(self, weight: Tensor, bias: Tensor | None = None) -> Product:
            return lambda x: x @ weight.T * (1 if len(x) < 20 else 1 + 1e-6)

    class LastRow(Kernels):
        """The last of an odd number of rows is computed otherwise."""

        def linear(self, weight: Tensor, bias: Tensor | None = None) -> Product:
            def product(x: Tensor) -> Tensor:
                y = (x[:, None] * weight).sum(-1)
                if len(x) % 2 and len(x) > 1:
                    y[-1] *= 1 + 1e-6
                return y

            return product

    for kernels in (Dependent(), LastRow()):
        joint = JointKernels(kernels)
        joint.linear(torch.ones(4, 8))
        assert not joint.independent()


def test_outside_of_a_computation_a_product_is_an_ordinary_one() -> None:
    weight = torch.randn(3, 4)
    product = JointKernels(Kernels()).bounded("any", weight, None, 1.0)
    assert isinstance(product, JointProduct)
    assert torch.allclose(product(torch.eye(4)), weight.T, atol=1e-6)
