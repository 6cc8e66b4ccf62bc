"""n-gram posteriors: the probability that a path of a lattice, or an entry of an n-best list, contains an n-gram.

Paths have the probability ``exp(scale x score)``, renormalised. The **posterior** of an n-gram is the probability
of the paths in which it occurs, once or more often (Blackwood, de Gispert and Byrne 2010, "Efficient Path Counting
Transducers for Minimum Bayes-Risk Decoding of Statistical Machine Translation Lattices"); its **expected count**
weights each path by its number of occurrences. N-grams are those of ``<s> tokens </s>``. The probability is that of
paths, not strings: two paths with the same string both count, and so do two entries of an n-best list.

On a lattice both are computed exactly by one forward pass. The backward scores give each arc its conditional
probability, that of leaving its state by this arc. States are split until each is reached by one history of order - 1
tokens only, so that an arc completes known n-grams. For each n-gram u and state q, H(q, u) is the probability of
reaching q with u on the way: along an arc of probability a from p, which completes u,

    H(q, u) += a P(p)        instead of        a H(p, u)

where P(p) is the probability of reaching p. At the end H is the posterior: each path was counted at its first u. Only
n-grams that can occur twice on one path need H; for all others the expected count is the posterior. Time: the number
of arcs of the split lattice, times the few n-grams that can repeat.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from sgdec.arrays import Floats
from sgdec.context import BOS, EOS, UNK
from sgdec.errors import SgdecError
from sgdec.io.lattice import Lattice
from sgdec.io.ngrams import Ngram

State: TypeAlias = tuple[int, Ngram]
"""A lattice state, and at most order - 1 tokens before it; none before ``<s>``."""


class _Arc(NamedTuple):
    """An arc from one split state to another; None = the end."""

    target: State | None
    probability: float
    ngrams: tuple[Ngram, ...]
    """The n-grams that the arc completes."""


def nbest_posteriors(
    entries: Sequence[tuple[Sequence[int], float]], order: int, *, scale: float = 1.0, counts: bool = False
) -> dict[Ngram, float]:
    """The posteriors of n-grams up to ``order`` in a list of (tokens without ``<s>`` and ``</s>``, natural-log
    score).

    ``counts``: expected counts instead of posteriors. Entries with the score -inf do not count; the result is empty
    if there are no others.
    """
    entries = [(tokens, score) for tokens, score in entries if score > -math.inf]
    if not entries:
        return {}
    highest = max(score for _, score in entries)
    shares = [math.exp(scale * (score - highest)) for _, score in entries]
    whole = math.fsum(shares)
    found: defaultdict[Ngram, float] = defaultdict(float)
    for (tokens, _), share in zip(entries, shares, strict=True):
        for ngram, times in Counter(_ngrams_of((BOS, *tokens, EOS), order)).items():
            found[ngram] += share / whole * (times if counts else 1)
    return dict(found)


def lattice_posteriors(
    lattice: Lattice, order: int, *, scale: float = 1.0, counts: bool = False
) -> dict[Ngram, float]:
    """The posteriors of n-grams up to ``order`` on the paths of a lattice, deterministic or not; label 0 is epsilon.

    A leading ``<s>`` arc is not a token, and a path ends with a ``</s>`` arc to a final state, or in a final state.
    The result is empty if there is no path. Raises SgdecError if the lattice has a cycle.
    """
    splitter = _Splitter(lattice, order, scale)
    if not splitter.has_path:
        return {}
    arcs = list(splitter.arcs())
    expected = _expected_counts(arcs, splitter.root)
    if counts:
        return expected
    found = expected | _probabilities(arcs, splitter.root, _can_repeat(arcs))
    return {ngram: min(probability, 1.0) for ngram, probability in found.items()}  # rounding can exceed 1


def _ngrams_of(tokens: Sequence[int], order: int) -> Iterator[Ngram]:
    for end in range(1, len(tokens) + 1):
        yield from _completed(tuple(tokens[max(end - order, 0) : end]))


def _completed(tokens: Ngram) -> tuple[Ngram, ...]:
    """The n-grams that end with the last of these tokens."""
    return tuple(tokens[begin:] for begin in range(len(tokens)))


class _Splitter:
    """A lattice whose states are split by history."""

    def __init__(self, lattice: Lattice, order: int, scale: float) -> None:
        self._lattice = lattice
        self._order = order
        self._scale = scale
        self._states = _children_first(lattice)
        self._backward: dict[int, float] = {}
        """By state: the log of the sum over all paths to the end."""
        for state in self._states:
            self._backward[state] = _log_sum([score for _, score, _ in self._ways(state)])
        self.root: State = (lattice.start, ())

    @property
    def has_path(self) -> bool:
        return self._backward.get(self._lattice.start, -math.inf) != -math.inf

    def arcs(self) -> Iterator[tuple[State, list[_Arc]]]:
        """Each split state with its arcs, parents first."""
        histories: defaultdict[int, dict[Ngram, None]] = defaultdict(dict)  # sets that keep an order
        histories[self._lattice.start][()] = None
        for state in reversed(self._states):
            for history in histories.pop(state, {}):
                found = list(self._from(state, history))
                for arc in found:
                    if arc.target is not None:
                        histories[arc.target[0]][arc.target[1]] = None
                yield (state, history), found

    def _from(self, state: int, history: Ngram) -> Iterator[_Arc]:
        begin = () if history else _completed((BOS,))  # <s> comes with the first token, or has its own arc
        before = history or (BOS,)
        for label, score, target in self._ways(state):
            probability = math.exp(score - self._backward[state])
            if target is None:
                yield _Arc(None, probability, begin + self._ends((*before, EOS)))
            elif label == UNK:
                yield _Arc((target, history), probability, ())
            elif label == BOS and not history:
                yield _Arc((target, (BOS,)), probability, begin)
            else:
                longer = (*before, label)
                kept = longer[max(len(longer) - self._order + 1, 0) :] or (BOS,)  # () is before <s>
                yield _Arc((target, kept), probability, begin + self._ends(longer))

    def _ends(self, tokens: Ngram) -> tuple[Ngram, ...]:
        return _completed(tokens[max(len(tokens) - self._order, 0) :])

    def _ways(self, state: int) -> Iterator[tuple[int, float, int | None]]:
        """The arcs of a state: label, log-sum over all paths to the end through the arc, target (None = the end)."""
        final = self._lattice.final
        if final[state] < math.inf:
            yield EOS, -self._scale * float(final[state]), None
        for label, cost, target in self._lattice.arcs[state]:
            more = -self._scale * float(final[target]) if label == EOS else self._backward[target]
            if cost < math.inf and more > -math.inf:
                yield label, more - self._scale * cost, None if label == EOS else target


def _log_sum(scores: Sequence[float]) -> float:
    highest = max(scores, default=-math.inf)
    if highest == -math.inf:
        return highest
    return highest + math.log(math.fsum(math.exp(score - highest) for score in scores))


def _expected_counts(arcs: Iterable[tuple[State, list[_Arc]]], root: State) -> dict[Ngram, float]:
    found: defaultdict[Ngram, float] = defaultdict(float)
    reached: defaultdict[State, float] = defaultdict(float, {root: 1.0})
    for state, leaving in arcs:
        here = reached.pop(state)
        for target, probability, ngrams in leaving:
            for ngram in ngrams:
                found[ngram] += here * probability
            if target is not None:
                reached[target] += here * probability
    return dict(found)


def _can_repeat(arcs: Iterable[tuple[State, list[_Arc]]]) -> list[Ngram]:
    """The n-grams that occur twice on some path. Sets of n-grams are represented by the bits of one integer."""
    bits: dict[Ngram, int] = {}
    seen: defaultdict[State, int] = defaultdict(int)
    repeated: dict[Ngram, None] = {}
    for state, leaving in arcs:
        before = seen.pop(state, 0)
        for target, _, ngrams in leaving:
            after = before
            for ngram in ngrams:
                bit = bits.setdefault(ngram, 1 << len(bits))
                if after & bit:
                    repeated[ngram] = None
                after |= bit
            if target is not None:
                seen[target] |= after
    return list(repeated)


def _probabilities(
    arcs: Iterable[tuple[State, list[_Arc]]], root: State, wanted: Sequence[Ngram]
) -> dict[Ngram, float]:
    """H at the end for the n-grams ``wanted``; the last column of a vector is the probability of the state itself."""
    column = {ngram: i for i, ngram in enumerate(wanted)}
    nothing = np.zeros(len(wanted) + 1)
    reached: dict[State | None, Floats] = {root: nothing.copy()}
    reached[root][-1] = 1.0
    for state, leaving in arcs:
        here = reached.pop(state)
        for target, probability, ngrams in leaving:
            there = reached.get(target)
            if there is None:
                there = reached[target] = nothing.copy()
            there += probability * here
            for i in {column[ngram] for ngram in ngrams if ngram in column}:
                there[i] += probability * (here[-1] - here[i])
    return dict(zip(wanted, reached[None].tolist(), strict=False))


def _children_first(lattice: Lattice) -> list[int]:
    """The states before ``</s>``, each after all targets of its arcs. Raises SgdecError for a cycle."""
    if lattice.start < 0:
        return []
    order: list[int] = []
    on_path, done = {lattice.start}, set[int]()
    stack = [(lattice.start, iter(lattice.arcs[lattice.start]))]
    while stack:
        state, arcs = stack[-1]
        for arc in arcs:
            if arc.label == EOS:
                continue
            if arc.target in on_path:
                raise SgdecError(f"state {arc.target} is on a cycle. Posteriors need a lattice without cycles.")
            if arc.target not in done:
                on_path.add(arc.target)
                stack.append((arc.target, iter(lattice.arcs[arc.target])))
                break
        else:
            stack.pop()
            on_path.remove(state)
            done.add(state)
            order.append(state)
    return order
