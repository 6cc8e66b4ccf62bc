"""Batches as large as memory allows, without a given size: Marian's workspace (Junczys-Dowmunt et al. 2018).

The memory of an update of n examples, with at most T target tokens (including ``</s>``) and S source tokens, is
modelled as

    bytes = max(c, n (t T + s S + a T T + b T S + d S S))

The linear terms are the activations of each token, kept until the backward pass; the quadratic terms are attention.
c is the size of the gradients, which exist at the end of the backward pass and do not depend on the batch. (Gradients
are allocated while activations are freed, so the peak is the maximum, not the sum.) c is checked to fit, so the cost
of a batch is n (...) alone, and half a batch costs half. No coefficient is negative, so a larger batch never costs
less.

The coefficients are fitted to updates that are measured at the start of a run. For a few lengths of the text, the
measured batches grow until they take `GROWTH` times the memory of the smallest. Then the coefficients are scaled so
that no measurement exceeds the model. From then on the size of a batch depends only on lengths and coefficients. A
checkpoint stores the coefficients, so a resumed run has the same batches. If ranks share each batch (``--parallel
data``), the budget is that of one rank, and n is the number of examples in its share.

On a GPU the measure is the peak of PyTorch's caching allocator. On a CPU it is the peak of the memory that PyTorch's
allocator has given out, as its profiler records it. This includes tensors and the buffers of operations, but neither
Python's own memory nor what libraries allocate for themselves. The weights, their average and the optimiser's state
are not included: they exist before the first update.

Experimental: tried on CPUs and on one GPU, an H100.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations_with_replacement
from logging import Logger
from typing import Any, NamedTuple

import numpy as np
import torch

from sgdec.arrays import Floats, Ints
from sgdec.errors import SgdecError, UsageError
from sgdec.search.memory import is_out_of_memory
from sgdec.terminal import Bar
from sgdec.training.config import TrainConfig
from sgdec.training.data.batch import TrainingBatch
from sgdec.training.data.budget import BatchBudget, ExampleCounts, TokenCounts
from sgdec.training.data.text import Text
from sgdec.training.parallel.group import ProcessGroup
from sgdec.training.parallel.strategy import Strategy

WORKSPACE = "workspace"
"""The key of config.json that holds the coefficients."""

GROWTH = 3.0
ABOVE = 2.0
"""Measurements above this many times that of the smallest batch are assumed to lie above c, where cost is linear."""
START_TOKENS = 128
"""The size of the first batch that is measured."""
SCORED_TOKENS = 4096
"""The largest batch that is only scored, in tokens, if the budget is not in bytes."""
MIB = 1 << 20

Measure = Callable[[list[int]], float]
"""The peak memory of an update of these examples, in bytes; raises PyTorch's error if memory does not suffice."""


def make_budget(
    config: TrainConfig,
    text: Text,
    make_strategy: Callable[[], Strategy],
    earlier: Mapping[str, Any],
    log: Logger,
    group: ProcessGroup,
) -> BatchBudget:
    """The budget of a run's batches; ``earlier``: the config of the checkpoint that the run is resumed from.

    If ranks share batches, every rank measures and rank 0's result is used by all. Raises `UsageError` and
    `SgdecError` as `measure_workspace` does.
    """
    if not config.workspace:
        return ExampleCounts(config.batch_pairs) if config.batch_pairs else TokenCounts(config.batch_tokens)
    stored = earlier.get(WORKSPACE)
    if stored is not None:
        return Workspace(**{**stored, "terms": tuple(stored["terms"])})
    strategy = make_strategy()
    strategy.model.train()
    first = config.device != "cpu"

    def measure(numbers: list[int]) -> float:
        nonlocal first
        batch = text.batch(numbers)
        if first:  # a GPU's first update also allocates what its libraries keep, such as the workspaces of cuBLAS
            _update_bytes(strategy, batch, config.device)
            first = False
        return _update_bytes(strategy, batch, config.device)

    return group.agree(measure_workspace(config.workspace, text, measure, log))[0]._replace(ranks=group.size)


class Workspace(NamedTuple):
    """A `BatchBudget` in bytes of memory, with the fitted cost of batches; ``floor`` <= ``room``."""

    room: float
    """The memory budget in bytes."""
    floor: float
    """c, in bytes."""
    terms: tuple[float, ...]
    """The coefficients of `features`."""
    ranks: int = 1
    """The number of ranks that share each batch."""

    def cost(self, examples: int, longest: Sequence[int]) -> float:
        """The bytes of one rank's share, without the constant c."""
        share = math.ceil(examples / self.ranks)
        return share * sum(term * value for term, value in zip(self.terms, features(longest), strict=True))


def for_scoring(budget: BatchBudget) -> BatchBudget:
    """The budget of one process for scoring text, derived from the budget of an update."""
    if isinstance(budget, Workspace):
        return budget._replace(ranks=1)
    return TokenCounts(min(budget.room, SCORED_TOKENS) if isinstance(budget, TokenCounts) else SCORED_TOKENS)


def for_memory(budget: BatchBudget) -> BatchBudget:
    """The budget whose cost tells which batches take more memory: that of examples does not."""
    return TokenCounts(math.inf) if isinstance(budget, ExampleCounts) else budget


def features(longest: Sequence[int]) -> list[int]:
    """The quantities in which the cost of an example is linear: each length, and the product of each two.

    >>> features((4, 3))
    [5, 3, 25, 15, 9]
    """
    lengths = [longest[0] + 1, *longest[1:]]
    return [*lengths, *(one * other for one, other in combinations_with_replacement(lengths, 2))]


def measure_workspace(room_mib: int, text: Text, measure: Measure, log: Logger) -> Workspace:
    """Measure the memory of some batches of the text and fit the cost of all batches to it.

    Raises `UsageError` if the budget is too small for the smallest batch, `SgdecError` if memory itself is.
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
                            f"{' and '.join(map(str, longest))} tokens. Use a smaller model, or give --batch-tokens."
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


def _picks(lengths: Ints) -> list[int]:
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
    """Numbers of examples for a batch of `START_TOKENS`, then doubled again and again."""
    examples = max(1, START_TOKENS // TokenCounts(0).cost(1, longest))
    while True:
        yield examples
        examples *= 2


def _fitted(rows: Floats, taken: Floats, floor: float) -> tuple[float, ...]:
    """The coefficients >= 0 with the smallest sum of squared relative errors, scaled to bound every measurement.

    Only measurements well above the floor (`ABOVE`) are used. The fit is by coordinate descent: each coefficient in
    turn is set to its best value, given the others.
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


def _update_bytes(strategy: Strategy, batch: TrainingBatch, device: str) -> float:
    """The peak memory of an update of one batch in bytes, without weights and optimiser. The update is discarded."""
    try:
        return peak_bytes(lambda: strategy.backward([batch], batch.weight.to(device)), device)
    finally:
        strategy.model.zero_grad()
        strategy.current = None  # else its memory would be freed during the next measurement and reduce the result


def peak_bytes(update: Callable[[], Any], device: str) -> float:
    """The peak memory of tensors while ``update`` runs, in bytes, minus their memory before it."""
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        update()
        torch.cuda.synchronize(device)
        return float(torch.cuda.max_memory_allocated(device) - before)
    return float(max(np.cumsum([0, *_cpu_allocations(update)])))


def _cpu_allocations(update: Callable[[], Any]) -> list[int]:
    """The bytes that the CPU allocator allocated (> 0) and freed (< 0), in order.

    PyTorch's legacy profiler records them, because the newer one writes messages to standard error.
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
