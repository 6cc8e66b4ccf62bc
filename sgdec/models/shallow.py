"""The shallow model of Marian (Junczys-Dowmunt et al. 2018), sections 3.1.3 and 3.1.4: attention between GRU blocks.

The encoder is a bi-directional GRU of one block. The decoder's cell has two blocks, with the attention between them
(Bahdanau, Cho and Bengio 2015, as in Nematus: Sennrich et al. 2017b). This is `deep-transition` with the smallest
number of blocks, by default without layer normalisation and dropout. `gru.py` has the equations.

Cost of a step per row, in multiplications: 3 width (embedding + 4 width) for the blocks, S x attention for scores,
embedding x V for the softmax.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sgdec import hookimpl
from sgdec.models.base import Model, ModelContext
from sgdec.models.deep_transition import DeepTransition
from sgdec.models.encoder_decoder import SourceDropout, TargetDropout, Tied
from sgdec.models.encoders import EncoderKind


class Shallow(DeepTransition):
    """A GRU encoder-decoder with one block in the encoder's cells and two blocks in the decoder's cell.

    >>> model = Shallow(ModelContext(source_vocab_size=20, target_vocab_size=30), width=8, embedding=6)
    >>> len(model.decoder.transitions)
    0
    """

    def __init__(
        self,
        context: ModelContext,
        *,
        width: Annotated[int, Field(ge=1, description="GRU units of a block (of each direction)")] = 1024,
        embedding: Annotated[int, Field(ge=1, description="size of embeddings and of the output")] = 512,
        attention: Annotated[
            int | None, Field(ge=1, description="attention's hidden units; width by default")
        ] = None,
        layer_norm: Annotated[bool, Field(description="normalise inside blocks and attention")] = False,
        dropout: Annotated[
            float, Field(ge=0, lt=1, description="variational dropout inside blocks and attention")
        ] = 0.0,
        source_dropout: SourceDropout = 0.0,
        target_dropout: TargetDropout = 0.0,
        tied: Tied = "none",
        encoder: Annotated[EncoderKind, Field(description="kind of encoder")] = "gru",
    ) -> None:
        super().__init__(
            context,
            encoder_depth=1,
            decoder_depth=2,
            width=width,
            embedding=embedding,
            attention=attention,
            layer_norm=layer_norm,
            dropout=dropout,
            source_dropout=source_dropout,
            target_dropout=target_dropout,
            tied=tied,
            encoder=encoder,
        )


@hookimpl
def sgdec_models() -> dict[str, type[Model]]:
    return {"shallow": Shallow}
