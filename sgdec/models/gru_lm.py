"""A recurrent language model with the cell of a GRU decoder: `shallow` and `deep-transition` without attention to a
source (Marian, Junczys-Dowmunt et al. 2018, section 3.3, has decoders that start from such a language model).

The cell is a chain of blocks (`gru.py` has the equations), and the output is that of the decoder without contexts:

    s_1 = block_1(y_{t-1}, s of step t-1)    s_k = block_k(s_{k-1}), k = 2..L    output = tanh(R [s_L; y_{t-1}])

s of step 0 is zero. All parameters have a counterpart in the decoder, whose second block and output also read the
context. Layer normalisation and variational dropout are those of the decoder.

Cost of a step per row, in multiplications: 3 width (embedding + L width) for the blocks, embedding (width +
embedding) for the output, embedding x V for the softmax.
"""

from __future__ import annotations

from typing import Annotated, cast

import torch
from pydantic import Field
from torch import Tensor, nn

from sgdec import hookimpl
from sgdec.models.base import LanguageModel, Model, ModelContext, State
from sgdec.models.encoder_decoder import TargetDropout
from sgdec.models.gru import GRUBlock, Masks, VariationalDropout, masked
from sgdec.models.kernels import Kernels
from sgdec.models.layers import Dense, WordDropout, norm_or_nothing, pack_layers


class GRULM(LanguageModel):
    """One recurrent layer, whose cell is a chain of GRU blocks.

    >>> model = GRULM(ModelContext(source_vocab_size=0, target_vocab_size=30), width=8, embedding=6)
    >>> model.project(model(torch.tensor([[1, 9, 4]]))).shape
    torch.Size([1, 3, 30])
    """

    def __init__(
        self,
        context: ModelContext,
        *,
        depth: Annotated[int, Field(ge=2, description="blocks of the cell")] = 2,
        width: Annotated[int, Field(ge=1, description="GRU units of a block")] = 1024,
        embedding: Annotated[int, Field(ge=1, description="size of embeddings and of the output")] = 512,
        layer_norm: Annotated[bool, Field(description="normalise inside blocks and the output")] = False,
        dropout: Annotated[float, Field(ge=0, lt=1, description="variational dropout inside blocks")] = 0.0,
        target_dropout: TargetDropout = 0.0,
        tied: Annotated[bool, Field(description="softmax weights = embeddings")] = False,
    ) -> None:
        super().__init__()
        self.target_embedding = nn.Embedding(context.target_vocab_size, embedding)
        nn.init.normal_(self.target_embedding.weight, std=embedding**-0.5)
        self.words = WordDropout(target_dropout)
        self.first = GRUBlock(embedding, width, norm=layer_norm)
        self.second = GRUBlock(None, width, norm=layer_norm)
        self.transitions = nn.ModuleList(GRUBlock(None, width, norm=layer_norm) for _ in range(depth - 2))
        self.readout = nn.Sequential(
            Dense(width + embedding, embedding, bias=not layer_norm), norm_or_nothing(layer_norm, embedding)
        )
        self.dropout = VariationalDropout(dropout, depth, width, embedding, embedding)
        self.softmax = Dense(embedding, context.target_vocab_size)
        if tied:
            self.softmax.weight = self.target_embedding.weight

    def start(self, rows: int) -> State:
        """The zero state s [rows, width]."""
        return (self.target_embedding.weight.new_zeros(rows, self.first.width),)

    def step(self, state: State, tokens: Tensor) -> tuple[State, Tensor]:
        """Consume ``tokens`` [R]; returns the new state and the output [R, E]."""
        embedded = self.words(self.target_embedding(tokens))
        hidden = self._cell(state[0], self.first.read(embedded), Masks([None] * (2 + len(self.transitions)), []))
        return (hidden,), self._output(hidden, embedded)

    def forward(self, target_in: Tensor) -> Tensor:
        """The outputs [B, T, E]; equal to the loop over `step`."""
        embedded = self.words(self.target_embedding(target_in))
        masks: Masks = self.dropout(embedded)
        words, last = masks.inputs
        (hidden,) = self.start(len(target_in))
        states = []
        for gates in self.first.read(masked(embedded, words)).unbind(1):
            hidden = self._cell(hidden, gates, masks)
            states.append(hidden)
        return masked(self._output(torch.stack(states, 1), embedded), last)

    def project(self, output: Tensor) -> Tensor:
        logits: Tensor = self.softmax(output)
        return logits

    def output_layer(self) -> tuple[nn.Linear, float | None]:
        """The output layer; logits are not clipped."""
        return self.softmax, None

    def embedding_layer(self, side: str) -> nn.Embedding:
        """The model's embeddings, as those of the target."""
        return self.target_embedding if side == "target" else super().embedding_layer(side)

    def freeze(self, kernels: Kernels) -> None:
        """Pack all layers that can be packed."""
        pack_layers(self, kernels)

    def _cell(self, hidden: Tensor, gates: Tensor, masks: Masks) -> Tensor:
        """The state s [R, width] after one step."""
        first, *others = masks.states
        hidden = self.first(gates, hidden, first)
        blocks = [self.second, *cast("list[GRUBlock]", list(self.transitions))]
        for block, dropped in zip(blocks, others, strict=True):
            hidden = block(None, hidden, dropped)
        return hidden

    def _output(self, hidden: Tensor, embedded: Tensor) -> Tensor:
        return torch.tanh(self.readout(torch.cat([hidden, embedded.to(hidden.dtype)], -1)))


@hookimpl
def sgdec_models() -> dict[str, type[Model]]:
    return {"grulm": GRULM}
