"""The times that the parts of an attentional LSTM model take on a device: measured, or from a data sheet.

They are the inputs of the predictions of `parallel_model.py`. All times are in seconds, forward and backward, for one
time step of a mini-batch.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

FLOAT = 4
"""Bytes."""


@dataclass(frozen=True)
class Shape:
    """The sizes of the model and its sentences; the defaults are the paper's, Table 2."""

    layers: int = 4
    width: int = 1024
    embedding: int = 512
    vocabulary: int = 32000
    steps: int = 28

    @property
    def attention(self) -> int:
        """The number of parameters of W_a and W_c."""
        return 3 * self.width**2

    @property
    def softmax(self) -> int:
        return self.vocabulary * (self.width + 1)

    @property
    def parameters(self) -> int:
        """The number of all parameters, with input feeding."""
        first, other = self.embedding + self.width, 2 * self.width
        stacks = 4 * self.width * (2 * first + self.width + 2 * (self.layers - 1) * other + 4 * self.layers)
        return 2 * self.vocabulary * self.embedding + stacks + self.attention + self.softmax


class Times(ABC):
    """Seconds, forward and backward, of a step as a function of the number of sentences."""

    @abstractmethod
    def layer(self, sentences: float) -> float:
        """e(B)."""

    @abstractmethod
    def attend(self, sentences: float) -> float:
        """a(B): a single step."""

    @abstractmethod
    def attend_all(self, sentences: float) -> float:
        """a'(B): a step's share if all steps are computed at once."""

    @abstractmethod
    def softmax(self, sentences: float) -> float:
        """s(B): a step's share if all steps are computed at once."""

    @abstractmethod
    def update(self, parameters: float) -> float:
        """The seconds of the optimiser's update."""


@dataclass(frozen=True)
class Device(Times):
    """A device from its data sheet."""

    shape: Shape
    dispatch: float = 20e-6
    """The minimum seconds of a kernel."""
    flops: float = 15.7e12
    efficiency: float = 0.7
    memory: float = 900e9
    """Bytes per second."""
    layer_kernels: int = 3 * 13
    attention_kernels: int = 3 * 9

    def layer(self, sentences: float) -> float:
        weights = 8 * self.shape.width**2
        return (
            self.layer_kernels * self.dispatch + 4 * weights * FLOAT / self.memory + self._product(weights, sentences)
        )

    def attend(self, sentences: float) -> float:
        return self.attention_kernels * self.dispatch + self.attend_all(sentences)

    def attend_all(self, sentences: float) -> float:
        states = sentences * self.shape.steps * self.shape.width * FLOAT  # S, read for scores and contexts
        return 6 * states / self.memory + self._product(self.shape.attention, sentences)

    def softmax(self, sentences: float) -> float:
        logits = sentences * self.shape.vocabulary * FLOAT
        return 8 * logits / self.memory + self._product(self.shape.softmax, sentences)

    def update(self, parameters: float) -> float:
        return 7 * parameters * FLOAT / self.memory

    def _product(self, weights: int, sentences: float) -> float:
        """Each weight is multiplied and added three times per sentence: forward, and for two gradients."""
        return 6 * weights * sentences / (self.efficiency * self.flops)


@dataclass(frozen=True)
class Table(Times):
    """Measured times: seconds by part and by number of sentences, interpolated linearly."""

    seconds: dict[str, dict[str, float]]

    def layer(self, sentences: float) -> float:
        return self._look_up("layer", sentences)

    def attend(self, sentences: float) -> float:
        return self._look_up("attend", sentences)

    def attend_all(self, sentences: float) -> float:
        return self._look_up("attend_all", sentences)

    def softmax(self, sentences: float) -> float:
        return self._look_up("softmax", sentences)

    def update(self, parameters: float) -> float:
        return parameters * self.seconds["update"]["1"]

    def _look_up(self, what: str, sentences: float) -> float:
        points = sorted((float(size), value) for size, value in self.seconds[what].items())
        (x1, y1), (x2, y2) = next((pair for pair in pairwise(points) if sentences <= pair[1][0]), points[-2:])
        return y1 + (y2 - y1) * (sentences - x1) / (x2 - x1)


def measure(shape: Shape, device: str, sizes: Sequence[int], repeats: int) -> Table:
    """Medians for mini-batches of these sizes, of PyTorch's LSTM over all steps, attention, and softmax."""
    import torch
    from torch import nn

    from sgdec.models.base import Memory
    from sgdec.models.luong import LuongDecoder

    def seconds(run: Callable[[], torch.Tensor], steps: int) -> float:
        def once() -> float:
            began = time.perf_counter()
            run().sum().backward()  # type: ignore[no-untyped-call]
            if device != "cpu":
                torch.cuda.synchronize()
            return time.perf_counter() - began

        once()
        return sorted(once() for _ in range(repeats))[repeats // 2] / steps

    width, steps = shape.width, shape.steps
    layer = nn.LSTM(width, width, batch_first=True).to(device)
    decoder, project = LuongDecoder(width, width, width, 1).to(device), nn.Linear(width, shape.vocabulary).to(device)

    def run_layer(x: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = layer(x)[0]
        return outputs

    def run_softmax(x: torch.Tensor) -> torch.Tensor:
        targets = torch.zeros(x.shape[:2], dtype=torch.long, device=device)
        return nn.functional.cross_entropy(project(x).flatten(0, 1), targets.flatten(), reduction="sum")

    table: dict[str, dict[str, float]] = {"layer": {}, "attend": {}, "attend_all": {}, "softmax": {}}
    for sentences in sizes:
        x = torch.randn(sentences, steps, width, device=device, requires_grad=True)
        mask = torch.ones(sentences, steps, dtype=torch.bool, device=device)
        memory = Memory(x, torch.randn_like(x), mask, x[:, 0])
        size = str(sentences)
        table["layer"][size] = seconds(partial(run_layer, x), steps)
        table["attend"][size] = seconds(partial(decoder.attentional, x[:, :1].detach(), memory), 1)
        table["attend_all"][size] = seconds(partial(decoder.attentional, x, memory), steps)
        table["softmax"][size] = seconds(partial(run_softmax, x), steps)
    weights = [torch.zeros(1 << 22, device=device, requires_grad=True)]
    weights[0].grad = torch.ones_like(weights[0])
    adam = torch.optim.Adam(weights, fused=True)
    adam.step()
    began = time.perf_counter()
    adam.step()
    if device != "cpu":
        torch.cuda.synchronize()
    table["update"] = {"1": (time.perf_counter() - began) / (1 << 22)}
    return Table(table)
