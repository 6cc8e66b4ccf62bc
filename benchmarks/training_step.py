"""How fast is a training step, and what is gained by doing all target steps at once?

Two comparisons in one process, sides alternating, medians with the range in brackets:

- one update (forward, backward, clipping, fused Adam) of a GNMT 2+2 x 512 with a vocabulary of 8,000, on 64 pairs
  of 15 tokens, with dropout: target tokens/s;
- the same update with the step loop of decoding in place of GNMT's layer-by-layer forward.

Both sides first have to give the same loss. Run it on a quiet machine:

    python benchmarks/training_step.py [--threads 2] [--repeats 5] [--device cpu|cuda]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from sgdec.models.base import ModelContext, Seq2Seq
from sgdec.models.gnmt import GNMT

PAIRS, LENGTH, VOCABULARY = 64, 15, 8_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)

    model = GNMT(ModelContext(VOCABULARY, VOCABULARY), dropout=0.3).to(args.device)
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    source, target = torch.randint(3, VOCABULARY, (2, PAIRS, LENGTH), device=args.device)
    lengths = torch.full((PAIRS,), LENGTH)

    def loss(forward: Callable[..., Tensor]) -> Tensor:
        outputs = forward(source, lengths, target)
        return F.cross_entropy(model.project(outputs).flatten(0, 1), target.flatten(), label_smoothing=0.1)

    def update(forward: Callable[..., Tensor]) -> float:
        """Seconds of one update."""
        started = time.perf_counter()
        optimizer.zero_grad()
        loss(forward).backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        if args.device != "cpu":
            torch.cuda.synchronize()
        return time.perf_counter() - started

    sides: dict[str, Callable[..., Tensor]] = {
        "all steps at once": model,
        "step loop": lambda *batch: Seq2Seq.forward(model, *batch),
    }
    with torch.no_grad():
        model.eval()
        fast, slow = (float(loss(forward)) for forward in sides.values())
        assert abs(fast - slow) < 1e-4, f"the two ways differ: {fast} and {slow}"
        model.train()
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for repeat in range(-1, args.repeats):  # one to warm up
        for name, forward in sides.items():
            taken = update(forward)
            if repeat >= 0:
                seconds[name].append(taken)
    tokens = PAIRS * LENGTH
    for name, times in seconds.items():
        print(
            f"{name}: {tokens / statistics.median(times):,.0f} target tokens/s "
            f"[{tokens / max(times):,.0f} to {tokens / min(times):,.0f}]"
        )
    ratio = statistics.median(seconds["step loop"]) / statistics.median(seconds["all steps at once"])
    print(f"ratio {ratio:.2f}; torch {torch.__version__}, {args.device}, {args.threads} threads, fp32")


if __name__ == "__main__":
    main()
