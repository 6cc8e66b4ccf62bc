"""Beam search from its definition, over explicit tables: plain lines that share no code with any search here.

A table says for each prefix which tokens follow it with which scores, and (for a coverage penalty) with which
attention. The definition is that of the page of `beam`; a hypothesis is (table, tokens, total). Several tables are
the systems of `sepbeam`.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np

from sgdec import EOS, Predictor, Scores, Source
from sgdec.protocol import Candidates

Prefix = tuple[int, ...]
SOURCE = 3
"""Source tokens."""
TOKENS = (0, EOS, 3, 4)
"""Those that can follow; token 1 never does."""


class Table(NamedTuple):
    """One predictor's scores."""

    scores: Mapping[Prefix, Mapping[int, float]]
    attention: Mapping[Prefix, Sequence[float]]
    limit: int

    def following(self, prefix: Prefix) -> list[tuple[int, float]]:
        """Tokens with scores, best first, of equal ones the lower token."""
        allowed = {EOS} if len(prefix) == self.limit else set(TOKENS)
        found = [(token, score) for token, score in self.scores[prefix].items() if token in allowed]
        return sorted(found, key=lambda pair: (-pair[1], pair[0]))

    def most(self, prefix: Prefix) -> float:
        """The most that can still be added."""
        following = self.following(prefix)
        totals = [score + (0.0 if token == EOS else self.most((*prefix, token))) for token, score in following]
        return max(totals, default=-math.inf)


WANTED = (3, 4)
"""The tokens, one directly after the other, that an output must have for `Counting`."""


def progress(tokens: Prefix) -> int:
    """The number of wanted tokens that are there: all of them, or those at the end."""
    if WANTED in pairwise(tokens) or tokens[-1:] == (EOS,):
        return len(WANTED)
    return int(tokens[-1:] == WANTED[:1])


def advancing(tokens: Prefix) -> set[int]:
    return {token for token in WANTED if progress((*tokens, token)) > progress(tokens)}


def allocated(candidates: Sequence[Hypothesis], size: int) -> list[Hypothesis]:
    """One hypothesis of each bank in turn, those that meet most first, until all slots are taken."""
    banks: dict[int, list[Hypothesis]] = {}
    for h in candidates:
        banks.setdefault(progress(h.tokens), []).append(h)
    found: list[Hypothesis] = []
    while any(banks.values()) and len(found) < size:
        found += [banks[met].pop(0) for met in sorted(banks, reverse=True) if banks[met]]
    return found[:size]


class Hypothesis(NamedTuple):
    system: int
    tokens: Prefix
    total: float

    @property
    def done(self) -> bool:
        return self.tokens[-1:] == (EOS,)


@dataclass(frozen=True)
class Definition:
    """The options, by the names that the decoders have for them."""

    size: int
    stop: Literal["best", "full", "length", "proven"] = "best"
    alpha: float = 0.0
    beta: float = 0.0
    normalize: Literal["gnmt", "length"] = "gnmt"
    prune_local: float = 0.0
    prune_final: float = 0.0
    banks: bool = False

    def search(self, tables: Sequence[Table], nbest: int) -> tuple[list[tuple[Hypothesis, float]], int]:
        """The list with rank scores, and how many hypotheses were expanded."""
        aside = self.stop in ("length", "proven")
        beam = [Hypothesis(system, (), 0.0) for system in range(len(tables))]
        left: list[Hypothesis] = []  # finished, had a slot, have it no more; or were set aside
        record: Hypothesis | None = None  # the best finished one ever seen, slot or not
        expansions = 0

        def rank(h: Hypothesis) -> float:
            return self.rank(h, tables[h.system])

        def listed(*groups: list[Hypothesis]) -> list[Hypothesis]:
            every = list(dict.fromkeys(h for group in groups for h in group))
            if self.prune_final and record is not None:
                every = [h for h in every if rank(h) >= rank(record) - self.prune_final]
            return sorted(every, key=rank, reverse=True)[:nbest]

        while beam and not (beam[0].done if self.stop == "best" else all(h.done for h in beam)):
            candidates = []
            besides = []  # for banks: the best child of each, and those that meet more
            for h in beam:
                if h.done:
                    candidates.append(h)
                    besides.append(h)
                    continue
                expansions += 1
                every = tables[h.system].following(h.tokens)
                more = [pair for pair in every if pair == every[0] or pair[0] in advancing(h.tokens)]
                besides += [Hypothesis(h.system, (*h.tokens, token), h.total + score) for token, score in more]
                following = every[: self.size + aside]
                for token, score in following:
                    if not self.prune_local or h.total + score >= h.total + following[0][1] - self.prune_local:
                        candidates.append(Hypothesis(h.system, (*h.tokens, token), h.total + score))
            candidates.sort(key=lambda h: -h.total)
            if self.banks:
                opened = [h for h in candidates if not h.done]
                enough = len(opened) >= self.size + aside
                top = candidates[: candidates.index(opened[self.size + aside - 1]) + 1] if enough else candidates
                top = top + [h for h in candidates if h.done and self.prune_final]
                place = {h.tokens: i for i, h in enumerate(beam)}
                of_equal = {h: place.get(h.tokens, place.get(h.tokens[:-1])) for h in (*top, *besides)}
                candidates = sorted(of_equal, key=lambda h: (-h.total, of_equal[h], h.tokens))
            if self.prune_final:
                for h in candidates:
                    if h.done and (record is None or rank(h) > rank(record)):
                        record = h
                        left = [h for h in left if h != record]
                if record in candidates and record not in left:
                    left.append(record)
                candidates = [h for h in candidates if not h.done or rank(h) >= rank(record) - self.prune_final]
            if self.banks:
                with_slots = allocated([h for h in candidates if not (aside and h.done)], self.size)
                candidates = [h for h in candidates if h in with_slots or (aside and h.done)]
            if aside:
                opened = [h for h in candidates if not h.done]
                first_out = candidates.index(opened[self.size]) if len(opened) > self.size else len(candidates)
                left += [h for h in candidates[:first_out] if h.done]
                beam = opened[: self.size]
                best = listed(left)
                if self.stop == "proven" and len(best) >= nbest:
                    beam = [h for h in beam if self.reach(h, tables[h.system]) > rank(best[-1])]
            else:
                kept = candidates[: self.size]
                left += [h for h in beam if h.done and h not in kept]
                beam = kept
        found = listed([h for h in beam if h.done], left)
        return [(h, rank(h)) for h in found], expansions

    def rank(self, h: Hypothesis, table: Table) -> float:
        """Equation 14."""
        cover = 0.0
        if self.beta:
            rows = [table.attention[h.tokens[:j]] for j in range(len(h.tokens))]
            cover = self.beta * sum(math.log(min(sum(column), 1.0)) for column in zip(*rows, strict=True))
        return h.total / self.penalty(len(h.tokens)) + cover

    def penalty(self, length: int) -> float:
        return float((length if self.normalize == "length" else (5.0 + length) / 6.0) ** self.alpha)

    def reach(self, h: Hypothesis, table: Table) -> float:
        """The best rank score that any continuation can have, if it has the best total and the best length."""
        bound = h.total + table.most(h.tokens)
        return max(bound / self.penalty(length) for length in (len(h.tokens) + 1, table.limit + 1))


def random_table(rng: np.random.Generator, highest: float = 0.0, coarse: bool = False, limit: int = 4) -> Table:
    """Scores up to ``highest``; ``coarse``: multiples of a half, so that many totals are equal. Some have no end."""
    scores: dict[Prefix, dict[int, float]] = {}
    attention: dict[Prefix, Sequence[float]] = {}
    level: list[Prefix] = [()]
    steep = float(rng.choice([1.0, 2.0] if coarse else [1.0, 3.0, 6.0]))
    for _ in range(limit + 1):
        for prefix in level:
            drawn = highest - steep * rng.random(len(TOKENS))
            if coarse:
                drawn = np.ceil(2 * drawn) / 2  # some are 0: a longer hypothesis can have the total of a shorter one
            listed = zip(TOKENS, drawn.tolist(), (rng.random(len(TOKENS)) < 0.12).tolist(), strict=True)
            scores[prefix] = {token: score for token, score, forbidden in listed if not forbidden}
            weights = rng.random(SOURCE) ** 3 + 0.01
            attention[prefix] = (weights / weights.sum()).tolist()
        level = [(*prefix, token) for prefix in level for token in scores[prefix] if token != EOS]
    return Table(scores, attention, limit)


class OfPrefixes(Predictor):
    """A predictor whose state is the prefix."""

    def initialize(self, source: Source) -> None:
        self._prefix: Prefix = ()

    def consume(self, token: int) -> None:
        self._prefix = (*self._prefix, token)

    def get_state(self) -> Prefix:
        return self._prefix

    def set_state(self, state: Prefix) -> None:
        self._prefix = state


class Tabled(OfPrefixes):
    """A table as a predictor."""

    def __init__(self, table: Table) -> None:
        self.table = table

    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        row = np.full(max(TOKENS) + 1, -np.inf)
        for token, score in self.table.scores[self._prefix].items():
            row[token] = score
        return Scores.dense(row)

    def best_remaining(self, states: Sequence[Prefix]) -> list[float]:
        return [self.table.most(state) for state in states]

    def state_key(self, states: Sequence[Prefix]) -> Sequence[Hashable]:
        return states

    def attention(self, states: Sequence[Prefix]) -> list[Any]:
        return [np.array(self.table.attention[state]) for state in states]


class Counting(OfPrefixes):
    """Forbids the end until the wanted tokens are there, and counts them."""

    max_score = 0.0

    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        forbidden = [] if progress(self._prefix) == len(WANTED) else [EOS]
        return Scores.sparse(forbidden, [-math.inf] * len(forbidden), default=0.0)

    def best_remaining(self, states: Sequence[Prefix]) -> list[float]:
        return [0.0] * len(states)

    def state_key(self, states: Sequence[Prefix]) -> Sequence[Hashable]:
        return [(state[-1:], progress(state)) for state in states]

    def progress(self, states: Sequence[Prefix]) -> list[tuple[int, int]]:
        return [(progress(state), len(WANTED)) for state in states]

    def advancing(self, states: Sequence[Prefix]) -> list[Candidates]:
        return [sorted(advancing(state)) for state in states]


def constrained(table: Table) -> Table:
    """The same scores, without the ends that `Counting` forbids."""
    scores = {
        prefix: {token: score for token, score in row.items() if token != EOS or progress(prefix) == len(WANTED)}
        for prefix, row in table.scores.items()
    }
    return table._replace(scores=scores)


def random_definition(rng: np.random.Generator, **fixed: Any) -> Definition:
    drawn: dict[str, Any] = {
        "size": int(rng.integers(1, 5)),
        "stop": str(rng.choice(["best", "full", "length", "proven"])),
        "alpha": float(rng.choice([0.0, 0.6, 1.0, 2.0, -0.5])),
        "beta": float(rng.choice([0.0, 0.0, 0.5])),
        "normalize": str(rng.choice(["gnmt", "length"])),
        "prune_local": float(rng.choice([0.0, 0.0, 1.0, 2.0])),
        "prune_final": float(rng.choice([0.0, 0.0, 0.3, 1.0])),
    }
    return Definition(**{**drawn, **fixed})
