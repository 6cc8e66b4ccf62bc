"""The prefix tree of a search: the prefixes of a trace in the order in which they are drawn.

The order is a depth-first order, in which each prefix follows its parent, and the siblings are sorted: the best
hypothesis first, then the other hypotheses of the list, then by total. `sgdec.view.layout` places prefixes in this
order, so the tree has no crossing edges and the best hypothesis is on top.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from sgdec.context import EOS
from sgdec.trace.records import Child, Fate, SentenceTrace


@dataclass(frozen=True, slots=True)
class TreePrefix:
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
    for draft in reversed(drafts):
        draft.inherit()
    return _in_order([draft for draft in drafts if draft.parent is None])


@dataclass(eq=False)
class _Draft:
    """A prefix whose descendants are not known yet."""

    parent: _Draft | None
    token: int | None
    total: float | None = None
    scores: tuple[float, ...] = ()
    fate: str | None = None
    rank: int | None = None
    expansions: list[int] = field(default_factory=list)
    children: dict[int, _Draft] = field(default_factory=dict)
    below: int = 0
    best_rank: float = math.inf
    """The best rank of the hypotheses that begin with it."""

    def inherit(self) -> None:
        """Compute ``below`` and ``best_rank`` from the children, who have theirs."""
        children = self.children.values()
        self.below = sum(child.below + bool(child.expansions) for child in children)
        own = math.inf if self.rank is None else self.rank
        self.best_rank = min([own, *(child.best_rank for child in children)])

    def order(self) -> tuple[float, float]:
        """The key that siblings are sorted by."""
        return self.best_rank, math.inf if self.total is None else -self.total


def _drafts(trace: SentenceTrace) -> list[_Draft]:
    """All prefixes, parents before children."""
    found: list[_Draft] = []
    roots: dict[object, _Draft] = {}
    expanded: dict[int, _Draft] = {}

    def child_of(parent: _Draft, token: int) -> _Draft:
        if token not in parent.children:
            parent.children[token] = _Draft(parent, token)
            found.append(parent.children[token])
        return parent.children[token]

    def note(draft: _Draft, child: Child) -> None:
        draft.total, draft.scores = child.total, child.scores
        if isinstance(child.fate, int):
            draft.fate = Fate.UNRECORDED
        elif draft.fate is None or child.fate == "listed":
            draft.fate = child.fate

    for expansion in trace.expansions:
        if expansion.parent is None or expansion.token is None:
            if expansion.weights not in roots:
                roots[expansion.weights] = _Draft(None, None, total=0.0)
                found.append(roots[expansion.weights])
            draft = roots[expansion.weights]
        else:
            draft = child_of(expanded[expansion.parent], expansion.token)
        expanded[expansion.number] = draft
        draft.expansions.append(expansion.number)
        for child in expansion.children:
            note(child_of(draft, child.token), child)
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
                parent, length, draft.token, draft.total, draft.scores, fate, tuple(draft.expansions), draft.rank,
                draft.below,
            )
        )  # fmt: skip
        waiting += [(child, place, length + 1) for child in _last_first(list(draft.children.values()))]
    return found


def _last_first(siblings: list[_Draft]) -> list[_Draft]:
    return sorted(siblings, key=_Draft.order)[::-1]
