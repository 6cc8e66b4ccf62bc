"""Encoders by name, for models that offer a choice; every encoder works with every decoder."""

from __future__ import annotations

from typing import Literal, TypeAlias

from sgdec.models.encoder_decoder import Encoder
from sgdec.models.gru import GRUEncoder
from sgdec.models.lstm_stack import LSTMEncoder
from sgdec.models.transformer_layers import Shape, TransformerEncoder

EncoderKind: TypeAlias = Literal["gru", "lstm", "transformer"]


def make_encoder(kind: EncoderKind, *, embedding: int, width: int, layers: int, dropout: float) -> Encoder:
    """An encoder of a given kind, which has no options of its own.

    gru: both directions, cells of ``layers`` blocks. lstm: a stack from left to right. transformer: normalisation
    before each sublayer, feed-forward layers of 4 x ``width`` units, 8 heads. Raises UsageError if 8 does not divide
    the width of a transformer.
    """
    if kind == "gru":
        return GRUEncoder(embedding, width, blocks=layers, dropout=dropout)
    if kind == "lstm":
        return LSTMEncoder(embedding, width, layers, dropout)
    return TransformerEncoder(embedding, layers, Shape(width, feed_forward=4 * width, norm="pre", dropout=dropout))
