"""The search space: all predictors over one source sentence, as a decoder sees them.

A decoder asks it five things: `expand`, `sample`, `bound`, `keys`, `finish`. It owns weights, combination, ledger,
counting and lazy consumption: a node's token is consumed only when that node is itself expanded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import cached_property
from operator import attrgetter
from typing import Any, overload

from sgdec.context import EOS
from sgdec.errors import SgdecError
from sgdec.protocol import FORBIDDEN, BatchPredictor, Hypothesis
from sgdec.ranking import Ranking
from sgdec.search.bounds import max_score, most_of
from sgdec.search.constellation import Constellation
from sgdec.search.node import Node
from sgdec.search.requests import Asking, Request
from sgdec.search.sampling import Draw

ENDLESS = 10_000
"""The length at which a prefix is abandoned if there is no length limit: memory is finite."""

_bound: Callable[[Node], Any] = attrgetter("bound")


class SearchSpace:
    """What a decoder sees of one sentence."""

    def __init__(
        self,
        constellation: Constellation,
        root: Node,
        *,
        ranking: Ranking | None = None,
        nbest: int = 1,
        seed: int = 0,
        ask: Callable[[Request], Any] | None = None,
    ) -> None:
        """``nbest``: how many hypotheses the run wants. ``ask``: who answers requests; by default, at once.

        Raises UsageError if the ranking needs attention and no predictor has it.
        """
        self.constellation = constellation
        self.root = root
        self.source = root.source
        self.ranking = ranking or Ranking()
        self.nbest = nbest
        self.seed = seed
        self.expansions = 0
        """How many nodes were expanded or sampled from so far: the unit of search cost."""
        self._too_long = ENDLESS if self.source.max_length is None else math.inf
        self._uses_coverage = self.ranking.uses_coverage
        self._answers = constellation if ask is None else Asking(constellation, ask)
        constellation.require_attention(self.ranking)

    @property
    def predictors(self) -> tuple[BatchPredictor, ...]:
        """For decoders that work on whole tensors."""
        return self.constellation.predictors

    @property
    def weights(self) -> tuple[float | None, ...]:
        """The root's weights, one a predictor."""
        return self.root.weights

    @cached_property
    def max_score(self) -> float:
        """The highest combined score of any one token under the root's weights, as far as predictors say; or +inf."""
        return max_score(self.predictors, self.weights)

    @property
    def never_rises(self) -> bool:
        """Whether totals never rise, by what the predictors declare, under the root's weights."""
        return self.max_score <= 0.0

    @overload
    def expand(
        self, nodes: Sequence[Node], limit: int, above: float = ..., bounded: bool = ...
    ) -> list[list[Node]]: ...
    @overload
    def expand(
        self, nodes: Sequence[Node], limit: None = None, above: float = ..., bounded: bool = ...
    ) -> list[Iterator[Node]]: ...
    def expand(
        self, nodes: Sequence[Node], limit: int | None = None, above: float = FORBIDDEN, bounded: bool = False
    ) -> list[Any]:
        """For each node its children, best total first (ties: lower token), at most ``limit``, total > ``above``.

        Without a limit they are produced lazily, in blocks. Finished nodes have none and must not be asked for.
        ``bounded``: their bounds will be asked for next; where predictors know them at once, that then costs nothing.
        Raises UsageError if no predictor restricts and V is unknown, SgdecError if a score is NaN,
        ValueError for a finished node or a limit below 1.
        """
        if limit is not None and limit < 1:
            raise ValueError(f"limit is {limit}; expected 1 or more, or None for all")
        self._count(nodes)
        limits, lowest = [limit] * len(nodes), [above] * len(nodes)
        return self._answers.expand(nodes, limits, lowest, coverage=self._uses_coverage, bounded=bounded)

    def sample(
        self,
        nodes: Sequence[Node],
        numbers: Sequence[int],
        *,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
    ) -> list[Node | None]:
        """One child of each node, drawn from the combined scores renormalised over the candidates.

        ``numbers``: for each node which sample of the sentence it belongs to. A draw depends on (seed, sentence,
        number, length) alone. None where a node has no child.
        """
        self._count(nodes)
        draws = [Draw(self.seed, number, temperature, top_k, top_p) for number in numbers]
        return self._answers.sample(nodes, draws, coverage=self._uses_coverage)

    def bound(self, nodes: Sequence[Node]) -> list[float]:
        """For each node an upper bound on what its continuations can still add to its total (`sgdec.search.bounds`).

        -inf: no way to an end. Raises UsageError, naming the predictor, if one declares no bound.
        """
        known = list(map(_bound, nodes))
        return self._answers.bounds(nodes) if None in known else known

    def most_after(self, length: int) -> float:
        """The most that any prefix of this length can still gain, by `max_score` alone: calls no predictor."""
        return most_of(self.max_score, self.source.max_length, length)

    def require_end(self, nodes: Sequence[Node] | None = None) -> None:
        """For searches that go on until nothing open can be better, from these nodes, or else from the root.

        Raises UsageError, naming the predictor, if no bound can ever end that: without a length limit, predictors
        can add to a total without end, as far as they say.
        """
        self.constellation.require_end([self.root] if nodes is None else nodes)

    def keys(self, nodes: Sequence[Node]) -> list[Hashable]:
        """Equal keys = the same future, so that only the best node of a key matters to the 1-best.

        Unique keys where a predictor has no `state_key`, and for finished nodes.
        """
        return self._answers.keys(nodes, self.ranking)

    def rank_score(self, node: Node) -> float:
        """What `finish` will rank this finished node by."""
        return self.ranking.score(node.total, node.family.length, node.coverage)

    def finish(self, node: Node) -> Hypothesis:
        """The hypothesis of a node that ends with ``</s>``; ValueError for any other node."""
        if not node.finished:
            raise ValueError(f"only a node that ends with </s> is a hypothesis, not {node!r}")
        tokens, ledger, weights = node.columns()
        return Hypothesis(tokens[:-1], node.total, self.rank_score(node), ledger, weights)

    def count_expansions(self, nodes: int, length: int) -> None:
        """Counts ``nodes`` expanded nodes of at most this length: for decoders that call the predictors themselves.

        All others are counted by `expand` and `sample`. Raises ValueError for a length beyond the sentence's limit;
        SgdecError if a prefix of this length has to be given up: `ENDLESS`, and no limit.
        """
        limit = self.source.max_length
        if limit is not None and length > limit:
            raise ValueError(f"a prefix of {length} tokens, but at most {limit} may come before </s>")
        self._require_end_by(length)
        self.expansions += nodes

    def _count(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            if node.last == EOS:
                raise ValueError(f"a finished node has no continuations: {node!r}")
            if node.family.length >= self._too_long:
                self._require_end_by(node.length)
        self.expansions += len(nodes)

    def _require_end_by(self, length: int) -> None:
        if length >= self._too_long:
            raise SgdecError(
                f"no end after {length:,} tokens, and no length limit: give --max-length N, or leave it out."
            )
