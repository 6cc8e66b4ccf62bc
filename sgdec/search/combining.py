"""Combination of the scores of several predictors: candidates, combined scores, the best continuations, and children.

One `Column` holds one predictor's answer about a batch of nodes. The candidates of a node are the intersection of
the tokens that restricting rows list, or the whole vocabulary if no row restricts. Each of the two cases has its own
module: `sgdec.search.combination.listed` and `sgdec.search.combination.dense`.

The combined score of token w is ``sum_k weight_k * score_k(w)`` (SGNMT, section 2.1), over predictors whose weight
is not None. A score of -inf forbids the token, whatever the weight.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from sgdec.arrays import FORBIDDEN, Floats, Ints
from sgdec.chain import Chain
from sgdec.errors import UsageError
from sgdec.protocol import Candidates
from sgdec.ranking import Coverage
from sgdec.search import lazily
from sgdec.search.combination.choosing import Choice
from sgdec.search.combination.columns import Column
from sgdec.search.combination.continuations import Block, Continuation, best_first
from sgdec.search.combination.dense import NARROW, DenseRows
from sgdec.search.combination.listed import ListedRows
from sgdec.search.node import Node, require_finite
from sgdec.search.sampling import Distribution, Draw, Drawn, distribution, draw
from sgdec.sparse import TokenLists

Found = TypeVar("Found")
Rows: TypeAlias = DenseRows | ListedRows


class Combined:
    """The continuations of a batch of nodes; each method sorts what it returns.

    Methods raise SgdecError, naming the predictor, if a score is NaN or +inf, or a sum overflows.
    """

    forgotten = False

    def __init__(
        self, columns: Sequence[Column], candidates: Sequence[Candidates | None], vocab_size: int | None
    ) -> None:
        """``candidates``: for each node the tokens that can follow, or None for all 0..V-1.

        Raises UsageError if V is needed and unknown, or if a predictor's matrix does not have V columns.
        """
        width = agreed_width([(column.name, column.scores.width) for column in columns], vocab_size)
        self.columns = columns
        self._candidates, self.width = candidates, width
        self._kinds: list[tuple[Sequence[int], Rows]] = []
        """For each kind of rows that occurs: its nodes, and their rows."""
        if isinstance(candidates, TokenLists):
            every = range(len(candidates))
            self._kinds.append((every, ListedRows(columns, every, candidates, vocab_size)))
            return
        dense = [node for node, tokens in enumerate(candidates) if tokens is None]
        listed = [node for node, tokens in enumerate(candidates) if tokens is not None]
        if listed:
            tokens = [tokens for tokens in candidates if tokens is not None]
            self._kinds.append((listed, ListedRows(columns, listed, tokens, vocab_size)))
        if dense:
            every = range(len(candidates))
            self._kinds.append((dense, DenseRows(columns, dense if listed else every, width)))

    def best(self, limit: int) -> list[list[Continuation]]:
        """For each node its ``limit`` best continuations, best first (ties: lower token)."""
        return self._of_each_node(lambda rows: rows.best(limit))

    def best_blocks(self, limit: int) -> list[Block]:
        """The same as a `Block` for each node, in arrays if they are many."""
        if limit <= NARROW:
            return [Block(found, more=False) for found in self.best(limit)]
        return self._of_each_node(lambda rows: rows.best_blocks(limit))

    def best_rows(self, limit: int) -> list[Floats]:
        """The same as an array ``[n, 2 + K]`` for each node: token, combined score, unweighted scores."""
        return [block.rows(2 + len(self.columns)) for block in self.best_blocks(limit)]

    def best_together(
        self, groups: Sequence[int], before: Sequence[float], choice: Choice
    ) -> list[list[Continuation]]:
        """For each node its continuations that are among the best of all nodes of its group.

        ``groups``: the group of each node, ascending. ``before``: the totals of the nodes. A group with rows of both
        kinds gets the best of each kind. Raises SgdecError if a total overflows.
        """
        if len(self._kinds) == 1:
            ((_, rows),) = self._kinds
            return rows.best_together(groups, before, choice)
        found: list[list[Continuation]] = [[] for _ in groups]
        for nodes, rows in self._kinds:
            own = [groups[node] for node in nodes]
            chosen_of_each = rows.best_together(own, [before[node] for node in nodes], choice)
            for node, chosen in zip(nodes, chosen_of_each, strict=True):
                found[node] = chosen
        return found

    def of_tokens(self, tokens: Sequence[Sequence[int]]) -> list[list[Continuation]]:
        """For each node its continuations with these tokens; those that cannot follow are left out."""
        found: list[list[Continuation]] = [[] for _ in tokens]
        for nodes, rows in self._kinds:
            for node, family in zip(nodes, rows.of_tokens([tokens[node] for node in nodes]), strict=True):
                found[node] = family
        return found

    def blocks(self, size: int) -> list[Block]:
        """For each node a `Block` of its ``size`` best continuations, best first (ties: lower token)."""
        return self._of_each_node(lambda rows: rows.blocks(size))

    def block_after(self, node: int, given: npt.NDArray[np.integer[Any]], size: int) -> Block:
        """One node's ``size`` best continuations, without those with the tokens ``given``."""
        rows, place = self._at[node]
        return rows.block_after(place, given, size)

    def distribution(self, node: int) -> tuple[Ints, Floats]:
        """One node's candidates ``[n]``, ascending, and their combined scores ``[n]`` (float64)."""
        rows, place = self._at[node]
        return rows.distribution(place)

    def continuation(self, node: int, token: int) -> Continuation:
        """One node's continuation with this token."""
        rows, place = self._at[node]
        return rows.continuation(place, token)

    def candidates_of(self, node: int) -> int:
        """The number of tokens that can follow a node, unless a predictor forbids one by its score."""
        tokens = self._candidates[node]
        if tokens is not None:
            return len(tokens)
        assert self.width is not None, "rows of the whole vocabulary have a width"
        return self.width

    def forget(self) -> None:
        """Free the predictors' answers; no other method may be called afterwards."""
        vars(self).clear()
        self.forgotten = True

    def _of_each_node(self, ask: Callable[[Rows], list[Found]]) -> list[Found]:
        answers = [(nodes, ask(rows)) for nodes, rows in self._kinds]
        if len(answers) == 1:
            return answers[0][1]
        found = {node: each for nodes, of_kind in answers for node, each in zip(nodes, of_kind, strict=True)}
        return [found[node] for node in range(len(found))]

    @cached_property
    def _at(self) -> dict[int, tuple[Rows, int]]:
        """For each node its rows, and its position among them."""
        return {node: (rows, place) for nodes, rows in self._kinds for place, node in enumerate(nodes)}


@dataclass(slots=True)
class Later:
    """The later continuations of one node: from the scores that ranked its first ones, or from them computed again.

    An open iterator keeps it, so it refers to nothing else of the batch.
    """

    combine: Callable[[Sequence[Node]], Combined]
    combined: Combined
    place: int
    """The node's position in ``combined``."""

    def __call__(self, node: Node, given: npt.NDArray[np.int32], size: int) -> Block:
        if self.combined.forgotten:
            self.combined, self.place = self.combine([node]), 0
        return self.combined.block_after(self.place, given, size)


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
                later = Later(self._combine, self._combined, i)
                families.append(lazily.children(node, blocks[i], later, cover, least, names))
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

    def draw(self, draws: Sequence[Draw]) -> list[Drawn | None]:
        """One child of each node, drawn at random; None if a node has none."""
        found: list[tuple[int, float, float | None] | None] = []
        for place, (node, drawn) in enumerate(zip(self._nodes, draws, strict=True)):
            tokens, scores = self._combined.distribution(place)
            if len(tokens) and np.max(scores) > FORBIDDEN:
                found.append(draw(tokens, scores, drawn, sentence=node.source.id, step=node.length))
            else:
                found.append(None)
        made = [[] if each is None else [self._combined.continuation(at, each[0])] for at, each in enumerate(found)]
        return [
            None if each is None else Drawn(family[0], *each[1:])
            for each, family in zip(found, self._made(made), strict=True)
        ]

    def distributions(self, chain: Chain, states: Sequence[float | None]) -> list[Distribution]:
        """For each node its local distribution. ``states``: the numbers that the chain keeps for them."""
        return [
            distribution(*self._combined.distribution(place), chain, state, partial(self._child_of, place))
            for place, state in enumerate(states)
        ]

    def _child_of(self, place: int, tokens: Sequence[int]) -> list[Node]:
        """The children of one node with these tokens, in this order, from scores that may have been freed."""
        node, combined = self._nodes[place], self._combined
        if combined.forgotten:
            combined, place_there = self._combine([node]), 0
        else:
            place_there = place
        family = node.children(
            [combined.continuation(place_there, token) for token in tokens], self._coverage[place]
        )
        require_finite(family, self._names)
        return family

    def _made(self, found: Sequence[Sequence[Continuation]]) -> list[list[Node]]:
        families = [
            node.children(continuations, cover) if continuations else []
            for node, continuations, cover in zip(self._nodes, found, self._coverage, strict=True)
        ]
        for family in families:
            require_finite(family, self._names)
        return families


def agreed_width(widths: Iterable[tuple[str, int | None]], vocab_size: int | None) -> int | None:
    """V, the number of target tokens, or None if it is unknown.

    ``widths``: for each predictor its name and the width of its matrix, None if it has none. Raises UsageError if
    widths differ from each other or from ``vocab_size``.
    """
    for name, width in widths:
        if width is not None and vocab_size is not None and width != vocab_size:
            raise UsageError(
                f"predictor {name!r} scores {width} tokens, but the vocabulary has {vocab_size}; all predictors must "
                "share one target vocabulary."
            )
        vocab_size = vocab_size if width is None else width
    return vocab_size
