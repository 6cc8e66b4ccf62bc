"""The processes of one parallel run, and the bytes that they send each other, counted by purpose.

`torchrun` starts W processes ("ranks") and passes each its rank in environment variables. `ProcessGroup.join` reads
them and connects the ranks through torch.distributed: gloo between CPUs, NCCL between GPUs. A group of one needs
neither.

**What is counted.** For each operation, the sending rank counts the bytes that the usual algorithm sends, with N the
bytes of the tensor and W the number of ranks. This is the volume of the algorithm, without headers and padding.

| operation | bytes sent |
|---|---|
| `all_reduce`, as a ring | 2 (W-1)/W N by each rank |
| `all_gather`, as a ring | (W-1) N by each rank, with N the bytes of its own part |
| `broadcast` | (W-1) N by the root |
| `gather` | N by each rank but the root |
| `send`, `isend` | N |

Control messages (`agree`, `barrier`), of some hundred bytes, are not counted.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from sgdec.errors import UsageError

T = TypeVar("T")
TIMEOUT = timedelta(minutes=30)
"""Time limit of an operation. It also limits a validation, for which the other ranks wait for rank 0. The death of a
rank is noticed at once."""


@dataclass
class ProcessGroup:
    """One rank's view of all ranks. The default is a group of one, which never sends anything.

    Operations without a peer are collective: every rank calls them in the same order, with tensors of the same shape
    and type. Operations raise `RuntimeError` if a rank has died.
    """

    rank: int = 0
    size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    """The device of this rank, on which the tensors are that it sends."""
    sent: dict[str, float] = field(default_factory=dict)
    """Bytes sent by this rank for each purpose, such as "gradients" or "hidden states"; may be cleared."""
    store: Any = None
    """torchrun's key-value store, which needs no other rank to take part; None in a group of one."""

    @classmethod
    def join(cls, device: str) -> ProcessGroup:
        """Connect to the other ranks that torchrun started; returns when all have joined. Call `leave` at the end.

        ``device``: cpu, or cuda for the GPU of this rank, which becomes the current device of the process. Raises
        `UsageError` if there are more ranks than GPUs.
        """
        rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        place = torch.device(device)
        if place.type == "cuda":
            place = torch.device("cuda", _own_gpu(device))
            torch.cuda.set_device(place)
        if size == 1:
            return cls(device=place)
        store, _, _ = next(rendezvous("env://", timeout=TIMEOUT))
        # When torchrun restarts a run, it keeps its store, with the addresses of the dead processes.
        store = PrefixStore(f"start {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
        backend, own = ("nccl", place) if place.type == "cuda" else ("gloo", None)
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=TIMEOUT, device_id=own)
        return cls(rank, size, place, store=store)

    def leave(self) -> None:
        """Disconnect. The group cannot be used afterwards."""
        if self.size > 1 and dist.is_initialized():
            dist.destroy_process_group()

    @property
    def first(self) -> bool:
        """Whether this is rank 0, the one that reports, validates and writes."""
        return self.rank == 0

    def all_reduce(
        self, tensor: Tensor, purpose: str, *, wait: bool = True, largest: bool = False
    ) -> dist.Work | None:
        """Compute the sum over all ranks, or the maximum if ``largest``, in place.

        Without ``wait``, the result is there after waiting for the returned `Work`.
        """
        self._count(purpose, ring(self.size, tensor.nbytes))
        if self.size == 1:
            return None
        operation = dist.ReduceOp.MAX if largest else dist.ReduceOp.SUM
        work: dist.Work | None = dist.all_reduce(tensor, operation, async_op=not wait)
        return work

    def broadcast(self, tensor: Tensor, root: int, purpose: str) -> None:
        """Copy the root's tensor to all ranks, in place."""
        if self.rank == root:
            self._count(purpose, (self.size - 1) * tensor.nbytes)
        if self.size > 1:
            dist.broadcast(tensor, root)

    def all_gather(self, tensor: Tensor, purpose: str) -> list[Tensor]:
        """The tensors of all ranks in their order, on every rank."""
        self._count(purpose, (self.size - 1) * tensor.nbytes)
        if self.size == 1:
            return [tensor]
        tensor = tensor.contiguous()
        parts = [torch.empty_like(tensor) for _ in range(self.size)]
        dist.all_gather(parts, tensor)
        return parts

    def gather(self, tensor: Tensor, root: int, purpose: str) -> list[Tensor]:
        """The tensors of all ranks in their order, on the root; an empty list on other ranks."""
        if self.rank != root:
            self._count(purpose, tensor.nbytes)
        if self.size == 1:
            return [tensor]
        tensor = tensor.contiguous()
        parts = [torch.empty_like(tensor) for _ in range(self.size)] if self.rank == root else []
        dist.gather(tensor, parts or None, root)
        return parts

    def gather_named(self, tensors: Mapping[str, Tensor], purpose: str) -> list[dict[str, Tensor]]:
        """The named tensors of all ranks, on rank 0; an empty list on other ranks.

        The ranks may have different names, shapes and types.
        """
        kinds = self.agree({name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()})
        if not self.first:
            for tensor in tensors.values():
                self.send(tensor, 0, purpose)
            return []
        gathered = [dict(tensors)]
        for rank in range(1, self.size):
            theirs = {}
            for name, (shape, dtype) in kinds[rank].items():
                theirs[name] = self.recv(torch.empty(shape, dtype=dtype, device=self.device), rank)
            gathered.append(theirs)
        return gathered

    def send(self, tensor: Tensor, to: int, purpose: str) -> None:
        """Send a tensor to a rank that calls `recv`."""
        self._count(purpose, tensor.nbytes)
        dist.send(tensor.to(self.device).contiguous(), to)

    def recv(self, tensor: Tensor, source: int) -> Tensor:
        """Receive from rank ``source`` into a tensor, and return it."""
        dist.recv(tensor, source)
        return tensor

    def isend(self, tensor: Tensor, to: int, purpose: str, *, tag: int = 0) -> dist.Work:
        """`send` that returns at once. The tensor must be contiguous and must not change until the `Work` is done."""
        self._count(purpose, tensor.nbytes)
        work = dist.isend(tensor, to, tag=tag)
        assert work is not None  # None only in a process outside the group
        return work

    def irecv(self, tensor: Tensor, source: int, *, tag: int = 0) -> dist.Work:
        """`recv` that returns at once. The tensor is filled when the `Work` is done."""
        work = dist.irecv(tensor, source, tag=tag)
        assert work is not None
        return work

    def agree(self, value: T) -> list[T]:
        """The values of all ranks in their order, on every rank; for small picklable values. Not counted."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    def barrier(self) -> None:
        """Wait for all ranks."""
        if self.size > 1:
            dist.barrier()

    def claim(self, name: str) -> bool:
        """Whether this rank is the first to claim this name. Neither collective nor counted."""
        return self.store is None or int(self.store.add(f"sgdec/{name}", 1)) == 1

    def total(self, counts: Mapping[str, float]) -> dict[str, float]:
        """Counts by purpose, such as `sent`, summed over all ranks, on every rank. Collective."""
        together: dict[str, float] = {}
        for part in self.agree(dict(counts)):
            for purpose, amount in part.items():
                together[purpose] = together.get(purpose, 0.0) + amount
        return together

    def _count(self, purpose: str, volume: float) -> None:
        self.sent[purpose] = self.sent.get(purpose, 0.0) + volume


def ring(size: int, volume: float) -> float:
    """Bytes that each of ``size`` ranks sends in an `all_reduce` of ``volume`` bytes.

    >>> ring(4, 100.0), ring(1, 100.0)
    (150.0, 0.0)
    """
    return 2 * (size - 1) / size * volume


def _own_gpu(device: str) -> int:
    """The index of this rank's GPU on its machine."""
    if device != "cuda":
        raise UsageError(f"--device {device}: each process of --parallel uses its own GPU. Give --device cuda.")
    ranks, gpus = int(os.environ.get("LOCAL_WORLD_SIZE", "1")), torch.cuda.device_count()
    if ranks > gpus:
        raise UsageError(
            f"--device cuda: {ranks} processes, but this machine has {gpus} GPU{'s' * (gpus != 1)}. "
            f"Give torchrun --nproc-per-node {max(gpus, 1)}, or --device cpu."
        )
    return int(os.environ.get("LOCAL_RANK", "0"))
