"""The sequences of inner tokens that cover a prefix of bytes: spell it, the last token perhaps beyond its end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from sgdec.arrays import Floats, Ints
from sgdec.protocol import FORBIDDEN
from sgdec_predictors.spelled.trie import SpellingTrie, log_sums, log_sums_by_place
from sgdec_predictors.wrapping.inner_tokens import InnerPrefix

BYTES = 256
AT_ONCE = 1 << 15
"""About as many scores are summed in one pass as processors keep close."""
END = BYTES
"""The place of ``</s>`` in a row, behind the 256 bytes."""


@dataclass(eq=False, slots=True)
class Element:
    """The sequences with these complete tokens, whose last token begins with the bytes of a node."""

    inner: InnerPrefix
    """The complete tokens."""
    node: int
    """The bytes after them; a root of the trie if there are none."""
    weight: float
    """The score of the complete tokens, relative to that of the prefix."""
    values: npt.NDArray[Any] | None = None
    """The scores of the node's longer entries, ``inside`` to ``last``; None until the inner predictor is asked."""
    end: float = FORBIDDEN
    """The score of ``</s>`` after the complete tokens; -inf inside a token."""
    tokens: tuple[int, ...] = ()
    """The complete tokens, if only canonical ones count."""
    known: list[Element] | None = None
    """This element with its values, and those that follow without a text, if the inner predictor was asked before."""
    silent: bool = False
    """Whether its last token has no text, so that it follows from another element of the same prefix."""

    def then(self, trie: SpellingTrie, entry: int, weight: float, canonical: bool) -> Element:
        """The element after the token of an entry below its node."""
        token = int(trie.tokens[entry])
        tokens = (*self.tokens, token) if canonical else ()
        return Element(self.inner.then(token), int(trie.after[entry]), weight, tokens=tokens)

    def sum(self) -> float:
        """The log of what the inner row adds up to, roughly."""
        assert self.values is not None
        highest = max(float(self.values.max(initial=FORBIDDEN)), self.end)
        if highest > 1.0:
            return highest  # too much in any case
        total = float(np.exp(self.values).sum()) + math.exp(self.end)
        return math.log(total) if total else FORBIDDEN

    def shifted(self) -> list[Element]:
        """The elements that are `known`, with the weight of this one."""
        assert self.known is not None
        shift = self.weight - self.known[0].weight
        return [replace(each, weight=each.weight + shift) for each in self.known]


class BytePrefix:
    """One prefix of bytes, as the elements that cover it."""

    __slots__ = ("elements", "row", "score", "spare")

    def __init__(self, elements: Sequence[Element], score: float = 0.0, spare: Element | None = None) -> None:
        self.elements = elements
        self.row: Floats | None = None
        """``[257]``: the scores of the bytes and of ``</s>``; None until they are asked for."""
        self.score = score
        """The log of its probability, relative to that of the prefix before it."""
        self.spare = spare
        """The most probable element at a root that is not kept, if all elements are inside of tokens."""


def rows_of(trie: SpellingTrie, covers: Sequence[Sequence[Element]]) -> tuple[Floats, Floats]:
    """The rows ``[R, 257]`` of R prefixes, and ``[E]`` the log of what the inner row of each element adds up to.

    All elements have their values. The elements of one prefix follow those of the one before it.
    """
    elements = [element for cover in covers for element in cover]
    row = np.arange(len(covers)).repeat(list(map(len, covers)))
    weights = np.array([element.weight for element in elements])
    ends = np.array([element.end for element in elements])
    nodes = np.array([element.node for element in elements], np.int64)
    counts = trie.children[nodes + 1] - trie.children[nodes]
    owner = np.arange(len(elements)).repeat(counts)  # [children]
    children = ranges(trie.children[nodes], counts)
    sums = _sums(trie, elements, nodes)
    labels = np.frombuffer(trie.label, np.uint8)[children].astype(np.int64)
    width = BYTES + 1
    places = np.concatenate([row[owner] * width + labels, row * width + END])
    scores = np.concatenate([weights[owner] + sums, weights + ends])
    rows = log_sums_by_place(places, scores, len(covers) * width).reshape(len(covers), width)
    every = np.arange(len(elements))
    inner = log_sums_by_place(np.append(owner, every), np.append(sums, ends), len(elements))
    return rows, inner


def _sums(trie: SpellingTrie, elements: Sequence[Element], nodes: Ints) -> Floats:
    """``[children]``: the log of the sum of the scores in each child of each element, in their order."""
    lengths = trie.last[nodes] - trie.inside[nodes]
    parts = (np.cumsum(lengths) // AT_ONCE).searchsorted(range(int(lengths.sum()) // AT_ONCE + 2))
    found = [np.zeros(0)]
    for first, last in pairwise(parts.tolist()):
        values = [element.values for element in elements[first:last] if element.values is not None]
        here, size = nodes[first:last], lengths[first:last]
        starts, counts = trie.children[here], trie.children[here + 1] - trie.children[here]
        if counts.any():
            shift = np.cumsum(size) - size - trie.inside[here]  # from entries to places among the values
            places = shift.repeat(counts) + trie.first[ranges(starts, counts)]
            found.append(log_sums(np.concatenate(values) if len(values) > 1 else values[0], places))
    return np.concatenate(found)


def ranges(starts: Ints, counts: Ints) -> Ints:
    """The numbers from each start on, as many as it counts."""
    before = np.cumsum(counts) - counts
    found: Ints = np.arange(int(counts.sum())) + (starts - before).repeat(counts)
    return found


def after_byte(trie: SpellingTrie, cover: Sequence[Element], byte: int, canonical: bool) -> list[Element]:
    """The elements that cover one more byte: the last token ends with it, or is longer."""
    found = []
    for element in cover:
        node = trie.child(element.node, byte)
        if node >= 0:
            found += at_node(trie, element, node, canonical)
    return found


def at_node(trie: SpellingTrie, element: Element, node: int, canonical: bool) -> list[Element]:
    """The elements after more bytes, those up to a node below: the last token ends with them, or is longer."""
    values = element.values
    if values is None:
        return []
    base = int(trie.inside[element.node])
    first, inside, last = int(trie.first[node]), int(trie.inside[node]), int(trie.last[node])
    found = ended(trie, element, first, values[first - base : inside - base], canonical)
    longer = values[inside - base : last - base]
    if len(longer) and longer.max() > FORBIDDEN:
        own = longer.copy() if 2 * len(longer) < len(values) else longer  # keeps no long row alive
        found.append(Element(element.inner, node, element.weight, own, tokens=element.tokens))
    return found


def ended(trie: SpellingTrie, element: Element, first: int, scores: Floats, canonical: bool) -> list[Element]:
    """The elements after the tokens of the entries ``first``, ..., which have these scores after ``element``."""
    return [
        element.then(trie, entry, element.weight + score, canonical)
        for entry, score in enumerate(scores.tolist(), first)
        if score > FORBIDDEN
    ]


def masses(covers: Sequence[Sequence[Element]]) -> list[Floats]:
    """For each prefix the log of the probability of each of its elements, relative to the prefix before it."""
    elements = [element for cover in covers for element in cover]
    found = np.array([element.weight for element in elements])
    begun = np.array([i for i, element in enumerate(elements) if element.values is not None], np.int64)
    if len(begun):
        values = [elements[i].values for i in begun.tolist()]
        lengths = np.array([len(each) for each in values if each is not None])
        starts = np.cumsum(lengths) - lengths
        found[begun] += log_sums(np.concatenate([each for each in values if each is not None]), starts)
    return np.split(found, np.cumsum(list(map(len, covers)))[:-1]) if covers else []
