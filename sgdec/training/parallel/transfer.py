"""Sending and receiving as autograd functions: the forward pass sends a tensor, and the backward pass sends its
gradient back.

With these functions the forward pass of one rank of a model is ordinary code. One call of `Transfers.backward` per
rank computes the gradients of all ranks:

| operation | forward | backward |
|---|---|---|
| `send` and `receive` | x goes from one rank to another | its gradient comes back |
| `broadcast` | the root's x on every rank | the sum of all gradients, on the root |
| `sum` | the sum of all x on every rank | each rank's own gradient, without a message (see `sum`) |

**Order.** On each device, autograd runs the nodes of a rank on one thread, in the reverse order of their creation: of
the nodes whose results have no pending gradients, it runs the one created last. So the backward pass mirrors the
forward pass of all ranks. If the forward pass ends without a deadlock, so does the backward pass. Between two ranks,
messages are sent and received in the same order. A sender does not wait for its messages to be received until the
whole pass is over.

The loss must depend on every received tensor; otherwise its sender waits for its gradient forever.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import FunctionCtx

from sgdec.training.parallel.group import ProcessGroup

ACTIVATIONS, GRADIENTS = "activations", "activation gradients"
"""The purposes under which bytes are counted, for the two directions."""


class Transfers:
    """Everything that one rank sends and receives in the forward and backward pass of a batch."""

    def __init__(self, group: ProcessGroup) -> None:
        self.group = group
        self.dtype = torch.float32
        """The type of received tensors; all ranks compute in the same type."""
        self._anchor = torch.zeros((), device=group.device, requires_grad=True)  # gives received tensors a gradient
        self._starts: list[Tensor] = []
        self._under_way: list[tuple[dist.Work, Tensor]] = []
        self._own: deque[Tensor] = deque()

    def send(self, x: Tensor, to: int) -> None:
        """Send x to rank ``to``, which calls `receive`; a rank may send to itself."""
        if to == self.group.rank:
            self._own.append(x)
        else:
            self._starts.append(_applied(_Send, x.to(self.dtype), self, to))

    def receive(self, shape: Sequence[int], source: int) -> Tensor:
        """The next tensor from rank ``source``, which has this shape."""
        if source == self.group.rank:
            return self._own.popleft()
        return _applied(_Receive, self._anchor, self, tuple(shape), source)

    def broadcast(self, x: Tensor | None, shape: Sequence[int], root: int) -> Tensor:
        """The root's x, of this shape, on every rank."""
        own = self._anchor if x is None else x.to(self.dtype)
        return _applied(_Broadcast, own, self, tuple(shape), root)

    def sum(self, x: Tensor, purpose: str) -> Tensor:
        """The sum of all ranks' x, on every rank. Every rank must compute *the same* result from it.

        The result counts once, not once per rank. So its derivative with respect to the sum, which every rank
        computes itself, is also its derivative with respect to the rank's own x.
        """
        return _applied(_Sum, x, self, purpose)

    def largest(self, x: Tensor, purpose: str) -> Tensor:
        """The elementwise maximum of all ranks' x, without gradient."""
        most = x.detach().clone()
        self.group.all_reduce(most, purpose, largest=True)
        return most

    def backward(self, losses: Sequence[Tensor]) -> None:
        """Compute all gradients, from these losses and from the results of other ranks; ends the pass."""
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
        """Wait for the next tensor from a rank."""
        return self.group.recv(torch.empty(shape, dtype=dtype, device=self.group.device), source)


def _applied(function: type[torch.autograd.Function], x: Tensor, transfers: Transfers, *others: object) -> Tensor:
    result: Tensor = function.apply(x, transfers, *others)
    return result


class _Send(torch.autograd.Function):
    """Returns a scalar from which `Transfers.backward` starts."""

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
        group: ProcessGroup = ctx.transfers.group
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
