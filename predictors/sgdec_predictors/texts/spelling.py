"""The text that tokens spell, one token at a time.

A constraint is about text, a search is about tokens. Between them is a transducer with few states: what a token adds
to the text depends on what is before it. Examples:

- SentencePiece: the blank that begins a piece is left out at the beginning of the text.
- Whole words: a blank before each word but the first.
- Words and their characters (`sgdec.text.words.MixedVocabulary`): ``<M>i`` continues a word if one has begun.

`Spelling.of` takes the first description of a vocabulary that agrees with its ``decode`` on many random outputs.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from hashlib import sha256
from itertools import product
from typing import TypeAlias
from weakref import WeakKeyDictionary

import numpy as np

from sgdec.arrays import Ints
from sgdec.context import Vocabulary
from sgdec.errors import SgdecError
from sgdec.vocabularies import (
    BEGIN,
    BLANK,
    END,
    MIDDLE,
    SPECIAL,
    MixedVocabulary,
    RightToLeft,
    WordVocabulary,
)

Piece: TypeAlias = bytes | None
"""The bytes that a token adds to the text, in UTF-8; None = it has no text, or stands for any."""
BEGINNING, LATER, BLANKS, WAITING = 0, 1, 2, 3
"""The states of most vocabularies: no text yet; some text; after a blank that has no text, or none so far."""
LENGTHS, LONG = (1, 2, 3), 32
"""The numbers of tokens in the outputs that are compared with ``decode``."""


class Spelling:
    """A transducer from tokens to bytes of text; state 0 is the beginning.

    >>> words = WordVocabulary([*SPECIAL, "a", "dog"])
    >>> Spelling.of(words).text((3, 4)), Spelling.of(words).text((0,))
    (b'a dog', None)
    """

    def __init__(self, adds: Sequence[Sequence[Piece]], after: Sequence[Sequence[int]]) -> None:
        """``adds [S, V]``: the bytes of each token in each state; ``after [S, V]``: the states after them."""
        self.adds = tuple(map(tuple, adds))
        self.after: Ints = np.array(after, np.int64)

    @property
    def states(self) -> int:
        """S."""
        return len(self.adds)

    @property
    def size(self) -> int:
        """V."""
        return len(self.adds[0])

    @cached_property
    def digest(self) -> bytes:
        """Bytes that are equal for equal transducers."""
        return sha256(repr(self.adds).encode() + self.after.tobytes()).digest()

    def text(self, tokens: Sequence[int]) -> bytes | None:
        """The text of these tokens; None if one of them has no text here."""
        state, parts = 0, []
        for token in tokens:
            piece = self.adds[state][token]
            if piece is None:
                return None
            parts.append(piece)
            state = int(self.after[state, token])
        return b"".join(parts)

    def offsets(self, tokens: Sequence[int]) -> list[int]:
        """The number of bytes of the text after each of these tokens, all of which have text here."""
        state, size, found = 0, 0, []
        for token in tokens:
            size += len(self.adds[state][token] or b"")
            state = int(self.after[state, token])
            found.append(size)
        return found

    def lacks(self, characters: Iterable[str]) -> list[str]:
        """Those of these characters that no tokens spell, in their order.

        >>> Spelling.of(WordVocabulary([*SPECIAL, "a", "dog"])).lacks("cod o")
        ['c']
        """
        return [each for each in dict.fromkeys(characters) if not self._has(each.encode("utf-8", "surrogatepass"))]

    def _has(self, character: bytes) -> bool:
        whole, parts = self._texts
        return character in whole or set(character) <= parts

    @cached_property
    def _texts(self) -> tuple[bytes, set[int]]:
        """All pieces with a byte between them that is in no text, and the bytes of those that are parts of
        characters."""
        pieces = {piece for state in self.adds for piece in state if piece}
        return b"\xff".join(pieces), {byte for piece in pieces if not _is_utf8(piece) for byte in piece}

    @classmethod
    def of(cls, vocabulary: Vocabulary) -> Spelling:
        """The spelling of a vocabulary. Raises `SgdecError` if it is not a function of the tokens so far."""
        found = KNOWN.get(vocabulary)
        if found is None:
            found = KNOWN[vocabulary] = cls._of(vocabulary)
        return found

    @classmethod
    def _of(cls, vocabulary: Vocabulary) -> Spelling:
        if isinstance(vocabulary, RightToLeft):
            raise SgdecError("outputs are written from right to left, but their text is read from left to right.")
        for describe in (_of_words, _of_mixed, _of_pieces, _observed):
            for spelling in describe(vocabulary):
                if _agrees(spelling, vocabulary):
                    return spelling
        if not any(vocabulary.decode((token,)) for token in range(len(SPECIAL), vocabulary.size)):
            raise SgdecError("no token of the target vocabulary has a text: there are only <unk> and other marks.")
        raise SgdecError(
            "the text of the target vocabulary's tokens depends on tokens after them (as in vocabularies that mark "
            "the ends of words), but it is read from left to right."
        )


KNOWN: WeakKeyDictionary[Vocabulary, Spelling] = WeakKeyDictionary()
"""The spellings of vocabularies in use; to find one takes up to a second, and constraints share them."""


def _of_words(vocabulary: Vocabulary) -> Iterator[Spelling]:
    """Words with blanks between them; symbols for unknown words have no text."""
    if isinstance(vocabulary, WordVocabulary):
        texts = list(map(vocabulary.text_of, range(vocabulary.size)))
        words = [None if text is None else text.removeprefix(BLANK).encode() for text in texts]
        yield _in_two_states(words, [None if word is None else b" " + word for word in words])


def _of_mixed(vocabulary: Vocabulary) -> Iterator[Spelling]:
    """Words and the characters of others: at the beginning, after a word, within a word."""
    if not isinstance(vocabulary, MixedVocabulary):
        return
    units = list(map(vocabulary.unit_of, range(vocabulary.size)))
    alone = [None if unit is None else unit[1] for unit in units]
    apart = [None if text is None else b" " + text for text in alone]
    within = [
        unit[1] if unit and unit[0] in (MIDDLE, END) else other for unit, other in zip(units, apart, strict=True)
    ]
    after = [2 if unit and unit[0] in (BEGIN, MIDDLE) else 1 for unit in units]
    yield Spelling([alone, apart, within], [after] * 3)


def _of_pieces(vocabulary: Vocabulary) -> Iterator[Spelling]:
    """Pieces with ``▁`` for blanks, and bytes; how many leading blanks are left out differs.

    These vocabularies have a method ``bytes_of``: the bytes that each token adds.
    """
    bytes_of = getattr(vocabulary, "bytes_of", None)
    if bytes_of is None:
        return
    pieces = [bytes_of(token) for token in range(vocabulary.size)]
    yield Spelling([pieces], [[0] * len(pieces)])
    in_pieces = [vocabulary.piece(token).startswith(BLANK) for token in range(vocabulary.size)]
    for has_blank in (in_pieces, [True] * len(pieces)):  # the byte 0x20 is not always a blank
        stripped = [
            piece.removeprefix(b" ") if piece and begins else piece
            for piece, begins in zip(pieces, has_blank, strict=True)
        ]
        yield _in_two_states(stripped, pieces)
        yield _without_first_blanks(stripped, pieces)
        yield _without_outer_blanks(stripped, pieces)


def _observed(vocabulary: Vocabulary) -> Iterator[Spelling]:
    """The texts that ``decode`` gives each token alone, and after another one; none for marks, which add nothing."""
    alone = [_decoded(vocabulary, (token,)) for token in range(vocabulary.size)]
    first = next((token for token in range(3, vocabulary.size) if (alone[token] or "").strip()), None)
    if first is None:
        return
    begun = alone[first] or ""
    together = [_decoded(vocabulary, (first, token)) for token in range(vocabulary.size)]
    if all(text is None or text.startswith(begun) for text in together):
        later = [(text or begun)[len(begun) :].encode() or None for text in together]
        texts = [None if piece is None else text for piece, text in zip(later, alone, strict=True)]
        yield _in_two_states([None if text is None else text.encode() for text in texts], later)


def _decoded(vocabulary: Vocabulary, tokens: Sequence[int]) -> str | None:
    """The text of these tokens, if it is known: ``<unk>`` and the ends have none, nor do parts of characters."""
    text = vocabulary.decode(tokens)
    return None if min(tokens) < len(SPECIAL) or "\ufffd" in text else text


def _in_two_states(first: Sequence[Piece], later: Sequence[Piece]) -> Spelling:
    """Pieces that differ only at the beginning."""
    return Spelling([first, later], [[LATER] * len(first)] * 2)


def _without_first_blanks(stripped: Sequence[Piece], pieces: Sequence[Piece]) -> Spelling:
    """Each piece loses a leading blank as long as there is no text.

    A piece that is only a blank can begin an output, but only one: others would spell the same text without an end.
    """
    begun = [LATER] * len(pieces)
    return Spelling([stripped, pieces, _not_empty(stripped)], [_after_blanks(stripped, BLANKS), begun, begun])


def _without_outer_blanks(stripped: Sequence[Piece], pieces: Sequence[Piece]) -> Spelling:
    """The same at the end: a piece that is only a blank has text if another piece follows it."""
    words = _not_empty(stripped)
    later = [b"" if words[token] is None and piece is not None else piece for token, piece in enumerate(pieces)]
    waiting = [None if piece is None or words[token] is None else b" " + piece for token, piece in enumerate(pieces)]
    begun = [LATER] * len(pieces)
    return Spelling(
        [stripped, later, words, waiting],
        [_after_blanks(stripped, BLANKS), _after_blanks(stripped, WAITING), begun, begun],
    )


def _after_blanks(stripped: Sequence[Piece], blanks: int) -> list[int]:
    return [blanks if piece == b"" else LATER for piece in stripped]


def _not_empty(pieces: Sequence[Piece]) -> list[Piece]:
    return [piece or None for piece in pieces]


def _agrees(spelling: Spelling, vocabulary: Vocabulary) -> bool:
    """Whether random outputs have the text that ``decode`` gives them.

    Outputs whose bytes are not UTF-8 are not compared, because ``decode`` replaces them.
    """
    draw, kinds = random.Random(0), _kinds(spelling, vocabulary)
    outputs = (tuple(map(draw.choice, chosen)) for length in LENGTHS for chosen in product(kinds, repeat=length))
    listed = [token for kind in kinds for token in kind]
    for tokens in (*outputs, *(tuple(draw.choices(listed, k=LONG)) for _ in range(LONG if listed else 0))):
        found = spelling.text(tokens)
        try:
            if found is not None and vocabulary.decode(tokens) != found.decode():
                return False
        except UnicodeDecodeError:
            continue
    return bool(kinds)


def _is_utf8(piece: bytes) -> bool:
    try:
        piece.decode()
    except UnicodeDecodeError:
        return False
    return True


def _kinds(spelling: Spelling, vocabulary: Vocabulary) -> list[list[int]]:
    """The tokens with text: only blanks, beginning with one, parts of characters, others.

    Blanks in pieces are not the byte 0x20, which is kept at the beginning of a text.
    """
    kinds: dict[object, list[int]] = {}
    for token, piece in enumerate(spelling.adds[-1 if spelling.states == 1 else LATER]):
        if piece is not None:
            in_piece = vocabulary.piece(token).startswith(BLANK)
            kind = in_piece, piece[:1] == b" ", len(piece) == 1, not piece.strip(b" "), piece[:1] >= b"\x80"
            kinds.setdefault(kind, []).append(token)
    return list(kinds.values())
