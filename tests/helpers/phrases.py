"""The predictor ``phrases`` of some lines, and what it should say of a text.

Oracle: the places of a phrase in the decoded text, by Python's ``str.find``, and the characters beside them.
"""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path
from typing import Any

from sgdec_predictors.phrases import Phrases

from sgdec import EOS, BatchPredictor, Context, Source
from sgdec.context import Vocabularies
from sgdec.scores import SparseRow
from sgdec.text.words import SPECIAL, WordVocabulary

WORDS = WordVocabulary([*SPECIAL, "art", "party", "deco", "nouveau", "Art", "-", "c++"])


def predictor(folder: Path, wanted: str | None = None, avoid: str | None = None, **options: Any) -> Phrases:
    """Of these lines."""
    vocabulary = options.pop("vocabulary", WORDS)
    for name, text in (("path", wanted), ("avoid", avoid)):
        if text is not None:
            (folder / name).write_text(text.rstrip("\n") + "\n" if text.count("\n") < 2 else text, encoding="utf-8")
            options[name] = str(folder / name)
    return Phrases(**options, context=Context(vocabularies=Vocabularies(vocabulary, vocabulary)))


def scores(made: BatchPredictor, tokens: tuple[int, ...], sentence: int = 1) -> list[float]:
    """The score of each of these tokens."""
    states = made.initialize_batch([Source(sentence, ())])
    found = []
    for token in tokens:
        found.append(made.predict_batch(states).rows[0].get(token))
        if token != EOS:
            states = made.consume_batch(states, [token])
    return found


def row_after(made: BatchPredictor, tokens: tuple[int, ...]) -> SparseRow | None:
    """The row after these tokens; None if one of them is forbidden."""
    if set(scores(made, tokens)) - {0.0}:
        return None
    states = made.initialize_batch([Source(1, ())])
    for token in tokens:
        states = made.consume_batch(states, [token])
    return made.predict_batch(states).rows[0]


def is_word(char: str) -> bool:
    return bool(re.match(r"\w", char)) or unicodedata.category(char).startswith("M")


def places(phrase: str, text: str, whole_words: bool, ignore_case: bool) -> list[tuple[int, int]]:
    """Where the phrase is."""
    if ignore_case:
        phrase, text = phrase.lower(), text.lower()
    found, at = [], text.find(phrase)
    while at >= 0:
        end = at + len(phrase)
        apart = not (at and is_word(text[at - 1]) and is_word(phrase[0]))
        apart &= not (end < len(text) and is_word(text[end]) and is_word(phrase[-1]))
        if apart or not whole_words:
            found.append((at, end))
        at = text.find(phrase, at + 1)
    return found


def in_order(phrases: list[list[str]], text: str, after: int, *options: bool) -> bool:
    """Whether the phrases come one after the other; tries all ways."""
    if not phrases:
        return True
    spans = [span for text_of in phrases[0] for span in places(text_of, text, *options)]
    return any(in_order(phrases[1:], text, end, *options) for begin, end in spans if begin >= after)


def is_allowed(
    text: str, wanted: list[list[str]], avoid: list[list[str]], ordered: bool, *options: bool
) -> bool:
    if any(places(each, text, *options) for phrase in avoid for each in phrase):
        return False
    if ordered:
        return in_order(wanted, text, 0, *options)
    return all(any(places(each, text, *options) for each in phrase) for phrase in wanted)
