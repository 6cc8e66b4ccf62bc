"""All derivations of a source sentence by a synchronous grammar, followed from left to right on the target side.

A *span* is a non-terminal over a part of the source; a *use* is a rule applied to a span. A chart finds all uses
bottom up (CKY) with the best score *inside* each span. To go through the target left to right without guessing how
a span is split before its words are known, derivations are followed from their left corners (Rosenkrantz and Lewis
1970): a span begins with any use, anywhere inside it, whose target begins with a token; when the span of that use
is done, any use whose target continues from it may come next, until the whole span is done.

So a partial derivation is a *stack* of its remaining items, first item first: a token; a span to derive; or `Rest`,
the remainder of a span after one of its left corners.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from typing import NamedTuple, TypeAlias

from sgdec import SgdecError
from sgdec.protocol import FORBIDDEN
from sgdec_predictors.hiero.grammar import Gap, Rule, Symbol

NOISE = 1e-12
"""Smaller gains are rounding errors."""


class ChartSpan(NamedTuple):
    """A non-terminal over source tokens ``begin`` to ``end`` (exclusive)."""

    name: str
    begin: int
    end: int


class Rest(NamedTuple):
    """The remainder of ``goal`` after its complete left corner ``done``."""

    goal: ChartSpan
    done: ChartSpan


Item: TypeAlias = int | ChartSpan | Rest
Stack: TypeAlias = tuple[Item, ...]


class Use(NamedTuple):
    """A rule applied to a span: its target side, with spans for gaps."""

    span: ChartSpan
    target: tuple[int | ChartSpan, ...]
    score: float


class ChartWays(NamedTuple):
    """The continuations of a stack."""

    tokens: dict[int, dict[Stack, float]]
    """For each token, the stacks after it with the best score on the way."""
    end: float
    """The best score of ending here; -inf = a token must follow."""


class Chart:
    """The derivations of one sentence."""

    def __init__(self, rules: Iterable[Rule], source: Sequence[int]) -> None:
        """Raises SgdecError if rules lead from a span to itself with a gain."""
        self._source = source
        known = set(source)
        usable = [rule for rule in rules if all(s in known for s in rule.source if isinstance(s, int))]
        self._chains = [rule for rule in usable if len(rule.source) == 1 and isinstance(rule.source[0], Gap)]
        chains = set(map(id, self._chains))
        self._rules = [rule for rule in usable if id(rule) not in chains]
        self._uses: dict[ChartSpan, list[Use]] = {}
        self._inside: dict[ChartSpan, float] = {}
        for width in range(1, len(source) + 1):
            for begin in range(len(source) - width + 1):
                self._fill(begin, begin + width)
        self._parents: defaultdict[ChartSpan, list[Use]] = defaultdict(list)
        """For each span, the uses whose target begins with it."""
        for uses in self._uses.values():
            for use in uses:
                if use.target and isinstance(use.target[0], ChartSpan):
                    self._parents[use.target[0]].append(use)
        self._corners: dict[ChartSpan, dict[ChartSpan, float]] = {}
        self._starts: dict[ChartSpan, list[Use]] = {}
        self._ways: dict[Stack, ChartWays] = {}

    def stack(self, name: str) -> Stack | None:
        """The stack before the first target token, if the whole source can be derived from a non-terminal."""
        whole = ChartSpan(name, 0, len(self._source))
        return (whole,) if whole in self._inside else None

    def ways(self, stack: Stack) -> ChartWays:
        """The continuations of a stack up to the next token; computed on first use."""
        if stack not in self._ways:
            self._ways[stack] = self._follow(stack)
        return self._ways[stack]

    def best(self, stack: Stack) -> float:
        """The score of the best derivation of a whole stack."""
        total = 0.0
        for item in stack:
            if isinstance(item, ChartSpan):
                total += self._inside[item]
            elif isinstance(item, Rest):
                total += self._corners_of(item.goal)[item.done]
        return total

    def _follow(self, stack: Stack) -> ChartWays:
        """The best scores of all stacks reachable without a token: relaxed until nothing gains."""
        best = {stack: 0.0}
        changed = [stack]
        while changed:
            here = changed.pop()
            for after, score in self._replaced(here):
                if best[here] + score > best.get(after, FORBIDDEN) + NOISE or after not in best:
                    best[after] = best[here] + score
                    changed.append(after)
        ways = ChartWays({}, best.get((), FORBIDDEN))
        for here, score in best.items():
            if here and isinstance(here[0], int):
                ways.tokens.setdefault(here[0], {})[here[1:]] = score
        return ways

    def _replaced(self, stack: Stack) -> Iterator[tuple[Stack, float]]:
        """The stacks after one expansion of the first item, unless it is a token."""
        if not stack or isinstance(stack[0], int):
            return
        first, below = stack[0], stack[1:]
        if isinstance(first, ChartSpan):
            for use in self._starts_of(first):
                yield (*use.target, Rest(first, use.span), *below), use.score
            return
        if first.done == first.goal:
            yield below, 0.0
        corners = self._corners_of(first.goal)
        for use in self._parents[first.done]:
            if use.span in corners:
                yield (*use.target[1:], Rest(first.goal, use.span), *below), use.score

    def _corners_of(self, goal: ChartSpan) -> dict[ChartSpan, float]:
        """The left corners of a span, including the span itself, each with the best score of the remainder."""
        if goal not in self._corners:
            corners = {goal: 0.0}
            changed = [(0, goal)]
            while changed:
                _, span = heappop(changed)  # widest first: its score is final, except for chains
                for use in self._uses[span]:
                    if use.target and isinstance(use.target[0], ChartSpan):
                        score = corners[span] + use.score + self.best(use.target[1:])
                        if score > corners.get(use.target[0], FORBIDDEN) + NOISE:
                            corners[use.target[0]] = score
                            heappush(changed, (use.target[0].begin - use.target[0].end, use.target[0]))
            self._corners[goal] = corners
        return self._corners[goal]

    def _starts_of(self, goal: ChartSpan) -> list[Use]:
        """The uses at left corners of a span whose target begins with a token, or is empty."""
        if goal not in self._starts:
            uses = (use for span in self._corners_of(goal) for use in self._uses[span])
            self._starts[goal] = [use for use in uses if not use.target or isinstance(use.target[0], int)]
        return self._starts[goal]

    def _fill(self, begin: int, end: int) -> None:
        """Add all uses over one part of the source; those over its inner parts are known."""
        for rule in self._rules:
            for gaps in self._matches(rule.source, begin, end):
                self._add(rule, ChartSpan(rule.name, begin, end), gaps)
        # Chains, non-terminals that become another one over the same tokens, may be cyclic.
        used = set[tuple[int, ChartSpan]]()
        for _ in range(len(self._chains) + 2):
            gained = False
            for number, rule in enumerate(self._chains):
                gap = rule.source[0]
                assert isinstance(gap, Gap)
                inner, span = ChartSpan(gap.name, begin, end), ChartSpan(rule.name, begin, end)
                if inner in self._inside:
                    score = self._inside[inner] + rule.score
                    gained |= score > self._inside.get(span, FORBIDDEN) + NOISE
                    if (number, span) in used:
                        self._inside[span] = max(self._inside[span], score)
                    else:
                        used.add((number, span))
                        self._add(rule, span, (inner,))
            if not gained:
                return
        raise SgdecError("rules lead from a non-terminal to itself with a gain, so there is no best derivation.")

    def _add(self, rule: Rule, span: ChartSpan, gaps: Sequence[ChartSpan]) -> None:
        target = tuple(gaps[symbol.number] if isinstance(symbol, Gap) else symbol for symbol in rule.target)
        self._uses.setdefault(span, []).append(Use(span, target, rule.score))
        score = rule.score + sum(self._inside[gap] for gap in gaps)
        self._inside[span] = max(self._inside.get(span, FORBIDDEN), score)

    def _matches(self, symbols: Sequence[Symbol], begin: int, end: int) -> Iterator[tuple[ChartSpan, ...]]:
        """Yields the spans of the gaps for each match of a source side with the source tokens."""
        if not symbols:
            if begin == end:
                yield ()
            return
        first, others = symbols[0], symbols[1:]
        if isinstance(first, Gap):
            for middle in range(begin + 1, end - len(others) + 1):
                span = ChartSpan(first.name, begin, middle)
                if span in self._inside:
                    yield from ((span, *spans) for spans in self._matches(others, middle, end))
        elif begin < end and self._source[begin] == first:
            yield from self._matches(others, begin + 1, end)
