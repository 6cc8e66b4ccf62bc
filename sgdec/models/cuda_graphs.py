"""Inference steps as CUDA graphs: the kernels of a step are recorded once and then launched together.

With the small batches of decoding, launching kernels takes longer than the arithmetic. A graph is recorded for fixed
shapes, but the shapes of a search change at every step. So the inputs are padded to few shapes: the numbers of
prefixes and sentences to powers of two and multiples of 64, the source length to multiples of 16. Padded rows belong
to no prefix; they are masked or cut off. A shape is recorded when it occurs for the second time; the most recently
used recordings are kept.

The recorder is a parameter, so everything except the recording itself can run, and is tested, without a GPU.

Experimental: tried on one GPU, an H100.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import pad

from sgdec.models.base import Memory, Rows, State

Step: TypeAlias = Callable[[Memory, State, Tensor], tuple[State, Tensor, Tensor]]
"""`sgdec.models.base.Seq2Seq.step`."""
Replay: TypeAlias = Callable[[], tuple[State, Tensor, Tensor]]
"""Runs the recorded step on the current contents of its inputs."""
Recorder: TypeAlias = Callable[[Callable[[], tuple[State, Tensor, Tensor]]], Replay]

BLOCK, SOURCE_BLOCK = 64, 16
LARGEST = 32
"""The number of graphs that are kept; each holds its inputs and outputs."""
WARM_UP = 3
"""The number of runs before the recording, in which libraries choose algorithms and allocate workspaces."""


class GraphInputs(NamedTuple):
    """The arguments of one step, padded."""

    memory: Memory
    state: State
    tokens: Tensor

    @property
    def tensors(self) -> list[Tensor]:
        """All tensors of the inputs, those of the memory first."""
        values, keys, mask, first, rows, _ = self.memory
        return [values, keys, mask, first, *(rows or ()), *self.state, self.tokens]

    def clone(self) -> GraphInputs:
        values, keys, mask, first = (part.clone() for part in self.memory[:4])
        rows = None if self.memory.rows is None else Rows(*(part.clone() for part in self.memory.rows))
        return GraphInputs(
            Memory(values, keys, mask, first, rows), tuple(part.clone() for part in self.state), self.tokens.clone()
        )


class _Graph(NamedTuple):
    inputs: GraphInputs
    replay: Replay


class GraphedStep:
    """A model's step, recorded for each padded shape. Outputs are copies, which later steps do not change."""

    def __init__(self, step: Step, recorder: Recorder | None = None) -> None:
        """``recorder``: `CudaRecorder` by default."""
        self._step = step
        self._record = recorder or CudaRecorder()
        self._graphs: OrderedDict[Any, _Graph | None] = OrderedDict()
        """The graph of each shape; None: the shape has occurred once."""

    def __call__(self, memory: Memory, state: State, tokens: Tensor) -> tuple[State, Tensor, Tensor]:
        """The result of the step itself."""
        rows, source = len(tokens), memory.mask.shape[1]
        inputs = padded(memory, state, tokens)
        replay = self._replay(inputs)
        new, output, attention = self._step(*inputs) if replay is None else replay()
        return tuple(part[:rows].clone() for part in new), output[:rows].clone(), attention[:rows, :source].clone()

    def _replay(self, inputs: GraphInputs) -> Replay | None:
        """The recorded step, after copying these inputs into its own; None if the shape is new."""
        shape = tuple((tuple(part.shape), part.dtype) for part in inputs.tensors)
        if shape not in self._graphs:
            self._graphs[shape] = None
            if len(self._graphs) > LARGEST:
                self._graphs.popitem(last=False)
            return None
        self._graphs.move_to_end(shape)
        graph = self._graphs[shape]
        if graph is None:
            own = inputs.clone()
            graph = self._graphs[shape] = _Graph(own, self._record(lambda: self._step(*own)))
        for kept, given in zip(graph.inputs.tensors, inputs.tensors, strict=True):
            kept.copy_(given)
        return graph.replay


class CudaRecorder:
    """Records on the current GPU. All graphs share one memory pool, because they never run at the same time."""

    def __init__(self) -> None:
        self._pool: Any = None

    def __call__(self, work: Callable[[], tuple[State, Tensor, Tensor]]) -> Replay:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP):
                work()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        self._pool = self._pool or torch.cuda.graph_pool_handle()
        with torch.cuda.graph(graph, pool=self._pool):
            outputs = work()

        def replay() -> tuple[State, Tensor, Tensor]:
            graph.replay()
            return outputs

        return replay


def padded(memory: Memory, state: State, tokens: Tensor) -> GraphInputs:
    """The inputs of a step, padded with additional prefixes, sentences and source positions.

    >>> memory = Memory(torch.ones(3, 5, 2), torch.ones(3, 5, 2), torch.ones(3, 5) > 0, torch.ones(3, 0, 2))
    >>> inputs = padded(memory, (torch.ones(3, 2),), torch.tensor([7, 8, 9]))
    >>> inputs.memory.values.shape, inputs.state[0].shape, inputs.tokens.tolist()
    (torch.Size([4, 16, 2]), torch.Size([4, 2]), [7, 8, 9, 0])
    """
    more_rows = block(len(tokens)) - len(tokens)
    more_sentences = block(len(memory.values)) - len(memory.values)
    more_source = -memory.mask.shape[1] % SOURCE_BLOCK
    mask = pad(memory.mask, (0, more_source, 0, more_sentences))
    mask[len(memory.mask) :, 0] = True  # the softmax of a sentence without tokens would be NaN
    larger = Memory(
        pad(memory.values, (0, 0, 0, more_source, 0, more_sentences)),
        pad(memory.keys, (0, 0, 0, more_source, 0, more_sentences)),
        mask,
        _with_rows(memory.first, more_sentences),
        None if memory.rows is None else _padded_rows(memory.rows, more_sentences, more_rows),
    )
    return GraphInputs(larger, tuple(_with_rows(part, more_rows) for part in state), _with_rows(tokens, more_rows))


def block(count: int) -> int:
    """The size to which ``count`` rows are padded.

    >>> [block(count) for count in (1, 3, 33, 64, 65, 200)]
    [1, 4, 64, 64, 128, 256]
    """
    return 1 << (count - 1).bit_length() if count <= BLOCK else -(-count // BLOCK) * BLOCK


def _padded_rows(rows: Rows, more_sentences: int, more_rows: int) -> Rows:
    """The rows in a wider grid; added prefixes refer to cell 0."""
    most = rows.grid.shape[1]
    wider = block(most)
    grid = pad(rows.grid, (0, wider - most, 0, more_sentences))
    cell = rows.cell.div(most, rounding_mode="floor") * wider + rows.cell % most
    return Rows(grid, _with_rows(cell, more_rows))


def _with_rows(part: Tensor, more: int) -> Tensor:
    """A tensor with additional rows of zeros at the end."""
    return torch.cat([part, part.new_zeros(more, *part.shape[1:])]) if more else part
