"""The search space: all predictors over one source sentence, as a decoder sees them.

A decoder uses six methods: `expand`, `best_children`, `draw`, `bound`, `keys`, `finish`; with banks also
`bank_children` and `progress`; to draw several children at once, `distributions` and `generator`. By those of
`Listing` it makes its list, and by those of `Telling` it says what becomes of nodes. The space handles weights,
combination, the ledger, counting of expansions, and lazy consumption: predictors consume a node's token only when
its state is needed, so nodes that are never expanded cost no call.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from operator import attrgetter
from typing import Any, Literal, overload
from warnings import warn

import numpy as np

from sgdec.chain import UNCHAINED, Chain
from sgdec.context import EOS
from sgdec.errors import SgdecError
from sgdec.protocol import FORBIDDEN, BatchPredictor, Hypothesis
from sgdec.ranking import Ranking
from sgdec.search.bounds.declared import max_score, most_of
from sgdec.search.bounds.folding import BoundsUsed
from sgdec.search.combination.choosing import Choice
from sgdec.search.constellation import Constellation
from sgdec.search.listing import Listing, TextOf
from sgdec.search.node import Node
from sgdec.search.requests import Offer, Question, Request
from sgdec.search.sampling import Distribution, Draw, Drawn, generator
from sgdec.search.tracing.meter import Meter
from sgdec.search.tracing.recording import Recorder
from sgdec.search.tracing.telling import Telling
from sgdec.trace.records import Fate

ENDLESS = 10_000
"""The length at which a search without a length limit fails, before it fills the memory."""

ROUNDING = 2.0**-40
"""The share of a total by which another order of summation can change it, for up to a thousand terms at least."""
COVERAGE = Ranking(beta=1.0)
"""The ranking whose coverage penalty hypotheses say."""
_bound: Callable[[Node], Any] = attrgetter("bound")
_total: Callable[[Node], Any] = attrgetter("total")


class SearchSpace(Telling, Listing):
    """A decoder's view of one sentence."""

    def __init__(
        self,
        constellation: Constellation,
        root: Node,
        *,
        ranking: Ranking | None = None,
        nbest: int = 1,
        seed: int = 0,
        ask: Callable[[Request], Any] | None = None,
        recorder: Recorder | None = None,
        meter: Meter | None = None,
        text_of: TextOf | None = None,
        coverage: bool = False,
    ) -> None:
        """``nbest``: the number of hypotheses that the run wants. ``text_of``: lists each text once (`Listing`).
        ``coverage``: hypotheses say theirs, whether the ranking uses it or not.

        ``ask``: a function that answers requests; by default the constellation is called directly. ``recorder``: of
        a search that is traced. ``meter``: of a run that shows its progress. Raises UsageError if the ranking needs
        attention and no predictor has it.
        """
        Telling.__init__(self, recorder, meter)
        Listing.__init__(self, ranking or Ranking(), nbest, text_of)
        self.constellation = constellation
        self.root = root
        self.source = root.source
        self.seed = seed
        self._rounds_up = constellation.folding_under(root.weights).helps
        """Whether bounds can be sums in another order than totals."""
        self._bounded = False
        """Whether the search has asked for bounds."""
        self._too_long = ENDLESS if self.source.max_length is None else math.inf
        self.longest: Node | None = None
        """The first of the longest expanded nodes; decoders on arrays set it only if the search is watched."""
        self.watched = False
        """Whether the search is traced or checked, so that decoders on arrays keep nodes."""
        self._uses_coverage = self.ranking.uses_coverage or coverage
        self._ask = ask
        constellation.require_attention(self.ranking)

    @contextmanager
    def inside(
        self, ranking: Ranking, nbest: int, *, seed: int | None = None, distinct: bool = True
    ) -> Iterator[SearchSpace]:
        """The space of another search for the same sentence, inside this one; afterwards its expansions count here.

        Predictors, weights, batches, trace and progress are shared. ``seed``: None = the same. ``distinct``: the list
        has each text once if the run wants that; otherwise it may have texts several times.
        """
        space = SearchSpace(
            self.constellation, self.root, ranking=ranking, nbest=nbest, seed=self.seed if seed is None else seed,
            ask=self._ask, recorder=self.recorder, meter=self._meter, text_of=self.text_of if distinct else None,
            coverage=self._uses_coverage,
        )  # fmt: skip
        space.watched = self.watched
        try:
            yield space
        finally:
            self.expansions += space.expansions
            self._bounded |= space._bounded
            if space.longest is not None:
                self.reach(space.longest)

    @property
    def predictors(self) -> tuple[BatchPredictor, ...]:
        """The predictors themselves, for decoders that work on whole tensors."""
        return self.constellation.predictors

    @property
    def weights(self) -> tuple[float | None, ...]:
        """The root's weights, one per predictor."""
        return self.root.weights

    @cached_property
    def max_score(self) -> float:
        """The highest combined score of any one token under the root's weights, from `max_score`; +inf = unknown."""
        return max_score(self.predictors, self.weights)

    @property
    def never_rises(self) -> bool:
        """Whether totals never rise under the root's weights, according to the predictors' `max_score`."""
        return self.max_score <= 0.0

    @overload
    def expand(
        self, nodes: Sequence[Node], limit: int, above: float = ..., bounded: bool = ..., lazy: Literal[False] = ...
    ) -> list[list[Node]]: ...
    @overload
    def expand(
        self, nodes: Sequence[Node], limit: None = None, above: float = ..., bounded: bool = ..., lazy: bool = ...
    ) -> list[Iterator[Node]]: ...
    @overload
    def expand(
        self, nodes: Sequence[Node], limit: int, above: float = ..., bounded: bool = ..., *, lazy: Literal[True]
    ) -> list[Iterator[Node]]: ...
    def expand(
        self,
        nodes: Sequence[Node],
        limit: int | None = None,
        above: float = FORBIDDEN,
        bounded: bool = False,
        lazy: bool = False,
    ) -> list[Any]:
        """For each node its children with total > ``above``, best total first (ties: lower token), at most ``limit``.

        With a limit the children come as a list, without one as an iterator. ``lazy``: as an iterator in any case.
        An iterator creates each child when it is read: the others cost no object, only their numbers in arrays.
        ``bounded``: the caller will ask for the children's bounds; predictors that know these without another call
        then compute them here.
        Raises UsageError if no predictor restricts and V is unknown, SgdecError if a score is NaN,
        ValueError for a finished node or a limit below 1.
        """
        if limit is not None and limit < 1:
            raise ValueError(f"limit is {limit}; expected 1 or more, or None for all")
        self._count(nodes)
        self._bounded |= bounded
        limits, lowest = [limit] * len(nodes), [above] * len(nodes)
        families = self._answer("children", nodes, (limits, lowest), (self._uses_coverage, bounded))
        if self.recorder is not None:
            self.recorder.rest(nodes, Fate.UNREAD if lazy or limit is None else Fate.LIMIT)
            families = [map(self._received, family) for family in families]
        return families if lazy or limit is None else list(map(list, families))

    def best_children(
        self,
        beam: Sequence[Node],
        size: int,
        *,
        width: float = math.inf,
        all_ends: bool = False,
        distinct: bool = False,
    ) -> list[Node]:
        """The candidates for the next beam: the best children of all nodes together, and the finished nodes.

        Each open node offers its ``size`` best children, but none more than ``width`` below its best one. The result
        has the ``size`` best open children of all offers. Finished nodes of the beam and children that end with
        ``</s>`` are included if they come before the last of these or, with ``all_ends``, in any case. ``distinct``:
        among nodes with equal `keys`, only the first. Order: higher total, then earlier in the beam (for a child, its
        parent), then higher score, then lower token.

        The cost is one pass over the scores of all children, and one object per node returned. Expansions are
        counted, and errors raised, as in `expand`. Raises ValueError for a size below 1.
        """
        choice = _choice(size, width, all_ends)
        growing, families = self._offered(beam, choice, distinct)
        candidates: list[Node] = []
        for node in beam:
            if node.last == EOS:
                candidates.append(node)
            else:
                candidates += next(families)
        candidates.sort(key=_total, reverse=True)  # stable: of equal totals, the order of the beam
        if distinct:
            candidates = self._distinct(candidates)
        candidates = _through(candidates, size, all_ends)
        if self.recorder is not None:
            self.received(growing, candidates, width)
        return candidates

    def bank_children(
        self,
        beam: Sequence[Node],
        size: int,
        *,
        width: float = math.inf,
        all_ends: bool = False,
        distinct: bool = False,
    ) -> list[Node]:
        """The candidates for the next beam of a search with banks (Post and Vilar 2018, section 3).

        They are the open and new candidates of `best_children` with the same arguments, all finished nodes, and for
        each open node its best child and the children that meet more of a constraint, in the same order. Errors are
        those of `best_children`.
        """
        choice = _choice(size, width, all_ends)
        growing, offers = self._offered(beam, choice, distinct, banks=True)
        families = [Offer([node], [node]) if node.last == EOS else next(offers) for node in beam]
        best = sorted((child for family, _ in families for child in family), key=_total, reverse=True)
        if distinct:
            best = self._distinct(best)
        wanted = set(map(id, _through(best, size, all_ends)))
        candidates: list[Node] = []
        for family, besides in families:
            kept = [child for child in family if id(child) in wanted]
            more = [child for child in besides if id(child) not in wanted]
            candidates += sorted([*kept, *more], key=_best_first)
        candidates.sort(key=_total, reverse=True)  # stable: of equal totals, the order of the beam
        if distinct:
            candidates = self._distinct(candidates)
        if self.recorder is not None:
            self.received(growing, candidates, width)
        return candidates

    def sample(
        self,
        nodes: Sequence[Node],
        numbers: Sequence[int],
        *,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
    ) -> list[Node | None]:
        """One child of each node, as `draw` returns it, without its probability."""
        chain = Chain.of(temperature=temperature, top_k=top_k, top_p=top_p)
        return [None if drawn is None else drawn.node for drawn in self.draw(nodes, numbers, chain=chain)]

    def draw(
        self,
        nodes: Sequence[Node],
        numbers: Sequence[int],
        chain: Chain = UNCHAINED,
        states: Sequence[float | None] | None = None,
    ) -> list[Drawn | None]:
        """One child of each node, drawn from its local distribution, with its log-probability; None without one.

        The local distribution is that of the combined scores, renormalised over the candidates, after the links of
        ``chain``. ``numbers``: for each node the number of its sample among those of the sentence. The randomness of
        a draw depends only on (seed, sentence, number, length). ``states``: for each node the `Drawn.state` that came
        with it, for chains that keep a number; None = it begins.
        """
        self._count(nodes)
        before = [None] * len(nodes) if states is None else states
        draws = [Draw(self.seed, number, chain, state) for number, state in zip(numbers, before, strict=True)]
        children: list[Drawn | None]
        children = self._answer("draw", nodes, (draws,), (self._uses_coverage,), together=True)
        if self.recorder is not None:
            self.recorder.rest(nodes, Fate.UNDRAWN)
            for drawn in children:
                if drawn is not None:
                    self._received(drawn.node)
        return children

    def distributions(
        self,
        nodes: Sequence[Node],
        chain: Chain = UNCHAINED,
        states: Sequence[float | None] | None = None,
    ) -> list[Distribution]:
        """For each node the local distribution that `draw` draws from, as arrays, and its children on demand.

        For decoders that draw several children at once. Arguments and errors are those of `draw`.
        """
        self._count(nodes)
        before = [None] * len(nodes) if states is None else states
        found: list[Distribution]
        found = self._answer("distributions", nodes, (before,), (chain, self._uses_coverage), together=True)
        if self.recorder is not None:
            self.recorder.rest(nodes, Fate.UNDRAWN)
            for each in found:
                each.made = partial(self._all_received, each.made)
        return found

    def generator(self, number: int, step: int) -> np.random.Generator:
        """The random numbers of one step of one draw: they depend only on (seed, sentence, number, step)."""
        return generator(self.seed, self.source.id, number, step)

    def _all_received(self, made: Callable[[Sequence[int]], list[Node]], tokens: Sequence[int]) -> list[Node]:
        return list(map(self._received, made(tokens)))

    def bound(self, nodes: Sequence[Node]) -> list[float]:
        """For each node an upper bound on what its continuations can still add to its total (`sgdec.search.bounds`).

        -inf = no hypothesis can be reached. Raises UsageError, naming the predictor, if one declares no bound.
        """
        self._bounded = True
        known = list(map(_bound, nodes))
        found = self._answer("bounds", nodes) if None in known else known
        if not self._rounds_up:
            return found
        return [self.rounded_up(bound, node.total) for bound, node in zip(found, nodes, strict=True)]

    def rounded_up(self, bound: float, total: float) -> float:
        """A bound of the constellation after a prefix with this total, so that rounding cuts no optimum."""
        return bound + ROUNDING * abs(total) if self._rounds_up else bound

    @property
    def bounds_used(self) -> BoundsUsed | None:
        """The bounds that the search has asked for; None if it has asked for none."""
        return self.constellation.bounds_used(self.root) if self._bounded else None

    def most_after(self, length: int) -> float:
        """The most that any prefix of this length can still gain, from `max_score` alone: calls no predictor."""
        return most_of(self.max_score, self.source.max_length, length)

    def require_end(self, nodes: Sequence[Node] | None = None) -> None:
        """Check that an exact search from these nodes (default: the root) can end.

        An exact search ends when its best hypothesis exceeds all that open nodes can reach. Raises UsageError, naming
        the predictors, if there is no length limit and the declared bounds allow totals to grow without end.
        """
        self.constellation.require_end([self.root] if nodes is None else nodes)

    def keys(self, nodes: Sequence[Node]) -> list[Hashable]:
        """Recombination keys: nodes with equal keys have the same continuations with the same scores.

        So only the best node of each key matters for the 1-best. Finished nodes have unique keys, and so have all
        nodes if a predictor has no `state_key`.
        """
        found: list[Hashable] = self._answer("keys", nodes, shared=(self.ranking,))
        return found

    def progress(self, nodes: Sequence[Node]) -> list[int]:
        """For each node how much of all constraints is met (`sgdec.protocol.Progress`); if it is finished, all."""
        unfinished = [node for node in nodes if node.last != EOS]
        counts = iter(self._answer("progress", unfinished, together=True) if unfinished else ())
        return [self.needed if node.last == EOS else next(counts)[0] for node in nodes]

    @cached_property
    def needed(self) -> int:
        """The progress of outputs that meet all constraints."""
        return self.constellation.progress([self.root])[0][1]

    def require_progress(self) -> None:
        """Raise UsageError unless a predictor counts how much of a constraint is met."""
        self.constellation.require_progress(self.weights)

    def allowed_output(self) -> Node | None:
        """A finished node that the constraints alone allow, for a search with banks that has ended without one.

        It is found without the other predictors (`sgdec.search.completing`), so nothing is known about its rank; they
        score its tokens one after the other. None if there is none within the length limit, if others forbid it, or
        if the search for it would take too long.
        """
        node = self.root
        for token in self.constellation.allowed_output(self.root) or ():
            self._count([node])
            child = self.constellation.child(node, token, coverage=self._uses_coverage)
            if child is None:
                return None
            node = child
            if self.recorder is not None:
                self._received(node)
        return node if node.finished else None

    def finish(self, node: Node) -> Hypothesis:
        """The hypothesis of a node that ends with ``</s>``. Raises ValueError for any other node."""
        if not node.finished:
            raise ValueError(f"only a node that ends with </s> is a hypothesis, not {node!r}")
        tokens, ledger, weights = node.columns()
        coverage = COVERAGE.coverage_penalty(node.coverage) if self._uses_coverage else None
        return Hypothesis(tokens[:-1], node.total, self.rank_score(node), ledger, weights, coverage=coverage)

    def _distinct(self, candidates: list[Node]) -> list[Node]:
        """The first of all candidates with equal keys."""
        first: dict[Hashable, Node] = {}
        for node, key in zip(candidates, self.keys(candidates), strict=True):
            best = first.setdefault(key, node)
            if best is not node:
                self.dropped(node, Fate.RECOMBINED, best)
        return list(first.values())

    def count_expansions(self, nodes: int, length: int) -> None:
        """Count ``nodes`` expanded nodes of at most this length, for decoders that call the predictors themselves.

        `expand` and `sample` count their nodes themselves. Raises ValueError for a length above the sentence's limit,
        and SgdecError if there is no limit and the length has reached `ENDLESS`.
        """
        limit = self.source.max_length
        if limit is not None and length > limit:
            raise ValueError(f"a prefix of {length} tokens, but at most {limit} may come before </s>")
        self._require_end_by(length)
        self._expanded(nodes)

    def require_end_by(self, length: int) -> None:
        """The part of `count_expansions` that checks the length; decoders used to call it themselves."""
        warn("SearchSpace.require_end_by is an old name: call count_expansions.", DeprecationWarning, stacklevel=2)
        self._require_end_by(length)

    def _count(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            if node.last == EOS:
                raise ValueError(f"a finished node has no continuations: {node!r}")
            if node.family.length >= self._too_long:
                self._require_end_by(node.length)
        if nodes:
            self.reach(nodes[0])
        self._expanded(len(nodes))

    def reach(self, node: Node) -> None:
        """Note that this node is expanded, the first one of its length or not."""
        if self.longest is None or node.family.length > self.longest.family.length:
            self.longest = node

    def _offered(
        self, beam: Sequence[Node], choice: Choice, distinct: bool, banks: bool = False
    ) -> tuple[list[Node], Iterator[Any]]:
        """The open nodes of a beam, and what each of them offers for the next one; they count as expanded."""
        growing = [node for node in beam if node.last != EOS]
        self._count(growing)
        shared = choice, self._uses_coverage, self.ranking if distinct else None, banks
        return growing, iter(self._answer("best", growing, shared=shared, together=banks) if growing else ())

    def _answer(
        self,
        question: Question,
        nodes: Sequence[Node],
        each: tuple[Sequence[Any], ...] = (),
        shared: tuple[Any, ...] = (),
        *,
        together: bool = False,
    ) -> Any:
        """The answers to a request. ``together``: batches are faster even if all predictors are automata."""
        request, constellation = Request(question, nodes, each, shared), self.constellation
        if self._ask is None:
            return constellation.perform(request)
        alone = not together and not self._uses_coverage and constellation.gains_nothing_from_batches(nodes)
        return constellation.perform(request) if alone else self._ask(request)

    def _expanded(self, nodes: int) -> None:
        """Count expanded nodes."""
        self.expansions += nodes
        if self._meter is not None:
            self._meter.expanded(nodes)

    def _require_end_by(self, length: int) -> None:
        if length >= self._too_long:
            raise SgdecError(
                f"no end after {length:,} tokens, and no length limit: give --max-length N, or omit it (default)."
            )


def _choice(size: int, width: float, all_ends: bool) -> Choice:
    """The choice of ``size`` children of a beam, of each node at most as many. Raises ValueError below 1."""
    if size < 1:
        raise ValueError(f"size is {size}; expected 1 or more")
    return Choice(size, size, width, all_ends)


def _best_first(node: Node) -> tuple[float, int]:
    return -node.total, node.last


def _through(candidates: list[Node], size: int, all_ends: bool) -> list[Node]:
    """The candidates up to the ``size``-th open one; after it only finished ones, if all of them are wanted."""
    opened = 0
    for place, node in enumerate(candidates):
        opened += node.last != EOS
        if opened == size:
            rest = [node for node in candidates[place + 1 :] if node.last == EOS] if all_ends else []
            return candidates[: place + 1] + rest
    return candidates
