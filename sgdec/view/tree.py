"""The prefix tree of a search: the prefixes of a trace in the order in which they are drawn.

The order is a depth-first order, in which each prefix follows its parent, and the siblings are sorted: the best
hypothesis first, then the other hypotheses of the list, then by total. `sgdec.view.layout` places prefixes in this
order, so the tree has no crossing edges and the best hypothesis is on top.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

from sgdec.context import EOS
from sgdec.trace.records import Expansion, Fate, SentenceTrace


class TreePrefix(NamedTuple):
    """A partial or finished hypothesis of the search."""

    parent: int | None
    """Its place in the list, which is smaller than the prefix's own; None for a root."""
    length: int
    """The number of tokens, including ``</s>``."""
    token: int | None
    """The last token; None for a root."""
    total: float | None
    """The weighted total; None if the trace does not list it."""
    scores: tuple[float, ...]
    """``[K]``: the unweighted scores of the last token; empty for a root and if the trace does not list them."""
    fate: str | None
    """A word of `sgdec.trace.records.Fate`; None if it was expanded."""
    expansions: tuple[int, ...]
    """The numbers of its expansions: decoders that begin several times, or sample, expand a prefix repeatedly."""
    rank: int | None
    """The place in the n-best list, from 0; None for other prefixes."""
    below: int
    """The number of its expanded descendants."""


def prefixes(trace: SentenceTrace) -> list[TreePrefix]:
    """All prefixes that were expanded or listed as children, in the order in which they are drawn."""
    drafts = _drafts(trace)
    for draft in reversed(drafts):  # children before parents
        draft.bequeath()
    return _in_order([draft for draft in drafts if draft.parent is None])


@dataclass(eq=False, slots=True)
class _Draft:
    """A prefix whose descendants are not known yet."""

    parent: _Draft | None
    token: int | None
    total: float | None = None
    scores: tuple[float, ...] = ()
    fate: str | None = None
    rank: int | None = None
    expansions: tuple[int, ...] = ()
    children: dict[int, _Draft] = field(default_factory=dict)
    below: int = 0
    best_rank: float = math.inf
    """The best rank of the hypotheses that begin with it."""

    def bequeath(self) -> None:
        """Add what is known of it and its descendants to the parent."""
        if self.rank is not None and self.rank < self.best_rank:
            self.best_rank = self.rank
        parent = self.parent
        if parent is not None:
            parent.below += self.below + bool(self.expansions)
            if self.best_rank < parent.best_rank:
                parent.best_rank = self.best_rank

    def order(self) -> tuple[float, float]:
        """The key that siblings are sorted by."""
        return self.best_rank, math.inf if self.total is None else -self.total


def _drafts(trace: SentenceTrace) -> list[_Draft]:
    """All prefixes, parents before children."""
    found: list[_Draft] = []
    roots: dict[object, _Draft] = {}
    expanded: dict[int, _Draft] = {}

    def child_of(parent: _Draft, token: int) -> _Draft:
        child = parent.children.get(token)
        if child is None:
            child = parent.children[token] = _Draft(parent, token)
            found.append(child)
        return child

    def note(draft: _Draft, expansion: Expansion) -> None:
        for token, total, scores, fate in zip(
            expansion.tokens, expansion.totals, expansion.scores, expansion.fates, strict=True
        ):
            child = child_of(draft, token)
            child.total, child.scores = total, scores
            if isinstance(fate, int):
                child.fate = Fate.UNRECORDED
            elif child.fate is None or fate == "listed":
                child.fate = fate

    for expansion in trace.expansions:
        if expansion.parent is None or expansion.token is None:
            if expansion.weights not in roots:
                roots[expansion.weights] = _Draft(None, None, total=0.0)
                found.append(roots[expansion.weights])
            draft = roots[expansion.weights]
        else:
            draft = child_of(expanded[expansion.parent], expansion.token)
        expanded[expansion.number] = draft
        draft.expansions += (expansion.number,)
        note(draft, expansion)
    for rank, hypothesis in enumerate(trace.hypotheses):
        if hypothesis.expansion in expanded:
            end = child_of(expanded[hypothesis.expansion], EOS)
            end.rank = rank if end.rank is None else end.rank
            end.total = hypothesis.score if end.total is None else end.total
    return found


def _in_order(roots: list[_Draft]) -> list[TreePrefix]:
    found: list[TreePrefix] = []
    waiting: list[tuple[_Draft, int | None, int]] = [(root, None, 0) for root in _last_first(roots)]
    while waiting:
        draft, parent, length = waiting.pop()
        place = len(found)
        fate = None if draft.expansions else draft.fate
        found.append(
            TreePrefix(
                parent, length, draft.token, draft.total, draft.scores, fate, draft.expansions, draft.rank,
                draft.below,
            )
        )  # fmt: skip
        if draft.children:
            waiting += [(child, place, length + 1) for child in _last_first(list(draft.children.values()))]
    return found


def _last_first(siblings: list[_Draft]) -> list[_Draft]:
    return sorted(siblings, key=_Draft.order)[::-1]
