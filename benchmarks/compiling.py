"""Does ``sgdec train --compile`` make training faster? The time of a loss and its gradient, for several shapes, plain
and compiled.

First asserts that the losses are equal up to rounding, dropout included. Prints the time of the compilation, then the
median and the range of the ratio of plain to compiled time (above 1: compiled code is faster). The time is that of
the process on a CPU, and wall-clock time on a GPU. The sides alternate.

    python benchmarks/compiling.py [--model transformer] [--width 128] [--device cpu] [--rounds 5]
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time

import torch

from sgdec.models.base import LanguageModel, Model, ModelContext
from sgdec.plugins.host import Host
from sgdec.training.data.batch import TrainingBatch, make_batch
from sgdec.training.validation import batch_nll

SHAPES = ((8, 12, 14), (16, 10, 9), (5, 30, 28), (32, 7, 8), (12, 15, 15))
"""Examples, source and target tokens."""
VOCABULARY = 4000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", default="transformer")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    torch.manual_seed(1)
    cls = Host().load("model", given.model)
    plain = cls(ModelContext(VOCABULARY, VOCABULARY, True), width=given.width).to(given.device).train()
    compiled = copy.deepcopy(plain)
    compiled.compile(dynamic=True, options={"fallback_random": True})
    batches = [random_batch(*shape, source=not issubclass(cls, LanguageModel)).to(given.device) for shape in SHAPES]
    for n, batch in enumerate(batches):
        expected, _ = timed(plain, batch)
        loss, seconds = timed(compiled, batch)
        assert abs(loss - expected) <= 1e-4 * abs(expected), (loss, expected)
        if n == 0:
            print(f"{given.model}, width {given.width}, on {given.device}: compiled in {seconds:.1f} s")
    ratios = [timed(plain, batch)[1] / timed(compiled, batch)[1] for _ in range(given.rounds) for batch in batches]
    print(f"plain / compiled: {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")


def random_batch(examples: int, sources: int, targets: int, *, source: bool) -> TrainingBatch:
    draw = torch.Generator().manual_seed(examples)
    sides = [torch.randint(3, VOCABULARY, (examples, n), generator=draw).tolist() for n in (targets, sources)]
    return make_batch(list(range(examples)), *sides[: 1 + source])


def timed(model: Model, batch: TrainingBatch) -> tuple[float, float]:
    """Loss and seconds, with equal draws of dropout."""
    model.zero_grad()
    torch.manual_seed(1)
    on_gpu = batch.mask.is_cuda
    clock = time.perf_counter if on_gpu else time.process_time
    if on_gpu:
        torch.cuda.synchronize()
    started = clock()
    loss = batch_nll(model, batch, 0.1)
    loss.backward()  # type: ignore[no-untyped-call]
    if on_gpu:
        torch.cuda.synchronize()
    return loss.item(), clock() - started


if __name__ == "__main__":
    main()
