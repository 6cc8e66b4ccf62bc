"""The pieces of a SentencePiece model with their types and scores, which its library does not tell.

The file is a message of protocol buffers (sentencepiece_model.proto): field 1, repeated, is a piece with its text
(1), score (2) and type (3), field 2 the options of the trainer, of which field 3 is the kind of model and field 24
says whether blanks are at the ends of pieces.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

UNIGRAM, BPE = 1, 2
"""Kinds of models. The others, words (3) and characters (4), need no segmentation within words."""
NORMAL, USER_DEFINED, UNUSED, BYTE = 1, 4, 5, 6
"""Types of pieces."""
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


class Piece(NamedTuple):
    """One piece; its token is its place among all."""

    text: str
    score: float
    type: int


class PieceModel(NamedTuple):
    """The part of a file that decides about segmentation."""

    kind: int
    blanks_at_ends: bool
    """Whether a piece ends with the blank after it (``treat_whitespace_as_suffix``)."""
    pieces: list[Piece]


def read_model(serialized: bytes) -> PieceModel:
    """The model in these bytes, which SentencePiece must be able to read."""
    options: dict[int, int | bytes] = {}
    pieces = []
    for field, value in _fields(serialized):
        if field == 1 and isinstance(value, bytes):
            pieces.append(_piece(value))
        elif field == 2 and isinstance(value, bytes):
            options = dict(_fields(value))
    return PieceModel(int(options.get(3, UNIGRAM)), bool(options.get(24, False)), pieces)


def _piece(message: bytes) -> Piece:
    fields = dict(_fields(message))
    text, score = fields.get(1, b""), fields.get(2, b"\0\0\0\0")
    assert isinstance(text, bytes) and isinstance(score, bytes)
    return Piece(text.decode(), struct.unpack("<f", score)[0], int(fields.get(3, NORMAL)))


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message: numbers and values."""
    place = 0
    while place < len(message):
        tag, place = _varint(message, place)
        field, form = tag >> 3, tag & 7
        if form == VARINT:
            number, place = _varint(message, place)
            yield field, number
            continue
        length = {FIXED64: 8, FIXED32: 4}.get(form)
        if length is None:
            length, place = _varint(message, place)
        yield field, message[place : place + length]
        place += length


def _varint(message: bytes, place: int) -> tuple[int, int]:
    """A number at this place, seven bits a byte, and the place after it."""
    number, shift = 0, 0
    while True:
        byte = message[place]
        number |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return number, place
