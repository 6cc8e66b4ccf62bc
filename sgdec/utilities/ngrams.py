"""The numbers of n-grams that H hypotheses share with R references, all pairs at once.

The n-grams of a text are a bag. The bag is written as a set, the k-th occurrence of an n-gram being an element of
its own; so the size of the intersection of two bags, the sum of min(count, count), is the product of two rows of
zeros and ones, and all of them are one matrix product.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from sgdec.arrays import Floats, Ints

ELEMENTS = 1 << 22
"""The most numbers in a matrix of zeros and ones; wider ones are multiplied in parts."""


class Overlaps(NamedTuple):
    """The n-grams of one order."""

    hypotheses: Floats
    """The number of n-grams of each hypothesis. [H]"""
    references: Floats
    """The number of n-grams of each reference, or of each mean of references. [R]"""
    matches: Floats
    """The number of n-grams that both have. [H, R]"""


class _Counts(NamedTuple):
    """The bags of one order: for each text and distinct n-gram of it, a count. Sorted by n-gram, then by text."""

    grams: Ints
    """Numbers 0, 1, ... of n-grams. [counts]"""
    texts: Ints
    """[counts]"""
    counts: Ints
    """[counts]"""


def shared(hypotheses: Sequence[Ints], references: Sequence[Ints], order: int) -> Iterator[Overlaps]:
    """For each order 1, ..., ``order``: the numbers of n-grams, and how many each pair shares.

    A text is an array of symbols, such as the code points of its characters or the numbers of its words.

    >>> for each in shared([np.array([7, 8, 7])], [np.array([7, 7]), np.array([8])], 2):
    ...     print(each.hypotheses, each.references, each.matches)
    [3.] [2. 1.] [[2. 1.]]
    [2.] [1. 0.] [[0. 0.]]
    """
    every = _bags([*hypotheses, *references], order)
    for bags, sizes in zip(every, _sizes(hypotheses, references, order), strict=True):
        yield Overlaps(*sizes, _intersections(bags, len(hypotheses), len(references)))


def shared_with_means(
    hypotheses: Sequence[Ints], references: Sequence[Ints], weights: Floats, order: int
) -> Iterator[Overlaps]:
    """The same for bags with the mean counts of references, as if each mean were one reference.

    ``weights``: one mean per row. [M, R]
    """
    rows = len(hypotheses)
    every = _bags([*hypotheses, *references], order)
    for bags, (own, theirs) in zip(every, _sizes(hypotheses, references, order), strict=True):
        of_hypotheses = bags.texts < rows
        grams, texts, counts = (each[of_hypotheses] for each in bags)
        matches = np.zeros((rows, len(weights)))
        for place, row in enumerate(weights):
            weighed = bags.counts * np.concatenate([np.zeros(rows), row])[bags.texts]
            mean = np.bincount(bags.grams, weighed)
            matches[:, place] = np.bincount(texts, np.minimum(counts, mean[grams]), minlength=rows)
        yield Overlaps(own, weights @ theirs, matches)


def _sizes(hypotheses: Sequence[Ints], references: Sequence[Ints], order: int) -> Iterator[tuple[Floats, Floats]]:
    lengths = [np.array([len(text) for text in texts], float) for texts in (hypotheses, references)]
    for n in range(1, order + 1):
        own, theirs = (np.maximum(each - n + 1, 0) for each in lengths)
        yield own, theirs


def _bags(texts: Sequence[Ints], order: int) -> Iterator[_Counts]:
    """The bags of n-grams of each order. An n-gram is known by the number of its first n - 1 symbols and its last."""
    symbols = np.unique(np.concatenate([np.zeros(0, np.int64), *texts]), return_inverse=True)[1]
    size = int(symbols.max(initial=0)) + 1
    lengths = np.array([len(text) for text in texts], np.int64)
    of_text = np.repeat(np.arange(len(texts)), lengths)
    left = np.repeat(np.cumsum(lengths), lengths) - np.arange(len(symbols))  # symbols from here to the text's end
    grams = np.zeros(len(symbols), np.int64)  # of n - 1 symbols, by their first place
    for n in range(1, order + 1):
        starts = np.flatnonzero(left >= n)
        keys = grams[starts] * size + symbols[starts + n - 1]
        sorting = np.argsort(keys, kind="stable")  # equal n-grams stay sorted by text
        keys, of = keys[sorting], of_text[starts[sorting]]
        new = np.concatenate([[True], keys[1:] != keys[:-1]])[: len(keys)]
        numbers = np.cumsum(new) - 1
        grams[starts[sorting]] = numbers
        firsts = np.flatnonzero(new | np.concatenate([[True], of[1:] != of[:-1]])[: len(keys)])
        yield _Counts(numbers[firsts], of[firsts], np.diff(np.append(firsts, len(keys))))


def _intersections(bags: _Counts, hypotheses: int, references: int) -> Floats:
    """The sizes of intersections. [H, R]"""
    grams, texts, counts = bags
    size = int(grams[-1]) + 1 if len(grams) else 0
    ours = texts < hypotheses
    both = np.zeros(size, bool)
    both[grams[ours]] = True
    theirs = np.zeros(size, bool)
    theirs[grams[~ours]] = True
    kept = (both & theirs)[grams]
    grams, texts, counts = grams[kept], texts[kept], counts[kept]
    most = np.zeros(size, np.int64)
    np.maximum.at(most, grams, counts)
    offsets = np.cumsum(most) - most
    nth = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    columns = np.repeat(offsets[grams], counts) + nth
    rows = np.repeat(texts, counts)
    width = int(most.sum())
    matches = np.zeros((hypotheses, references), np.float32)
    step = max(1, ELEMENTS // max(1, hypotheses + references))
    for start in range(0, width, step):
        inside = (columns >= start) & (columns < start + step)
        has = np.zeros((hypotheses + references, min(step, width - start)), np.float32)
        has[rows[inside], columns[inside] - start] = 1
        matches += has[:hypotheses] @ has[hypotheses:].T
    return matches.astype(np.float64)


def numbered(*sides: Iterable[Sequence[str]]) -> list[list[Ints]]:
    """Texts of words as arrays of numbers; equal words have equal numbers on all sides.

    >>> numbered([["a", "b"]], [["b"], []])
    [[array([0, 1])], [array([1]), array([], dtype=int64)]]
    """
    numbers: dict[str, int] = {}
    return [
        [np.array([numbers.setdefault(word, len(numbers)) for word in text], np.int64) for text in side]
        for side in sides
    ]
