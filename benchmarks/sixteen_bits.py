"""What would 16-bit cells, residual sums and element-wise operations change? (GNMT, section 6)

The paper computes them in 16-bit integers; sgdec leaves them in fp32. This simulation rounds each of their results to
the 65,535 steps that 16 bits have in its range: cells and sums in [-delta, delta], the inputs of activations in
[-8, 8], everything else in [-1, 1]. A constrained model with random weights predicts random tokens for random
sources. The figures are the mean KL divergence of its distributions from those in fp32, and the share of equal best
tokens: with 8-bit products alone, and with 16 bits for the rest too.

    python benchmarks/sixteen_bits.py [--layers 8 --width 512 --vocab-size 8000 --sentences 16 --length 20]
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

import torch
from common import random_gnmt, signature
from quantised import Int8, Plain
from torch import Tensor

from sgdec.models.base import Seq2Seq
from sgdec.models.gnmt import GNMT
from sgdec.models.kernels import Kernels

STEPS = 2**15 - 1
WIDEST_INPUT = 8.0
"""Beyond this, sigmoid and tanh are within 0.0004 of their limits."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    for name, default in (("layers", 8), ("width", 512), ("vocab-size", 8000), ("sentences", 16), ("length", 20)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    torch.manual_seed(2)
    source, target = torch.randint(3, given.vocab_size, (2, given.sentences, given.length))
    lengths = torch.full((given.sentences,), given.length)

    def distributions(kernels: Kernels) -> Tensor:
        model = random_gnmt(given.layers, given.width, given.vocab_size, constrained=True)
        model.freeze(kernels)
        with torch.inference_mode():  # the loop over `step`, as in decoding
            return model.project(Seq2Seq.forward(model, source, lengths, target)).double().log_softmax(-1)

    exact, narrow = distributions(Plain()), distributions(Int8())
    with sixteen_bits():
        narrower = distributions(Int8())
    for name, found in (("8-bit products", narrow), ("8-bit products, the rest in 16 bits", narrower)):
        divergence = (exact.exp() * (exact - found)).sum(-1).mean()
        equal = (exact.argmax(-1) == found.argmax(-1)).double().mean()
        print(f"{name}: KL divergence {divergence:.4g}, best token equal {equal:.1%}")
    print(signature(**vars(given)))


def rounded(x: Tensor, bound: float = 1.0) -> Tensor:
    """``x`` at the nearest of the steps between -bound and bound."""
    step = bound / STEPS
    return (x / step).round().clamp(-STEPS, STEPS) * step


def cell_in_16_bits(gates: Tensor, cell: Tensor, delta: float | None) -> tuple[Tensor, Tensor]:
    """`sgdec.models.lstm.lstm_cell` in 16 bits."""
    assert delta is not None
    i, f, g, o = rounded(gates, WIDEST_INPUT).chunk(4, -1)
    remembered = rounded(rounded(torch.sigmoid(f)) * cell, delta)
    new = rounded(rounded(torch.sigmoid(i)) * rounded(torch.tanh(g)))
    cell = rounded(remembered + new, delta)
    return rounded(rounded(torch.sigmoid(o)) * rounded(torch.tanh(cell))), cell


@contextmanager
def sixteen_bits() -> Iterator[None]:
    """Within this context LSTMs and residual sums of GNMT are computed in 16 bits."""

    def clip(model: GNMT, x: Tensor) -> Tensor:
        return rounded(x, model.delta or math.inf)

    with ExitStack() as patches:
        for module in ("lstm", "gnmt"):
            patches.enter_context(patch(f"sgdec.models.{module}.lstm_cell", cell_in_16_bits))
        patches.enter_context(patch.object(GNMT, "clip", clip))
        yield


if __name__ == "__main__":
    main()
