"""The feed-forward n-gram language model of Vaswani et al. 2013, "Decoding with Large-Scale Neural Language Models
Improves Translation", section 2.

The next token depends only on the n - 1 tokens before it. Their embeddings are concatenated and passed through one or
two hidden layers with a rectifier phi(x) = max(0, x). The result is multiplied with each token's output embedding:

    h1 = phi(sum_j C_j D u_j + c1)    h2 = phi(M h1 + c2)    P(next token) = softmax(D' h2 + b)

u_j is the j-th token of the context as a one-hot vector; D and D' are the input and output embeddings. The biases c
are not in the paper, but in the model files of its software. A sentence is preceded by n - 1 times ``<s>``. The paper
trains by noise-contrastive estimation, because its vocabularies are large, and does not normalise afterwards. Here
the softmax is over the whole vocabulary, in training and in inference, so scores are log-probabilities. Dropout,
which the paper does not use, acts on the embeddings and on h1 and h2.

Cost of a step per row, in multiplications: (n - 1) embedding x hidden + hidden x output, and output x V for the
softmax. The only state is the last n - 1 tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Annotated, cast

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from sgdec import BOS, hookimpl
from sgdec.files import Activation, NplmFile
from sgdec.models.base import LanguageModel, Model, ModelContext, State
from sgdec.models.kernels import Kernels, Product

PHI: dict[Activation, Callable[[Tensor], Tensor]] = {
    "rectifier": torch.relu,
    "tanh": torch.tanh,
    "hardtanh": F.hardtanh,
    "identity": lambda x: x,
}


class NPLM(LanguageModel):
    """A feed-forward n-gram model over a window of n - 1 tokens.

    >>> context = ModelContext(source_vocab_size=0, target_vocab_size=30)
    >>> model = NPLM(context, order=3, embedding=4, hidden=5, output=4)
    >>> model.project(model(torch.tensor([[1, 9, 4]]))).shape
    torch.Size([1, 3, 30])
    """

    def __init__(
        self,
        context: ModelContext,
        *,
        order: Annotated[int, Field(ge=2, description="n: the next token depends on the n - 1 before it")] = 5,
        embedding: Annotated[int, Field(ge=1, description="size of input embeddings")] = 150,
        hidden: Annotated[int, Field(ge=0, description="units of h1; 0 = h2 is the only hidden layer")] = 750,
        output: Annotated[int, Field(ge=1, description="units of h2 = size of output embeddings")] = 150,
        activation: Annotated[Activation, Field(description="phi")] = "rectifier",
        dropout: Annotated[float, Field(ge=0, lt=1, description="dropout of embeddings and hidden layers")] = 0.0,
        init: Annotated[float, Field(gt=0, description="initial parameters are uniform in [-init, init]")] = 0.05,
    ) -> None:
        super().__init__()
        self.order = order
        self.embedding = nn.Embedding(context.target_vocab_size, embedding)
        sizes = [(order - 1) * embedding, *([hidden] if hidden else []), output]
        self.hidden = nn.ModuleList(nn.Linear(below, above) for below, above in pairwise(sizes))
        self.softmax = nn.Linear(output, context.target_vocab_size)
        self.dropout = nn.Dropout(dropout)
        self._phi = PHI[activation]
        self._frozen: list[Product] = []
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -init, init)

    @classmethod
    @torch.no_grad()
    def of_file(cls, file: NplmFile, words: Sequence[int]) -> NPLM:
        """The model of a file, in float64.

        ``words`` [V]: for each token the index of its word among the file's input words. `project` scores the file's
        output words, in their order.
        """
        lower, *upper = file.hidden
        model = cls(
            ModelContext(source_vocab_size=0, target_vocab_size=len(file.output_words)),
            order=file.order,
            embedding=file.input_embeddings.shape[1],
            hidden=len(lower.biases) if upper else 0,
            output=file.output_weights.shape[1],
            activation=file.activation,
        ).double()
        model.embedding = nn.Embedding(len(words), file.input_embeddings.shape[1]).double()
        model.embedding.weight.copy_(torch.from_numpy(file.input_embeddings[list(words)]))
        given = [*file.hidden, (file.output_weights, file.output_biases)]
        for layer, (weights, biases) in zip((*model.hidden, model.softmax), given, strict=True):
            cast(nn.Linear, layer).weight.copy_(torch.from_numpy(weights))
            cast(nn.Linear, layer).bias.copy_(torch.from_numpy(biases))
        return model

    def start(self, rows: int) -> State:
        """The window [rows, n - 1] that is filled with ``<s>``."""
        return (torch.full((rows, self.order - 1), BOS, device=self.embedding.weight.device),)

    def step(self, state: State, tokens: Tensor) -> tuple[State, Tensor]:
        """Consume ``tokens`` [R]; returns the next window and the output [R, H]."""
        window = torch.cat([state[0][:, 1:], tokens[:, None]], 1)
        return (window,), self.output(window)

    def forward(self, target_in: Tensor) -> Tensor:
        """The outputs [B, T, H]; equal to the loop over `step`."""
        padded = F.pad(target_in, (self.order - 2, 0), value=BOS)  # [B, n - 2 + T]
        return self.output(padded.unfold(1, self.order - 1, 1))

    def output(self, windows: Tensor) -> Tensor:
        """h2 [..., H] of windows [..., n - 1], the oldest token first."""
        x: Tensor = self.dropout(self.embedding(windows).flatten(-2))
        for layer in self._products[:-1]:
            x = self.dropout(self._phi(layer(x)))
        return x

    def project(self, output: Tensor) -> Tensor:
        """The logits [..., V]."""
        return self._products[-1](output)

    def output_layer(self) -> tuple[nn.Linear, float | None]:
        """The output embeddings and b; logits are not clipped."""
        return self.softmax, None

    def embedding_layer(self, side: str) -> nn.Embedding:
        """The input embeddings, as those of the target."""
        return self.embedding if side == "target" else super().embedding_layer(side)

    @torch.no_grad()
    def freeze(self, kernels: Kernels) -> None:
        """Pack all layers except the embeddings."""
        layers = (*self.hidden, self.softmax)
        self._frozen = [
            kernels.linear(cast(nn.Linear, layer).weight, cast(nn.Linear, layer).bias) for layer in layers
        ]
        self.requires_grad_(False)  # so that an attempt to train the model fails

    @property
    def _products(self) -> list[Product]:
        """The products of the hidden layers, then that of the softmax."""
        return self._frozen or [*self.hidden, self.softmax]


@hookimpl
def sgdec_models() -> dict[str, type[Model]]:
    """The feed-forward language model."""
    return {"nplm": NPLM}
