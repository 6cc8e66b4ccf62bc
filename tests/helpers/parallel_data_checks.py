"""What the ranks of `tests.training.parallel.test_data` do: each check returns numbers, for the tests to judge."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sgdec.checkpoints import layout
from sgdec.errors import SgdecError
from sgdec.models.base import Model, ModelContext
from sgdec.plugins.host import Host
from sgdec.training.config import TrainConfig
from sgdec.training.data.batch import TrainingBatch, pad, pad_targets, take
from sgdec.training.data.workspace import peak_bytes
from sgdec.training.parallel.data import DataParallel, own_rows
from sgdec.training.parallel.group import ProcessGroup
from sgdec.training.preparing import prepare
from sgdec.training.updating import Updater
from tests.helpers.breadth import EXHAUSTIVE
from tests.helpers.parallel_traces import Trace, difference, trace

STEPS, VOCABULARY = 20 if EXHAUSTIVE else 10, 23
WORKSPACE_MIB = 1
PRECISIONS = {2: ("fp64", "fp32"), 4: ("fp64", "fp32") if EXHAUSTIVE else ("fp64",)}
"""For each number of ranks; what is summed is the same in both."""
WITH_RUNS = (2, 4) if EXHAUSTIVE else (2,)
"""On how many ranks whole runs are made. Of the number, they know the share of a batch and who writes checkpoints."""


def random_batch(rows: int, seed: int) -> TrainingBatch:
    """Sentences of 1 to 9 tokens, as ragged as they come."""
    draw = np.random.default_rng(seed)
    sources, targets = (
        [draw.integers(3, VOCABULARY, draw.integers(1, 10)).tolist() for _ in range(rows)] for _ in range(2)
    )
    return TrainingBatch(*pad(sources), *pad_targets(targets), list(range(1, rows + 1)))


def random_updates() -> list[list[TrainingBatch]]:
    """Of one batch or two; batches of one sentence to nine, so that some have fewer than there are ranks."""
    rows = np.random.default_rng(5).permutation([n % 9 + 1 for n in range(STEPS * 3 // 2)]).tolist()
    batches = [random_batch(count, seed) for seed, count in enumerate(rows)]
    updates = []
    for step in range(STEPS):
        updates.append([batches.pop() for _ in range(1 + step % 2)])
    return updates


def tiny_model(precision: str, **options: Any) -> Model:
    """The same weights whenever it is asked for."""
    torch.manual_seed(7)
    options = {"width": 8, "layers": 2, "dropout": 0.0, **options}
    model: Model = Host().load("model", "gnmt")(ModelContext(VOCABULARY, VOCABULARY), **options)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)  # no gradient is next to nothing
    return model.to(torch.float64 if precision == "fp64" else torch.float32)


def settings(precision: str, **given: Any) -> TrainConfig:
    """Adam, label smoothing, clipping that often applies, an average of the weights."""
    files = {"train": ("a", "b"), "valid": ("a", "b"), "tokenizer": ("c",), "output": "none"}
    return TrainConfig(**{**files, "precision": precision, "clip": 0.5, "ema": 0.1, "lr": 0.01, **given})  # type: ignore[arg-type]


class MeanOfMeans(DataParallel):
    """The mistake: each rank takes the mean over its own tokens, and the ranks' gradients are averaged."""

    def backward(self, batches: Iterable[TrainingBatch], total: Tensor) -> list[Tensor]:
        means = []
        for batch in batches:
            rows = own_rows(batch, self.group)
            mine = take(batch, rows or [0])
            mean = self.loss(mine) / mine.weight * bool(rows) / self.group.size
            mean.backward()  # type: ignore[no-untyped-call]
            means.append(mean.detach())
        for parameter in self.owned.values():
            assert parameter.grad is not None
            self.group.all_reduce(parameter.grad, "gradients")
        return means


def run_checks(group: ProcessGroup, folder: str, config: TrainConfig) -> dict[str, Any]:
    """All checks of one world size; each takes tenths of a second, starting processes takes seconds."""
    checks: dict[str, Any] = {
        "equality": {precision: equality(group, precision) for precision in PRECISIONS[group.size]},
        "mean of means": mean_of_means(group),
        "spare": equality(group, "fp64", random_updates()[:3], with_spare),
        "dropout": dropout(group),
        "volume": volume(group),
        "not finite": not_finite(group),
        "forgetful": forgetful(group),
        "weights": weighted(group),
    }
    if group.size in WITH_RUNS:
        checks["workspace"] = filled(group, replace(config, output=f"{folder}/workspace"))
        ways = {way: replace(config, output=f"{folder}/{way}") for way in ("to", "from")}
        checks["resumed"] = {way: resumed(group, its, way) for way, its in ways.items()}
    return checks


def alone(group: ProcessGroup, config: TrainConfig, model: Model, updates: list[list[TrainingBatch]]) -> Trace | None:
    """A single process's trace, on rank 0."""
    return trace(config, model, updates) if group.first else None


def equality(
    group: ProcessGroup,
    precision: str,
    updates: list[list[TrainingBatch]] | None = None,
    make: Callable[[str], Model] = tiny_model,
) -> dict[str, float] | None:
    """Differences from a single process."""
    config, updates = settings(precision), updates or random_updates()
    single = alone(group, config, make(precision), updates)
    shared = trace(replace(config, parallel="data"), make(precision), updates, group)
    return difference(single, shared) if single else None


def with_spare(precision: str) -> Model:
    """A model with a parameter that nothing depends on."""
    model = tiny_model(precision)
    model.spare = torch.nn.Parameter(torch.ones(3, dtype=torch.float64))
    return model


def forgetful(group: ProcessGroup) -> str:
    """A model that uses a parameter in the first update only: what each rank says of the second."""
    model, batch = with_spare("fp64"), random_batch(8, 3)
    updater = Updater(settings("fp64", parallel="data"), model, "fp64", total_steps=2, group=group)
    usual = updater.strategy.loss
    updater.strategy = DataParallel(
        group, model, lambda batch: usual(batch) + (model.spare.sum() if updater.step == 1 else 0.0)
    )
    updater.update([batch], 1, 0.01)
    try:
        updater.update([batch], 2, 0.01)
    except SgdecError as error:
        return str(error)
    return "none"


def filled(group: ProcessGroup, config: TrainConfig) -> dict[str, Any]:
    """Batches to a budget of memory: what this rank's shares take at most, and what the batches are."""
    config = replace(config, parallel="data", workspace=WORKSPACE_MIB, batch_pairs=0, accumulate=1, max_steps=2)
    trainer = prepare(config, quiet=True, group=group)
    alone = Updater(replace(config, parallel="none"), trainer.model, "fp64", total_steps=1).strategy
    order, peaks = list(trainer.data.batches(trainer.budget, order=(1, 0))), []
    for batch in map(trainer.data.batch, order):
        trainer.model.zero_grad()
        share = take(batch, own_rows(batch, group) or [0])
        peaks.append(peak_bytes(partial(alone.backward, [share], share.weight), "cpu"))
    trainer.model.zero_grad()
    trainer.run()
    return {"peak": max(peaks), "order": order, "stored": layout.read_config(config.output)["workspace"]}


def mean_of_means(group: ProcessGroup) -> dict[str, float] | None:
    config, updates = settings("fp64"), random_updates()[:2]
    single = alone(group, config, tiny_model("fp64"), updates)
    shared = trace(config, tiny_model("fp64"), updates, group, MeanOfMeans)
    return difference(single, shared) if single else None


def weighted(group: ProcessGroup) -> dict[str, float] | None:
    """Tokens with weights of their own."""
    torch.manual_seed(0)  # the same on every rank
    updates = [
        [batch._replace(weights=torch.rand(batch.mask.shape, dtype=torch.float64)) for batch in batches]
        for batches in random_updates()[:3]
    ]
    return equality(group, "fp64", updates)


def dropout(group: ProcessGroup) -> dict[str, Any]:
    """Losses of two runs with dropout; and the numbers that each rank draws first."""
    config = settings("fp64", parallel="data")
    runs = [trace(config, tiny_model("fp64", dropout=0.3), random_updates()[:3], group).losses for _ in range(2)]
    seed = Updater(config, tiny_model("fp64"), "fp64", total_steps=1, group=group).strategy.seed(11)
    return {"runs": runs, "seeds": group.agree(seed)}


def volume(group: ProcessGroup) -> dict[str, Any]:
    """Bytes sent in all updates, and what the formula says."""
    config, model = settings("fp32", parallel="data"), tiny_model("fp32")
    updater = Updater(config, model, "fp32", total_steps=STEPS, group=group)
    group.sent.clear()
    expected: dict[str, float] = {}
    for step, batches in enumerate(random_updates(), start=1):
        updater.update(batches, step, 0.01)
        for purpose, amount in updater.strategy.expected(batches).items():
            expected[purpose] = expected.get(purpose, 0.0) + amount
    return {"sent": dict(group.sent), "expected": expected, "parameters": sum(p.numel() for p in model.parameters())}


def not_finite(group: ProcessGroup) -> dict[str, Any]:
    """One sentence's loss is NaN, on one rank: what each rank says, and whether its weights stayed as they were."""
    config, model, batch = settings("fp64", parallel="data"), tiny_model("fp64"), random_batch(8, 3)
    updater = Updater(config, model, "fp64", total_steps=STEPS, group=group)
    usual = updater.strategy.loss

    def poisoned(batch: TrainingBatch) -> Tensor:
        return usual(batch) * (math.nan if 8 in batch.lines else 1.0)

    updater.strategy = DataParallel(group, model, poisoned)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    mine = own_rows(batch, group)
    try:
        updater.update([batch], 1, 0.01)
        message = "none"
    except SgdecError as error:
        message = str(error)
    kept = all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    return {"message": message, "kept": kept, "mine": mine}


def resumed(group: ProcessGroup, config: TrainConfig, way: str) -> bool:
    """A run whose first half one process makes and whose second half all make, or the other way round.

    Whether both halves were made; the weights are in the folder.
    """
    halves = ["none", "data"] if way == "to" else ["data", "none"]
    for number, parallel in enumerate(halves, start=1):
        half = replace(config, parallel=parallel, max_steps=6 * number)  # type: ignore[arg-type]
        if parallel == "data" or group.first:
            theirs = group if parallel == "data" else None
            prepare(half, resume=number == 2, quiet=True, group=theirs).run()
        group.barrier()
    return Path(config.output, "step-12").is_dir()
