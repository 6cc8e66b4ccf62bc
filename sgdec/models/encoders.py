"""Encoders by name, for models that let one choose: any goes with any decoder."""

from __future__ import annotations

from typing import Literal, TypeAlias

from sgdec.models.encoder_decoder import Encoder
from sgdec.models.gru import GRUEncoder
from sgdec.models.lstm_stack import LSTMEncoder
from sgdec.models.transformer_layers import Shape, TransformerEncoder

EncoderKind: TypeAlias = Literal["gru", "lstm", "transformer"]


def make_encoder(kind: EncoderKind, *, embedding: int, width: int, layers: int, dropout: float) -> Encoder:
    """An encoder with no options of its own.

    gru: both directions, cells of ``layers`` blocks. lstm: a stack from left to right. transformer: normalised before
    each sublayer, feed-forward of 4 x ``width``, 8 heads (raises UsageError if they do not divide the width).
    """
    if kind == "gru":
        return GRUEncoder(embedding, width, blocks=layers, dropout=dropout)
    if kind == "lstm":
        return LSTMEncoder(embedding, width, layers, dropout)
    return TransformerEncoder(embedding, layers, Shape(width, feed_forward=4 * width, norm="pre", dropout=dropout))
