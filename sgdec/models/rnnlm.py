"""The recurrent language model of Zaremba et al. 2014, "Recurrent Neural Network Regularization".

The model is a stack of LSTM layers. h^l_t is the output of layer l after token t, h^0_t the token's embedding, L the
number of layers, and D dropout:

    h^l_t, c^l_t = LSTM(D(h^{l-1}_t), h^l_{t-1}, c^l_{t-1})        P(next token) = softmax(W D(h^L_t) + b)

Dropout acts on connections between layers, never on those between time steps (section 3.2). So information that is
remembered over T steps passes through dropout L + 1 times instead of T times. The presets have the sizes and the
ranges of initial weights of the paper's section 4.1; schedule and batches are those of the trainer. As in a decoder,
and unlike in the paper, each line is a separate sequence that starts from zeros with ``<s>``.

Cost of a step per row, in multiplications: 8 width^2 for each layer, width x V for the softmax.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from sgdec import hookimpl
from sgdec.models.base import LanguageModel, Model, ModelContext, State
from sgdec.models.kernels import Kernels, Product
from sgdec.models.lstm import lstm_cell, unpacked


class RNNLM(LanguageModel):
    """A stack of LSTM layers.

    >>> model = RNNLM(ModelContext(source_vocab_size=0, target_vocab_size=30), width=8)
    >>> model.project(model(torch.tensor([[1, 9, 4]]))).shape
    torch.Size([1, 3, 30])
    """

    packed = True  # the kernels have the weights of its LSTMs
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "small": {"layers": 2, "width": 200, "dropout": 0.0, "init": 0.1},
        "medium": {"layers": 2, "width": 650, "dropout": 0.5, "init": 0.05},
        "large": {"layers": 2, "width": 1500, "dropout": 0.65, "init": 0.04},
    }

    def __init__(
        self,
        context: ModelContext,
        *,
        layers: Annotated[int, Field(ge=1, description="LSTM layers")] = 2,
        width: Annotated[int, Field(ge=1, description="units of a layer, and size of the embeddings")] = 650,
        dropout: Annotated[float, Field(ge=0, lt=1, description="dropout of non-recurrent connections")] = 0.5,
        tied: Annotated[bool, Field(description="softmax weights = embeddings")] = False,
        init: Annotated[float, Field(gt=0, description="initial parameters are uniform in [-init, init]")] = 0.05,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(context.target_vocab_size, width)
        between = dropout if layers > 1 else 0.0
        self.lstm = nn.LSTM(width, width, layers, batch_first=True, dropout=between)
        self.softmax = nn.Linear(width, context.target_vocab_size)
        self.dropout = nn.Dropout(dropout)
        self._products: tuple[list[Product], Product] | None = None
        if tied:
            self.softmax.weight = self.embedding.weight
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -init, init)

    def start(self, rows: int) -> State:
        """The zero states h and c [rows, width] of each layer, bottom first: (h^1, c^1, h^2, c^2, ...)."""
        return (self.embedding.weight.new_zeros(rows, self.lstm.hidden_size),) * (2 * self.lstm.num_layers)

    def step(self, state: State, tokens: Tensor) -> tuple[State, Tensor]:
        """Consume ``tokens`` [R]; returns the new state and the output [R, width]."""
        x, new = self.embedding(tokens), []
        for layer in range(self.lstm.num_layers):
            hidden, cell = state[2 * layer : 2 * layer + 2]
            hidden, cell = lstm_cell(self._gates(layer, self.dropout(x), hidden), cell, None)
            new += [hidden, cell]
            x = hidden
        return tuple(new), self.dropout(x)

    def forward(self, target_in: Tensor) -> Tensor:
        """The outputs [B, T, width], computed by one fused kernel; equal to the loop over `step`."""
        output: Tensor = self.dropout(self.lstm(self.dropout(self.embedding(target_in)))[0])
        return output

    def project(self, output: Tensor) -> Tensor:
        """The logits [..., V]."""
        logits: Tensor = self.softmax(output) if self._products is None else self._products[1](output)
        return logits

    def output_layer(self) -> tuple[nn.Linear, float | None]:
        """The softmax layer; logits are not clipped."""
        return self.softmax, None

    def embedding_layer(self, side: str) -> nn.Embedding:
        """The model's embeddings, as those of the target."""
        return self.embedding if side == "target" else super().embedding_layer(side)

    @torch.no_grad()
    def freeze(self, kernels: Kernels) -> None:
        """Make one product per layer, over [x; h], and one of the softmax."""
        layers = [
            kernels.linear(torch.cat([w_ih, w_hh], 1), b_ih + b_hh)
            for w_ih, w_hh, b_ih, b_hh in self.lstm.all_weights
        ]
        self._products = layers, kernels.linear(self.softmax.weight, self.softmax.bias)
        self.requires_grad_(False)  # so that an attempt to train the model fails

    def _gates(self, layer: int, x: Tensor, hidden: Tensor) -> Tensor:
        """Pre-activations [R, 4 width] of one step."""
        if self._products is not None:
            return self._products[0][layer](torch.cat([x, hidden], -1))
        inputs, recurrent = unpacked(self.lstm)[layer]
        return inputs(x) + recurrent(hidden)


@hookimpl
def sgdec_models() -> dict[str, type[Model]]:
    """The recurrent language model."""
    return {"rnnlm": RNNLM}
