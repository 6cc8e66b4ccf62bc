"""Batches as large as memory allows, without being told a size: Marian's workspace (Junczys-Dowmunt et al. 2018).

What an update of n examples takes, with at most T target tokens (``</s>`` is one) and S source tokens, is modelled as

    bytes = max(c, n (t T + s S + a T T + b T S + d S S))

The linear terms are the memory of each token until the backward pass, the square ones are attention. c, the
gradients, is there when that pass ends, whatever the batch. (Gradients are allocated while activations are freed, so
the peak is the maximum, not the sum.) c fits, so the cost of a batch to its budget is n (...) alone: half a batch
costs half. No coefficient is negative, so a larger batch never costs less. They are fitted to updates that are
measured at the start of a run, for a few lengths of the text, with batches that grow until they take `GROWTH` times
what the smallest took; and scaled until no measurement is above the model. After that the size of a batch depends on
lengths and coefficients alone. A checkpoint holds these, so a resumed run has the same batches. If ranks share each
batch (``--parallel data``) the budget is that of one rank, and n are the examples of its share.

On a GPU the measure is the peak of PyTorch's caching allocator. On a CPU it is the peak of what PyTorch's allocator
gave out and took back, as its profiler records it: tensors and buffers of operations, without Python's own memory and
without what libraries allocate for themselves. The weights, their average and the optimiser's memory, which are there
before the first update, come on top.

Experimental: tried on CPUs, never on a GPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations_with_replacement
from logging import Logger
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from sgdec.errors import SgdecError, UsageError
from sgdec.terminal import Bar
from sgdec.training.config import TrainConfig
from sgdec.training.data.batch import Batch
from sgdec.training.data.budget import Budget, Tokens
from sgdec.training.data.text import Text
from sgdec.training.out_of_memory import is_out_of_memory
from sgdec.training.parallel.group import Group
from sgdec.training.parallel.strategy import Strategy

WORKSPACE = "workspace"
"""The key of config.json that holds the coefficients."""

GROWTH = 3.0
ABOVE = 2.0
"""Times what the smallest batch takes: from here on a measurement is taken to show the linear part."""
START_TOKENS = 128
"""Of the first batch that is measured."""
SCORED_TOKENS = 4096
"""The most in a batch that is only scored, where the budget is not one of memory."""
MIB = 1 << 20

Measure = Callable[[list[int]], float]
"""Bytes that an update of these examples takes, at its peak; raises as PyTorch does where there are not so many."""


def make_budget(
    config: TrainConfig,
    text: Text,
    make_strategy: Callable[[], Strategy],
    earlier: Mapping[str, Any],
    log: Logger,
    group: Group,
) -> Budget:
    """What the batches of a run are filled to; ``earlier``: the config of the checkpoint that it goes on from.

    Where ranks share batches each measures, and rank 0's measurements hold for all. Raises `UsageError` as
    `measure_workspace` does.
    """
    if not config.workspace:
        return Tokens(config.batch_tokens)
    stored = earlier.get(WORKSPACE)
    if stored is not None:
        return Workspace(**{**stored, "terms": tuple(stored["terms"])})
    strategy = make_strategy()
    strategy.model.train()
    measured = measure_workspace(
        config.workspace, text, lambda numbers: _update_bytes(strategy, text.batch(numbers), config.device), log
    )
    return group.agree(measured)[0]._replace(ranks=group.size)


class Workspace(NamedTuple):
    """A memory budget and what batches cost: a `Budget`. The floor is within the room."""

    room: float
    """Bytes."""
    floor: float
    """Bytes: c."""
    terms: tuple[float, ...]
    """The coefficients of `features`."""
    ranks: int = 1
    """Among which each batch is divided."""

    def cost(self, examples: int, longest: Sequence[int]) -> float:
        """Bytes that a rank takes for its share, as far as they grow with it."""
        share = math.ceil(examples / self.ranks)
        return share * sum(term * value for term, value in zip(self.terms, features(longest), strict=True))


def for_scoring(budget: Budget) -> Budget:
    """What one process may take to score text, where an update, perhaps of several processes, has this budget."""
    if isinstance(budget, Workspace):
        return budget._replace(ranks=1)
    return Tokens(min(budget.room, SCORED_TOKENS))


def features(longest: Sequence[int]) -> list[int]:
    """What the cost of an example is linear in: each length, and the product of each two.

    >>> features((4, 3))
    [5, 3, 25, 15, 9]
    """
    lengths = [longest[0] + 1, *longest[1:]]
    return [*lengths, *(one * other for one, other in combinations_with_replacement(lengths, 2))]


def measure_workspace(room_mib: int, text: Text, measure: Measure, log: Logger) -> Workspace:
    """Fit the costs of the text's batches to measured ones.

    Raises `UsageError` if not even a small one has room, `SgdecError` if memory does not hold one.
    """
    room = float(room_mib * MIB)
    measured: list[tuple[int, list[int]]] = []
    taken: list[float] = []
    numbers, lengths = text.sample()
    with Bar("measuring memory", log) as bar:
        for pick in _picks(lengths):
            longest = lengths[pick].tolist()
            for examples in _growing(longest):
                bar.note(f"{examples} examples of {' and '.join(map(str, longest))} tokens")
                try:
                    taken.append(measure([numbers[pick]] * examples))
                except (RuntimeError, MemoryError) as error:
                    if not is_out_of_memory(error):
                        raise
                    if not taken:
                        raise SgdecError(
                            f"--workspace {room_mib}: memory does not hold {examples} examples of "
                            f"{' and '.join(map(str, longest))} tokens. Take a smaller model, or give --batch-tokens."
                        ) from None
                    break
                measured.append((examples, longest))
                if taken[-1] > GROWTH * min(taken) or taken[-1] > room:
                    break
    floor = min(taken)
    if room < floor:
        raise UsageError(
            f"--workspace {room_mib}: a small batch alone takes {math.ceil(floor / MIB)} MiB, gradients included. "
            "Give more, or a smaller model."
        )
    rows = np.array([np.multiply(examples, features(longest)) for examples, longest in measured], dtype=float)
    return Workspace(room, floor, _fitted(rows, np.array(taken), floor))


def _picks(lengths: npt.NDArray[np.int64]) -> list[int]:
    """Some examples with very different lengths [examples, sides], the shortest first."""
    keys = [*lengths.T]
    if len(keys) > 1:
        keys += [lengths[:, 0] - lengths[:, 1], lengths[:, 1] - lengths[:, 0]]
    found: dict[tuple[int, ...], int] = {}
    for key in keys:
        order = np.argsort(key, kind="stable")
        for n in (order[len(order) // 2], order[-1]):
            found.setdefault(tuple(lengths[n].tolist()), int(n))
    return [found[row] for row in sorted(found, key=sum)]


def _growing(longest: Sequence[int]) -> Iterator[int]:
    """Numbers of examples: of `START_TOKENS`, then twice as many again and again."""
    examples = max(1, START_TOKENS // Tokens(0).cost(1, longest))
    while True:
        yield examples
        examples *= 2


def _fitted(rows: npt.NDArray[np.float64], taken: npt.NDArray[np.float64], floor: float) -> tuple[float, ...]:
    """The coefficients >= 0 with the least squares of relative errors, scaled such that no measurement is above.

    Of what is well above the floor. By coordinate descent: each coefficient in turn takes its best value, given the
    others.
    """
    above = taken > ABOVE * floor if (taken > ABOVE * floor).any() else taken > 0
    relative = rows[above] / taken[above, None]
    scale = np.linalg.norm(relative, axis=0)
    columns = relative / scale
    gram, target = columns.T @ columns, columns.sum(0)
    terms = np.zeros(len(scale))
    for _ in range(10_000):
        for n in range(len(terms)):
            terms[n] = max(0.0, terms[n] + target[n] - gram[n] @ terms)
    terms /= scale
    terms /= min(1.0, float((relative @ terms).min()))
    return tuple(terms.tolist())


def _update_bytes(strategy: Strategy, batch: Batch, device: str) -> float:
    """What an update of one batch takes at its peak, beyond weights and optimiser. Nothing of it is kept."""
    try:
        return peak_bytes(lambda: strategy.backward([batch], batch.weight.to(device)), device)
    finally:
        strategy.model.zero_grad()
        strategy.current = None  # else the next update would be credited with its memory


def peak_bytes(update: Callable[[], Any], device: str) -> float:
    """The most memory that tensors take while ``update`` runs, beyond what they take before."""
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        update()
        torch.cuda.synchronize(device)
        return float(torch.cuda.max_memory_allocated(device) - before)
    return float(max(np.cumsum([0, *_cpu_allocations(update)])))


def _cpu_allocations(update: Callable[[], Any]) -> list[int]:
    """What the CPU allocator gave (> 0) and took back (< 0), in order.

    From PyTorch's first profiler: the second one writes messages of its own to standard error.
    """
    from torch._C._profiler import _ExperimentalConfig

    profiler: Any = torch.autograd
    of_memory = (False, True, False, False, False, _ExperimentalConfig())
    profiler._enable_profiler_legacy(profiler.ProfilerConfig(profiler.ProfilerState.CPU, *of_memory))
    try:
        update()
    finally:
        records = profiler._disable_profiler_legacy()
    return [record.cpu_memory_usage() for thread in records for record in thread if record.kind() == "memory_alloc"]
