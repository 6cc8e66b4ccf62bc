"""Word translation probabilities from parallel text: IBM Model 1 (Brown et al. 1993, section 4.1).

Each target token is the translation of one source token of its sentence, or of none (`NULL`), all equally likely:

    P(t | s_1 ... s_n) = 1 / (n + 1) * sum_i t(t | s_i)

The expectation-maximisation algorithm finds the table t. Its first step counts how often tokens occur together. A
table has an entry for each pair of tokens that occurs in a sentence pair; the text is read in blocks, so memory holds
these entries, the text as token ids, and the links of one block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch

from sgdec.arrays import Floats, Ints
from sgdec.models.shortlists import Shortlist

NULL = -1
"""The source of target tokens that translate nothing."""
LINKS_AT_ONCE = 1 << 22


class Lexicon(NamedTuple):
    """t(target | source) of all pairs with a probability above 0, by source, then by falling probability."""

    sources: Ints
    """[n] source token, ascending; `NULL` comes first."""
    targets: Ints
    """[n]"""
    probabilities: Floats
    """[n]"""
    counts: Ints
    """[V] how often each target token occurs in the text."""


def estimate_lexicon(
    pairs: Iterable[tuple[Sequence[int], Sequence[int]]],
    vocab_size: int,
    *,
    iterations: int = 5,
    report: Callable[[str], None] = lambda message: None,
) -> Lexicon:
    """The table after some iterations from a uniform start. Pairs with an empty side count for nothing.

    ``vocab_size``: that of the targets. ``report`` receives a message at each stage.

    >>> found = estimate_lexicon([((3,), (7,)), ((3, 4), (7, 8))], 9, iterations=20)
    >>> [(int(s), int(t)) for s, t, p in zip(*found[:3]) if s != NULL and p > 0.6]
    [(3, 7), (4, 8)]
    """
    text = [(source, target) for source, target in pairs if len(source) and len(target)]
    sources = _Side([(NULL, *source) for source, _ in text])
    targets = _Side([target for _, target in text])
    counts = np.bincount(targets.tokens, minlength=vocab_size)
    report("collecting pairs of tokens")
    keys = np.zeros(0, np.int64)
    for source, target, _ in _links(sources, targets):
        keys = np.union1d(keys, (source + 1) * vocab_size + target)
    table = np.ones(len(keys))
    of_source = keys // vocab_size
    for iteration in range(iterations):
        report(f"iteration {iteration + 1} of {iterations}, {len(keys):,} pairs of tokens")
        found = np.zeros(len(keys))
        for source, target, word in _links(sources, targets):
            place = np.searchsorted(keys, (source + 1) * vocab_size + target)
            weight = table[place]
            weight /= np.bincount(word, weights=weight)[word]
            found += np.bincount(place, weights=weight, minlength=len(keys))
        table = found / np.bincount(of_source, weights=found)[of_source]
    order = np.lexsort((keys % vocab_size, -table, of_source))
    order = order[table[order] > 0]
    return Lexicon(of_source[order] - 1, keys[order] % vocab_size, table[order], counts)


def shortlist_of(lexicon: Lexicon, source_vocab_size: int, *, k: int, frequent: int) -> Shortlist:
    """The k most probable translations of each source token, and the most frequent tokens of the text."""
    kept = lexicon.sources != NULL
    sources, targets = lexicon.sources[kept], lexicon.targets[kept]
    sizes = np.bincount(sources, minlength=source_vocab_size)
    rank = np.arange(len(sources)) - np.repeat(sizes.cumsum() - sizes, sizes)
    starts = np.concatenate([[0], np.minimum(sizes, k).cumsum()])
    order = np.argsort(-lexicon.counts, kind="stable")[: min(frequent, np.count_nonzero(lexicon.counts))]
    parts = [torch.from_numpy(part.astype(np.int64)) for part in (starts, targets[rank < k], order)]
    return Shortlist(parts[0], parts[1], parts[2], len(lexicon.counts))


class _Side:
    """One side of the text, its sentences one after the other."""

    def __init__(self, sentences: Sequence[Sequence[int]]) -> None:
        self.sizes = np.array([len(sentence) for sentence in sentences], dtype=np.int64)
        self.starts = np.concatenate([[0], self.sizes.cumsum()])
        self.tokens = np.fromiter((token for each in sentences for token in each), np.int64, int(self.starts[-1]))


def _links(sources: _Side, targets: _Side) -> Iterator[tuple[Ints, Ints, Ints]]:
    """Blocks of the links between each target token and each source token of its sentence: source, target, and the
    number of the target token in the block."""
    sizes = sources.sizes * targets.sizes
    ends = sizes.cumsum()
    first = 0
    while first < len(sizes):
        done = int(ends[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(ends, done + LINKS_AT_ONCE, side="right")))
        part = slice(first, last)
        pair = np.repeat(np.arange(first, last), sizes[part])
        place = np.arange(len(pair)) - np.repeat(ends[part] - sizes[part] - done, sizes[part])
        word, which = np.divmod(place, sources.sizes[pair])
        word += targets.starts[pair]
        yield sources.tokens[sources.starts[pair] + which], targets.tokens[word], word - targets.starts[first]
        first = last
