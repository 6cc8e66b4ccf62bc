"""What the pieces of Hugging Face's tokenizers spell, in a few lines each: an oracle for `Spelling`.

The second argument of each function: whether the piece is the first of its text.
"""

from __future__ import annotations

VISIBLE = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
OTHERS = [byte for byte in range(256) if byte not in VISIBLE]
BYTE_OF = {chr(byte): byte for byte in VISIBLE} | {chr(256 + place): byte for place, byte in enumerate(OTHERS)}
"""Byte-level BPE writes each byte as one character."""
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def of_byte_level(piece: str, first: bool) -> bytes:
    return bytes(BYTE_OF[character] for character in piece)


def of_metaspace(piece: str, first: bool) -> bytes:
    spelled = bytes([int(piece[3:5], 16)]) if piece in BYTES else piece.replace("▁", " ").encode()
    return spelled.removeprefix(b" ") if first else spelled


def of_word_pieces(piece: str, first: bool) -> bytes:
    if first:
        return piece.encode()
    return piece[2:].encode() if piece.startswith("##") else b" " + piece.encode()


def of_cleaned_word_pieces(piece: str, first: bool) -> bytes:
    """No blank is written before the marks that end sentences, and before commas."""
    return piece.encode() if piece in (".", "?", "!", ",") else of_word_pieces(piece, first)
