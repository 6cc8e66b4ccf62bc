"""Neural machine translation: log P(token | prefix, source) of a trained model (Stahlberg et al. 2017, Table 1).

Any model that `sgdec train` makes; several entries are an ensemble. `initialize_batch` runs the encoder and feeds
``<s>``, `consume_batch` is one inference step, `predict_batch` projects and normalises. So a state is one row of
what a step left behind; it names the tensors of that step and its place in them, and nothing is copied until rows
of different steps meet in the next one.

Cost: one inference step a consumed token, one softmax over V a prediction, many rows at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from pydantic import Field

import sgdec
from sgdec import BOS, BatchPredictor, Context, Scores, SgdecError, Source
from sgdec.context import Vocabularies
from sgdec.protocol import Candidates

if TYPE_CHECKING:
    from torch import Tensor

    from sgdec.models.base import Memory, Seq2Seq


@dataclass(frozen=True, eq=False)
class Block:
    """What one inference step left behind, for all its rows."""

    state: tuple[Tensor, ...]
    """Each ``[rows, ...]``."""
    output: Tensor
    """``[rows, H]``; its projection scores the next token."""
    attention: Tensor
    """``[rows, source]``, with which the next token is predicted."""
    memories: list[Memory]
    """For each row the encoded batch of sentences that it attends to ..."""
    sentences: list[int]
    """... and its sentence there."""


class NmtState(NamedTuple):
    """One prefix: a row of a block."""

    block: Block
    row: int


class NmtPredictor(BatchPredictor):
    """A sequence-to-sequence model from `sgdec train`."""

    def __init__(
        self,
        model: Annotated[str, Field(description="checkpoint folder, such as 'run/best'")],
        context: Context | None = None,
    ) -> None:
        from sgdec.training.checkpoint import load_model

        context = context or Context()
        module, self.vocabularies = load_model(model, device=context.device, precision=context.precision)
        self._model: Seq2Seq = module
        self._device = context.device
        self._source_size = self.vocabularies.source.size if self.vocabularies.source else 0
        self._gathered: tuple[list[tuple[int, int]], Memory, list[Memory]] | None = None

    @classmethod
    def read_vocabularies(cls, model: str) -> Vocabularies:
        """The vocabularies of a checkpoint, without loading its weights."""
        from sgdec.training.checkpoint import load_vocabularies

        return load_vocabularies(model)

    def initialize_batch(self, sources: Sequence[Source]) -> list[NmtState]:
        import torch

        for source in sources:
            self._check(source)
        lengths = torch.tensor([len(source.tokens) for source in sources])
        tokens = torch.zeros(len(sources), int(lengths.max()), dtype=torch.long)  # [sentences, longest]
        for row, source in zip(tokens, sources, strict=True):
            row[: len(source.tokens)] = torch.tensor(source.tokens)
        with torch.inference_mode():
            memory = self._model.encode(tokens.to(self._device), lengths)
            start = self._model.start(memory)
            first = torch.full((len(sources),), BOS, device=self._device)
            state, output, attention = self._model.step(memory, start, first)
        rows = range(len(sources))
        return _states(Block(state, output, attention, [memory] * len(sources), list(rows)))

    def predict_batch(
        self, states: Sequence[NmtState], candidates: Sequence[Candidates | None] | None = None
    ) -> Scores:
        import torch

        with torch.inference_mode():
            (output,) = _gather(states, lambda block: (block.output,))
            logits = self._model.project(output)
            return Scores.dense(torch.log_softmax(logits.to(_wide(logits)), dim=-1))

    def consume_batch(self, states: Sequence[NmtState], tokens: Sequence[int]) -> list[NmtState]:
        import torch

        memories = [state.block.memories[state.row] for state in states]
        sentences = [state.block.sentences[state.row] for state in states]
        with torch.inference_mode():
            memory = self._memory(memories, sentences)
            before = _gather(states, lambda block: block.state)
            consumed = torch.tensor(tokens, device=self._device)
            state, output, attention = self._model.step(memory, before, consumed)
        return _states(Block(state, output, attention, memories, sentences))

    def best_remaining(self, states: Sequence[NmtState]) -> list[float]:
        return [0.0] * len(states)  # log-probabilities

    def attention(self, states: Sequence[NmtState]) -> list[Any]:
        """For each state the attention ``[source]`` with which the token after it is predicted."""
        rows = []
        for block, row in states:
            length = int(block.memories[row].mask[block.sentences[row]].sum())
            rows.append(block.attention[row, :length].double().cpu().numpy())
        return rows

    def _check(self, source: Source) -> None:
        if not source.tokens:
            raise SgdecError("the source is empty; a translation model needs at least one token.")
        for token in source.tokens:
            if not 0 <= token < self._source_size:
                raise SgdecError(
                    f"source token {token} is outside the model's source vocabulary 0..{self._source_size - 1}."
                )

    def _memory(self, memories: Sequence[Memory], sentences: Sequence[int]) -> Memory:
        """The encoded sources row by row; kept, because the next step often has the same rows."""
        rows = [(id(memory), sentence) for memory, sentence in zip(memories, sentences, strict=True)]
        if self._gathered is None or self._gathered[0] != rows:
            # The memories are kept beside their ids, so that no new one can have an old one's id.
            self._gathered = (rows, _gather_memory(memories, sentences), list(memories))
        return self._gathered[1]


def _states(block: Block) -> list[NmtState]:
    return [NmtState(block, row) for row in range(len(block.sentences))]


def _gather(states: Sequence[NmtState], select: Any) -> tuple[Tensor, ...]:
    """The rows of these states, tensor by tensor."""
    import torch

    blocks = list({id(state.block): state.block for state in states}.values())
    offsets, total = {}, 0
    for block in blocks:
        offsets[id(block)] = total
        total += len(block.sentences)
    index = [offsets[id(state.block)] + state.row for state in states]
    parts = zip(*(select(block) for block in blocks), strict=True)
    tensors = [part[0] if len(blocks) == 1 else torch.cat(part) for part in parts]
    if index == list(range(total)):
        return tuple(tensors)
    where = torch.tensor(index, device=tensors[0].device)
    return tuple(tensor.index_select(0, where) for tensor in tensors)


def _gather_memory(memories: Sequence[Memory], sentences: Sequence[int]) -> Memory:
    """One row a state, ``[rows, longest source, ...]``."""
    import torch

    unique = list({id(memory): memory for memory in memories}.values())
    if len(unique) == 1 and len(set(sentences)) == 1:  # one sentence: its rows share memory
        first = sentences[0]
        return type(unique[0])(
            *(part[first : first + 1].expand(len(sentences), *part.shape[1:]) for part in unique[0])
        )
    offsets, total = {}, 0
    for memory in unique:
        offsets[id(memory)] = total
        total += len(memory.mask)
    longest = max(memory.mask.shape[1] for memory in unique)
    where = torch.tensor([offsets[id(m)] + s for m, s in zip(memories, sentences, strict=True)])
    padded = [_pad(memory, longest) for memory in unique]
    parts = (torch.cat(part) for part in zip(*padded, strict=True))
    return type(unique[0])(*(part.index_select(0, where.to(part.device)) for part in parts))


def _pad(memory: Memory, longest: int) -> Memory:
    """Rows as long as the longest source; what is added is masked away."""
    import torch

    missing = longest - memory.mask.shape[1]
    if not missing:
        return memory

    def pad(part: Tensor) -> Tensor:
        return torch.cat([part, part.new_zeros(part.shape[0], missing, *part.shape[2:])], dim=1)

    return memory._replace(values=pad(memory.values), keys=pad(memory.keys), mask=pad(memory.mask))


def _wide(logits: Tensor) -> Any:
    """Scores are at least fp32, whatever the model computes in."""
    import torch

    return torch.promote_types(logits.dtype, torch.float32)


@sgdec.hookimpl
def sgdec_predictors() -> dict[str, type[BatchPredictor]]:
    return {"nmt": NmtPredictor}
