"""Random vocabularies that spell bytes in every way, and the probabilities of their texts by plain enumeration.

The oracle knows nothing of tries: `Toy.spell` says in a few lines what a sequence of tokens spells, and sums are over
sequences that are listed one by one.
"""

from __future__ import annotations

import itertools
import math
import random
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from sgdec.arrays import Floats
from sgdec.context import EOS, Vocabulary
from sgdec.text.sentencepiece import SentencePieceVocabulary
from sgdec.text.words import SPECIAL

ALPHABETS = ("ab", "a b", "aé", "é b", "日a", "日 é")
"""Letters of one to three bytes, with and without blanks."""
NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6
Tokens = tuple[int, ...]


class Pieces:
    """Tokens that are bytes, as in byte-level BPE; several may be the same bytes."""

    def __init__(self, pieces: Sequence[bytes], name: str = "pieces") -> None:
        self.pieces = pieces
        self.size = len(SPECIAL) + len(pieces)
        self.fingerprint = f"{name} {pieces}"

    def encode(self, text: str) -> Tokens:
        """The longest piece at each place."""
        rest, found = text.encode(), []
        while rest:
            fits = [n for n, piece in enumerate(self.pieces) if rest.startswith(piece)]
            if not fits:
                return (*found, 0)
            best = max(fits, key=lambda n: len(self.pieces[n]))
            found.append(best + len(SPECIAL))
            rest = rest[len(self.pieces[best]) :]
        return tuple(found)

    def decode(self, tokens: Sequence[int]) -> str:
        return b"".join(self.bytes_of(token) or b"" for token in tokens).decode(errors="replace")

    def piece(self, token: int) -> str:
        return SPECIAL[token] if token < len(SPECIAL) else f"{token}: {self.pieces[token - len(SPECIAL)]!r}"

    def token(self, piece: str) -> int:
        return next((token for token in range(self.size) if self.piece(token) == piece), 0)

    def bytes_of(self, token: int) -> bytes | None:
        return None if token < len(SPECIAL) else self.pieces[token - len(SPECIAL)]


class WordPieces:
    """WordPiece: a piece without ## begins a word."""

    def __init__(self, pieces: Sequence[str]) -> None:
        self.pieces = (*SPECIAL, *pieces)
        self.size = len(self.pieces)
        self.fingerprint = f"word pieces {pieces}"

    def encode(self, text: str) -> Tokens:
        raise NotImplementedError

    def decode(self, tokens: Sequence[int]) -> str:
        return " ".join(map(self.piece, tokens)).replace(" ##", "")

    def piece(self, token: int) -> str:
        return self.pieces[token]

    def token(self, piece: str) -> int:
        return self.pieces.index(piece) if piece in self.pieces else 0


@dataclass(frozen=True)
class Toy:
    """A vocabulary, and what its tokens spell."""

    vocabulary: Vocabulary
    spell: Callable[[Tokens], bytes | None]
    """The bytes of a sequence of tokens; None if it is none of a text's."""
    letters: bytes
    """The bytes of which tests make texts."""

    def covering(self, prefix: bytes) -> Iterator[Tokens]:
        """All sequences whose last token reaches the end of the prefix, or goes beyond it."""
        if not prefix:
            yield ()
            return
        waiting: list[Tokens] = [()]
        while waiting:
            before = waiting.pop()
            for token in range(len(SPECIAL), self.vocabulary.size):
                spelled = self.spell((*before, token))
                if spelled is None or spelled[: len(prefix)] != prefix[: len(spelled)]:
                    continue
                if len(spelled) >= len(prefix):
                    yield (*before, token)
                else:
                    waiting.append((*before, token))

    def spelling(self, text: bytes) -> Iterator[Tokens]:
        """All sequences that spell a text."""
        if not text:
            yield from (z for z in ((), *((token,) for token in range(3, self.vocabulary.size))) if not self.spell(z))
            return
        yield from (z for z in self.covering(text) if self.spell(z) == text)

    def texts(self, longest: int) -> list[bytes]:
        return [bytes(text) for n in range(longest + 1) for text in itertools.product(self.letters, repeat=n)]

    def log_of_text(self, table: Floats, text: bytes) -> float:
        """The log of the probability of a text."""
        return log_of_sum([score(table, (*z, EOS)) for z in self.spelling(text)])

    def log_of_prefix(self, table: Floats, prefix: bytes) -> float:
        """The log of the probability that a text begins with these bytes, if all that follow have an end."""
        return log_of_sum([score(table, z) for z in self.covering(prefix)])


def log_of_sum(scores: Sequence[float]) -> float:
    total = math.fsum(map(math.exp, scores))
    return math.log(total) if total else -math.inf


def score(table: Floats, tokens: Tokens) -> float:
    """Of a bigram, after ``<s>``."""
    return sum(float(table[a, b]) for a, b in itertools.pairwise((1, *tokens)))


def probabilities(rng: np.random.Generator, size: int, allowed: float = 1.0, ends: float = 0.2) -> Floats:
    """``[V, V]``: by last token the log-probabilities of the next one; a share is allowed, and all can end."""
    shares = rng.gamma(0.7, size=(size, size)) * (rng.random((size, size)) < allowed)
    shares[:, EOS] = 1e-300
    shares *= (1 - ends) / shares.sum(axis=1, keepdims=True)
    shares[:, EOS] = ends
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(shares))


def drawn(seed: int) -> Toy:
    """A random vocabulary: a kind, a few letters, and pieces of their bytes."""
    rng = random.Random(seed)
    return KINDS[seed % len(KINDS)](rng, rng.choice(ALPHABETS))


def byte_level(rng: random.Random, alphabet: str) -> Toy:
    """Bytes and strings of bytes, also parts of characters; some strings twice."""
    letters = sorted({*alphabet.encode()})
    strings = [bytes(rng.choices(letters, k=rng.randint(2, 4))) for _ in range(rng.randint(0, 6))]
    characters = [character.encode() for character in alphabet]
    words = [b"".join(rng.choices(characters, k=rng.randint(1, 3))) for _ in range(rng.randint(0, 5))]
    single = [bytes([letter]) for letter in letters]
    pieces = [*single, *strings, *words]
    rng.shuffle(pieces)
    vocabulary = Pieces([single[-1], *pieces[: rng.randint(1, len(pieces))]])
    return Toy(vocabulary, lambda tokens: b"".join(vocabulary.pieces[token - 3] for token in tokens), bytes(letters))


def sentencepiece(rng: random.Random, alphabet: str) -> Toy:
    """Unigram with all 256 bytes, which spell letters a second time."""
    pieces = {"▁": None} if rng.random() < 0.8 else {}
    characters = [*alphabet.replace(" ", ""), "▁"]
    pieces |= dict.fromkeys("".join(rng.choices(characters, k=rng.randint(1, 3))) for _ in range(rng.randint(2, 8)))
    vocabulary = sentencepiece_of({piece: -rng.uniform(1, 9) for piece in pieces})
    values = [vocabulary.bytes_of(token) or b"" for token in range(vocabulary.size)]
    in_piece = [vocabulary.piece(token).startswith("▁") for token in range(vocabulary.size)]

    def spell(tokens: Tokens) -> bytes | None:
        """SentencePiece leaves out the blank that begins the first piece, or the second after a piece of one blank.

        A third such piece would spell nothing again.
        """
        parts = [values[token] for token in tokens]
        for place in (0, 1):
            if len(parts) > place and in_piece[tokens[place]] and parts[:place] in ([], [b""]):
                if place and parts[place] == b" ":
                    return None
                parts[place] = parts[place][1:]
        return b"".join(parts)

    return Toy(vocabulary, spell, bytes(sorted({*alphabet.encode()})))


def word_pieces(rng: random.Random, alphabet: str) -> Toy:
    """Letters at beginnings and inside words, and longer pieces."""
    characters = alphabet.replace(" ", "")
    longer = ["".join(rng.choices(characters, k=rng.randint(1, 3))) for _ in range(rng.randint(1, 6))]
    pieces = dict.fromkeys([*characters, *(f"##{c}" for c in characters)])
    pieces |= dict.fromkeys(rng.choice(("", "##")) + piece for piece in longer)
    vocabulary = WordPieces(list(pieces))
    texts = [piece.encode() for piece in vocabulary.pieces]

    def spell(tokens: Tokens) -> bytes | None:
        parts = [texts[token][2:] if texts[token].startswith(b"##") else b" " + texts[token] for token in tokens]
        if tokens:  # the first piece is written as it is
            parts[0] = texts[tokens[0]]
        return b"".join(parts)

    return Toy(vocabulary, spell, bytes(sorted({*alphabet.encode(), *b" "})))


KINDS = (byte_level, sentencepiece, word_pieces)


def sentencepiece_of(pieces: dict[str, float], kind: int = 1) -> SentencePieceVocabulary:
    """A SentencePiece model of these pieces with their scores, and of all bytes. ``kind``: 1 = unigram, 2 = BPE."""
    special = [("<unk>", 0.0, UNKNOWN), ("<s>", 0.0, CONTROL), ("</s>", 0.0, CONTROL)]
    listed = [(piece, score, NORMAL) for piece, score in pieces.items()]
    listed += [(f"<0x{byte:02X}>", 0.0, BYTE) for byte in range(256)]
    model = b"".join(_field(1, _piece(*each)) for each in (*special, *listed))
    trainer = bytes([3 << 3, kind]) + _varint(35 << 3) + b"\1"  # the kind, and byte_fallback
    return SentencePieceVocabulary(model + _field(2, trainer) + _field(3, _field(1, b"identity")))


def _piece(text: str, score: float, kind: int) -> bytes:
    return _field(1, text.encode()) + bytes([2 << 3 | 5]) + struct.pack("<f", score) + bytes([3 << 3, kind])


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    found = []
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])
