"""A made-up language pair with the uncertainty of real translations, and the noise of real corpora.

A source word has one to five translations, and neighbours can change places, so a sentence has many correct
translations, each with a small probability. As in corpora from the web, a few targets are empty or break off
(Ott et al. 2018, "Analyzing uncertainty in neural machine translation").
"""

from __future__ import annotations

from bisect import bisect
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from typing import TypeAlias

import numpy as np

Tokens: TypeAlias = tuple[int, ...]

WORDS = 30
"""The number of source words; their tokens begin at 3."""
SWAPPED = 0.3
"""The share of neighbours that change places."""
EMPTY, TRUNCATED = 0.012, 0.03
"""The shares of targets that are empty, and that break off somewhere."""
SHORTEST, LONGEST = 3, 14
"""Source lengths."""


def _translations() -> list[tuple[Tokens, tuple[float, ...]]]:
    """For each source word the target tokens that translate it, with their probabilities."""
    rng, found, token = np.random.default_rng(2019), [], 3
    for _ in range(WORDS):
        count = int(rng.integers(1, 6))
        shares = rng.dirichlet([1.5] * count)
        found.append((tuple(range(token, token + count)), tuple(shares.tolist())))
        token += count
    return found


TRANSLATIONS = _translations()
MEANING = {token: 3 + word for word, (tokens, _) in enumerate(TRANSLATIONS) for token in tokens}
"""The source word that a target token translates."""
SOURCE_SIZE, TARGET_SIZE = 3 + WORDS, 3 + len(MEANING)
"""The sizes of the vocabularies; tokens 0, 1 and 2 are <unk>, <s> and </s>."""


def draw_source(rng: np.random.Generator, shortest: int = SHORTEST) -> Tokens:
    """A source sentence."""
    return tuple(rng.integers(3, SOURCE_SIZE, rng.integers(shortest, LONGEST + 1)).tolist())


def draw_target(rng: np.random.Generator, source: Sequence[int], *, noise: bool = True) -> Tokens:
    """One of its translations; with ``noise`` it can be empty or break off."""
    if noise and rng.random() < EMPTY:
        return ()
    order = list(source)
    place = 0
    while place + 1 < len(order):
        if rng.random() < SWAPPED:
            order[place : place + 2] = order[place + 1], order[place]
            place += 1
        place += 1
    draws = rng.random(len(order)).tolist()
    target = [_choice(TRANSLATIONS[word - 3], draw) for word, draw in zip(order, draws, strict=True)]
    if noise and rng.random() < TRUNCATED:
        target = target[: rng.integers(1, len(target))]
    return tuple(target)


def _choice(translations: tuple[Tokens, tuple[float, ...]], draw: float) -> int:
    """The translation at this share, 0 to 1, of all of a word."""
    tokens, shares = translations
    return tokens[min(bisect(list(accumulate(shares)), draw), len(tokens) - 1)]


def f1(source: Sequence[int], target: Sequence[int]) -> float:
    """The quality of a translation, 0 to 1: the F1 score of source words and meanings of target tokens.

    Each word counts as often as it occurs; the order does not count.
    """
    said = Counter(MEANING.get(token, 0) for token in target)
    return 2 * (said & Counter(source)).total() / (len(source) + len(target))
