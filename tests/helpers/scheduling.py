"""What the tests of the scheduler share: predictors that depend on sentence and prefix, searches of several kinds,
and one constellation decoded with and without a scheduler."""

from __future__ import annotations

import heapq
import time
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from functools import cache, partial
from itertools import count
from typing import Any, TypeVar

import numpy as np
from sgdec_decoders.beam import BeamDecoder
from sgdec_decoders.greedy import GreedyDecoder
from sgdec_decoders.vanilla import VanillaDecoder

from sgdec.context import EOS
from sgdec.decoder import BatchDecoder, Decoder
from sgdec.errors import SgdecError, UsageError
from sgdec.lifting import lift
from sgdec.plugins.host import Host
from sgdec.protocol import BatchPredictor, Candidates, Predictor, Result, Scores, Source
from sgdec.search.constellation import Constellation
from sgdec.search.node import Node
from sgdec.search.outcome import Outcome, Unreadable
from sgdec.search.scheduler import Scheduler
from sgdec.search.space import SearchSpace
from sgdec.testing.toys import Bonus, Lattice, PassThrough

Found = TypeVar("Found")
V = 7
"""As many target tokens as the tiny models over the letters a, b, c have."""
HOST = Host(autoload=False)
SOURCES = [Source(n, tuple(range(3, 3 + n % 4 + 1)), max_length=n % 3) for n in range(1, 14)]


# Predictors whose scores depend on the sentence and the whole prefix.


def log_probabilities(source: Sequence[int], prefix: Sequence[int]) -> Any:
    """``[V]``."""
    return _drawn((*source, 77, *prefix)).copy()  # some tests change it


@cache
def _drawn(seed: tuple[int, ...]) -> Any:
    scores = np.random.default_rng(seed).normal(0.0, 2.0, V)
    return scores - np.log(np.exp(scores).sum())


class Dense(Predictor):
    """As a stranger writes it, one prefix at a time."""

    def initialize(self, source: Source) -> None:
        self._source = source.tokens
        self._prefix: tuple[int, ...] = ()

    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        return Scores.dense(log_probabilities(self._source, self._prefix))

    def consume(self, token: int) -> None:
        self._prefix = (*self._prefix, token)

    def get_state(self) -> tuple[int, ...]:
        return self._prefix

    def set_state(self, state: tuple[int, ...]) -> None:
        self._prefix = state

    def best_remaining(self, states: Sequence[tuple[int, ...]]) -> list[float]:
        return [0.0] * len(states)

    def state_key(self, states: Sequence[tuple[int, ...]]) -> list[Hashable]:
        return list(states)


class OnDemand(Dense):
    on_demand = True

    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        scores = log_probabilities((*self._source, 9), self._prefix)
        if candidates is None:
            return Scores.dense(scores)
        return Scores.sparse(list(candidates), [float(scores[token]) for token in candidates], default=-50.0)


class Restricting(Dense):
    """Some tokens, others for each sentence; ``</s>`` among them."""

    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        scores = log_probabilities(self._source, (4, *self._prefix))
        tokens = [EOS, 3 + sum(self._source) % 3, 3 + len(self._prefix) % 3]
        listed = list(dict.fromkeys(tokens))
        return Scores.sparse(listed, [float(scores[token]) for token in listed])


class InBatches(BatchPredictor):
    """Says which states it was asked about together, and can raise for one sentence."""

    def __init__(self, raises: dict[tuple[str, int], Exception] | None = None, slow: bool = False) -> None:
        self.asked: list[list[int]] = []
        self.raised = 0
        self._raises = raises or {}
        self._slow = slow

    def initialize_batch(self, sources: Sequence[Source]) -> list[Any]:
        self._perhaps("initialize", [source.id for source in sources])
        return [(source.id, source.tokens, ()) for source in sources]

    def predict_batch(self, states: Sequence[Any], candidates: Any = None) -> Scores:
        self.asked.append([sentence for sentence, _, _ in states])
        if self._slow:
            time.sleep(0.001 * (len(self.asked) % 3))
        self._perhaps("predict", self.asked[-1])
        return Scores.dense(np.stack([log_probabilities(source, prefix) for _, source, prefix in states]))

    def consume_batch(self, states: Sequence[Any], tokens: Sequence[int]) -> list[Any]:
        self._perhaps("consume", [sentence for sentence, _, _ in states])
        return [(*state[:2], (*state[2], token)) for state, token in zip(states, tokens, strict=True)]

    def best_remaining(self, states: Sequence[Any]) -> list[float]:
        self._perhaps("bound", [sentence for sentence, _, _ in states])
        return [0.0] * len(states)

    def _perhaps(self, verb: str, sentences: list[int]) -> None:
        for sentence in sentences:
            if (verb, sentence) in self._raises:
                self.raised += 1
                raise self._raises[verb, sentence]


LATTICE = {
    0: {3: (-0.5, 1), 4: (-0.7, 2), EOS: (-3.0, 9)},
    1: {3: (-0.4, 3), 5: (-0.2, 3), EOS: (-2.0, 9)},
    2: {5: (-0.1, 3), EOS: (-1.5, 9)},
    3: {EOS: (-0.6, 9)},
}
MIXES: dict[str, Callable[[], Constellation]] = {
    "a stranger's": lambda: Constellation.of({"a": Dense()}),
    "in batches": lambda: Constellation.of({"a": InBatches()}),
    "both forms": lambda: Constellation.of({"a": InBatches(), "b": OnDemand()}, weights=[0.6, 0.4]),
    "dense and sparse": lambda: Constellation.of(
        {"a": InBatches(), "b": Bonus({EOS: -1.0})}, weights=[1.0, 0.5], vocab_size=V
    ),
    "restricted": lambda: Constellation.of({"a": InBatches(), "b": Restricting()}),
    "a lattice": lambda: Constellation.of({"a": Lattice(LATTICE)}),
    "a lattice and on demand": lambda: Constellation.of({"a": Lattice(LATTICE), "b": OnDemand()}),
    "wrapped": lambda: Constellation.of({"a": PassThrough(lift(Dense())), "b": Lattice(LATTICE)}),
    "not consulted": lambda: Constellation.of({"a": InBatches(), "b": Dense()}, weights=[1.0, None]),
}


# Decoders.


class DepthFirst(Decoder):
    """The whole space, one node at a time, children produced lazily."""

    def decode(self, space: SearchSpace) -> Result:
        finished, stack = [], [space.root]
        while stack:
            (children,) = space.expand([stack.pop()])
            for child in children:
                (finished if child.finished else stack).append(child)
        finished.sort(key=lambda node: (-node.total, node.tokens))
        return Result([space.finish(node) for node in finished[: space.nbest]])


class BestFirst(Decoder):
    """A*: the node with the highest total plus bound comes first; asks for bounds and keys."""

    def decode(self, space: SearchSpace) -> Result:
        order = count()
        queue = [(0.0, next(order), space.root)]
        found: list[Node] = []
        visits: Counter[Hashable] = Counter()
        while queue and len(found) < space.nbest:
            _, _, node = heapq.heappop(queue)
            if node.finished:
                found.append(node)
                continue
            visits.update(space.keys([node]))
            if visits[space.keys([node])[0]] > space.nbest:
                continue
            (children,) = space.expand([node], limit=V)
            for child, bound in zip(children, space.bound(children), strict=True):
                heapq.heappush(queue, (-child.total - bound, next(order), child))
        return Result([space.finish(node) for node in found], proven=True)


class Sampling(Decoder):
    """As many samples as the n-best asks for."""

    def decode(self, space: SearchSpace) -> Result:
        nodes = dict.fromkeys(range(space.nbest), space.root)
        found = {}
        while nodes:
            children = space.sample(list(nodes.values()), list(nodes))
            grown = {number: child for number, child in zip(nodes, children, strict=True) if child is not None}
            found |= {number: child for number, child in grown.items() if child.finished}
            nodes = {number: child for number, child in grown.items() if not child.finished}
        return Result([space.finish(found[number]) for number in sorted(found)])


class Failing(GreedyDecoder):
    """Raises in every third sentence, after a question."""

    def decode(self, space: SearchSpace) -> Result:
        space.expand([space.root], limit=1)
        if space.source.id % 3 == 0:
            raise ZeroDivisionError(f"in sentence {space.source.id}")
        return super().decode(space)


class Together(BatchDecoder):
    """Greedy, all spaces side by side; raises for the sentences that it is told."""

    def __init__(self, raises: Sequence[int] = ()) -> None:
        self._raises = raises
        self.batches: list[list[int]] = []

    def decode_batch(self, spaces: Sequence[SearchSpace]) -> list[Result]:
        self.batches.append([space.source.id for space in spaces])
        if any(space.source.id in self._raises for space in spaces):
            raise SgdecError("not this one")
        return [GreedyDecoder().decode(space) for space in spaces]


GIVEN = {"syncbeam": {"symbol": 4}, "mcmc": {"steps": 10, "walks": 2, "burn_in": 2}}
"""Options without a default, and those that make a search short."""
DECODERS: dict[str, Callable[[], Decoder]] = {
    **{
        entry.name: partial(HOST.load("decoder", entry.name), **GIVEN.get(entry.name, {}))
        for entry in HOST.names("decoder")
    },
    "beam that finishes all": lambda: BeamDecoder(size=3, stop="full", alpha=0.6),
    "beam with proof": lambda: BeamDecoder(size=2, stop="proven", recombine=True),
    "vanilla that finishes all": lambda: VanillaDecoder(size=3, stop="full", alpha=0.6),
    "vanilla with proof": lambda: VanillaDecoder(size=2, stop="proven"),
    "depth first": DepthFirst,
    "best first": BestFirst,
    "sampling": Sampling,
}
"""All that are registered, and kinds of search that may not be; all end on every space with a length limit."""


def alone(constellation: Constellation, decoder: Decoder, source: Source, nbest: int = 3) -> tuple[Result, int]:
    """The result of one sentence without any scheduler, and its expansions."""
    (root,) = constellation.roots([source])
    space = SearchSpace(constellation, root, ranking=decoder.ranking, nbest=nbest, seed=5)
    return decoder.decode(space), space.expansions


def together(
    constellation: Constellation, decoder: Decoder, sources: Sequence[Source | Unreadable] = SOURCES, **options: Any
) -> list[Outcome]:
    scheduler = Scheduler(constellation, decoder, **{"nbest": 3, "seed": 5, "batch_size": 4, **options})
    return list(scheduler.run(sources))


def or_refusal(search: Callable[[], Found]) -> Found | str:
    """What a search gives, or why it refuses the constellation."""
    try:
        return search()
    except UsageError as error:
        return str(error)
