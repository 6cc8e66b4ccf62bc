"""Lists of allowed outputs: one entry on each line, as text or as token ids, with or without a weight after a tab.

    17 4 256<TAB>-0.5

Weights are natural logs, higher is better. Either all lines of a list have one, or none. Without a vocabulary a line
has token ids. An empty line is the empty entry: the output without tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from sgdec.arrays import Floats, Ints
from sgdec.context import BOS, EOS, UNK, Vocabulary
from sgdec.errors import SgdecError
from sgdec.io.limits import TOKENS, real_number, whole_number

LINES_AT_ONCE = 10_000
LARGEST_WEIGHT = 1e6
"""Weights are logs. A larger number is a mistake, such as a count."""

LeaveOut: TypeAlias = Callable[[int, str], None]
"""Called with the number of a line that cannot be an entry, and the reason."""


class Entries(NamedTuple):
    """E sequences of tokens, each of which ends with ``</s>``, one after the other in n tokens."""

    tokens: npt.NDArray[np.int32]
    """``[n]``"""
    offsets: Ints
    """``[E + 1]``: the first token of each entry."""
    weights: Floats | None
    """``[E]``; None = the list has none."""


def read_entries(
    lines: Iterable[str],
    where: str,
    vocabulary: Vocabulary | None = None,
    vocab_size: int | None = None,
    *,
    leave_out: LeaveOut | None = None,
) -> Entries:
    """The entries of a list, which errors call ``where``; tokens are below ``vocab_size`` if that is known.

    A line with words that the vocabulary does not know goes to ``leave_out`` instead; None = it is an error.

    Raises SgdecError for a line that is not an entry, and if only some lines have a weight.
    """
    reader = _Reader(where, vocabulary, vocab_size)
    tokens, lengths, weights = [np.zeros(0, np.int32)], [np.zeros(0, np.int64)], [np.zeros(0)]
    for first, block in _blocks(lines):
        texts, of_block = reader.columns(block, first)
        rows = reader.tokenize(texts, first)
        row_lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        flat = np.fromiter(chain.from_iterable(rows), np.int32, int(row_lengths.sum()))
        kept = np.ones(len(rows), np.bool_)
        for row in reader.unknown(flat, row_lengths):
            reason = f"the vocabulary does not know {reader.unknown_word(texts[row])!r}"
            if leave_out is None:
                raise SgdecError(f"{where}: line {first + row}: {reason}. Leave the line out.")
            leave_out(first + row, reason)
            kept[row] = False
        tokens.append(flat[np.repeat(kept, row_lengths)])
        lengths.append(row_lengths[kept])
        weights.append(np.array(of_block)[kept] if of_block else np.zeros(0))
    offsets = np.append(0, np.cumsum(np.concatenate(lengths)))
    return Entries(np.concatenate(tokens), offsets, np.concatenate(weights) if reader.weighted else None)


def read_ids(line: str, where: str, vocab_size: int | None = None) -> list[int]:
    """The token ids of a line, which may begin with ``<s>`` and end with ``</s>``: without these. Errors call the
    line ``where``.

    Raises SgdecError for a word that is not a token id.

    >>> read_ids("1 17 4 2", "line 1")
    [17, 4]
    """
    words = line.split()
    if words[:1] == [str(BOS)]:
        del words[0]
    if words[-1:] == [str(EOS)]:
        del words[-1]
    digits = "".join(words)
    if digits.isascii() and digits.isdecimal() and max(map(len, words)) < 11:  # usually; faster than word by word
        tokens = list(map(int, words))
        if max(tokens) < (vocab_size or TOKENS) and BOS not in tokens and EOS not in tokens:
            return tokens
    return [_token(word, where, vocab_size) for word in words]


def _token(word: str, where: str, vocab_size: int | None) -> int:
    token = whole_number(word)
    if token is None:
        raise SgdecError(f"{where}: {word!r} is not a token id. Without a target vocabulary, words are token ids.")
    if token in (BOS, EOS):
        raise SgdecError(f"{where}: {word} stands for <s> or </s>. Leave both out; they are added.")
    if vocab_size is not None and token >= vocab_size:
        raise SgdecError(f"{where}: {word} is outside the target vocabulary of {vocab_size} tokens.")
    return token


class _Reader:
    """Reads blocks of lines of one list."""

    def __init__(self, where: str, vocabulary: Vocabulary | None, vocab_size: int | None) -> None:
        self._where = where
        self._vocabulary = vocabulary
        self._vocab_size = vocab_size
        self._encode_all = getattr(vocabulary, "encode_all", None)
        self._is_unknown: Callable[[int], bool] = getattr(vocabulary, "is_unknown", UNK.__eq__)
        self.weighted: bool | None = None
        """Whether lines have weights; None = there was no line yet."""

    def columns(self, lines: Sequence[str], first: int) -> tuple[Sequence[str], list[float]]:
        """Texts and weights of some lines; ``first`` is the number of the first one."""
        if self.weighted is None:
            self.weighted = "\t" in lines[0]
        for number, line in enumerate(lines, first):
            if ("\t" in line) != self.weighted:
                has = "has no weight" if self.weighted else "has a tab, so a weight"
                raise SgdecError(
                    f"{self._where}: line {number} {has}, unlike line 1. Expected 'ENTRY<TAB>WEIGHT' on all lines, "
                    "or no tab on any."
                )
        if not self.weighted:
            return lines, []
        texts, _, words = zip(*(line.rpartition("\t") for line in lines), strict=True)
        return texts, [self._weight(word, number) for number, word in enumerate(words, first)]

    def tokenize(self, texts: Sequence[str], first: int) -> list[list[int]]:
        """The tokens of some lines, each with ``</s>`` at its end."""
        if self._vocabulary is None:
            named = ((text, f"{self._where}: line {number}") for number, text in enumerate(texts, first))
            return [[*read_ids(text, at, self._vocab_size), EOS] for text, at in named]
        rows = self._encode_all(texts) if self._encode_all else map(self._vocabulary.encode, texts)
        return [[*row, EOS] for row in rows]

    def unknown(self, tokens: npt.NDArray[np.int32], lengths: Ints) -> list[int]:
        """The rows with words that the vocabulary does not know; ids have no such words."""
        if self._vocabulary is None:
            return []
        wrong = [token for token in np.unique(tokens).tolist() if token != EOS and self._is_unknown(token)]
        rows = np.repeat(np.arange(len(lengths)), lengths)
        found: list[int] = np.unique(rows[np.isin(tokens, wrong)]).tolist()
        return found

    def unknown_word(self, text: str) -> str:
        """The first word of a line that the vocabulary does not know; the line if all are known by themselves."""
        assert self._vocabulary is not None
        words = (word for word in text.split() if any(map(self._is_unknown, self._vocabulary.encode(word))))
        return next(words, text)

    def _weight(self, word: str, number: int) -> float:
        weight = real_number(word)
        if weight is not None and abs(weight) <= LARGEST_WEIGHT:
            return weight
        raise SgdecError(
            f"{self._where}: line {number}: {word!r} is not a weight. Expected 'ENTRY<TAB>WEIGHT', and for weights "
            f"natural logs from {-LARGEST_WEIGHT:.0f} to {LARGEST_WEIGHT:.0f}."
        )


def _blocks(lines: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    """Blocks of lines, each with the number of its first line."""
    rest, first = iter(lines), 1
    while block := list(islice(rest, LINES_AT_ONCE)):
        yield first, block
        first += len(block)
