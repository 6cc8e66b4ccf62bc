"""Scored n-grams as an automaton that reads tokens and adds the scores of the n-grams that end with each.

Its states, *contexts*, are proper prefixes of n-grams: after some tokens the automaton is in the longest context that
is a suffix of them (Aho and Corasick 1975). A context *falls back* to the longest other context that is a suffix of
it. Its row is the row of that context plus the scores of its own n-grams.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np

from sgdec import BOS, EOS
from sgdec.arrays import Floats
from sgdec.files import Ngram


class NgramTable:
    """The n-grams of one sentence."""

    def __init__(self, ngrams: Mapping[Ngram, float]) -> None:
        """``<s>`` is the beginning and ``</s>`` the end: n-grams with either elsewhere can never be completed."""
        self.own: dict[Ngram, dict[int, float]] = {(): {}}
        """By context, the scores of the n-grams that extend it by one token."""
        for ngram, score in ngrams.items():
            if ngram[-1] != BOS and BOS not in ngram[1:] and EOS not in ngram[:-1]:
                for end in range(len(ngram)):
                    self.own.setdefault(ngram[:end], {})
                self.own[ngram[:-1]][ngram[-1]] = score
        self._rows: dict[Ngram, dict[int, float]] = {}
        self.start = self.longest((BOS,))

    def longest(self, tokens: Ngram) -> Ngram:
        """The longest context that is a suffix of these tokens."""
        return next(tokens[begin:] for begin in range(len(tokens) + 1) if tokens[begin:] in self.own)

    def follow(self, context: Ngram, token: int) -> Ngram:
        """The context after one more token; token 1 inside a sentence does not begin the sentence again."""
        return () if token == BOS else self.longest((*context, token))

    def suffixes(self, context: Ngram) -> Iterator[Ngram]:
        """The contexts that are suffixes of this one, itself first."""
        while context:
            yield context
            context = self.longest(context[1:])
        yield ()

    def row(self, context: Ngram) -> Mapping[int, float]:
        """The tokens that complete n-grams, each with the sum of their scores; computed once."""
        if context not in self._rows:
            row = dict(self.row(self.longest(context[1:]))) if context else {}
            for token, score in self.own[context].items():
                row[token] = row.get(token, 0.0) + score
            self._rows[context] = row
        return self._rows[context]

    def completed(self, context: Ngram, token: int) -> list[Ngram]:
        """The n-grams that ``token`` completes."""
        return [(*suffix, token) for suffix in self.suffixes(context) if token in self.own[suffix]]


class MostToCome:
    """An upper bound on the score still added after a context, ``</s>`` included, by the number of tokens left.

    V_k(c) is the maximum over ``</s>``; over the tokens that continue c to an n-gram or a context, with V_k-1 of the
    context after them; and V_k of the context that c falls back to, which covers all other tokens. For the empty
    context there is also a token that is in no n-gram. The bound is exact if no score is negative and all tokens are
    allowed, because a longer context then never scores less.
    """

    def __init__(self, table: NgramTable, sign: float, positive: bool) -> None:
        """``sign`` multiplies the scores; ``positive``: negative ones count as 0."""
        self._place = {context: i for i, context in enumerate(sorted(table.own, key=len))}
        contexts = list(self._place)

        def score(context: Ngram, token: int) -> float:
            scores = (sign * table.own[suffix].get(token, 0.0) for suffix in table.suffixes(context))
            return math.fsum(max(value, 0.0) if positive else value for value in scores)

        steps = {(context, token) for context, row in table.own.items() for token in row if token != EOS}
        steps |= {(context[:-1], context[-1]) for context in contexts if context and context != (BOS,)}
        steps.add(((), -1))  # a token outside all n-grams
        edges = sorted((self._place[context], self._place[table.follow(context, token)], score(context, token))
                       for context, token in steps)  # fmt: skip
        self._sources = np.array([source for source, _, _ in edges])
        self._targets = np.array([target for _, target, _ in edges])
        self._scores = np.array([value for _, _, value in edges])
        self._first = np.flatnonzero(np.diff(self._sources, prepend=-1))
        """The index of the first edge of each context that has edges."""
        depth = np.array([len(context) for context in contexts])
        self._levels = [np.flatnonzero(depth == d) for d in range(1, int(depth.max()) + 1)]
        self._falls_to = np.array([self._place[table.longest(context[1:])] for context in contexts])
        ends = np.array([score(context, EOS) for context in contexts])
        self._most = [self._with_fallbacks(ends)]
        self._gains = bool((self._scores > 0).any())

    def after(self, context: Ngram, tokens: float) -> float:
        """``tokens``: the most tokens before ``</s>``; infinite without a limit if more tokens can gain."""
        if tokens == math.inf:
            return math.inf if self._gains else float(self._most[0].max())
        while len(self._most) <= tokens:
            self._most.append(self._longer(self._most[-1]))
        return float(self._most[int(max(tokens, 0))][self._place[context]])

    def _longer(self, shorter: Floats) -> Floats:
        most = self._most[0].copy()
        going_on = np.maximum.reduceat(self._scores + shorter[self._targets], self._first)
        sources = self._sources[self._first]
        most[sources] = np.maximum(most[sources], going_on)
        return self._with_fallbacks(most)

    def _with_fallbacks(self, most: Floats) -> Floats:
        for level in self._levels:
            most[level] = np.maximum(most[level], most[self._falls_to[level]])
        return most
