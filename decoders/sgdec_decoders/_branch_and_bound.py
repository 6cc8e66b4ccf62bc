"""Branch and bound, shared by exact searches (Land and Doig 1960).

A node stands for a *branch*: all hypotheses that begin with it. The bound of a branch is the best rank score that any
of its hypotheses can reach: its total plus the most that the predictors can still add (`SearchSpace.bound`),
converted to a rank score. A branch whose bound does not beat the n-th best hypothesis found so far is cut; this
cannot change the n-best.

Children are made and bounded in blocks, best score first. If all predictors declare their ``max_score``, the last
child of a block bounds all later ones: only a small part of a large vocabulary is examined, and no token is consumed
to compute a bound. Otherwise all children of an expanded prefix are bounded, and every predictor with its own bound
consumes a token for each child: cheap for a lattice, and free if the children are made with their bounds
(`sgdec.search.automata`).
"""

from __future__ import annotations

import logging
import math
import time
from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import cache
from heapq import heappush, heapreplace
from itertools import count, islice
from operator import add, attrgetter, itemgetter
from typing import TypeAlias

from sgdec import EOS, Node, SearchSpace, SgdecError
from sgdec.protocol import FORBIDDEN
from sgdec_decoders._beams import drop

log = logging.getLogger("sgdec.decoders.exact")

BLOCK = 8
"""The size of the first block of children; most nodes need few children. Each further block is twice as large."""

ROUNDING = 1e-5
"""Scores may exceed bounds by this much, absolutely and relatively: some are float32 numbers."""

CLOSING = 0.05
"""The share of a time limit that is reserved for the work after the search: making the list and freeing memory."""

Bounded: TypeAlias = tuple[float, Node]
"""A node with its bound."""
_bound_of = itemgetter(0)
_total_of = attrgetter("total")


class Budget:
    """The limits of one search, from its start."""

    def __init__(self, space: SearchSpace, max_expansions: int, max_seconds: float) -> None:
        """0 = no limit. Raises UsageError if no bound would end a search without a budget."""
        self.limited = bool(max_expansions or max_seconds)
        if not self.limited:
            space.require_end()
        self._space = space
        self._last = space.expansions + (max_expansions or math.inf)
        self._end = time.monotonic() + max_seconds * (1 - CLOSING) if max_seconds else None

    def left(self) -> float:
        """The number of nodes that may still be expanded; 0 when the time is up."""
        if self._end is not None and time.monotonic() >= self._end:
            return 0
        return self._last - self._space.expansions


class NBest:
    """The n best finished nodes so far, with n from the run; nodes with equal scores are in the order found.

    Nodes that are equal to the user are *rivals*, and only the best of them is listed: here those with the same text,
    if the run asks for distinct ones.
    """

    def __init__(self, space: SearchSpace) -> None:
        self._space = space
        self.nodes: list[Node] = []
        self._costs: list[float] = []
        """Their rank scores, negated, so that they ascend."""
        self._rivals: list[Hashable] = []
        """For each node what `rivals` returned."""
        self._lowest = FORBIDDEN

    def add(self, node: Node) -> None:
        cost = -self._space.rank_score(node)
        if cost >= -self._lowest:
            return
        rivals = self.rivals(node)
        if rivals is not None and rivals in self._rivals:
            place = self._rivals.index(rivals)
            if self._costs[place] <= cost:
                self._space.dropped(node, "outranked")
                return
            self._space.dropped(self.nodes[place], "outranked")
            del self._costs[place], self.nodes[place], self._rivals[place]
        place = bisect_right(self._costs, cost)
        self._costs.insert(place, cost)
        self.nodes.insert(place, node)
        self._rivals.insert(place, rivals)
        nbest = self._space.nbest
        del self._costs[nbest:], self.nodes[nbest:], self._rivals[nbest:]
        self._lowest = -self._costs[-1] if len(self._costs) == nbest else FORBIDDEN

    def rivals(self, node: Node) -> Hashable:
        """The value that a finished node and its rivals share; None = it has no rivals."""
        text_of = self._space.text_of
        return None if text_of is None else text_of(node.tokens[:-1])

    def highest(self) -> float:
        """The best rank score; -inf = there is none."""
        return -self._costs[0] if self._costs else FORBIDDEN

    def lowest(self, length: int = 0) -> float:
        """The rank score that a hypothesis of at least ``length`` tokens has to beat; -inf = the list is not full."""
        return self._lowest


class Recombination:
    """Skips prefixes that do not have to be opened, because enough prefixes with the same future and no lower totals
    were opened.

    Every continuation of a skipped prefix also continues the opened ones, with totals that are at least as high.
    """

    def __init__(self, space: SearchSpace, *, wanted: int, by_length: bool = False) -> None:
        """``wanted``: prefixes per key; 0 = all. ``by_length``: compare prefixes of equal length only."""
        self._space = space
        self._wanted = wanted
        self._by_length = by_length
        self._opened: dict[Hashable, list[tuple[float, int, Node | None]]] = {}
        """For each key the ``wanted`` best prefixes as a heap, the lowest total first, then the first to arrive.

        The nodes are kept only if the search is traced.
        """
        self._arrivals = count()

    def opens(self, node: Node) -> bool:
        """Whether to open this prefix; if so, it counts from now on."""
        if not self._wanted:
            return True
        (key,) = self._space.keys([node])
        opened = self._opened.setdefault((key, node.length) if self._by_length else key, [])
        entry = node.total, next(self._arrivals), node if self._space.traced else None
        if len(opened) < self._wanted:
            heappush(opened, entry)
            return True
        if node.total > opened[0][0]:
            heapreplace(opened, entry)
            return True
        self._space.dropped(node, "recombined", opened[0][2])
        return False


@cache
def _note_unbounded() -> None:
    """Say once that searches can take very long."""
    log.info(
        "Note: the predictors give the empty prefix no finite bound, so no output is ruled out before it is "
        "searched. Without a budget (max_expansions or max_seconds) an exact search has to exhaust the space."
    )


class Tree:
    """A search space for branch and bound: finished nodes go to the n-best, open ones to the search."""

    def __init__(
        self,
        space: SearchSpace,
        budget: Budget,
        best: NBest,
        recombination: Recombination,
        *,
        heuristic: bool = True,
    ) -> None:
        """Without ``heuristic``, the bound of a node assumes that nothing is ever added to its total."""
        self.space = space
        self.budget = budget
        self.best = best
        self.recombination = recombination
        limit = space.source.max_length
        self._longest = None if limit is None else limit + 1
        self._heuristic = heuristic
        self._families: list[Children] = []
        """All that were created, if the search is traced."""
        self._totals_are_ranks = not space.ranking.uses_length and not space.ranking.uses_coverage

    @property
    def cut(self) -> str:
        """The reason for cutting a branch: its bound, or a total that could rise again."""
        return "bound" if self.bounds_hold else "score"

    @property
    def bounds_hold(self) -> bool:
        """Whether the bounds are valid, according to the predictors: a total is not a bound if it can rise."""
        return self._heuristic or self.space.never_rises

    def bounds(self, nodes: Sequence[Node]) -> list[float]:
        """For each node the highest rank score of any hypothesis that begins with it; -inf = there is none.

        The bound of a finished node is its own. Raises UsageError, naming the predictor, if one declares no bound.
        """
        if self._heuristic:
            totals = list(map(add, map(_total_of, nodes), self.space.bound(nodes)))
        else:
            totals = list(map(_total_of, nodes))
        if self._totals_are_ranks:
            return totals
        return [
            self.space.rank_score(node) if node.finished else self._best_rank(total, node.length + 1)
            for node, total in zip(nodes, totals, strict=True)
        ]

    def bound_after(self, node: Node) -> float:
        """The bound of all siblings after this one, which have no higher totals."""
        more = self.space.most_after(node.length) if self._heuristic else 0.0
        return self._best_rank(node.total + max(more, 0.0), node.length)  # 0.0: one of them may be finished

    def _best_rank(self, total: float, length: int) -> float:
        """The bound of any hypothesis with at most this total and at least this length."""
        return self.space.ranking.best_possible(total, length, self._longest)

    def ends(self, following: Sequence[Bounded], others: Callable[[], float]) -> float | None:
        """The bound of the unsearched part if the budget is spent, else None.

        ``following``: the nodes that would be expanded next, best bound first. ``others`` computes the best bound of
        all other open nodes.
        """
        (highest, first), *_ = following
        if highest == math.inf and not first.length and not self.budget.limited:
            _note_unbounded()
        spent = self.budget.left() <= 0
        if spent:
            drop(self.space, (node for _, node in following), "open")
        elif not self.space.wants_bound:
            return None
        bound = max(highest, others())
        self._tell_bound(bound)
        return bound if spent else None

    def close(self, still_open: float, proven: bool) -> None:
        """The search has ended: tell why, and the reason why the nodes that are left were not expanded."""
        if self.space.traced:
            self._tell_bound(still_open)
            spent = still_open > self.best.lowest()
            self.space.stopped("budget" if spent else "proven" if proven else "score")
            for children in self._families:
                children.drop("open" if spent else self.cut)

    def _tell_bound(self, still_open: float) -> None:
        if self.bounds_hold:
            self.space.bounded(max(still_open, self.best.highest()), self.best.highest())

    def require_within(self, bound: float, rank: float) -> None:
        """Raises SgdecError if a hypothesis ranks above the bound of its prefix, because then a predictor declares a
        wrong bound."""
        if self._heuristic and rank > bound + ROUNDING * (1.0 + abs(rank)):
            raise SgdecError(
                f"a hypothesis has {rank:.6g}, but no more than {bound:.6g} was possible after its prefix, as "
                f"predictors say ({', '.join(self.space.constellation.names)}): a best_remaining, worst_remaining or "
                "max_score or a relaxation is wrong, and no proof would hold. --check-bounds finds the predictor."
            )

    def root(self) -> Children:
        """The empty prefix, as an only child."""
        return Children(self, None, math.inf, 0, iter([self.space.root]))

    def expand(self, parents: Sequence[Bounded]) -> list[Children]:
        """The children of each node, before any of them is examined."""
        if not parents:
            return []
        found = self.space.expand([node for _, node in parents], bounded=True)
        families = [
            Children(self, node, bound, node.length + 1, children)
            for (bound, node), children in zip(parents, found, strict=True)
        ]
        if self.space.traced:
            self._families += families
        return families


class Children:
    """The open children of one node, best bound first, produced block by block on demand."""

    def __init__(
        self, tree: Tree, parent: Node | None, bound: float, length: int, unseen: Iterator[Node]
    ) -> None:
        """``bound`` is the bound of their parent, which holds for all of them. ``length`` is the length of the
        children. ``parent``: None for the empty prefix."""
        self._tree = tree
        self._parent = parent
        self._length = length
        self._unseen = unseen
        self._bound = self._bound_of_unseen = bound
        self._block = BLOCK
        self._seen: list[Bounded] = []
        """Best last."""

    @property
    def bound(self) -> float:
        """The bound of all remaining children; -inf = there are none."""
        return max(self._seen[-1][0], self._bound_of_unseen) if self._seen else self._bound_of_unseen

    def first(self) -> Bounded | None:
        """The best remaining child, if its bound beats the n-best so far; otherwise None, because then no remaining
        child does."""
        while True:
            lowest = self._tree.best.lowest(self._length)
            highest = self._seen[-1][0] if self._seen else FORBIDDEN
            if self._bound_of_unseen > highest and self._bound_of_unseen > lowest:
                self._see_more()
            elif highest > lowest:
                return self._seen[-1]
            else:
                self.drop(self._tree.cut)
                self._seen.clear()
                return None

    def take(self) -> Bounded | None:
        """Remove and return the first child."""
        return self._seen.pop() if self.first() is not None else None

    def drop(self, reason: str) -> None:
        """Tell a search that is traced that the remaining children are dropped."""
        space = self._tree.space
        if space.traced:
            drop(space, (node for _, node in self._seen), reason)
            if self._parent is not None and self._bound_of_unseen > FORBIDDEN:
                space.dropped_rest(self._parent, reason, (node for _, node in self._seen))

    def _see_more(self) -> None:
        tree = self._tree
        block = list(islice(self._unseen, self._block))
        after = FORBIDDEN if len(block) < self._block else tree.bound_after(block[-1])
        self._block *= 2
        if after < self._bound_of_unseen:
            self._bound_of_unseen = after
        still_open = []
        for found in zip(tree.bounds(block), block, strict=True):
            if found[1].last == EOS:
                tree.require_within(self._bound, found[0])
                tree.best.add(found[1])
            else:
                still_open.append(found)
        still_open.reverse()
        self._seen = still_open + self._seen
        if len(self._seen) > 1:  # stable: among equal bounds the first to arrive comes last, and is taken next
            self._seen.sort(key=_bound_of)
