"""How much faster are packed and 8-bit weights than plain ones, in the products of one decoder step and in the step?

Measures the time of the matrix products alone (the floor of decoding), and of a whole step with attention, gates and
the softmax's logits: with plain fp32 weights (`F.linear`), fp32 weights packed for the processor, and int8 weights
with fixed ranges (GNMT section 6). Models with random weights, constrained, of two sizes: 2+2 x 512 with a vocabulary
of 8,000 and 8+8 x 1024 with 32,000; beam 5, so 5, 80 and 320 rows for 1, 16 and 64 sentences of 20 tokens.

First the packed side must have the same scores as the plain one (1e-4), and int8 must have similar log-probabilities.
Then all sides run alternately in one process, after one warm-up each; medians, the range in brackets, and the ratio
to plain fp32. Tokens/s are rows / beam / time: tokens of the best hypotheses. Run it on an idle machine:

    python benchmarks/quantised.py [--threads 2] [--repeats 7] [--shape small|gnmt8] [--cpu-time]

With ``--operators`` it measures instead each product alone, with every 8-bit operator that is correct on this
processor (`sgdec.models.kernels.INT8_WAYS`), and by `torch.ao`'s dynamic quantisation, which measures the range over
the batch.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
import warnings
from collections.abc import Callable, Iterable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sgdec.models.base import Memory, ModelContext
from sgdec.models.gnmt import GNMT
from sgdec.models.kernels import (
    INT8_WAYS,
    LEVELS,
    Kernels,
    Product,
    int8_linear,
    int8_way,
    is_right,
    packed_linear,
    plain_linear,
    quantise_rows,
)

BEAM, SOURCE = 5, 20
SHAPES = {"small": (2, 512, 8_000), "gnmt8": (8, 1024, 32_000)}
"""Layers of encoder and of decoder, width, vocabulary size."""


class Plain(Kernels):
    """The same products, with plain weights."""

    def linear(self, weight: Tensor, bias: Tensor | None = None) -> Product:
        return plain_linear(weight, bias)


class Int8(Kernels):
    """The model in 8 bits, without writing a file."""

    def bounded(self, name: str, weight: Tensor, bias: Tensor | None, bound: float | None) -> Product:
        assert bound is not None
        return int8_linear(*quantise_rows(weight), bias, bound)


class Sizes(Kernels):
    """The shapes [N, K] of a decoder's products."""

    def __init__(self) -> None:
        self.weights: list[Tensor] = []

    def linear(self, weight: Tensor, bias: Tensor | None = None) -> Product:
        return plain_linear(weight, bias)

    def bounded(self, name: str, weight: Tensor, bias: Tensor | None, bound: float | None) -> Product:
        if not name.startswith("encoder"):
            self.weights.append(weight)
        return self.linear(weight, bias)


SIDES: Mapping[str, type[Kernels]] = {"plain fp32": Plain, "packed fp32": Kernels, "int8": Int8}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--shape", choices=SHAPES)
    parser.add_argument("--sentences", type=int, nargs="*", default=[1, 16, 64])
    parser.add_argument("--cpu-time", action="store_true", help="of this thread, not of the clock; for one thread")
    parser.add_argument("--operators", action="store_true", help="each product alone, by all operators")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    clock = time.thread_time if args.cpu_time else time.perf_counter
    make, levels = int8_way()
    print(
        f"torch {torch.__version__} on {torch.backends.cpu.get_cpu_capability()}, {torch.get_num_threads()} threads; "
        f"int8: {make.__name__}, inputs of {levels} steps beside 0; beam {BEAM}"
    )
    with torch.inference_mode():
        for name in [args.shape] if args.shape else SHAPES:
            (compare if args.operators else measure)(name, args.sentences, args.repeats, clock)


def measure(name: str, batches: list[int], repeats: int, clock: Callable[[], float]) -> None:
    """All sides of one shape."""
    layers, width, vocabulary = SHAPES[name]
    model, sizes = build(name)
    query = model.query.weight.detach()
    weights = [*sizes.weights, query]
    print(f"\n{layers}+{layers} x {width}, {vocabulary:,} words: {sum(w.numel() for w in weights) / 1e6:.1f} MMAC")
    products = {
        side: [*(kernels().bounded("", w, None, 1.0) for w in sizes.weights), kernels().linear(query)]
        for side, kernels in SIDES.items()
    }
    frozen = {side: model._products for side, kernels in SIDES.items() if model.freeze(kernels()) is None}
    for sentences in batches:
        rows = BEAM * sentences
        inputs = [torch.rand(rows, weight.size(1)) * 2 - 1 for weight in weights]
        memory, tokens = random_memory(rows, width), torch.randint(3, vocabulary, (rows,))

        def floor(side: str, inputs: list[Tensor] = inputs) -> None:
            for multiply, x in zip(products[side], inputs, strict=True):
                multiply(x)

        def step(side: str, memory: Memory = memory, tokens: Tensor = tokens) -> Tensor:
            model._products = frozen[side]
            _, output, _ = model.step(memory, model.start(memory), tokens)
            return model.project(output)

        plain, packed, int8 = (F.log_softmax(step(side), -1) for side in SIDES)
        assert (packed - plain).abs().max() < 1e-4, "packed products differ"
        assert (int8 - plain).abs().mean() < 0.05, "8 bits lose too much"
        report("products", sentences, rows, times(SIDES, floor, repeats, clock))
        report("step", sentences, rows, times(SIDES, step, repeats, clock))


def build(name: str) -> tuple[GNMT, Sizes]:
    """A model and its decoder's products that may be quantised."""
    layers, width, vocabulary = SHAPES[name]
    torch.manual_seed(1)
    model = GNMT(ModelContext(vocabulary, vocabulary), layers=layers, width=width, constrained=True).eval()
    model.anneal(math.inf, 1)
    sizes = Sizes()
    model.freeze(sizes)
    return model, sizes


def compare(name: str, batches: list[int], repeats: int, clock: Callable[[], float]) -> None:
    """All operators over each shape of product, once."""
    _, sizes = build(name)
    for weight in {weight.shape: weight.detach() for weight in sizes.weights}.values():
        steps, scale = quantise_rows(weight)
        sides = {"packed fp32": packed_linear(weight)}
        for make, levels in INT8_WAYS:
            if is_right(make, levels):
                sides[f"{make.__name__} of {levels} steps"] = make(steps, scale / LEVELS, None, 1.0, levels)
        for engine in ("fbgemm", "onednn"):
            if engine in torch.backends.quantized.supported_engines:
                sides[f"torch.ao dynamic, {engine}"] = dynamic(weight, engine)
        for rows in (BEAM * sentences for sentences in batches):
            x = torch.rand(rows, weight.size(1)) * 2 - 1
            exact = F.linear(x, weight)
            for side, product in sides.items():
                assert (product(x) - exact).std() < 0.02 * exact.std(), side

            def work(side: str, x: Tensor = x, sides: Mapping[str, Product] = sides) -> Tensor:
                return sides[side](x)

            taken = times(sides, work, repeats, clock)
            base = statistics.median(taken["packed fp32"])
            print(f"\n{rows} rows x {weight.size(1)} to {weight.size(0)}")
            for side, seconds in taken.items():
                median = statistics.median(seconds)
                print(f"  {side:26} {1e6 * median:9,.0f} us  x {base / median:.2f}")


def dynamic(weight: Tensor, engine: str) -> Product:
    """PyTorch's own 8-bit layer."""
    layer = nn.Linear(weight.size(1), weight.size(0), bias=False)
    layer.weight = nn.Parameter(weight)
    before = torch.backends.quantized.engine
    try:
        torch.backends.quantized.engine = engine
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it is deprecated
            quantize: Callable[..., nn.Module] = torch.ao.quantization.quantize_dynamic
            return quantize(nn.Sequential(layer), {nn.Linear}, torch.qint8)
    finally:
        torch.backends.quantized.engine = before


def random_memory(rows: int, width: int) -> Memory:
    """Encoded sources, one per row."""
    values, keys = torch.rand(2, rows, SOURCE, width) * 2 - 1
    return Memory(values, keys, torch.ones(rows, SOURCE, dtype=torch.bool), values[:, :0])


def times(
    sides: Iterable[str], work: Callable[[str], object], repeats: int, clock: Callable[[], float]
) -> dict[str, list[float]]:
    """Seconds by side; the sides alternate."""
    taken: dict[str, list[float]] = {side: [] for side in sides}
    for repeat in range(-1, repeats):
        for side, seconds in taken.items():
            started = clock()
            work(side)
            if repeat >= 0:
                seconds.append(clock() - started)
    return taken


def report(what: str, sentences: int, rows: int, taken: Mapping[str, list[float]]) -> None:
    base = statistics.median(next(iter(taken.values())))
    for side, seconds in taken.items():
        median = statistics.median(seconds)
        print(
            f"{what:8}  {sentences:2} sentences  {side:11} {rows / BEAM / median:8,.0f} tokens/s "
            f"[{rows / BEAM / max(seconds):,.0f} to {rows / BEAM / min(seconds):,.0f}]  x {base / median:.2f}"
        )


if __name__ == "__main__":
    main()
