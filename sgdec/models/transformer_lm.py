"""The Transformer as a language model: the decoder of Vaswani et al. 2017 without its attention to a source
(Marian, Junczys-Dowmunt et al. 2018, section 3.3).

Training computes all steps at once. A step attends to the keys and values of the positions before it, which are
stored in the state. `transformer_layers.py` has the equations. The parameters have the same names as those of a
Transformer's decoder, which additionally has the attention to the source.

Cost of a step per row with t tokens before it, in multiplications per layer: 4 d^2 for the products of the attention,
2 d feed-forward, 2 t d for self-attention. The softmax costs d V.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from sgdec import hookimpl
from sgdec.models.base import LanguageModel, Model, ModelContext, State
from sgdec.models.kernels import Kernels
from sgdec.models.layers import Dense, pack_layers
from sgdec.models.transformer_layers import PRESETS, Layer, LayerInputs, Norm, Shape, causal, final_norm, seen


class TransformerLM(LanguageModel):
    """A stack of attention and feed-forward layers.

    >>> model = TransformerLM(ModelContext(source_vocab_size=0, target_vocab_size=30), width=16, layers=2)
    >>> model.project(model(torch.tensor([[1, 9, 4]]))).shape
    torch.Size([1, 3, 30])
    """

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = PRESETS

    def __init__(
        self,
        context: ModelContext,
        *,
        layers: Annotated[int, Field(ge=1, description="attention and feed-forward layers")] = 6,
        width: Annotated[int, Field(ge=2, description="size of embeddings and of all layers: d")] = 512,
        heads: Annotated[int, Field(ge=1, description="heads of each attention; they divide the width")] = 8,
        feed_forward: Annotated[int, Field(ge=1, description="hidden units of the feed-forward layers")] = 2048,
        norm: Annotated[Norm, Field(description="layer normalisation after each sublayer, or before it")] = "post",
        dropout: Annotated[float, Field(ge=0, lt=1, description="dropout of sublayers and embeddings")] = 0.1,
        attention_dropout: Annotated[float, Field(ge=0, lt=1, description="dropout of attention weights")] = 0.0,
        feed_forward_dropout: Annotated[
            float, Field(ge=0, lt=1, description="dropout inside the feed-forward layers")
        ] = 0.0,
        tied: Annotated[bool, Field(description="softmax weights = embeddings")] = False,
    ) -> None:
        super().__init__()
        shape = Shape(width, heads, feed_forward, norm, dropout, attention_dropout, feed_forward_dropout)
        self.histories, self.width = layers, width
        self.target_embedding = nn.Embedding(context.target_vocab_size, width)
        nn.init.normal_(self.target_embedding.weight, std=width**-0.5)
        self.inputs = LayerInputs(width, shape)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(layers))
        self.norm = final_norm(shape)
        self.softmax = Dense(width, context.target_vocab_size)
        if tied:
            self.softmax.weight = self.target_embedding.weight

    def start(self, rows: int) -> State:
        """The number of tokens of each prefix [rows], all 0, and empty keys and values per layer [rows, 0, 2 d]."""
        empty = self.target_embedding.weight.new_zeros(rows, 0, 2 * self.width)
        return (torch.zeros(rows, dtype=torch.long, device=empty.device), *[empty] * self.histories)

    def step(self, state: State, tokens: Tensor) -> tuple[State, Tensor]:
        """Consume ``tokens`` [R]; returns the new state and the output [R, d]."""
        lengths, *histories = state
        x, histories = self._run(histories, lengths, seen(lengths, histories[0]), tokens[:, None])
        return (lengths + 1, *histories), x[:, 0]

    def forward(self, target_in: Tensor) -> Tensor:
        """The outputs [B, T, d] of all steps at once; equal to the loop over `step`."""
        lengths, *_ = self.start(len(target_in))
        return self._run([None] * self.histories, lengths, causal(target_in), target_in)[0]

    def project(self, output: Tensor) -> Tensor:
        logits: Tensor = self.softmax(output)
        return logits

    def output_layer(self) -> tuple[nn.Linear, float | None]:
        """The output layer; logits are not clipped."""
        return self.softmax, None

    def freeze(self, kernels: Kernels) -> None:
        """Pack all layers that can be packed."""
        pack_layers(self, kernels)

    def _run(
        self, histories: Sequence[Tensor | None], first: Tensor, mask: Tensor, tokens: Tensor
    ) -> tuple[Tensor, list[Tensor]]:
        """The outputs [N, T, d] and the longer histories, for T more tokens [N, T] from position ``first`` [N] on."""
        x, longer = self.inputs(self.target_embedding(tokens), first), []
        for layer, before in zip(self.layers, histories, strict=True):
            x, history = layer(x, before, mask)
            longer.append(history)
        return self.norm(x), longer


@hookimpl
def sgdec_models() -> dict[str, type[Model]]:
    return {"transformer-lm": TransformerLM}
