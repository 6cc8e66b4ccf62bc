"""The segmentation that a vocabulary gives to a text, and what of it is known before the text is complete.

Tokens are *canonical* if they are the vocabulary's own segmentation of their text: ``encode(decode(tokens))`` equals
them, and none of them is ``<unk>``, which stands for many texts. Whether a prefix can still become canonical is known
early in two cases, whatever follows:

- **Words.** If no piece has a blank after another character, and blanks belong to the words after them, every
  segmentation has a boundary before each word, and the segmentation of what is before it does not depend on what
  follows. So the tokens before a word have to be canonical by themselves.
- **Pairs** of pieces that SentencePiece never leaves next to each other. BPE merges two neighbours if the vocabulary
  has their concatenation. Unigram prefers the concatenation if its score is higher than the sum of theirs (by more
  than `ROUNDING`, because the sums of whole texts are rounded).

Both hold for SentencePiece models, the first also for vocabularies of words, and of words and characters. Tokenizers
of Hugging Face split a text before the segmentation, and most of these steps look at what follows. With BPE some
pairs are known nevertheless (`sgdec_predictors.texts.merges`). Bytes are canonical if they are UTF-8; each character
is a word of theirs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from operator import itemgetter

from sgdec.context import UNK, Vocabulary
from sgdec.errors import SgdecError
from sgdec.vocabularies import (
    BEGIN,
    BLANK,
    BPE,
    BYTE,
    NORMAL,
    SPECIAL,
    UNIGRAM,
    UNUSED,
    USER_DEFINED,
    ByteVocabulary,
    MixedVocabulary,
    PieceModel,
    PretrainedVocabulary,
    SentencePieceVocabulary,
    Stepping,
    WordVocabulary,
    read_model,
)
from sgdec_predictors.texts.merges import never_merged

FIRST_BYTE = len(SPECIAL)
"""The token of byte 0 in a `ByteVocabulary`."""
CONTINUING = range(0x80, 0xC0)
"""The bytes inside characters in UTF-8, which begin none."""
ROUNDING = 0.01
"""More than float32 sums of the scores of a text of thousands of pieces are rounded by."""


class Segmentation:
    """The segmentation of one vocabulary.

    >>> from sgdec.vocabularies import SPECIAL
    >>> words = Segmentation(WordVocabulary([*SPECIAL, "a", "b"]))
    >>> words.is_canonical((3, 4)), words.is_canonical((2,)), sorted(words.begins)
    (True, False, [0, 1, 2, 3, 4])
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        """Raises SgdecError for targets with the steps of monotone hard attention."""
        if isinstance(vocabulary, Stepping):
            raise SgdecError("the target has steps of monotone hard attention, which depend on its source.")
        self._vocabulary = vocabulary
        self.begins: frozenset[int] = frozenset()
        """Tokens that begin a word after a token of `closed`: the tokens before them must be canonical."""
        self.closed: frozenset[int] = frozenset()
        """Tokens whose text does not end with a blank."""
        self.never_after: Mapping[int | None, Sequence[int]] = {}
        """By token those that no canonical output has directly after it, ascending; None: at the beginning."""
        self.never: frozenset[int] = frozenset()
        """Tokens that no canonical output has."""
        if isinstance(vocabulary, WordVocabulary):
            self.begins = self.closed = frozenset(range(vocabulary.size))
        elif isinstance(vocabulary, MixedVocabulary):
            units = list(map(vocabulary.unit_of, range(vocabulary.size)))
            self.closed = frozenset(t for t, unit in enumerate(units) if unit and unit[1])
            self.begins = frozenset(t for t, unit in enumerate(units) if unit and unit[0] in ("", BEGIN))
        elif isinstance(vocabulary, SentencePieceVocabulary):
            model = read_model(vocabulary.serialized)
            self.begins, self.closed = _words(model)
            self.never_after = _pairs(model)
        elif isinstance(vocabulary, ByteVocabulary):
            self.begins = frozenset(range(vocabulary.size)) - {FIRST_BYTE + byte for byte in CONTINUING}
            self.closed = frozenset(range(vocabulary.size))
            self.never_after = _continuing()
        elif isinstance(vocabulary, PretrainedVocabulary):
            pairs, self.never = never_merged(vocabulary)
            self.never_after = _by_first(pairs)

    def is_canonical(self, tokens: Sequence[int]) -> bool:
        """Whether the vocabulary gives the text of these tokens, without ``</s>``, this segmentation."""
        try:
            text = self._vocabulary.decode(tokens)
            text.encode()  # fails for half of a surrogate pair, which has bytes but no UTF-8
            own = self._vocabulary.encode(text)
        except UnicodeError:
            return False
        return UNK not in tokens and tuple(own) == tuple(tokens)


def _words(model: PieceModel) -> tuple[frozenset[int], frozenset[int]]:
    """`Segmentation.begins` and `Segmentation.closed` of a SentencePiece model."""
    if model.blanks_at_ends or any(BLANK in piece.text.lstrip(BLANK) for piece in model.pieces):
        return frozenset(), frozenset()
    spelled = {
        token: piece.text for token, piece in enumerate(model.pieces) if piece.type in (NORMAL, USER_DEFINED, BYTE)
    }
    begins = frozenset(token for token, text in spelled.items() if text.startswith(BLANK))
    return begins, frozenset(token for token, text in spelled.items() if not text.endswith(BLANK))


def _pairs(model: PieceModel) -> dict[int | None, list[int]]:
    """`Segmentation.never_after` of a SentencePiece model."""
    kind, _, pieces = model
    if kind not in (BPE, UNIGRAM) or any(piece.type == UNUSED for piece in pieces):  # BPE splits unused pieces again
        return {}
    known = {piece.text: token for token, piece in enumerate(pieces) if piece.type == NORMAL}
    pairs = []
    for text, whole in known.items():
        for cut in range(1, len(text)):
            first, second = known.get(text[:cut]), known.get(text[cut:])
            if first is None or second is None:
                continue
            if kind == BPE or pieces[whole].score > pieces[first].score + pieces[second].score + ROUNDING:
                pairs.append((first, second))
    return _by_first(pairs)


def _continuing() -> dict[int | None, list[int]]:
    """`Segmentation.never_after` of bytes: those inside a character follow neither ASCII nor nothing."""
    inside = [FIRST_BYTE + byte for byte in CONTINUING]
    return dict.fromkeys([None, *range(FIRST_BYTE, FIRST_BYTE + CONTINUING.start)], inside)


def _by_first(pairs: Iterable[tuple[int, int]]) -> dict[int | None, list[int]]:
    return {first: [second for _, second in found] for first, found in groupby(sorted(pairs), itemgetter(0))}
