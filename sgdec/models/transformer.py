"""The Transformer: Vaswani et al. 2017, "Attention Is All You Need"; "base" as in Marian, section 3.1.2.

Encoder and decoder are stacks of attention and feed-forward sublayers (`transformer_layers.py` has the equations).
Training takes all target steps at once; a step of decoding computes its own position alone and looks back at the keys
and values of those before it, which the state keeps.

`attention`, which coverage and copying use, is the mean over the heads of the last layer's attention to the source.

Base: 6 layers, width 512, 8 heads, feed-forward 2048, normalised after each sublayer, dropout 0.1. It is trained with
a rate that rises first (--warmup; 16,000 updates in Marian's recipe), which matters less with ``norm`` pre. ``small``
is meant for corpora of some ten thousand sentences.

Cost of a step per row with t tokens before it, in multiplications and a layer: 6 d^2 for the products of its two
attentions, 2 d feed-forward, 2 t d and 2 S d to look back and at the source; d V for the softmax.
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
        encoder_layers: Annotated[int | None, Field(ge=1, description="if other than layers")] = None,
        decoder_layers: Annotated[int | None, Field(ge=1, description="if other than layers")] = None,
        width: Annotated[int, Field(ge=2, description="size of embeddings and of all layers: d")] = 512,
        heads: Annotated[int, Field(ge=1, description="of each attention; they share the width")] = 8,
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
        encoder: Annotated[EncoderKind, Field(description="what reads the source")] = "transformer",
    ) -> None:
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
