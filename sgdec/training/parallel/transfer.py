"""Sending and receiving as functions that autograd knows: the forward pass sends a tensor, the backward pass its
gradient the other way.

With these the forward pass of one rank of a model is ordinary code, and one `Transfers.backward` a rank makes all
gradients of all ranks:

| operation | forward | backward |
|---|---|---|
| `send` and `receive` | x goes from one rank to another | its gradient comes back |
| `broadcast` | the root's x everywhere | the sum of all gradients, on the root |
| `sum` | the sum of all x everywhere | each rank's own gradient, for nothing: see there |

**Order.** Autograd runs the nodes of a rank in the reverse order of their making, on one thread for each device: a
node is ready once all that used its result has run, and all that was made later; among those that are ready it takes
the latest. So the backward pass is the forward pass of all ranks in a mirror. Where the one ends without a deadlock,
the other does. Between two ranks messages go in the same order on both sides; nobody waits for a message to be taken
until the whole pass is over.

A tensor that was received must take part in what is differentiated, or its sender waits for its gradient for ever.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import FunctionCtx

from sgdec.training.parallel.group import Group

ACTIVATIONS, GRADIENTS = "activations", "activation gradients"
"""What is counted for the two directions."""


class Transfers:
    """All that one rank sends and receives in a pass forward over a batch and backward again."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.dtype = torch.float32
        """Of what is received: all ranks compute in one type."""
        self._anchor = torch.zeros((), device=group.device, requires_grad=True)  # makes what is received a variable
        self._starts: list[Tensor] = []
        self._under_way: list[tuple[dist.Work, Tensor]] = []
        self._own: deque[Tensor] = deque()

    def send(self, x: Tensor, to: int) -> None:
        """Give x to rank ``to``, which receives it; to oneself too."""
        if to == self.group.rank:
            self._own.append(x)
        else:
            self._starts.append(_Send.apply(x.to(self.dtype), self, to))  # type: ignore[no-untyped-call]

    def receive(self, shape: Sequence[int], source: int) -> Tensor:
        """What rank ``source`` sends next: it has this shape."""
        if source == self.group.rank:
            return self._own.popleft()
        received: Tensor = _Receive.apply(self._anchor, self, tuple(shape), source)  # type: ignore[no-untyped-call]
        return received

    def broadcast(self, x: Tensor | None, shape: Sequence[int], root: int) -> Tensor:
        """The root's x, of this shape, on every rank."""
        own = self._anchor if x is None else x.to(self.dtype)
        everywhere: Tensor = _Broadcast.apply(own, self, tuple(shape), root)  # type: ignore[no-untyped-call]
        return everywhere

    def sum(self, x: Tensor, purpose: str) -> Tensor:
        """The sum of all ranks' x, on every rank, where each goes on to compute *the same* result from it.

        That result is one number, not one a rank, so its derivative by the sum, which every rank finds by itself, is
        its derivative by the rank's own x.
        """
        total: Tensor = _Sum.apply(x, self, purpose)  # type: ignore[no-untyped-call]
        return total

    def largest(self, x: Tensor, purpose: str) -> Tensor:
        """The largest of all ranks' x, by elements; nothing is differentiated by it."""
        most = x.detach().clone()
        self.group.all_reduce(most, purpose, largest=True)
        return most

    def backward(self, losses: Sequence[Tensor]) -> None:
        """All gradients, of these losses and of what the other ranks make of what was sent; ends the pass."""
        roots = [*losses, *self._starts]
        self._starts = []
        if roots:
            torch.autograd.backward(roots)
        for work, _ in self._under_way:
            work.wait()
        self._under_way = []
        assert not self._own, "a message of this rank to itself was not received"

    def post(self, x: Tensor, to: int, purpose: str) -> None:
        """Send without waiting; x is kept until `backward` is over."""
        x = x.detach().contiguous()
        self._under_way.append((self.group.isend(x, to, purpose), x))

    def take(self, shape: Sequence[int], source: int, dtype: torch.dtype) -> Tensor:
        """Wait for what comes next from a rank."""
        return self.group.recv(torch.empty(shape, dtype=dtype, device=self.group.device), source)


class _Send(torch.autograd.Function):
    """Gives a scalar from which `Transfers.backward` starts."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, transfers: Transfers, to: int) -> Tensor:
        ctx.transfers, ctx.to, ctx.shape, ctx.dtype = transfers, to, x.shape, x.dtype
        transfers.post(x, to, ACTIVATIONS)
        return x.new_zeros(())

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> tuple[Tensor, None, None]:
        transfers: Transfers = ctx.transfers
        return transfers.take(ctx.shape, ctx.to, ctx.dtype), None, None


class _Receive(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, anchor: Tensor, transfers: Transfers, shape: tuple[int, ...], source: int) -> Tensor:
        ctx.transfers, ctx.source = transfers, source
        return transfers.take(shape, source, transfers.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None, None, None]:
        transfers: Transfers = ctx.transfers
        transfers.post(gradients[0], ctx.source, GRADIENTS)
        return None, None, None, None


class _Broadcast(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, transfers: Transfers, shape: tuple[int, ...], root: int) -> Tensor:
        ctx.transfers, ctx.root = transfers, root
        group = transfers.group
        copy = torch.empty(shape, dtype=transfers.dtype, device=group.device)
        if group.rank == root:
            copy.copy_(x)
        group.broadcast(copy, root, ACTIVATIONS)
        return copy

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, None, None, None]:
        group: Group = ctx.transfers.group
        parts = group.gather(gradients[0], ctx.root, GRADIENTS)
        return (torch.stack(parts).sum(0) if parts else None), None, None, None


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, transfers: Transfers, purpose: str) -> Tensor:
        total = x.detach().clone()
        transfers.group.all_reduce(total, purpose)
        return total

    @staticmethod
    def backward(ctx: FunctionCtx, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return gradients[0], None, None
