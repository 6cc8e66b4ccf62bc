"""Automata over bytes of texts with only words of a list, or with none of them.

A word is a longest run of word characters (`sgdec_predictors.texts.characters`). What is between words is free. The
words of the list are a trie. While a text is read, it is between words, at a node of the trie within a word, or
within a word that the trie does not have. Before a table is made, the nodes with the same future are merged: a table
has 256 numbers for each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from sgdec.arcs import DEAD
from sgdec.errors import SgdecError
from sgdec_predictors.texts.byte_automata import BYTES, STATES, ByteAutomaton, States
from sgdec_predictors.texts.characters import WORD, fold, is_word
from sgdec_predictors.texts.regexes import compile_regexes

LONGEST = 1000
"""The most characters of a word."""
NODES = 1 << 20
"""The most nodes of a trie, which take some 300 bytes each."""
TOO_MANY = f"the words need more than {STATES:,} states. Expected fewer words."
BETWEEN, UNLISTED = 0, -1
"""Between words, which is the root of the trie; within a word that is not in the trie."""


class WordPlace(NamedTuple):
    """A state of the automaton: what has been read of a character that may or may not belong to a word."""

    word: int
    """The state among word characters; `DEAD` = the character is none."""
    other: int
    """The state among other characters; `DEAD` = the character is none of them, or no word may end here."""
    node: int
    """The node of the trie if it is a word character: of the bytes read so far."""


class ByteTrie:
    """Words as paths of bytes. Node 0 is the root."""

    def __init__(self) -> None:
        self.children: list[dict[int, int]] = [{}]
        self.ends: set[int] = set()
        """The nodes at which words end."""
        self._word = ""
        """The last word that was added."""
        self._path = [0]
        """The nodes of its beginnings."""

    def add(self, word: str, spellings: Callable[[str], Iterable[str]]) -> None:
        """Add a word, whose characters each have these spellings. They lead to one node, so words share ways.

        Raises SgdecError if there are too many words.
        """
        pairs = enumerate(zip(word, self._word, strict=False))  # words that come in their order have much in common
        same = next((place for place, (one, other) in pairs if one != other), min(len(word), len(self._word)))
        self._word = word
        del self._path[same + 1 :]
        node = self._path[-1]
        for char in word[same:]:
            node = self._after(node, sorted(set(spellings(char)) | {char}))
            self._path.append(node)
            if len(self.children) > NODES:
                raise SgdecError(f"the words take more than {NODES:,} nodes of a prefix tree. Expected fewer words.")
        self.ends.add(node)

    def merged(self) -> ByteTrie:
        """The same words with fewer nodes: those from which the same bytes lead to ends are one, so words share their
        last bytes too (Daciuk et al. 2000, "Incremental construction of minimal acyclic finite-state automata")."""
        known: dict[tuple[bool, tuple[tuple[int, int], ...]], int] = {}
        """The nodes by whether they are ends, and by their bytes and children, which are known before them."""
        number: dict[int, int] = {}
        waiting = [0]
        while waiting:
            node = waiting[-1]
            later = [child for child in self.children[node].values() if child not in number]
            if later:
                waiting += later
                continue
            arcs = sorted((byte, number[child]) for byte, child in self.children[waiting.pop()].items())
            number[node] = known.setdefault((node in self.ends, tuple(arcs)), len(known))
        last = len(known) - 1  # the root, whose ways are the longest
        found = ByteTrie()
        found.children = [{byte: last - child for byte, child in arcs} for _, arcs in reversed(known)]
        found.ends = {place for place, (is_end, _) in enumerate(reversed(known)) if is_end}
        return found

    def _after(self, node: int, chars: Sequence[str]) -> int:
        known = next((found for char in chars if (found := self._follow(node, char)) is not None), None)
        target = len(self.children) if known is None else known
        if known is None:
            self.children.append({})
        for char in chars:
            *first, last = char.encode()
            at = node
            for byte in first:
                if byte not in self.children[at]:
                    self.children.append({})
                    self.children[at][byte] = len(self.children) - 1
                at = self.children[at][byte]
            self.children[at][last] = target
        return target

    def _follow(self, node: int, char: str) -> int | None:
        at: int | None = node
        for byte in char.encode():
            at = None if at is None else self.children[at].get(byte)
        return at


def word_automaton(words: Iterable[str], *, only: bool, ignore_case: bool = False) -> ByteAutomaton:
    """The texts all of whose words are in the list (``only``), or none of them.

    Raises SgdecError for an entry that `is_one_word` refuses, and for lists that are too large (`NODES`, `STATES`).
    """
    trie = ByteTrie()
    spellings = _with_case() if ignore_case else tuple
    for word in words:
        if not is_one_word(word):
            raise SgdecError(f"{word!r} is not one word: letters, numbers, marks and _.")
        trie.add(word, spellings)
    merged = trie.merged()
    if len(merged.children) > STATES:  # each is a state
        raise SgdecError(TOO_MANY)
    return _Builder(merged, only).built()


def is_one_word(text: str) -> bool:
    """Whether a text has word characters only, and at least one."""
    return bool(text) and all(map(is_word, text))


@cache
def character_classes() -> tuple[ByteAutomaton, ByteAutomaton]:
    """One word character, and one other character."""
    word, other = compile_regexes([WORD, f"[^{WORD[1:]}"])
    return word, other


class _Builder:
    """Numbers the states in the order in which they are reached."""

    def __init__(self, trie: ByteTrie, only: bool) -> None:
        self._trie = trie
        self._only = only
        self._word, self._other = character_classes()
        self._numbers: dict[WordPlace, int] = {}
        self._places: list[WordPlace] = []
        self._without_trie = cache(self._row_without_trie)

    def built(self) -> ByteAutomaton:
        start = self._at(BETWEEN)
        self._number(start)
        rows = []
        for place in self._places:  # grows
            rows.append(self._row(place))
        ends = [place.word == place.other == 0 for place in self._places]
        table = np.stack(rows)
        rows.clear()
        return ByteAutomaton.trimmed(table, np.array(ends))

    def _at(self, node: int) -> WordPlace:
        """The place before a character. Another character than that of a word may come, if a word may end."""
        may_end = node == BETWEEN or (node in self._trie.ends) == self._only
        return WordPlace(0, 0 if may_end else DEAD, node)

    def _row(self, place: WordPlace) -> States:
        row = self._without_trie(place.word, place.other)
        children = self._trie.children[place.node] if place.node != UNLISTED else {}
        if children and place.word != DEAD:
            row = row.copy()
            for byte in children:
                row[byte] = self._after(place, byte)
        return row

    def _row_without_trie(self, word: int, other: int) -> States:
        """The row of all places with these two states, but for the bytes of the trie."""
        place = WordPlace(word, other, UNLISTED)
        words = np.full(BYTES, DEAD) if word == DEAD else self._word.table[word]
        others = np.full(BYTES, DEAD) if other == DEAD else self._other.table[other]
        pairs = np.stack([words, others], axis=1).astype(np.int32).view(np.int64).ravel()
        _, first, which = np.unique(pairs, return_index=True, return_inverse=True)  # few of the 256 bytes differ
        after = {byte: self._after(place, byte) for byte in sorted(first.tolist())}
        return np.array([after[byte] for byte in first.tolist()], np.int32)[which]

    def _after(self, place: WordPlace, byte: int) -> int:
        """The number of the state after a byte; `DEAD` if it cannot follow."""
        word = DEAD if place.word == DEAD else int(self._word.table[place.word, byte])
        other = DEAD if place.other == DEAD else int(self._other.table[place.other, byte])
        node = UNLISTED if place.node == UNLISTED else self._trie.children[place.node].get(byte, UNLISTED)
        if word == DEAD or (node == UNLISTED and self._only):
            word, node = DEAD, UNLISTED
        if word != DEAD and self._word.ends[word]:
            return self._number(self._at(node))
        if other != DEAD and self._other.ends[other]:
            return self._number(self._at(BETWEEN))
        return DEAD if word == other == DEAD else self._number(WordPlace(word, other, node))

    def _number(self, place: WordPlace) -> int:
        number = self._numbers.setdefault(place, len(self._places))
        if number == len(self._places):
            if number == STATES:
                raise SgdecError(TOO_MANY)
            self._places.append(place)
        return number


@cache
def _with_case() -> Callable[[str], Iterable[str]]:
    """The characters that differ from one only in case."""
    same: dict[str, list[str]] = {}
    for code in range(0x110000):
        char = chr(code)
        if char.lower() != char or char.upper() != char or char.casefold() != char:
            same.setdefault(fold(char), []).append(char)
    return lambda char: same.get(fold(char), (char,))
