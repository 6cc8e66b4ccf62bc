"""Vocabularies of whole words, with two representations of other words (Wu et al. 2016, "GNMT", 4.2 and 8.4).

- `WordVocabulary`: an unknown word is one symbol ``<first>_UNK_<last>`` with its first and last character, or
  ``<unk>``. The word itself is lost; decoding can copy it from the source.
- `MixedVocabulary`: an unknown word is a sequence of its characters, with the prefixes ``<B>``, ``<M>`` and ``<E>``
  for the beginning, middle and end of a word: ``Miki`` is ``<B>M <M>i <M>k <E>i``. Decoding restores every line
  exactly: a character outside the vocabulary is a sequence of its UTF-8 bytes, and an additional blank is an empty
  word.

Words are separated by blanks, so text should be tokenised if ``dog`` and ``dog.`` should be one word. The file is
JSON: a format number, the kind, and the pieces by token.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, ClassVar

from sgdec.context import UNK
from sgdec.errors import SgdecError, UsageError
from sgdec.io.documents import parse_json

FORMAT = 1
SPECIAL = ("<unk>", "<s>", "</s>")
BEGIN, MIDDLE, END = "<B>", "<M>", "<E>"
PREFIXES = (BEGIN, MIDDLE, END)
BLANK = "▁"
"""SentencePiece's symbol for a blank, in pieces and in `text_of`; it begins a word."""
EMPTY = "<empty>"
"""The empty word between two consecutive blanks."""
SHARE_FOR_SYMBOLS = 0.1
"""Limit on the share of ``<first>_UNK_<last>`` in a `WordVocabulary`."""


class Words(ABC):
    """A `sgdec.context.Vocabulary` whose tokens are words and representations of other words."""

    kind: ClassVar[str]

    def __init__(self, pieces: Sequence[str], *, name: str = "the vocabulary") -> None:
        """``pieces``: by token, the special ones first; errors call the vocabulary ``name``.

        Raises `SgdecError` if the special tokens are missing or a piece occurs twice.
        """
        self._pieces = tuple(pieces)
        self._tokens = {piece: token for token, piece in enumerate(self._pieces)}
        if self._pieces[:3] != SPECIAL or len(self._tokens) != len(self._pieces):
            raise SgdecError(f"{name}: expected {', '.join(SPECIAL)} and then pieces, each once.")

    @property
    def serialized(self) -> bytes:
        """The content of a vocabulary file."""
        content = {"sgdec_vocabulary": FORMAT, "kind": self.kind, "pieces": self._pieces}
        return json.dumps(content, ensure_ascii=True, indent=0).encode()

    @property
    def size(self) -> int:
        return len(self._pieces)

    @cached_property
    def fingerprint(self) -> str:
        """Equal fingerprints = the same kind with the same pieces under the same numbers."""
        return hashlib.sha256(self.serialized).hexdigest()

    def encode(self, text: str) -> tuple[int, ...]:
        """The tokens of a line, without ``<s>`` and ``</s>``."""
        return tuple(token for word in self._words(text) for token in self._encode_word(word))

    def encode_all(self, lines: Sequence[str]) -> list[list[int]]:
        """`encode` for many lines."""
        return [list(self.encode(line)) for line in lines]

    @abstractmethod
    def decode(self, tokens: Sequence[int]) -> str:
        """The line that these tokens spell."""

    def piece(self, token: int) -> str:
        """The string of one token; IndexError outside the vocabulary."""
        if not 0 <= token < self.size:
            raise IndexError(f"token {token} is outside the vocabulary 0..{self.size - 1}")
        return self._pieces[token]

    def token(self, piece: str) -> int:
        """The token of one string; `UNK` if there is none."""
        return self._tokens.get(piece, UNK)

    @abstractmethod
    def text_of(self, token: int) -> str | None:
        """The text of a token, ``▁`` for a blank; None for a token without text."""

    def words_in(self, line: str) -> list[str]:
        """The words of a line."""
        return [word for word in self._words(line) if word]

    @staticmethod
    @abstractmethod
    def _words(text: str) -> list[str]: ...

    @abstractmethod
    def _encode_word(self, word: str) -> Iterable[int]: ...


class WordVocabulary(Words):
    """Words; other words are ``<first>_UNK_<last>`` if training saw this symbol, otherwise ``<unk>``.

    >>> words = WordVocabulary([*SPECIAL, "M_UNK_i", "met"])
    >>> words.encode("Miki met Ann"), words.decode((3, 4, 0))
    ((3, 4, 0), 'M_UNK_i met <unk>')
    """

    kind = "word"

    @classmethod
    def train(cls, lines: Iterable[str], size: int) -> WordVocabulary:
        """Make a vocabulary of the most frequent words of some lines, and the most frequent symbols of the other
        words.

        Raises `UsageError` if ``size`` leaves no room for a word.
        """
        counts = _count(cls._words, lines)
        room = _room(size, len(SPECIAL))
        symbols: Counter[str] = Counter()
        for word, count in _by_frequency(counts)[room:]:
            symbols[unknown_symbol(word)] += count
        chosen = [symbol for symbol, _ in _by_frequency(symbols)[: int(room * SHARE_FOR_SYMBOLS)]]
        words = [word for word, _ in _by_frequency(counts) if word not in SPECIAL and not is_unknown_symbol(word)]
        return cls([*SPECIAL, *chosen, *words[: room - len(chosen)]])

    def decode(self, tokens: Sequence[int]) -> str:
        return " ".join(self._pieces[token] for token in tokens)

    def text_of(self, token: int) -> str | None:
        return None if token < len(SPECIAL) or self.is_unknown(token) else BLANK + self._pieces[token]

    def is_unknown(self, token: int) -> bool:
        """Whether a token stands for words that are not in the vocabulary."""
        return token == UNK or is_unknown_symbol(self._pieces[token])

    @staticmethod
    def _words(text: str) -> list[str]:
        return text.split()

    def _encode_word(self, word: str) -> Iterable[int]:
        known = self._tokens.get(word, UNK)
        if known > 2 and not is_unknown_symbol(word):
            return (known,)
        return (self._tokens.get(unknown_symbol(word), UNK),)


class MixedVocabulary(Words):
    """Words; other words are split into characters, so that decoding restores every line exactly.

    >>> mixed = MixedVocabulary.train(["we met we", "we"], size=1000)
    >>> [mixed.piece(token) for token in mixed.encode("we wet")]
    ['we', '<B>w', '<M>e', '<E>t']
    >>> mixed.decode(mixed.encode("we  né"))
    'we  né'
    """

    kind = "mixed"

    @classmethod
    def train(cls, lines: Iterable[str], size: int) -> MixedVocabulary:
        """Make a vocabulary of every character of some lines in three positions of a word, all bytes, and the most
        frequent words.

        Raises `UsageError` if ``size`` leaves no room for a word.
        """
        counts = _count(cls._words, lines)
        characters = sorted({character for word in counts for character in word})
        spelling = [prefix + unit for unit in (*characters, *map(_byte, range(256))) for prefix in PREFIXES]
        fixed = [*SPECIAL, EMPTY, *spelling]
        taken = {*fixed, ""}
        words = [word for word, _ in _by_frequency(counts) if word not in taken]
        return cls([*fixed, *words[: _room(size, len(fixed))]])

    def decode(self, tokens: Sequence[int]) -> str:
        """The line of these tokens. Characters outside a well-formed word form a word, so that any output of a model
        can be read."""
        return " ".join(self._join(tokens))

    def text_of(self, token: int) -> str | None:
        piece = self._pieces[token]
        prefix, unit = self._parts(piece)
        if piece in (*SPECIAL, EMPTY) or (prefix and _is_byte(unit)):
            return None
        return unit if prefix in (MIDDLE, END) else BLANK + unit

    def unit_of(self, token: int) -> tuple[str, bytes] | None:
        """The prefix of a token, which is empty for a word, and the rest in UTF-8; None for a token without text."""
        if token < len(SPECIAL):
            return None
        prefix, unit = self._parts(self._pieces[token])
        return (prefix, _value(unit)) if prefix else ("", b"" if unit == EMPTY else unit.encode())

    @staticmethod
    def _words(text: str) -> list[str]:
        return text.split(" ") if text else []

    def _encode_word(self, word: str) -> Iterator[int]:
        if not word:
            yield self._tokens[EMPTY]
            return
        known = self._tokens.get(word, UNK)
        if known and self._is_word(word):
            yield known
            return
        units = [unit for character in word for unit in self._units(character)]
        for place, unit in enumerate(units):
            prefix = BEGIN if place == 0 else END if place == len(units) - 1 else MIDDLE
            yield self._tokens[prefix + unit]

    def _units(self, character: str) -> list[str]:
        """The character, or its bytes if it has no piece."""
        if BEGIN + character in self._tokens:
            return [character]
        return [_byte(value) for value in character.encode("utf-8", "surrogatepass")]

    def _join(self, tokens: Sequence[int]) -> Iterator[str]:
        spelled = bytearray()  # the bytes of the current word
        for token in tokens:
            piece = self._pieces[token]
            prefix, unit = self._parts(piece)
            if spelled and prefix not in (MIDDLE, END):
                yield _text(spelled)
                spelled.clear()
            if not prefix:
                yield "" if piece == EMPTY else piece
                continue
            spelled += _value(unit)
            if prefix == END:
                yield _text(spelled)
                spelled.clear()
        if spelled:
            yield _text(spelled)

    def _is_word(self, piece: str) -> bool:
        return piece not in (*SPECIAL, EMPTY) and not self._parts(piece)[0]

    @staticmethod
    def _parts(piece: str) -> tuple[str, str]:
        """The prefix and the unit of a piece; a word has an empty prefix."""
        prefix, unit = piece[:3], piece[3:]
        spells = prefix in PREFIXES and (len(unit) == 1 or _is_byte(unit))
        return (prefix, unit) if spells else ("", piece)


KINDS: dict[str, type[WordVocabulary] | type[MixedVocabulary]] = {
    kind.kind: kind for kind in (WordVocabulary, MixedVocabulary)
}


def read_words(serialized: bytes, name: str) -> WordVocabulary | MixedVocabulary:
    """The vocabulary of a file's content; errors call it ``name``. Raises `SgdecError` if it is damaged."""
    try:
        content = parse_json(serialized)
        kind, pieces, version = content["kind"], content["pieces"], content["sgdec_vocabulary"]
        known = kind in KINDS and isinstance(pieces, list)
        "".join(pieces).encode()  # raises TypeError unless all are text, ValueError for half a character
    except (ValueError, KeyError, TypeError):
        known, version = False, FORMAT
    if not known or version != FORMAT:
        raise SgdecError(f"{name}: this is not a vocabulary of words of format {FORMAT}. Use `sgdec tokenizer`.")
    return KINDS[kind](pieces, name=name)


def unknown_symbol(word: str) -> str:
    """``<first>_UNK_<last>`` of GNMT's word model.

    >>> unknown_symbol("Miki")
    'M_UNK_i'
    """
    return f"{word[:1]}_UNK_{word[-1:]}"


def is_unknown_symbol(piece: str) -> bool:
    """Whether a piece is a symbol ``<first>_UNK_<last>``."""
    return len(piece) == 7 and piece[1:6] == "_UNK_"


def _count(words: Any, lines: Iterable[str]) -> Counter[str]:
    return Counter(word for line in lines for word in words(line))


def _by_frequency(counts: Counter[str]) -> list[tuple[str, int]]:
    """The words by falling frequency; equally frequent ones in alphabetical order."""
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def _room(size: int, fixed: int) -> int:
    if size <= fixed:
        raise UsageError(f"--vocab-size {size} leaves no room for words: {fixed} pieces are always there.")
    return size - fixed


def _byte(value: int) -> str:
    return f"<0x{value:02X}>"


def _is_byte(unit: str) -> bool:
    return len(unit) == 6 and unit.startswith("<0x") and unit.endswith(">")


def _value(unit: str) -> bytes:
    return bytes([int(unit[3:5], 16)]) if _is_byte(unit) else unit.encode("utf-8", "surrogatepass")


def _text(spelled: bytearray) -> str:
    """The text of some bytes; invalid UTF-8 from a model is shown as U+FFFD."""
    try:
        return spelled.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return spelled.decode("utf-8", "replace")
