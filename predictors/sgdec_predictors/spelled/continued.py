"""Continuations of one covered prefix: their scores, and the elements that reach their ends."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sgdec.arrays import Floats, Ints
from sgdec.protocol import FORBIDDEN
from sgdec_predictors.spelled.covering import Element, at_node
from sgdec_predictors.spelled.leading import EMPTY
from sgdec_predictors.spelled.trie import SpellingTrie
from sgdec_predictors.wrapping.inner_tokens import InnerPrefix


class LeftOut(NamedTuple):
    """For each of n continuations the most probable element that ends inside of it and was not followed."""

    weight: Floats
    """-inf if there is none."""
    element: Ints
    """The element before its last token."""
    entry: Ints
    """The entry of its last token."""
    done: Ints
    """The bytes of the continuation up to its end."""

    @classmethod
    def none(cls, size: int) -> LeftOut:
        return cls(np.full(size, FORBIDDEN), *(np.zeros(size, np.int64) for _ in range(3)))


class ContinuedPrefix(NamedTuple):
    """The scores of n continuations of one prefix, and the ways to their ends."""

    texts: Ints
    """``[n]``: their numbers, ascending."""
    scores: Floats
    """``[n]``: the log of the probability of each, relative to that of the prefix."""
    lost: Floats
    """``[n]``: at most this probability, relative to that of the prefix, was left out inside of each."""
    elements: list[Element]
    """Those of the prefix, and those that end inside of continuations."""
    reached: tuple[Ints, Ints, Ints]
    """``[p]``: places of continuations, ascending; with each an element and the node at which it reaches the end."""
    left_out: LeftOut
    """The sequences that were not followed inside of them."""
    read: dict[InnerPrefix, list[Element]]
    """Elements that end inside of continuations and those that follow without a text, by complete tokens."""

    def place(self, text: int) -> int:
        """The place of a text that was asked about."""
        return int(self.texts.searchsorted(text))

    def has(self, texts: Ints) -> bool:
        """Whether it was asked about all of these texts that are not empty."""
        places = self.texts.searchsorted(texts)
        known = self.texts[np.minimum(places, len(self.texts) - 1)] if len(self.texts) else -1
        return bool(((texts == known) | (texts <= EMPTY)).all())

    def after(self, text: int, trie: SpellingTrie, canonical: bool) -> list[Element]:
        """The elements that cover the prefix and this continuation."""
        places, numbers, nodes = self.reached
        first, last = places.searchsorted(self.place(text) + np.arange(2))
        found = []
        for number, node in zip(numbers[first:last].tolist(), nodes[first:last].tolist(), strict=True):
            found += at_node(trie, self.elements[number], node, canonical)
        for each in found:
            if each.values is None:
                each.known = self.read.get(each.inner)
        return found

    def most_left_out(self, text: int, trie: SpellingTrie, canonical: bool) -> tuple[Element, int] | None:
        """The most probable element that was not followed inside of it, and the number of bytes up to its end."""
        place, out = self.place(text), self.left_out
        weight = float(out.weight[place])
        if weight == FORBIDDEN:
            return None
        before = self.elements[int(out.element[place])]
        return before.then(trie, int(out.entry[place]), weight, canonical), int(out.done[place])

    def beside(self, texts: Ints, spare: ContinuedPrefix) -> ContinuedPrefix:
        """The same, but other elements reach some continuations."""
        place = self.texts.searchsorted(texts)
        scores, lost = self.scores.copy(), self.lost.copy()
        scores[place], lost[place] = spare.scores, spare.lost
        own, number, node = spare.reached
        places = np.append(self.reached[0], place[own])
        numbers = np.append(self.reached[1], number + len(self.elements))
        order = np.argsort(places, kind="stable")
        reached = places[order], numbers[order], np.append(self.reached[2], node)[order]
        other = spare.left_out._replace(element=spare.left_out.element + len(self.elements))
        left_out = LeftOut(self.left_out.weight.copy(), *(each.copy() for each in self.left_out[1:]))
        for own_part, part in zip(left_out, other, strict=True):
            own_part[place] = part
        elements, read = self.elements + spare.elements, {**self.read, **spare.read}
        return ContinuedPrefix(self.texts, scores, lost, elements, reached, left_out, read)
