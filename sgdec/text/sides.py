"""The source and target side of a model: its vocabularies, made from tokenizers, and its examples, made from lines.

A model has at most two sides, a source and a target. This module converts text for special kinds of models when it
becomes tokens: it joins two sources into one, reverses targets, or inserts the steps of monotone attention.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from sgdec.text.right_left import RightToLeft, pieces_of
from sgdec.text.steps import Stepping
from sgdec.text.two_sources import TAB, TwoSources
from sgdec.text.vocabulary import StoredVocabulary

Texts: TypeAlias = tuple[list[str], ...]
"""A list per side: lines."""
Tokens: TypeAlias = tuple[list[list[int]], ...]
"""A list per side: token ids."""


def arranged(
    tokenizers: Sequence[StoredVocabulary], *, sources: int, right_left: bool = False, steps: bool = False
) -> tuple[StoredVocabulary | None, StoredVocabulary]:
    """The vocabularies of source and target for a model with this number of ``sources``. The tokenizers are one for
    all files, one for the sources and one for the target, or one for each file."""
    first, *others, last = tokenizers if len(tokenizers) > 1 else [*tokenizers, *tokenizers]
    source = TwoSources(first, others[0] if others else first) if sources > 1 else first
    target: StoredVocabulary = RightToLeft(last) if right_left else Stepping(last) if steps else last
    return source if sources else None, target


def same_pieces(source: StoredVocabulary | None, target: StoredVocabulary) -> bool:
    """Whether source and target have equal pieces under equal numbers, and can share embeddings."""
    if isinstance(source, TwoSources) and source.shared:
        source = source.first
    return source is not None and source.fingerprint == pieces_of(target).fingerprint


def of_files(vocabularies: Sequence[StoredVocabulary]) -> Iterator[StoredVocabulary]:
    """Yields the vocabulary of each file: two for a source that is made of two files."""
    for vocabulary in vocabularies:
        if isinstance(vocabulary, TwoSources):
            yield from (vocabulary.first, vocabulary.second)
        else:
            yield vocabulary


def met(vocabularies: Sequence[StoredVocabulary], texts: Texts, tokens: Tokens) -> tuple[Texts, Tokens]:
    """The texts and tokens of each side (one for each of ``vocabularies``), made from those of each file. A tab
    inside a line is read as a blank."""
    first, last = vocabularies[0], vocabularies[-1]
    if isinstance(first, TwoSources):
        lines = [TAB.join(line.replace(TAB, " ") for line in pair) for pair in zip(*texts[:2], strict=True)]
        joined = [first.join(*pair) for pair in zip(*tokens[:2], strict=True)]
        texts, tokens = (lines, *texts[2:]), (joined, *tokens[2:])
    if isinstance(last, Stepping):
        stepped = [last.with_steps(first, *pair) for pair in zip(*tokens, strict=True)]
        tokens = (tokens[0], stepped)
    return texts, tokens
