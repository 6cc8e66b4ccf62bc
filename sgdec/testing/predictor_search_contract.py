"""The requirements of exact searches on a predictor: bounds and keys that hold for every prefix of a space.

`PredictorContract` tests abilities on random walks. Here the predictor is combined with others, under weights of both
signs, in spaces small enough to enumerate. Exact searches must find the same hypotheses as enumeration.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from sgdec.context import EOS
from sgdec.decoder import Decoder
from sgdec.lifting import lift
from sgdec.plugins.host import Host
from sgdec.protocol import BatchPredictor, Predictor, Source, ability
from sgdec.search.constellation import Constellation
from sgdec.search.node import Node
from sgdec.search.space import SearchSpace
from sgdec.testing.enumeration import Path, enumerate_space
from sgdec.testing.expectations import require_the_best, require_these
from sgdec.testing.random_spaces import random_lattice
from sgdec.testing.toys import Bonus, Table


class PredictorSearchContract(ABC):
    """Subclass it in addition to a `PredictorContract`, and implement `draw`; pytest runs the tests.

    The predictor must declare the bound that exact searches need: `best_remaining`, or a `max_score`.

    >>> from sgdec.testing import Table
    >>> class TestTable(PredictorSearchContract):
    ...     vocab_size = 4
    ...     def draw(self, rng):
    ...         return Table(rng.normal(size=(4, 4)))
    >>> TestTable().test_exact_searches_find_the_true_nbest()
    """

    vocab_size: int
    """V, the number of target tokens, at least 4. All prefixes are enumerated: 400 if V is 7 and the limit is 3."""
    spaces: int = 25
    """The number of random spaces."""
    limits: Sequence[int | None] = (3, 2, 1, 0)
    """The length limits of the spaces, in turn. None = no limit, for a predictor that itself ends all hypotheses.

    It is then the only predictor of the space.
    """
    weights: Sequence[float] = (1.0, 0.5, 2.0, -1.0, 0.0)
    """The weights to draw from. A predictor without `worst_remaining` gets no negative weight."""
    tolerance: float = 1e-6
    """The largest allowed difference between two sums of the same scores."""

    @abstractmethod
    def draw(self, rng: np.random.Generator) -> Predictor | BatchPredictor:
        """Return a new predictor at each call; if it reads a file, with a random file."""

    def source(self, limit: int | None) -> Source:
        """The sentence of a space."""
        return Source(1, (3, 4), "3 4", max_length=limit)

    def searches(self) -> list[Decoder]:
        """Exact decoders: the bundled ones, with and without recombination."""
        host = Host(autoload=False)
        classes = [host.load("decoder", name) for name in ("dfs", "astar", "restarting", "bucket")]
        return [cls(recombine=recombine) for cls in classes for recombine in (False, True)]

    def test_exact_searches_find_the_true_nbest(self) -> None:
        searches = self.searches()
        for number, drawn in enumerate(self._drawn()):
            for decoder in searches:
                space = drawn.open(nbest=number % 4 + 1)
                result = decoder.decode(space)
                at = f"by {type(decoder).__name__} {drawn.at}"
                require_the_best(result, drawn.paths[: space.nbest], space.ranking, self.tolerance, at)
                require_these(result, drawn.paths, self.tolerance, at)
                assert result.proven is True, f"an exact search must prove its list {at}"

    def test_no_completion_of_any_prefix_beats_its_bound(self) -> None:
        for drawn in self._drawn():
            nodes = drawn.nodes()
            for node, bound in zip(nodes, drawn.space.bound(nodes), strict=True):
                best = max(drawn.futures(node).values(), default=-math.inf)
                assert bound >= best - self.tolerance * (1 + abs(best)), (
                    f"a bound must not be below the score of a completion: it is {bound:g} after {node.tokens}, but "
                    f"one completion adds {best:g} {drawn.at}"
                )

    def test_all_prefixes_with_one_key_have_one_future(self) -> None:
        for drawn in self._drawn():
            nodes = drawn.nodes()
            groups: defaultdict[Hashable, list[Node]] = defaultdict(list)
            for node, key in zip(nodes, drawn.space.keys(nodes), strict=True):
                groups[key].append(node)
            for first, *others in groups.values():
                expected = drawn.futures(first)
                for node in others:
                    found = drawn.futures(node)
                    alike = found.keys() == expected.keys() and all(
                        math.isclose(found[end], expected[end], rel_tol=self.tolerance, abs_tol=self.tolerance)
                        for end in found
                    )
                    assert alike, (
                        f"prefixes with equal keys must have equal futures: {first.tokens} has the completions "
                        f"{expected}, but {node.tokens} has {found} {drawn.at}"
                    )

    def _drawn(self) -> Iterator[_Drawn]:
        rng = np.random.default_rng(20170804)
        for number in range(self.spaces):
            predictor = lift(self.draw(rng))
            bounded_below = ability(predictor, "worst_remaining") is not None
            own = [weight for weight in self.weights if weight >= 0 or bounded_below]
            limit = self.limits[number % len(self.limits)]
            others = {name: self._other(rng) for name in "bc"[: rng.integers(3)] if limit is not None}
            weights = [float(rng.choice(own)), *rng.choice(self.weights, len(others)).tolist()]
            constellation = Constellation.of({"a": predictor, **others}, weights=weights, vocab_size=self.vocab_size)
            company = " and ".join(type(other).__name__ for other in others.values()) or "nobody"
            at = f"(space {number}: combined with {company}, weights {weights}, at most {limit} tokens)"
            yield _Drawn(constellation, self.source(limit), at)

    def _other(self, rng: np.random.Generator) -> Predictor:
        """A random predictor whose scores are multiples of 0.5, so that many totals are equal."""
        kind = rng.integers(5)
        if kind == 0:
            return random_lattice(rng, 1.0, coarse=True)
        if kind < 3:
            return Bonus({EOS: 0.5, 3: -1.5}, default=-0.5)
        return Table(np.floor(2 * rng.uniform(-2.0, 2.0, (self.vocab_size, self.vocab_size))) / 2)


@dataclass
class _Drawn:
    """A random space and all of its hypotheses."""

    constellation: Constellation
    source: Source
    at: str

    def __post_init__(self) -> None:
        self.paths: list[Path] = enumerate_space(self.constellation, self.source)
        self.space = self.open()
        self._ends: defaultdict[tuple[int, ...], dict[tuple[int, ...], float]] = defaultdict(dict)
        """For each prefix: the remaining tokens and the total of each hypothesis that begins with it."""
        for path in self.paths:
            for length in range(len(path.tokens) + 1):
                self._ends[path.tokens[:length]][path.tokens[length:]] = path.total

    def open(self, nbest: int = 1) -> SearchSpace:
        (root,) = self.constellation.roots([self.source])
        return SearchSpace(self.constellation, root, nbest=nbest)

    def nodes(self) -> list[Node]:
        """All nodes that are not finished, shortest first."""
        found = [self.space.root]
        for node in found:
            (children,) = self.space.expand([node])
            found.extend(child for child in children if not child.finished)
        return found

    def futures(self, node: Node) -> dict[tuple[int, ...], float]:
        """For each completion of a prefix the score that it adds to the prefix's total."""
        return {end: total - node.total for end, total in self._ends[node.tokens].items()}
