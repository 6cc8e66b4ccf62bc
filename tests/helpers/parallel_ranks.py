"""What the ranks of `tests.training.parallel.test_model` do: updates in a mode, beside those of a single process."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from sgdec.checkpoints import files
from sgdec.checkpoints.layout import WEIGHTS
from sgdec.models.base import Model, ModelContext
from sgdec.plugins.host import Host
from sgdec.training.config import TrainConfig
from sgdec.training.data.batch import TrainingBatch
from sgdec.training.device import trains_in_bf16
from sgdec.training.parallel.group import ProcessGroup
from sgdec.training.parallel.staged import Staged
from sgdec.training.updating import OPTIMIZER, Updater
from tests.helpers.breadth import EXHAUSTIVE
from tests.helpers.ranks import forking

SOURCE, TARGET, WIDTH, RATE = 23, 29, 6, 0.01
STEPS = 6 if EXHAUSTIVE else 4
"""`make_batch` has every number of rows by then."""
ROWS = (3, 4, 5, 1)
"""Of every fourth batch one alone, so that there are ranks with nothing."""


@dataclass(frozen=True)
class Case:
    """A mode with a model."""

    mode: str
    model: str
    options: dict[str, Any] = field(default_factory=dict)
    chunk: int = 3
    """Steps of a chunk."""
    accumulate: int = 1
    weighted: bool = False
    """Target tokens have weights."""


CASES = {
    "luong model": Case("model", "luong", {"layers": 4, "embedding": 5}, accumulate=2),
    "luong model fed": Case("model", "luong", {"layers": 3, "embedding": 5, "input_feeding": True}, weighted=True),
    "luong model tied": Case("model", "luong", {"layers": 3, "tied": "all"}, chunk=1),
    "luong hybrid": Case("hybrid", "luong", {"layers": 4, "embedding": 5}, weighted=True),
    "luong hybrid fed": Case("hybrid", "luong", {"layers": 5, "embedding": 5, "input_feeding": True}),
    "luong hybrid tied": Case("hybrid", "luong", {"layers": 4, "tied": "target", "bridge": False}, chunk=100),
    "gnmt model": Case("model", "gnmt", {"layers": 4, "bridge": True}, weighted=True),
    "gnmt model uneven": Case("model", "gnmt", {"encoder_layers": 1, "decoder_layers": 5, "normed": True}),
    "gnmt model constrained": Case(
        "model", "gnmt", {"encoder_layers": 4, "decoder_layers": 2, "bridge": True, "constrained": True}
    ),
}
"""Dropout is off: it is drawn otherwise on several ranks."""
SIZES = (2, 4)
ON_SIZE = {
    2: list(CASES) if EXHAUSTIVE else ["luong model", "luong hybrid", "luong hybrid fed", "gnmt model"],
    4: list(CASES),
}
"""The cases for each number of ranks. Two have no rank in the middle, so a case for each table of volumes will do."""
TRAINED = ("luong hybrid", "gnmt model")
"""The cases that are also trained with dropout and in bf16."""
WITH_DROPOUT, IN_BF16 = (SIZES, SIZES) if EXHAUSTIVE else ((4,), (2,))
"""On how many ranks: neither depends on it."""


def make_batch(seed: int, weighted: bool = False) -> TrainingBatch:
    """Sentences of unequal lengths."""
    random = torch.Generator().manual_seed(seed)
    rows = ROWS[seed % 4]
    sources, targets = (torch.randint(1, most, (rows,), generator=random) for most in (7, 8))
    source = torch.randint(3, SOURCE, (rows, int(sources.max())), generator=random)
    words = torch.randint(3, SOURCE, (rows, int(targets.max())), generator=random)
    mask = torch.arange(words.size(1)) < targets[:, None]
    after = words.scatter(1, targets[:, None] - 1, 2)
    before = torch.cat([torch.ones(rows, 1, dtype=torch.long), words[:, :-1]], 1)
    weights = torch.rand(words.shape, generator=random) * mask if weighted else None
    return TrainingBatch(source, sources, before, after, mask, list(range(1, rows + 1)), weights)


def make_updater(case: Case, group: ProcessGroup | None, *, precision: str = "fp64", dropout: float = 0.0) -> Updater:
    """With the same first weights for every group; without one that of a single process."""
    torch.manual_seed(5)
    shared = case.options.get("tied") == "all"
    context = ModelContext(TARGET if shared else SOURCE, TARGET, shared)
    options = {"width": WIDTH, **case.options, "dropout": dropout}
    model: Model = host().load("model", case.model)(context, **options)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    config = make_config(case.model, case.mode if group else "none")
    Staged.steps = case.chunk
    model.to(torch.float64 if precision == "fp64" else torch.float32)
    return Updater(config, model, precision, total_steps=12, group=group)


@cache
def host() -> Host:
    return Host()


@cache
def make_config(model: str, mode: Any) -> TrainConfig:
    """Its checks take longer than an update."""
    files = {"train": ("a", "b"), "valid": ("a", "b"), "tokenizer": ("v",), "output": "none"}
    return TrainConfig(**files, model=model, parallel=mode, clip=0.5, precision="fp64")  # type: ignore[arg-type]


def batches_of(case: Case, step: int) -> list[TrainingBatch]:
    return [make_batch(case.accumulate * step + number, case.weighted) for number in range(case.accumulate)]


def make_reference(case: Case, folder: Path) -> None:
    """What a single process does: losses, norms and gradients of all updates, and the checkpoint after them."""
    single = make_updater(case, None)
    tensors = {}
    for step in range(1, STEPS + 1):
        tensors[f"{step}"] = torch.tensor(single.update(batches_of(case, step), step, RATE), dtype=torch.float64)
        for name, parameter in single.strategy.owned.items():
            assert parameter.grad is not None
            tensors[f"{step} {name}"] = parameter.grad.clone()
    folder.mkdir(parents=True)
    files.save_tensors(folder / "gradients", tensors)
    single.collect()(folder)


def compare(case: Case, group: ProcessGroup, reference: Path, folder: Path) -> dict[str, Any]:
    """Updates beside a single process's: the largest differences of all steps and ranks, and what was sent."""
    if group.first and not reference.exists():
        make_reference(case, reference)
    group.barrier()
    single, mine = files.load_tensors(reference / "gradients"), make_updater(case, group)
    worst = {"loss": 0.0, "norm": 0.0, "gradient": 0.0}
    as_predicted, sent = True, {}
    for step in range(1, STEPS + 1):
        batches = batches_of(case, step)
        group.sent.clear()
        loss, norm = mine.update(batches, step, RATE)
        sent = dict(group.sent)
        as_predicted &= sent == mine.strategy.expected(batches)
        for what, value, its in zip(worst, (loss, norm), single[f"{step}"].tolist(), strict=False):
            worst[what] = max(worst[what], abs(value - its))
        whole = {name: single[f"{step} {name}"] for name, _ in mine.model.named_parameters()}
        own = mine.strategy.pieces(whole)
        assert own.keys() == mine.strategy.owned.keys()
        for name, parameter in mine.strategy.owned.items():
            worst["gradient"] = max(worst["gradient"], difference(own[name], parameter.grad))
    totals = {"sent": group.total(sent), "expected": group.total(mine.strategy.expected(batches_of(case, STEPS)))}
    save = mine.collect()
    if group.first:
        folder.mkdir()
        save(folder)
        for file in (WEIGHTS, OPTIMIZER):
            its, ours = (files.load_tensors(place / file) for place in (reference, folder))
            assert its.keys() == ours.keys()
            worst[file] = max(difference(its[name], ours[name]) for name in its)
    again = make_updater(case, group)
    again.restore(reference, STEPS)
    loss, norm = again.update(batches_of(case, STEPS + 1), STEPS + 1, RATE)
    if group.first:  # each goes on from the other's checkpoint
        other = make_updater(case, None)
        other.restore(folder, STEPS)
        its_loss, its_norm = other.update(batches_of(case, STEPS + 1), STEPS + 1, RATE)
        worst["resumed"] = max(abs(loss - its_loss), abs(norm - its_norm))
    everyone = group.agree(worst)
    return {
        "worst": {what: max(one.get(what, 0.0) for one in everyone) for what in everyone[0]},
        "volumes as predicted": all(group.agree(as_predicted)), "formula": mine.strategy.formula, **totals,
    }  # fmt: skip


def train(case: Case, group: ProcessGroup, updates: int, **settings: Any) -> list[float]:
    """The losses of updates with the same batch."""
    updater = make_updater(case, group, **settings)
    return [updater.update([make_batch(1)], step, 0.02)[0] for step in range(1, 1 + updates)]


def difference(a: Tensor | None, b: Tensor | None) -> float:
    assert a is not None and b is not None
    return float((a.detach() - b.detach()).abs().max())


def work(rank: int, size: int, reference: Path, folder: Path) -> None:
    """All checks of one rank; rank 0 writes what came of them."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=size, init_method=f"file://{folder}/meeting")
    group, results = ProcessGroup(rank, size), {}
    for name in ON_SIZE[size]:
        results[name] = compare(CASES[name], group, reference / name, folder / name)
    for name in TRAINED:
        if size in WITH_DROPOUT:
            runs = [train(CASES[name], group, updates, dropout=0.2) for updates in (10, 10 if EXHAUSTIVE else 4)]
            results[f"{name}, dropout"] = {"runs": runs}
        if size in IN_BF16 and trains_in_bf16():
            updates = 10 if EXHAUSTIVE else 5
            bf16 = train(CASES[name], group, updates, precision="bf16")
            results[f"{name}, bf16"] = {"bf16": bf16, "fp64": train(CASES[name], group, updates)}
    results["seconds"] = {"of processors, each rank": group.agree(round(time.process_time(), 1))}
    if group.first:
        (folder / "results.json").write_text(json.dumps(results))
    group.leave()


def run_ranks(size: int, reference: Path, folder: Path) -> dict[str, Any]:
    """What came of `work` on so many ranks, forked from one process that has imported all that they need."""
    context = forking()
    ranks = [context.Process(target=work, args=(rank, size, reference, folder), daemon=True) for rank in range(size)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()
    assert [process.exitcode for process in ranks] == [0] * size
    results: dict[str, Any] = json.loads((folder / "results.json").read_text())
    return results
