"""The children of nodes, made from the combined scores of the next token.

One of the three kinds of rows: any predictors have scores. `sgdec.search.automata` makes the same children of single
prefixes from the arcs of automata, and `sgdec.rows` children of many prefixes in arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from sgdec.ranking import Coverage
from sgdec.search import lazily
from sgdec.search.choosing import Choice
from sgdec.search.combining import Combined
from sgdec.search.continuations import Continuation, best_first
from sgdec.search.node import Node, require_finite
from sgdec.search.sampling import Draw, draw_child


class ScoredRows:
    """The children of a batch of nodes. Raises SgdecError if a total overflows, and what `Combined` raises."""

    def __init__(
        self,
        nodes: Sequence[Node],
        combined: Combined,
        coverage: Sequence[Coverage],
        names: Sequence[str],
        combine: Callable[[Sequence[Node]], Combined],
    ) -> None:
        """``combined``: the scores of these nodes. ``coverage``: for each node that of its children, () = none.

        ``combine``: computes the scores again, for iterators that are read after they have been freed.
        """
        self._nodes = nodes
        self._combined = combined
        self._coverage = coverage
        self._names = names
        self._combine = combine

    def children(self, limits: Sequence[int | None], above: Sequence[float]) -> list[Iterator[Node]]:
        """For each node its children with totals > ``above``, best total first (ties: lower token), as they are read.

        ``limits``: for each node the most children; None = all.
        """
        most = max((limit for limit in limits if limit is not None), default=None)
        best = [] if most is None else self._combined.best_blocks(most)
        blocks = self._combined.blocks(lazily.FIRST_BLOCK) if None in limits else []
        families: list[Iterator[Node]] = []
        for i, (node, limit, least) in enumerate(zip(self._nodes, limits, above, strict=True)):
            cover, names = self._coverage[i], self._names
            if limit is None:
                more = lazily.Job(self._combine, self._combined, i)
                families.append(lazily.children(node, blocks[i], more, cover, least, names))
            else:
                families.append(lazily.best_children(node, best[i].first(limit), cover, least, names))
        return families

    def best(self, beam_of: Sequence[int], choice: Choice) -> list[list[Node]]:
        """For each node its children that are among the best of its beam, best first.

        ``beam_of``: the beam of each node, ascending. Can be called again for another choice.
        """
        before = [node.total for node in self._nodes]
        return self._made(self._combined.best_together(beam_of, before, choice))

    def besides(self, families: Sequence[Sequence[Node]], tokens: Sequence[Sequence[int]]) -> list[list[Node]]:
        """For each node its best child, and those with given tokens, best first; ``families``: what `best` returned.

        A child that is there too is the same object.
        """
        each_best, given = self._combined.best(1), self._combined.of_tokens(tokens)
        wanted = [
            sorted({each[0]: each for each in (*best, *others)}.values(), key=best_first)
            for best, others in zip(each_best, given, strict=True)
        ]
        listed = [{child.last: child for child in family} for family in families]
        return [
            [known.get(child.last, child) for child in family]
            for known, family in zip(listed, self._made(wanted), strict=True)
        ]

    def with_tokens(self, tokens: Sequence[Sequence[int]]) -> list[list[Node]]:
        """For each node its children with these tokens; those that cannot follow are left out."""
        return self._made(self._combined.of_tokens(tokens))

    def draw(self, draws: Sequence[Draw]) -> list[Node | None]:
        """One child of each node, drawn at random; None if a node has no child."""
        children = [
            draw_child(node, self._combined, i, drawn, self._coverage[i])
            for i, (node, drawn) in enumerate(zip(self._nodes, draws, strict=True))
        ]
        for child in children:
            require_finite([] if child is None else [child], self._names)
        return children

    def _made(self, found: Sequence[Sequence[Continuation]]) -> list[list[Node]]:
        families = [
            node.children(continuations, cover) if continuations else []
            for node, continuations, cover in zip(self._nodes, found, self._coverage, strict=True)
        ]
        for family in families:
            require_finite(family, self._names)
        return families
