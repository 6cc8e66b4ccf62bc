"""The words in which two outputs differ: the second as a change of the first."""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import Literal, NamedTuple, TypeAlias

Kind: TypeAlias = Literal["same", "deleted", "inserted"]
WORD = re.compile(r"(?:[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]|[^\s\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+)\s*")
"""A word with the spaces after it. Chinese and Japanese are written without spaces: a character counts as a word."""
MOST = 1_000_000
"""The most pairs of words that are compared, which takes seconds at worst; longer outputs differ as a whole."""


class Span(NamedTuple):
    """Consecutive words, with the spaces between and after them."""

    kind: Kind
    text: str


def word_diff(old: str, new: str) -> list[Span]:
    """The spans in order: the words of ``old`` are those that are not inserted, the words of ``new`` those that are
    not deleted. A word that is in both has its longer space.

    >>> [tuple(span) for span in word_diff("the cat sat down", "the cat lay down")]
    [('same', 'the cat '), ('deleted', 'sat '), ('inserted', 'lay '), ('same', 'down')]
    """
    before, after = WORD.findall(old.strip()), WORD.findall(new.strip())
    return [Span(kind, text) for kind, text in _spans(before, after) if text]


def _spans(old: list[str], new: list[str]) -> Iterator[tuple[Kind, str]]:
    if old == new:
        yield "same", "".join(new)
        return
    if len(old) * len(new) > MOST:
        yield "deleted", "".join(old)
        yield "inserted", "".join(new)
        return
    matcher = SequenceMatcher(None, [word.rstrip() for word in old], [word.rstrip() for word in new], autojunk=False)
    for operation, first, last, begin, end in matcher.get_opcodes():
        if operation == "equal":
            yield "same", "".join(max(pair, key=len) for pair in zip(old[first:last], new[begin:end], strict=True))
        else:
            yield "deleted", "".join(old[first:last])
            yield "inserted", "".join(new[begin:end])
