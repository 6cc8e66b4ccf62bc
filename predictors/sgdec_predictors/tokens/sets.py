"""Sets of tokens as typed in options: ``4,17,>100,<3``."""

from __future__ import annotations

import re
from functools import cached_property, lru_cache

import numpy as np

from sgdec import EOS, UsageError
from sgdec.arrays import Flags, Ints
from sgdec.files import TOKENS, VOCABULARY, whole_number

_ITEM = re.compile(r"([<>]?)(\d+)", re.ASCII)


class TokenSet:
    """Some tokens, all below ``low``, and all above ``high`` (None = no such range); never ``</s>``.

    >>> tokens = TokenSet({4, 17}, low=3, high=100)
    >>> [token in tokens for token in (0, 1, 2, 3, 4, 17, 100, 101)]
    [True, True, False, False, True, True, False, True]
    """

    def __init__(self, listed: set[int], low: int = 0, high: int | None = None) -> None:
        self.listed = frozenset(listed)
        self.low = low
        self.high = high

    @classmethod
    def parse(cls, text: str, who: str) -> TokenSet:
        """Parse ids and ranges ``>n`` and ``<n``, which exclude ``</s>``. Raises UsageError for anything else.

        >>> TokenSet.parse("4, >9", "maskvocab").listed
        frozenset({4})
        """
        listed: set[int] = set()
        lows: list[int] = [0]
        highs: list[int] = []
        for item in filter(None, map(str.strip, text.split(","))):
            found = _ITEM.fullmatch(item)
            if found is None:
                raise UsageError(f"{who}: tokens {text!r}: {item!r} is neither an id nor >n nor <n, as in 4,17,>100.")
            number = whole_number(found[2], VOCABULARY.value if found[1] else TOKENS)
            if number is None:
                most = f"ranges begin and end below the largest vocabulary. {VOCABULARY.raising}" if found[1] else ""
                raise UsageError(f"{who}: {item[:40]!r} is larger than any token. {most}".rstrip())
            sign = found[1]
            if not sign and number == EOS:
                raise UsageError(f"{who}: tokens {text!r}: </s> ({EOS}) cannot be one of them.")
            {"": listed.add, "<": lows.append, ">": highs.append}[sign](number)
        return cls(listed, max(lows), min(highs, default=None))

    def __contains__(self, token: int) -> bool:
        if token in self.listed:
            return True
        return token != EOS and (token < self.low or (self.high is not None and token > self.high))

    @cached_property
    def _listed_array(self) -> Ints:
        return np.array(sorted(self.listed), np.int64)

    def contains(self, tokens: Ints) -> Flags:
        """For each token ``[n]`` whether it is in the set."""
        found: Flags = np.isin(tokens, self._listed_array) | (tokens < self.low)
        if self.high is not None:
            found |= tokens > self.high
        found &= tokens != EOS
        return found

    def __bool__(self) -> bool:
        return bool(self.listed or self.low or self.high is not None)

    @property
    def finite(self) -> bool:
        return self.high is None

    @cached_property
    def members(self) -> list[int]:
        """All tokens of the set except those above ``high``, ascending."""
        return sorted({*range(self.low), *self.listed} - {EOS})

    @cached_property
    def others(self) -> list[int]:
        """All tokens outside an infinite set, ascending."""
        assert self.high is not None
        return [token for token in range(max(self.high, EOS) + 1) if token not in self]

    def require_within(self, size: int | None, who: str) -> None:
        """Raises UsageError for ids that a vocabulary of ``size`` tokens does not have."""
        if size is not None and max(self.listed, default=0) >= size:
            raise UsageError(f"{who}: token {max(self.listed)} is outside the target vocabulary of {size} tokens.")

    @lru_cache  # noqa: B019 - a run has few of these, for as long as it lasts
    def places(self, width: int) -> Ints:
        """The members among ``width`` tokens, ascending."""
        return np.array([token for token in range(width) if token in self], dtype=np.int64)
