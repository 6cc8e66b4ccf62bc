"""What the ranks of `test_parallel_model.py` do: updates in a mode, beside those of a single process on rank 0."""

from __future__ import annotations

import json
import multiprocessing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from sgdec.models.base import Model, ModelContext
from sgdec.plugins import Host
from sgdec.training.config import TrainConfig
from sgdec.training.data import Batch
from sgdec.training.parallel.group import Group
from sgdec.training.parallel.staged import Staged
from sgdec.training.updating import Updater

SOURCE, TARGET, STEPS, WIDTH = 23, 29, 20, 6


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
    "gnmt model": Case("model", "gnmt", {"layers": 4, "bridge": True}, accumulate=2, weighted=True),
    "gnmt model uneven": Case("model", "gnmt", {"encoder_layers": 1, "decoder_layers": 5, "normed": True}),
    "gnmt model constrained": Case(
        "model", "gnmt", {"encoder_layers": 4, "decoder_layers": 2, "bridge": True, "constrained": True}
    ),
}
"""Dropout is off: it is drawn otherwise on several ranks."""


def make_batch(seed: int, weighted: bool = False) -> Batch:
    """Sentences of unequal lengths; of every fourth batch one alone, so that there are ranks with nothing."""
    random = torch.Generator().manual_seed(seed)
    rows = 1 if seed % 4 == 3 else 3 + seed % 3
    sources, targets = (torch.randint(1, most, (rows,), generator=random) for most in (9, 10))
    source = torch.randint(3, SOURCE, (rows, int(sources.max())), generator=random)
    words = torch.randint(3, SOURCE, (rows, int(targets.max())), generator=random)
    mask = torch.arange(words.size(1)) < targets[:, None]
    after = words.scatter(1, targets[:, None] - 1, 2)
    before = torch.cat([torch.ones(rows, 1, dtype=torch.long), words[:, :-1]], 1)
    weights = torch.rand(words.shape, generator=random) * mask if weighted else None
    return Batch(source, sources, before, after, mask, list(range(1, rows + 1)), weights)


def make_updater(case: Case, group: Group | None, *, precision: str = "fp64", dropout: float = 0.0) -> Updater:
    """With the same first weights for every group; without one that of a single process."""
    torch.manual_seed(5)
    shared = case.options.get("tied") == "all"
    context = ModelContext(TARGET if shared else SOURCE, TARGET, shared)
    options = {"width": WIDTH, **case.options, "dropout": dropout}
    model: Model = Host().load("model", case.model)(context, **options)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    files = {"train": ("a", "b"), "valid": ("a", "b"), "tokenizer": ("v",), "output": "none"}
    mode: Any = case.mode if group else "none"
    config = TrainConfig(**files, model=case.model, parallel=mode, clip=0.5, precision="fp64")  # type: ignore[arg-type]
    Staged.steps = case.chunk
    model.to(torch.float64 if precision == "fp64" else torch.float32)
    return Updater(config, model, precision, total_steps=2 * STEPS, group=group)


def batches_of(case: Case, step: int) -> list[Batch]:
    return [make_batch(case.accumulate * step + number, case.weighted) for number in range(case.accumulate)]


def compare(case: Case, group: Group, folder: Path) -> dict[str, Any]:
    """Updates beside a single process's; the largest differences of all steps, and what was sent in the last."""
    mine, single = make_updater(case, group), make_updater(case, None) if group.first else None
    worst = {"loss": 0.0, "norm": 0.0, "gradient": 0.0}
    volumes_as_predicted = True

    def update(step: int) -> None:
        nonlocal volumes_as_predicted
        batches = batches_of(case, step)
        group.sent.clear()
        loss, norm = mine.update(batches, step, 0.01)
        volumes_as_predicted &= group.sent == mine.strategy.expected(batches)
        own = {name: parameter.grad for name, parameter in mine.strategy.owned.items()}
        sent = dict(group.sent)
        gradients = mine.strategy.collect({name: g for name, g in own.items() if g is not None})
        group.sent.clear()
        group.sent.update(sent)
        if single is None:
            return
        its_loss, its_norm = single.update(batches, step, 0.01)
        worst["loss"] = max(worst["loss"], abs(loss - its_loss))
        worst["norm"] = max(worst["norm"], abs(norm - its_norm))
        for name, parameter in single.strategy.owned.items():
            worst["gradient"] = max(worst["gradient"], difference(gradients[name], parameter.grad))

    for step in range(1, STEPS + 1):
        update(step)
    sent, expected = group.total(group.sent), group.total(mine.strategy.expected(batches_of(case, STEPS)))
    save = mine.collect()
    if single is not None:  # each goes on from the other's checkpoint
        for name, write in (("mine", save), ("its", single.collect())):
            (folder / name).mkdir(parents=True)
            write(folder / name)
        worst["weights"] = max(map(difference, mine.model.parameters(), single.model.parameters()))
        single = make_updater(case, None)
        single.restore(folder / "mine", STEPS)
    group.barrier()
    mine = make_updater(case, group)
    mine.restore(folder / "its", STEPS)
    update(STEPS + 1)
    return {
        **worst, "sent": sent, "expected": expected, "formula": mine.strategy.formula,
        "volumes_as_predicted": all(group.agree(volumes_as_predicted)),
    }  # fmt: skip


def train(case: Case, group: Group, **settings: Any) -> list[float]:
    """The losses of updates with the same batch."""
    updater = make_updater(case, group, **settings)
    return [updater.update([make_batch(1)], step, 0.02)[0] for step in range(1, STEPS + 1)]


def difference(a: Tensor | None, b: Tensor | None) -> float:
    assert a is not None and b is not None
    return float((a.detach() - b.detach()).abs().max())


def work(rank: int, size: int, folder: Path) -> None:
    """All checks of one rank; rank 0 writes what came of them."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=size, init_method=f"file://{folder}/meeting")
    group, results = Group(rank, size), {}
    for name, case in CASES.items():
        results[name] = compare(case, group, folder / name.replace(" ", "_"))
    for name in ("luong hybrid", "gnmt model"):
        results[f"{name}, dropout"] = {"runs": [train(CASES[name], group, dropout=0.2) for _ in range(2)]}
        bf16 = train(CASES[name], group, precision="bf16")
        results[f"{name}, bf16"] = {"ours": bf16, "fp64": train(CASES[name], group)}
    if group.first:
        (folder / "results.json").write_text(json.dumps(results))
    group.leave()


def run_ranks(size: int, folder: Path) -> dict[str, Any]:
    """What came of `work` on so many ranks, forked from one process that has imported all that they need."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.parallel_ranks", "torch._dynamo"])
    ranks = [context.Process(target=work, args=(rank, size, folder), daemon=True) for rank in range(size)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()
    assert [process.exitcode for process in ranks] == [0] * size
    results: dict[str, Any] = json.loads((folder / "results.json").read_text())
    return results
