"""The Transformer: Vaswani et al. 2017, "Attention Is All You Need"; "base" as in Marian, section 3.1.2.

Encoder and decoder are stacks of attention and feed-forward sublayers (`transformer_layers.py` has the equations).
Training computes all target steps at once. A step of decoding computes only its own position; it attends to the keys
and values of the positions before it, which are stored in the state.

The attention that `step` returns, which coverage and copying use, is the mean over the heads of the last layer's
attention to the source.

The preset ``base`` has 6 layers, width 512, 8 heads, feed-forward layers of 2048 units, normalisation after each
sublayer, and dropout 0.1. Train it with a learning rate that rises first (--warmup; 16,000 updates in the recipe
marian-transformer); this matters less with ``norm`` pre. The preset ``small`` is meant for corpora of some ten
thousand sentences.

Cost of a step per row with t tokens before it, in multiplications per layer: 6 d^2 for the products of both
attentions, 2 d feed-forward, 2 t d for self-attention, 2 S d for attention to the source. The softmax costs d V.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field

from sgdec import hookimpl
from sgdec.models.base import Correspondence, Model, ModelContext
from sgdec.models.encoder_decoder import Encoder, EncoderDecoder, SourceDropout, TargetDropout, Tied
from sgdec.models.encoders import EncoderKind, make_encoder
from sgdec.models.transformer_layers import PRESETS, Norm, Shape, TransformerDecoder, TransformerEncoder


class Transformer(EncoderDecoder):
    """The Transformer.

    >>> import torch
    >>> model = Transformer(ModelContext(source_vocab_size=20, target_vocab_size=30), width=16, layers=2)
    >>> source, lengths = torch.tensor([[5, 6, 7]]), torch.tensor([3])
    >>> model.project(model(source, lengths, torch.tensor([[1, 9]]))).shape
    torch.Size([1, 2, 30])
    """

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = PRESETS
    language_models: ClassVar[Mapping[str, Correspondence]] = {
        "transformer-lm": Correspondence(
            {r"(target_embedding|softmax)\..+": r"\g<0>", r"(inputs|layers|norm)\..+": r"decoder.\g<0>"}
        )
    }

    def __init__(
        self,
        context: ModelContext,
        *,
        layers: Annotated[int, Field(ge=1, description="layers of encoder and decoder each")] = 6,
        encoder_layers: Annotated[int | None, Field(ge=1, description="encoder layers; default: layers")] = None,
        decoder_layers: Annotated[int | None, Field(ge=1, description="decoder layers; default: layers")] = None,
        width: Annotated[int, Field(ge=2, description="size of embeddings and of all layers: d")] = 512,
        heads: Annotated[int, Field(ge=1, description="heads of each attention; they divide the width")] = 8,
        feed_forward: Annotated[int, Field(ge=1, description="hidden units of the feed-forward layers")] = 2048,
        norm: Annotated[Norm, Field(description="layer normalisation after each sublayer, or before it")] = "post",
        dropout: Annotated[float, Field(ge=0, lt=1, description="dropout of sublayers and embeddings")] = 0.1,
        attention_dropout: Annotated[float, Field(ge=0, lt=1, description="dropout of attention weights")] = 0.0,
        feed_forward_dropout: Annotated[
            float, Field(ge=0, lt=1, description="dropout inside the feed-forward layers")
        ] = 0.0,
        source_dropout: SourceDropout = 0.0,
        target_dropout: TargetDropout = 0.0,
        tied: Tied = "none",
        encoder: Annotated[EncoderKind, Field(description="kind of encoder")] = "transformer",
    ) -> None:
        self.int8_by_row = encoder == "transformer"
        shape = Shape(width, heads, feed_forward, norm, dropout, attention_dropout, feed_forward_dropout)
        reading = encoder_layers or layers
        if encoder == "transformer":
            reader: Encoder = TransformerEncoder(width, reading, shape)
        else:
            reader = make_encoder(encoder, embedding=width, width=width, layers=reading, dropout=dropout)
        super().__init__(
            context,
            reader,
            TransformerDecoder(width, reader.width, decoder_layers or layers, shape),
            embedding=width,
            tied=tied,
            source_dropout=source_dropout,
            target_dropout=target_dropout,
        )


@hookimpl
def sgdec_models() -> dict[str, type[Model]]:
    return {"transformer": Transformer}
