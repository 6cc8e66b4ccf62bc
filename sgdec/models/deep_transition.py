"""Deep transition GRUs with attention: Marian (Junczys-Dowmunt et al. 2018), section 3.1.1, after "The University of
Edinburgh's Neural MT Systems for WMT17" (Sennrich et al. 2017).

Encoder (in both directions) and decoder have one recurrent layer each, whose cell is a chain of GRU blocks: 4 in the
encoder, 8 in the decoder. The attention is between the first and the second block of the decoder. `gru.py` has the
equations. Layer normalisation and variational dropout of 0.1 act inside blocks and attention.

A step needs the previous one, including its attention, so training also proceeds step by step. The computations that
do not depend on the previous step, the products with embeddings and the whole output, are done for all steps at once.

Cost of a step per row, in multiplications: 3 width^2 per block, 3 embedding x width and 6 width^2 for the two blocks
with inputs, S x attention for scores, embedding x V for the softmax.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import Field

from sgdec import hookimpl
from sgdec.models.base import Correspondence, Model, ModelContext
from sgdec.models.encoder_decoder import Encoder, EncoderDecoder, SourceDropout, TargetDropout, Tied
from sgdec.models.encoders import EncoderKind, make_encoder
from sgdec.models.gru import GRUDecoder, GRUEncoder


class DeepTransition(EncoderDecoder):
    """An encoder-decoder with one recurrent layer each, whose cells are chains of GRU blocks.

    >>> import torch
    >>> model = DeepTransition(ModelContext(source_vocab_size=20, target_vocab_size=30), width=8, embedding=6)
    >>> source, lengths = torch.tensor([[5, 6, 7]]), torch.tensor([3])
    >>> model.project(model(source, lengths, torch.tensor([[1, 9]]))).shape
    torch.Size([1, 2, 30])
    """

    language_models: ClassVar[Mapping[str, Correspondence]] = {
        "grulm": Correspondence(
            {
                r"(target_embedding|softmax)\..+": r"\g<0>",
                r"(first|second|transitions|readout)\..+": r"decoder.\g<0>",
            },
            wider=r"decoder\.readout\.0\.weight",
        )
    }

    def __init__(
        self,
        context: ModelContext,
        *,
        encoder_depth: Annotated[int, Field(ge=1, description="blocks of the encoder's cells")] = 4,
        decoder_depth: Annotated[int, Field(ge=2, description="blocks of the decoder's cell")] = 8,
        width: Annotated[int, Field(ge=1, description="GRU units of a block (of each direction)")] = 1024,
        embedding: Annotated[int, Field(ge=1, description="size of embeddings and of the output")] = 512,
        attention: Annotated[
            int | None, Field(ge=1, description="attention's hidden units; width by default")
        ] = None,
        layer_norm: Annotated[bool, Field(description="normalise inside blocks and attention")] = True,
        dropout: Annotated[
            float, Field(ge=0, lt=1, description="variational dropout inside blocks and attention")
        ] = 0.1,
        source_dropout: SourceDropout = 0.0,
        target_dropout: TargetDropout = 0.0,
        tied: Tied = "none",
        encoder: Annotated[EncoderKind, Field(description="kind of encoder")] = "gru",
    ) -> None:
        if encoder == "gru":
            reader: Encoder = GRUEncoder(embedding, width, blocks=encoder_depth, norm=layer_norm, dropout=dropout)
        else:
            reader = make_encoder(
                encoder, embedding=embedding, width=width, layers=encoder_depth, dropout=dropout
            )
        super().__init__(
            context,
            reader,
            GRUDecoder(
                embedding, reader.width, width,
                blocks=decoder_depth, attention=attention, norm=layer_norm, dropout=dropout,
            ),
            embedding=embedding,
            tied=tied,
            source_dropout=source_dropout,
            target_dropout=target_dropout,
        )  # fmt: skip


@hookimpl
def sgdec_models() -> dict[str, type[Model]]:
    return {"deep-transition": DeepTransition}
