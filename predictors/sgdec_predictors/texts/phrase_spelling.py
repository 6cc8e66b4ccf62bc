"""Whether the tokens of a vocabulary can spell a phrase, in any segmentation.

A token contains the phrase; or one ends with its beginning, others are parts of it, and one begins with the rest.
Parts can end within a character. So the search goes along the bytes of the phrase: for each offset it has the states
of the spelling in which the text can end with what is before the offset.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import TypeAlias

from sgdec_predictors.texts.characters import is_word
from sgdec_predictors.texts.phrase_matcher import Pattern
from sgdec_predictors.texts.spelling import Spelling

Pieces: TypeAlias = Sequence[tuple[bytes, int]]
"""Texts with the states of the spelling after them, each once, sorted."""
PAST = b"\xff"
"""A byte that is in no text."""


class Speller:
    """Answers for one vocabulary."""

    def __init__(self, spelling: Spelling, fold: Callable[[str], str]) -> None:
        """``fold``: maps each character to the one that it is compared as."""
        self._spelling = spelling
        self._fold = fold
        self._pieces = cache(self._find_pieces)
        self._reversed = cache(lambda state: sorted((piece[::-1], after) for piece, after in self._pieces(state)))
        self._states = cache(self._find_states)

    def spells(self, pattern: Pattern) -> bool:
        """Whether an output can have this pattern."""
        data, size = pattern.data, len(pattern.data)
        reached = defaultdict(set, {0: self._states(pattern.begins_word)})
        """By offset; those that lie behind are dropped, because a phrase can be long."""
        for state in self._states(False):
            longest = max((len(piece) for piece, _ in self._pieces(state)), default=0)
            for end in range(1, min(size, longest) + 1):
                for piece, after in _beginning(self._reversed(state), data[:end][::-1]):
                    before = piece[end:][::-1]
                    if before and not (pattern.begins_word and _ends_in_word(before)):
                        reached[end].add(after)
            if any(_contains(piece, pattern) for piece, _ in self._pieces(state)):
                return True
        for begin in range(size):
            for state in reached.pop(begin, ()):
                for piece, after in _beginning(self._pieces(state), data[begin : begin + 1]):
                    if data.startswith(piece, begin):
                        reached[begin + len(piece)].add(after)
                    elif begin + len(piece) > size and _begins_with(piece, data[begin:], pattern):
                        return True
        return size in reached

    def _find_pieces(self, state: int) -> Pieces:
        adds, after = self._spelling.adds[state], self._spelling.after[state].tolist()
        return sorted({(self._folded(piece), after[token]) for token, piece in enumerate(adds) if piece is not None})

    def _folded(self, piece: bytes) -> bytes:
        try:
            return self._fold(piece.decode()).encode()
        except UnicodeDecodeError:  # a part of a character
            return piece

    def _find_states(self, after_boundary: bool) -> set[int]:
        """The states that outputs reach; ``after_boundary``: only those after a boundary of words."""
        found = {0}
        if after_boundary:  # a token without text, such as <unk>, is a boundary too
            for state in self._states(False):
                found |= {after for piece, after in self._pieces(state) if piece and not _ends_in_word(piece)}
                found |= {int(after) for after in self._spelling.after[state, self._without_text(state)]}
        waiting = list(found)
        for state in waiting:  # grows
            for piece, after in self._pieces(state):
                if after not in found and not (piece and after_boundary):
                    found.add(after)
                    waiting.append(after)
        return found

    def _without_text(self, state: int) -> list[int]:
        return [token for token, piece in enumerate(self._spelling.adds[state]) if piece is None]


def _beginning(pieces: Pieces, data: bytes) -> Iterator[tuple[bytes, int]]:
    """The pieces that begin with these bytes."""
    for place in range(bisect_left(pieces, (data,)), bisect_left(pieces, (data + PAST,))):
        yield pieces[place]


def _contains(piece: bytes, pattern: Pattern) -> bool:
    """Whether a piece has the pattern after some other text."""
    at = piece.find(pattern.data, 1)
    while at > 0:
        before, after = piece[:at], piece[at + len(pattern.data) :]
        if not (pattern.begins_word and _ends_in_word(before)) and _can_follow(after, pattern):
            return True
        at = piece.find(pattern.data, at + 1)
    return False


def _begins_with(piece: bytes, rest: bytes, pattern: Pattern) -> bool:
    """Whether a piece has the rest of the pattern, and some other text after it."""
    return piece.startswith(rest) and _can_follow(piece[len(rest) :], pattern)


def _can_follow(after: bytes, pattern: Pattern) -> bool:
    return not (pattern.ends_word and _begins_in_word(after))


def _ends_in_word(text: bytes) -> bool:
    """Whether the last character is a word character."""
    return is_word((text.decode(errors="replace") or " ")[-1])


def _begins_in_word(text: bytes) -> bool:
    """Whether the first character is a word character."""
    return is_word((text.decode(errors="replace") or " ")[0])
