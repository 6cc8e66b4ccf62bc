"""The interface between encoders and decoders: every encoder works with every decoder (Marian, section 2.2).

    source tokens -> embeddings [B, S, E] -> Encoder -> Encoded [B, S, H] -> Decoder.remember -> Memory
    target token  -> embedding [R, E] -> Decoder.step -> output [R, width] -> output layer -> logits [R, V]

In `remember`, a decoder computes once what it needs from the source in all steps of a sentence, such as the keys of
its attention. The other parts of a model are here: embeddings and output layer, tied or not, dropout of whole words,
and the fast products of a frozen model. A new model is a decoder with one inference step:

    class Mine(EncoderDecoder):
        def __init__(self, context: ModelContext, *, width: int = 256) -> None:
            encoder = GRUEncoder(width, width)
            super().__init__(context, encoder, MyDecoder(width, encoder.width), embedding=width)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple, TypeAlias

import torch
from pydantic import Field
from torch import Tensor, nn

from sgdec.errors import UsageError
from sgdec.models.base import Memory, ModelContext, Seq2Seq, SharedEntries, State
from sgdec.models.kernels import Kernels
from sgdec.models.layers import Dense, WordDropout, pack_layers

Tied: TypeAlias = Annotated[
    Literal["none", "source", "target", "all"],
    Field(description="one matrix for both embeddings (source), target embeddings and output (target), or all"),
]
SourceDropout: TypeAlias = Annotated[float, Field(ge=0, lt=1, description="dropout of whole source words")]
TargetDropout: TypeAlias = Annotated[float, Field(ge=0, lt=1, description="dropout of whole target words")]


class Encoded(NamedTuple):
    """The output of an encoder."""

    values: Tensor
    """[B, S, H] one vector per source token; at padding the numbers are arbitrary but finite."""
    mask: Tensor
    """[B, S] true at source tokens."""
    last: Tensor | None = None
    """[B, layers, 2, width] the last m and c of each layer of an LSTM stack, bottom first."""
    second: Tensor | None = None
    """[B, S] true at the tokens of the second of two sources."""

    def mean(self) -> Tensor:
        """[B, H] the mean of the values at source tokens."""
        weights = self.mask / self.mask.sum(1, keepdim=True)  # [B, S]
        return (weights.to(self.values.dtype)[:, None] @ self.values)[:, 0]


class Encoder(nn.Module, ABC):
    """Reads whole sources."""

    width: int
    """H, the width of the encoder's outputs."""

    @abstractmethod
    def forward(self, embedded: Tensor, mask: Tensor) -> Encoded:
        """Encode embeddings [B, S, E]; ``mask`` [B, S] is true at source tokens, false at the padding after them."""


class Decoder(nn.Module, ABC):
    """Predicts one target token after the other."""

    width: int
    """The width of the decoder's outputs."""
    histories: int = 0
    history_heads: int = 0
    """As in `Seq2Seq`."""

    @abstractmethod
    def remember(self, encoded: Encoded) -> Memory:
        """The data of the sources that `start` and `step` need."""

    @abstractmethod
    def start(self, memory: Memory) -> State:
        """As `Seq2Seq.start`."""

    @abstractmethod
    def step(self, memory: Memory, state: State, embedded: Tensor) -> tuple[State, Tensor, Tensor]:
        """As `Seq2Seq.step`, for embeddings [R, E] of the tokens."""

    def prepare(self, memory: Memory) -> Memory:
        """As `Seq2Seq.prepare`."""
        return memory

    def step_sharing(
        self, memory: Memory, state: State, histories: Sequence[SharedEntries], embedded: Tensor
    ) -> tuple[State, Tensor, Tensor]:
        """As `Seq2Seq.step_sharing`, for embeddings [R, E] of the tokens."""
        raise NotImplementedError

    def forward(self, memory: Memory, embedded: Tensor) -> Tensor:
        """The outputs [B, T, width] for embeddings [B, T, E]; by default the loop over `step`."""
        state, outputs = self.start(memory), []
        for step in embedded.unbind(1):
            state, output, _ = self.step(memory, state, step)
            outputs.append(output)
        return torch.stack(outputs, 1)


class EncoderDecoder(Seq2Seq):
    """A model that consists of an encoder and a decoder."""

    def __init__(
        self,
        context: ModelContext,
        encoder: Encoder,
        decoder: Decoder,
        *,
        embedding: int,
        tied: Tied = "none",
        source_dropout: SourceDropout = 0.0,
        target_dropout: TargetDropout = 0.0,
    ) -> None:
        """``embedding``: E of both sides. Raises UsageError if the matrices cannot be tied."""
        super().__init__()
        self.encoder, self.decoder = encoder, decoder
        self.histories, self.history_heads = decoder.histories, decoder.history_heads
        self.source_embedding = nn.Embedding(context.source_vocab_size, embedding)
        self.target_embedding = nn.Embedding(context.target_vocab_size, embedding)
        for table in (self.source_embedding, self.target_embedding):
            nn.init.normal_(table.weight, std=embedding**-0.5)
        self.source_words, self.target_words = WordDropout(source_dropout), WordDropout(target_dropout)
        self.softmax = Dense(decoder.width, context.target_vocab_size)
        self._tie(tied, context)

    def encode(self, source: Tensor, lengths: Tensor) -> Memory:
        positions = torch.arange(source.size(1), device=source.device)
        mask = positions < lengths.to(source.device)[:, None]  # [B, S]
        embedded = self.source_words(self.source_embedding(source))
        return self.decoder.remember(self.encoder(embedded, mask))

    def start(self, memory: Memory) -> State:
        return self.decoder.start(memory)

    def step(self, memory: Memory, state: State, tokens: Tensor) -> tuple[State, Tensor, Tensor]:
        return self.decoder.step(memory, state, self.target_words(self.target_embedding(tokens)))

    def prepare(self, memory: Memory) -> Memory:
        return self.decoder.prepare(memory)

    def step_sharing(
        self, memory: Memory, state: State, histories: Sequence[SharedEntries], tokens: Tensor
    ) -> tuple[State, Tensor, Tensor]:
        return self.decoder.step_sharing(memory, state, histories, self.target_words(self.target_embedding(tokens)))

    def forward(self, source: Tensor, lengths: Tensor, target_in: Tensor) -> Tensor:
        memory = self.encode(source, lengths)
        outputs: Tensor = self.decoder(memory, self.target_words(self.target_embedding(target_in)))
        return outputs

    def project(self, output: Tensor) -> Tensor:
        logits: Tensor = self.softmax(output)
        return logits

    def output_layer(self) -> tuple[nn.Linear, float | None]:
        """The output layer; logits are not clipped."""
        return self.softmax, None

    def freeze(self, kernels: Kernels) -> None:
        """Pack all layers that can be packed."""
        pack_layers(self, kernels)

    def _tie(self, tied: str, context: ModelContext) -> None:
        """Let several matrices [V, E] be one parameter (Press and Wolf 2017)."""
        target = self.target_embedding.weight
        if tied in ("source", "all"):
            if not context.shared:
                steps = ", but this model's target has a token more, for steps" if self.steps else ""
                raise UsageError(
                    f"tied={tied} needs one vocabulary for source and target{steps}. Use tied=target or none."
                )
            self.source_embedding.weight = target
        if tied in ("target", "all"):
            if self.softmax.in_features != target.size(1):
                raise UsageError(
                    f"tied={tied} needs embeddings as wide as the input of the output layer: {target.size(1)} is not "
                    f"{self.softmax.in_features}. Give equal sizes, or tied=none."
                )
            self.softmax.weight = target
