"""Two encoders and a decoder that attends to both: Marian (Junczys-Dowmunt et al. 2018), sections 2.2 and 3.2.

    P(target | first source, second source), such as post-editing: the source text and its machine translation

This is the dual soft attention of Junczys-Dowmunt and Grundkiewicz 2017 ("An Exploration of Neural
Sequence-to-Sequence Architectures for Automatic Post-Editing"), after the two encoders of Zoph and Knight 2016. The
decoder's cell is that of `shallow`, with two attentions between its two GRU blocks, whose contexts are concatenated:

    s_1 = block_1(y_{t-1}, s of step t-1)    c = [attention_1(s_1); attention_2(s_1)]    s = block_2(c, s_1)
    output = tanh(R [s; y_{t-1}; c])         s of step 0 = tanh(I [mean of encoder 1; mean of encoder 2])

Both sources are one sequence of tokens: the first source, ``</s>``, the second source. The first encoder reads up to
and including ``</s>``, the second encoder reads the rest. So a sentence has one memory [S1 + 1 + S2, H], as in other
models, and each attention sees its own part of it. The attention that `step` returns is the mean of both, and the
length limit of a search counts the tokens of both sources.

Cost of a step per row, in multiplications: 3 width (embedding + 6 width) for the blocks, 2 S x attention for scores,
embedding x V for the softmax.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn

from sgdec import hookimpl
from sgdec.context import EOS
from sgdec.errors import SgdecError
from sgdec.models.attention import AdditiveAttention
from sgdec.models.base import Memory, Model, ModelContext
from sgdec.models.encoder_decoder import (
    Encoded,
    EncoderDecoder,
    SourceDropout,
    TargetDropout,
    Tied,
)
from sgdec.models.gru import GRUDecoder, GRUEncoder


class SourcePart(NamedTuple):
    """One of two sources, as a separate batch."""

    tokens: Tensor
    """[B, S_k]"""
    mask: Tensor
    """[B, S_k] true at tokens, false at the padding after them"""


class Cut(NamedTuple):
    """Both sources of each sentence, separated."""

    first: SourcePart
    second: SourcePart
    mask: Tensor
    """[B, S] true at tokens of the whole sequence"""
    in_second: Tensor
    """[B, S] true at tokens of the second source"""
    place: Tensor
    """[B, S] the position of the token in the concatenation of both parts, [B, S_1 + S_2]"""

    def join(self, first: Tensor, second: Tensor) -> Tensor:
        """The values of both parts, [B, S_1, H] and [B, S_2, H], in the order of the sequence: [B, S, H]."""
        both = torch.cat([first, second], 1)
        return both.gather(1, self.place[..., None].expand(-1, -1, both.size(-1)))


def cut(source: Tensor, lengths: Tensor) -> Cut:
    """Cut sources [B, S] with ``lengths`` [B] after their first ``</s>``, which belongs to the first part.

    Raises SgdecError if a source has no ``</s>``, or no tokens before or after it.

    >>> cut(torch.tensor([[5, 6, 2, 7], [8, 2, 9, 2]]), torch.tensor([4, 3])).second.tokens.tolist()
    [[7], [9]]
    """
    lengths = lengths.to(source.device)
    positions = torch.arange(source.size(1), device=source.device)
    ends = (source == EOS).int().argmax(1)  # [B] the position of the first </s>
    found = source.gather(1, ends[:, None])[:, 0] == EOS
    if not bool((found & (ends > 0) & (ends < lengths - 1)).all()):
        raise SgdecError(
            "expected two sources as one sequence of tokens with </s> (2) between them, but one source is missing. "
            "In text the sources are separated by a tab."
        )
    mask = positions < lengths[:, None]
    longest = int(ends.max()) + 1
    first = SourcePart(source[:, :longest], positions[:longest] <= ends[:, None])
    shifted = (ends + 1)[:, None] + positions[: int((lengths - ends).max()) - 1]  # [B, S_2] positions in the sequence
    second = SourcePart(source.gather(1, shifted.clamp(max=source.size(1) - 1)), shifted < lengths[:, None])
    in_second = mask & (positions > ends[:, None])
    place = torch.where(in_second, positions - (ends + 1)[:, None] + longest, positions)
    return Cut(first, second, mask, in_second, place.clamp(max=longest + second.mask.size(1) - 1))


class DualGRUDecoder(GRUDecoder):
    """A conditional GRU with an attention for each of two sources. State: s [R, width]."""

    def __init__(
        self,
        embedding: int,
        values: int,
        width: int,
        *,
        inputs: int,
        attention: int | None = None,
        norm: bool = False,
        dropout: float = 0.0,
    ) -> None:
        """``values``: H of both encoders; ``attention``: hidden units of each attention, ``width`` by default.

        ``inputs``: the size of a step's input.
        """
        first, second = (AdditiveAttention(width, values, attention or width, norm=norm) for _ in range(2))
        super().__init__(embedding, 2 * values, width, inputs=inputs, attention=first, norm=norm, dropout=dropout)
        self.second_attention = second

    def remember(self, encoded: Encoded) -> Memory:
        """As `Decoder.remember`; the last number of a key is 1 for tokens of the second source, 0 for the first."""
        values, mask, in_second = encoded.values, encoded.mask, encoded.second
        assert in_second is not None
        means = [encoded._replace(mask=part).mean() for part in (mask & ~in_second, in_second)]
        keys = torch.where(in_second[..., None], self.second_attention.keys(values), self.attention.keys(values))
        marks = in_second[..., None].to(keys.dtype)
        return Memory(values, torch.cat([keys, marks], -1), mask, torch.tanh(self.initial(torch.cat(means, -1))))

    def attend(self, query: Tensor, memory: Memory) -> tuple[Tensor, Tensor]:
        """Both contexts, concatenated [R, 2 H], and the mean of both attentions' weights [R, S]."""
        in_second = of_second(memory)
        memory = memory._replace(keys=memory.keys[..., :-1])
        first, over_first = self.attention.once(query, memory._replace(mask=memory.mask & ~in_second))
        second, over_second = self.second_attention.once(query, memory._replace(mask=memory.mask & in_second))
        return torch.cat([first, second], -1), (over_first + over_second) / 2


def of_second(memory: Memory) -> Tensor:
    """[B, S] true at tokens of the second source, which `DualGRUDecoder.remember` marks in the keys."""
    return memory.keys[..., -1] > 0.5


class MultiSource(EncoderDecoder):
    """A model with two encoders, whose decoder attends to both sources.

    >>> model = MultiSource(ModelContext(source_vocab_size=20, target_vocab_size=30), width=8, embedding=6)
    >>> source, lengths = torch.tensor([[5, 6, 7, EOS, 8, 9]]), torch.tensor([6])
    >>> model.project(model(source, lengths, torch.tensor([[1, 9]]))).shape
    torch.Size([1, 2, 30])
    """

    sources: ClassVar[int] = 2

    def __init__(
        self,
        context: ModelContext,
        *,
        width: Annotated[int, Field(ge=1, description="GRU units of a block (of each direction)")] = 512,
        embedding: Annotated[int, Field(ge=1, description="size of embeddings and of the output")] = 512,
        attention: Annotated[
            int | None, Field(ge=1, description="hidden units of each attention; width by default")
        ] = None,
        layer_norm: Annotated[bool, Field(description="normalise inside blocks and attentions")] = False,
        dropout: Annotated[
            float, Field(ge=0, lt=1, description="variational dropout inside blocks and attentions")
        ] = 0.0,
        source_dropout: SourceDropout = 0.0,
        target_dropout: TargetDropout = 0.0,
        tied: Tied = "none",
        own_embeddings: Annotated[
            bool, Field(description="the second source has its own embeddings, which are not tied")
        ] = False,
    ) -> None:
        readers = [GRUEncoder(embedding, width, norm=layer_norm, dropout=dropout) for _ in range(2)]
        values = readers[0].width
        inputs = embedding + (values if self.steps else 0)  # with steps, also the attended state
        super().__init__(
            context,
            readers[0],
            DualGRUDecoder(
                embedding, values, width, inputs=inputs, attention=attention, norm=layer_norm, dropout=dropout
            ),
            embedding=embedding,
            tied=tied,
            source_dropout=source_dropout,
            target_dropout=target_dropout,
        )
        self.second_encoder = readers[1]
        self.second_embedding = nn.Embedding(context.source_vocab_size, embedding) if own_embeddings else None
        if self.second_embedding is not None:
            nn.init.normal_(self.second_embedding.weight, std=embedding**-0.5)

    def encode(self, source: Tensor, lengths: Tensor) -> Memory:
        """Encode both sources of each sentence. Raises SgdecError as `cut` does."""
        parts = cut(source, lengths)
        table = self.source_embedding if self.second_embedding is None else self.second_embedding
        first = self.encoder(self.source_words(self.source_embedding(parts.first.tokens)), parts.first.mask)
        second = self.second_encoder(self.source_words(table(parts.second.tokens)), parts.second.mask)
        values = parts.join(first.values, second.values)
        return self.decoder.remember(Encoded(values, parts.mask, second=parts.in_second))


@hookimpl
def sgdec_models() -> dict[str, type[Model]]:
    return {"multi-source": MultiSource}
