"""Processes for tests of parallel training: W ranks on this machine, without torchrun, in about no time."""

from __future__ import annotations

import multiprocessing
import os
import socket
import traceback
from collections.abc import Callable
from multiprocessing.context import ForkServerContext
from typing import Any

from sgdec.training.parallel.group import ProcessGroup
from tests.helpers.background import give_room_to_multiprocessing
from tests.helpers.empty_curves import leave_empty

PRELOADED = [
    "sgdec.training.preparing", "torch._dynamo", "sgdec.decoder", "sgdec.models.gnmt", "sgdec.models.luong",
    "tests.helpers.ranks",
]  # fmt: skip
"""Imported once, by the server that the ranks are forked from; the second takes seconds in the first update."""


def forking() -> ForkServerContext:
    """The context of processes that are forked from one that has imported what they need."""
    give_room_to_multiprocessing()
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    return context


def on_ranks(size: int, work: Callable[..., Any], *args: Any) -> list[Any]:
    """What ``work(group, *args)`` returns on each of ``size`` ranks; it is a function of a module, as pickle asks."""
    context = forking()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    results: Any = context.Queue()
    ranks = [context.Process(target=_rank, args=(rank, size, port, results, work, args)) for rank in range(size)]
    for rank in ranks:
        rank.start()
    try:
        answers = dict(results.get(timeout=300) for _ in ranks)
    finally:
        for rank in ranks:
            rank.join(10)
            rank.kill()
    failed = {rank: answer for rank, answer in answers.items() if isinstance(answer, Failure)}
    assert not failed, "\n".join(f"rank {rank}: {failure}" for rank, failure in failed.items())
    return [answers[rank] for rank in range(size)]


class Failure(str):
    """The traceback of a rank."""


def _rank(rank: int, size: int, port: int, results: Any, work: Callable[..., Any], args: tuple[Any, ...]) -> None:
    import torch

    from sgdec.training.run import report

    torch.set_num_threads(1)
    report.draw_curve = leave_empty
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(size), **address)
    try:
        group = ProcessGroup.join("cpu")
        results.put((rank, work(group, *args)))
        group.barrier()
        group.leave()
    except BaseException:
        results.put((rank, Failure(traceback.format_exc())))
