"""How close is decoding with GNMT 8+8 x 1024 and 32,000 words to the time of its matrix products alone?

A model with random weights whose outputs are as long as their sources (see `common`), `vanilla` and `beam` through
the scheduler, beam 5. The floor: the products of one decoder step for all hypotheses of a batch, in the same run and
with the same packed weights, so it is the time that decoding would take if encoder, attention, gates, softmax, search
and bookkeeping were free. First the outputs of both decoders are compared; then all sides run alternately: median
output tokens/s with the range in brackets, and the share of the floor. On a CPU the model has the constraints that
int8 needs; on a GPU it has none, because cuDNN's LSTM cannot be used with them.

On a CPU, 16 and 64 sentences of 20 tokens, fp32 and int8:

    python benchmarks/deep.py [--precision fp32 int8] [--batch-size 16 64] [--threads 2] [--runs 3]
        [--layers 8 --width 1024 --vocab-size 32000 --length 20 --beam 5]

On a GPU, 3,004 sentences of lengths like those of WMT's news tests, in batches of several sizes; with ``--profile``
one more batch of each case under torch.profiler, and where its time went:

    python benchmarks/deep.py --device cuda --precision fp32 bf16 --sentences 3004 --batch-size 64 128 256 [--profile]
"""

from __future__ import annotations

import argparse
import platform
import random
import statistics
import time
from collections.abc import Callable, Sequence
from typing import cast

import torch
from common import decode, frozen, nmt, output_tokens, random_gnmt, sentences, settle, share_of_equals, signature
from quantised import Int8, Plain
from sgdec_decoders.beam import BeamDecoder
from sgdec_decoders.vanilla import VanillaDecoder
from torch import Tensor, nn

from sgdec.decoder import Decoder
from sgdec.models.gnmt import GNMT
from sgdec.models.kernels import Kernels, Product
from sgdec.protocol import Source
from sgdec.search.constellation import Constellation

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "int8": torch.float32}
"""The type of the parts of the model that are not in 8 bits."""
MEAN, SPREAD, LONGEST = 27, 14, 100
"""Approximate lengths of WMT's news sentences in subwords: mean and standard deviation of a gamma distribution, and
the maximum."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", nargs="+", choices=DTYPES, default=["fp32", "int8"])
    parser.add_argument("--batch-size", type=int, nargs="+", default=[16, 64])
    parser.add_argument("--sentences", type=int, help="of random lengths; default: a batch of --length tokens")
    parser.add_argument("--length", type=int, default=20)
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--vocab-size", type=int, default=32_000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--cpu-time", action="store_true", help="measure CPU time of one thread")
    given = parser.parse_args()
    if given.device != "cpu" and "int8" in given.precision:
        parser.error("int8 runs on a CPU only: give --precision fp32 bf16")
    torch.set_num_threads(given.threads)
    print(f"GNMT {given.layers}+{given.layers} x {given.width}, {given.vocab_size:,} words, beam {given.beam}")
    print(f"{'precision':<11}{'batch':<7}{'case':<9}{'tokens/s':>10}{'(range)':>20}{'seconds':>10}{'of floor':>10}")
    for precision in given.precision:
        kernels = kernels_for(given.device, precision)
        model = random_gnmt(given.layers, given.width, given.vocab_size, constrained=given.device == "cpu")
        model = model.to(device=given.device, dtype=DTYPES[precision])
        work = step_products(model, kernels)
        if given.device == "cpu":
            model = frozen(model, kernels)
        constellation = Constellation.of({"nmt": nmt(model, given.device)}, vocab_size=given.vocab_size)
        for batch_size in given.batch_size:
            measure(given, precision, batch_size, work, constellation)
    print(signature(**vars(given), processor=processor(torch.device(given.device))))


def kernels_for(device: str, precision: str) -> Kernels:
    """The kernels that `load_model` uses for prediction."""
    if precision == "int8":
        return Int8()
    return Kernels() if device == "cpu" and precision == "fp32" else Plain()


def measure(
    given: argparse.Namespace,
    precision: str,
    batch_size: int,
    work: Sequence[tuple[Product, int]],
    constellation: Constellation,
) -> None:
    """Both decoders and the floor, for one precision and batch size."""
    clock = time.process_time if given.cpu_time else time.perf_counter
    lengths = news_lengths(given.sentences) if given.sentences else [given.length] * batch_size
    sources = sentences(lengths, given.vocab_size)
    decoders: dict[str, Decoder] = {"vanilla": VanillaDecoder(size=given.beam), "beam": BeamDecoder(size=given.beam)}
    settle()
    some = sources[:batch_size]
    found = {name: decode(constellation, decoder, some, batch_size)[1] for name, decoder in decoders.items()}
    same = share_of_equals(found)
    assert same >= (0.5 if precision == "bf16" else 0.98), f"only {same:.1%} of the outputs are the same"
    seconds: dict[str, list[float]] = {name: [] for name in decoders}
    step: list[float] = []
    like = torch.empty(0, device=given.device, dtype=DTYPES[precision])
    inputs = [(torch.rand(given.beam * batch_size, size) * 2 - 1).to(like) for _, size in work]
    for _ in range(given.runs):
        for name, decoder in decoders.items():
            seconds[name].append(decode(constellation, decoder, sources, batch_size, clock)[0])
        step.append(floor(work, inputs, clock))
    tokens = output_tokens(sources)
    bound = batch_size / statistics.median(step)
    for name, times in seconds.items():
        rate = tokens / statistics.median(times)
        spread = f"({tokens / max(times):,.0f} - {tokens / min(times):,.0f})"
        print(
            f"{precision:<11}{batch_size:<7}{name:<9}{rate:>10,.0f}{spread:>20}{statistics.median(times):>10.2f}"
            f"{rate / bound:>10.0%}"
        )
    print(f"{precision:<11}{batch_size:<7}{'floor':<9}{bound:>10,.0f}   ({same:.1%} of outputs the same)", flush=True)
    if given.profile:
        for name, decoder in decoders.items():
            profile(f"{precision}, batch {batch_size}, {name}", constellation, decoder, some, like.device)


def news_lengths(count: int) -> list[int]:
    """Random lengths like those of news sentences, with a fixed seed."""
    generator = random.Random(1)
    scale = SPREAD**2 / MEAN
    return [min(max(1, round(generator.gammavariate(MEAN / scale, scale))), LONGEST) for _ in range(count)]


def step_products(model: GNMT, kernels: Kernels) -> list[tuple[Product, int]]:
    """The products of one decoder step, with their input sizes: gates of all layers, logits, query."""
    of_layers = [tuple(cast(nn.LSTM, lstm).all_weights[0][:2]) for lstm in model.decoder]  # w_ih and w_hh
    gates = [torch.cat(weights, 1) for weights in of_layers]
    quantised = [kernels.bounded("floor", weight, None, 1.0) for weight in [*gates, model.softmax.weight]]
    sizes = [*(weight.size(1) for weight in gates), model.softmax.in_features]
    return [*zip(quantised, sizes, strict=True), (kernels.linear(model.query.weight), model.query.in_features)]


def floor(work: Sequence[tuple[Product, int]], inputs: Sequence[Tensor], clock: Callable[[], float]) -> float:
    """The seconds to compute all products once."""
    times = []
    with torch.inference_mode():
        for _ in range(8):
            synchronise(inputs[0].device)
            started = clock()
            for (multiply, _), x in zip(work, inputs, strict=True):
                multiply(x)
            synchronise(inputs[0].device)
            times.append(clock() - started)
    return statistics.median(times[2:])


def synchronise(device: torch.device) -> None:
    """Wait until the GPU has finished."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def profile(
    what: str, constellation: Constellation, decoder: Decoder, sources: Sequence[Source], device: torch.device
) -> None:
    """Print the time of one batch by operator."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiler

    on_gpu = device.type == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    with profiler(activities=activities) as recorded:
        decode(constellation, decoder, sources, len(sources))
        synchronise(device)
    order = "self_cuda_time_total" if on_gpu else "self_cpu_time_total"
    print(f"\n{what}\n{recorded.key_averages().table(sort_by=order, row_limit=20)}", flush=True)


def processor(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()


if __name__ == "__main__":
    main()
