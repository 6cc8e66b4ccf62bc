"""The probabilities of given continuations of covered prefixes: of bytes w after a text x, P(x w...) / P(x...).

A token sequence that covers x w either has its last token beyond the end of w, so it is in the subtree of the trie at
w, or it has a token that ends inside of w. The first are one sum for each element of the prefix. The second are
elements of their own, whose scores the inner predictor has to give. They are left out if they have a small share of
the text up to their end, or less than this share of what is known of x w.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from sgdec.arrays import Floats
from sgdec.protocol import FORBIDDEN
from sgdec_predictors.spelled.covering import Element
from sgdec_predictors.spelled.trie import SpellingTrie, log_sums, log_sums_by_place

MOST_PATHS = 1 << 18
"""The number of ways through the trie that are remembered, about 50 MB."""


class Way(NamedTuple):
    """The way of some bytes through the trie."""

    end: int
    """The node at their end; -1 if no token begins with them."""
    inside: tuple[tuple[int, int], ...]
    """The number of bytes before each node inside of the way at which tokens end, and that node."""


class Asked(NamedTuple):
    """A continuation of a prefix, of which some bytes are behind an element already."""

    number: int
    done: int


class ContinuedTexts:
    """Sums over the sequences that cover continuations."""

    def __init__(
        self,
        trie: SpellingTrie,
        read: Callable[[Sequence[Element]], list[list[Element]]],
        width: int,
        least: float,
        canonical: bool,
    ) -> None:
        """``read``: gives new elements their values. ``width``, 0 = no limit, and ``least``, the log of a share: the
        elements that are kept of those that end at the same byte inside of a continuation."""
        self._trie, self._read = trie, read
        self._width, self._least, self._canonical = width, least, canonical
        self._first, self._inside, self._last = trie.first.tolist(), trie.inside.tolist(), trie.last.tolist()
        self._paths: dict[tuple[int, bytes], Way] = {}

    def scores(self, covers: Sequence[Sequence[Element]], texts: Sequence[Sequence[bytes]]) -> list[Floats]:
        """For each prefix the scores of its continuations, which are not empty. The elements have their values."""
        flat = [text for own in texts for text in own]
        owner = [row for row, own in enumerate(texts) for _ in own]
        numbers = np.cumsum([0, *map(len, texts)]).tolist()
        asked = [[Asked(n, 0) for n in range(numbers[row], numbers[row + 1])] for row in range(len(texts))]
        level = [(element, asked[row]) for row, cover in enumerate(covers) for element in cover]
        total = np.full(len(flat), FORBIDDEN)
        while level:
            ranges = _Ranges(self)
            at: list[int] = []
            places: list[int] = []
            ends: dict[tuple[int, int], tuple[Element, int, bytes, list[Asked]]] = {}
            for number, (element, wanted) in enumerate(level):
                for each in wanted:
                    text = flat[each.number]
                    path = self._path(element.node, text[each.done :] if each.done else text)
                    if path.end >= 0:
                        at.append(ranges.add(number, element, path.end))
                        places.append(each.number)
                    for length, node in path.inside:
                        done = each.done + length
                        group = ends.get((number, node))
                        if group is None:
                            group = ends[number, node] = (element, owner[each.number], text[:done], [])
                        group[3].append(Asked(each.number, done))
            inside = {key: ranges.add(key[0], group[0], key[1]) for key, group in ends.items()}
            sums = ranges.sums()
            here = log_sums_by_place(np.array(places, np.int64), sums[at], len(flat))
            total = np.logaddexp(total, here)
            needed = np.where(total > FORBIDDEN, np.maximum(total, 0.0) + self._least, FORBIDDEN)
            level = self._further(ends, inside, sums, needed.tolist())
        return np.split(total, numbers[1:-1])

    def _further(
        self,
        ends: dict[tuple[int, int], tuple[Element, int, bytes, list[Asked]]],
        inside: dict[tuple[int, int], int],
        sums: Floats,
        least: list[float],
    ) -> list[tuple[Element, list[Asked]]]:
        """The elements after tokens that end inside of continuations, with what is asked about them.

        ``least``: for each continuation the log of the smallest probability that matters beside what is known of it.
        """
        whole: dict[tuple[int, bytes], float] = {}
        new: dict[tuple[int, bytes], list[tuple[float, Element, list[Asked]]]] = {}
        for (number, node), (element, row, text, wanted) in ends.items():
            share = float(sums[inside[number, node]])
            whole[row, text] = float(np.logaddexp(whole.get((row, text), FORBIDDEN), share))
            assert element.values is not None
            base, first = self._inside[element.node], self._first[node]
            for entry, score in enumerate(element.values[first - base : self._inside[node] - base].tolist(), first):
                weight = element.weight + score
                if weight > FORBIDDEN and (matters := [each for each in wanted if weight >= least[each.number]]):
                    token = int(self._trie.tokens[entry])
                    tokens = (*element.tokens, token) if self._canonical else ()
                    after = Element(element.inner.then(token), int(self._trie.after[entry]), weight, tokens=tokens)
                    new.setdefault((row, text), []).append((weight, after, matters))
        kept = []
        for key, elements in new.items():
            best = sorted(elements, key=lambda each: -each[0])[: self._width or None]
            kept += [(after, wanted) for weight, after, wanted in best if weight >= self._least + whole[key]]
        read = self._read([after for after, _ in kept])
        return [(each, wanted) for own, (_, wanted) in zip(read, kept, strict=True) for each in own]

    def _path(self, node: int, text: bytes) -> Way:
        key = node, text
        found = self._paths.get(key)
        if found is None:
            at, inside = node, []
            for length, byte in enumerate(text, 1):
                at = self._trie.child(at, byte)
                if at < 0:
                    break
                if length < len(text) and self._first[at] < self._inside[at]:
                    inside.append((length, at))
            if len(self._paths) >= MOST_PATHS:
                self._paths.clear()
            found = self._paths[key] = Way(at, tuple(inside))
        return found


class _Ranges:
    """Log-sums of scores in nodes below those of elements, each once."""

    def __init__(self, owner: ContinuedTexts) -> None:
        self._owner = owner
        self._known: dict[tuple[int, int], int] = {}
        self._values: list[Floats] = []
        self._weights: list[float] = []

    def add(self, number: int, element: Element, node: int) -> int:
        """The place of the sum for an element, which has a number, and a node; the element's weight is part of it."""
        key = number, node
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = len(self._values)
            assert element.values is not None
            own = self._owner
            base = own._inside[element.node]
            self._values.append(element.values[own._first[node] - base : own._last[node] - base])
            self._weights.append(element.weight)
        return found

    def sums(self) -> Floats:
        if not self._values:
            return np.zeros(0)
        lengths = np.array(list(map(len, self._values)))
        sums = log_sums(np.concatenate(self._values), np.cumsum(lengths) - lengths)
        return np.asarray(sums + np.array(self._weights))
