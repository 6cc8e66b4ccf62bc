"""How fast is a training step, and how much faster is it to compute all target steps at once?

Two comparisons in one process, sides alternating, medians with the range in brackets:

- one update (forward, backward, clipping, fused Adam) of a GNMT 2+2 x 512 with a vocabulary of 8,000, on 64 pairs
  of 15 tokens, with dropout: target tokens/s;
- the same update with the step loop of decoding instead of GNMT's layer-by-layer forward pass.

First both sides must compute the same loss. Run it on an idle machine:

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


class Updates:
    """A model with random weights, one batch of random pairs, and its updates."""

    def __init__(self, pairs: int = PAIRS, length: int = LENGTH, device: str = "cpu") -> None:
        torch.manual_seed(1)
        self.tokens = pairs * length
        self.model = GNMT(ModelContext(VOCABULARY, VOCABULARY), dropout=0.3).to(device)
        self._optimizer = torch.optim.Adam(self.model.parameters(), fused=True)
        self._source, self._target = torch.randint(3, VOCABULARY, (2, pairs, length), device=device)
        self._lengths = torch.full((pairs,), length)

    def loss(self, forward: Callable[..., Tensor]) -> Tensor:
        outputs = forward(self._source, self._lengths, self._target)
        logits = self.model.project(outputs)
        return F.cross_entropy(logits.flatten(0, 1), self._target.flatten(), label_smoothing=0.1)

    def update(self, forward: Callable[..., Tensor], clock: Callable[[], float] = time.perf_counter) -> float:
        """Seconds of one update."""
        started = clock()
        self._optimizer.zero_grad()
        self.loss(forward).backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
        self._optimizer.step()
        if self._target.is_cuda:
            torch.cuda.synchronize()
        return clock() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)

    updates = Updates(device=args.device)
    model, tokens = updates.model, updates.tokens
    sides: dict[str, Callable[..., Tensor]] = {
        "all steps at once": model,
        "step loop": lambda *batch: Seq2Seq.forward(model, *batch),
    }
    with torch.no_grad():
        model.eval()
        fast, slow = (float(updates.loss(forward)) for forward in sides.values())
        assert abs(fast - slow) < 1e-4, f"the two ways differ: {fast} and {slow}"
        model.train()
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for repeat in range(-1, args.repeats):  # one to warm up
        for name, forward in sides.items():
            taken = updates.update(forward)
            if repeat >= 0:
                seconds[name].append(taken)
    for name, times in seconds.items():
        print(
            f"{name}: {tokens / statistics.median(times):,.0f} target tokens/s "
            f"[{tokens / max(times):,.0f} to {tokens / min(times):,.0f}]"
        )
    ratio = statistics.median(seconds["step loop"]) / statistics.median(seconds["all steps at once"])
    print(f"ratio {ratio:.2f}; torch {torch.__version__}, {args.device}, {args.threads} threads, fp32")


if __name__ == "__main__":
    main()
