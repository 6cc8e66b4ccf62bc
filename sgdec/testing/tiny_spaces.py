"""Search spaces small enough to enumerate, one for each situation that searches often handle wrongly."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from sgdec.arrays import Floats
from sgdec.context import EOS
from sgdec.protocol import FORBIDDEN, BatchPredictor, Predictor, Source
from sgdec.ranking import Ranking
from sgdec.search.constellation import Constellation
from sgdec.testing.enumeration import Path, enumerate_space
from sgdec.testing.limited import LimitedSpace
from sgdec.testing.toys import BatchTable, Bonus, Lattice, OnDemandTable, Table

V = 5
"""The vocabulary size of these spaces, if a predictor or ``vocab_size`` states it."""


@dataclass(frozen=True)
class TinySpace:
    """One constellation and one sentence."""

    name: str
    constellation: Callable[[], Constellation]
    """Returns a new constellation at each call."""
    source: Source
    empty: bool = False
    """Whether no hypothesis satisfies all predictors."""
    _paths: dict[Ranking, list[Path]] = field(default_factory=dict, init=False, repr=False, compare=False)
    """The results of `paths`."""

    def __repr__(self) -> str:
        return f"TinySpace({self.name!r})"

    @property
    def restricts(self) -> bool:
        """Whether a consulted predictor lists the only tokens that can come first; otherwise all tokens can."""
        constellation = self.constellation()
        consulted = [member.predictor for member in constellation.members if member.weight is not None]
        answers = [predictor.predict_batch(predictor.initialize_batch([self.source])) for predictor in consulted]
        return any(row.restricts for answer in answers if answer.values is None for row in answer.rows)

    def open(self, *, ranking: Ranking | None = None, nbest: int = 1, most: int = 100_000) -> LimitedSpace:
        """A new search space with its own predictors; a search with more than ``most`` expansions fails."""
        constellation = self.constellation()
        (root,) = constellation.roots([self.source])
        return LimitedSpace(constellation, root, ranking=ranking, nbest=nbest, most=most)

    def paths(self, ranking: Ranking) -> list[Path]:
        """All complete hypotheses, best first (`enumerate_space`); computed once."""
        if ranking not in self._paths:
            self._paths[ranking] = enumerate_space(self.constellation(), self.source, ranking=ranking)
        return self._paths[ranking]


def tiny_spaces() -> list[TinySpace]:
    """All spaces of this module."""
    table, log_probabilities = _random_table, _log_probabilities
    lattice, other, trap = Lattice(LATTICE), Lattice(OTHER_LATTICE), Lattice(TRAP)
    return [
        _space("dense", Table(log_probabilities(1))),
        _space("two models in both forms", Table(table(2)), BatchTable(table(3)), weights=[0.6, 0.4]),
        _space("dense and sparse", Table(table(4)), Bonus({3: 0.5}, default=-0.3), weights=[1.0, 0.7]),
        _space("sparse and open alone", Bonus({3: 0.5, 4: -1.0}, default=-0.3), vocab_size=V),
        _space("a reward for length", Table(table(5)), Bonus({EOS: 0.0}, default=-1.5), weights=[1.0, -1.0]),
        _space("a negative weight", Table(table(6)), Table(table(7)), weights=[1.0, -0.5]),
        _space("all scores equal", Table(np.zeros((4, 4)))),
        _space("all totals of one length equal", Table(np.full((4, 4), -1.0))),
        _space("lattice alone", lattice, max_length=None),
        _space("lattice and model", lattice, BatchTable(log_probabilities(8)), weights=[0.5, 1.0], max_length=None),
        _space("lattice longer than the limit", lattice, Table(table(9)), max_length=2),
        _space("two lattices", lattice, other, max_length=None),
        _space("the best way is a dead end", trap, Table(0.1 * log_probabilities(10)), max_length=None),
        _space("on demand", OnDemandTable(table(11)), Table(table(12)), weights=[0.3, 0.7]),
        _space("on demand after a lattice", OnDemandTable(table(13)), lattice),
        _space("forbidden with weight 0", Table(table(14)), Bonus({3: FORBIDDEN}), weights=[1.0, 0.0]),
        _space("restricted with weight 0", Table(table(15)), lattice, weights=[1.0, 0.0]),
        _space("forbidden by dense rows", Table(table(16, 0.3)), Table(table(17, 0.1)), weights=[1.0, -1.0]),
        _space("one not consulted", Table(table(18)), trap, weights=[1.0, None]),
        _space("attention that is not consulted", BatchTable(table(21)), BatchTable(table(22)), weights=[1.0, None]),
        _space("attention with weight 0", Table(table(23)), BatchTable(table(24)), weights=[1.0, 0.0]),
        _space("only the end", Table(table(19)), max_length=0),
        _space("no end in reach", lattice, Table(table(20)), max_length=1, empty=True),
        _space("no end at all", Lattice({0: {3: (0.0, 1), 4: (0.0, 1)}}), max_length=None, empty=True),
        _space("lattices that do not meet", lattice, Lattice({0: {0: (0.0, 1)}}), max_length=None, empty=True),
    ]


LATTICE: Mapping[int, Mapping[int, tuple[float, int]]] = {
    0: {3: (-0.5, 1), 4: (-0.7, 2), 0: (-1.1, 1)},
    1: {3: (-0.4, 3), 4: (-0.2, 3)},
    2: {0: (-0.1, 3), 3: (-0.9, 4)},
    3: {EOS: (-0.6, 9), 4: (-0.3, 4)},
    4: {EOS: (-0.25, 9)},
}
"""Has paths of two and three tokens."""
OTHER_LATTICE: Mapping[int, Mapping[int, tuple[float, int]]] = {
    0: {3: (-0.1, 1), 4: (-0.3, 1)},
    1: {3: (-0.2, 2), 4: (-0.25, 2), 0: (-1.0, 2)},
    2: {EOS: (0.0, 9), 4: (-2.0, 3)},
    3: {EOS: (-0.5, 9)},
}
TRAP: Mapping[int, Mapping[int, tuple[float, int]]] = {
    0: {3: (-0.1, 1), 4: (-4.0, 2)},
    1: {3: (-0.1, 3), 4: (-0.1, 3)},
    2: {4: (-0.2, 4)},
    4: {EOS: (0.0, 9)},
}


def _space(
    name: str,
    *predictors: Predictor | BatchPredictor,
    weights: Sequence[float | None] | None = None,
    vocab_size: int | None = None,
    max_length: int | None = 3,
    empty: bool = False,
) -> TinySpace:
    named = dict(zip("abc", predictors, strict=False))
    source = Source(1, (3, 4, 3), max_length=max_length)
    make = partial(Constellation.of, named, weights=weights, vocab_size=vocab_size)
    return TinySpace(name, make, source, empty)


def _random_table(seed: int, forbid: float = 0.0) -> Floats:
    """``[V, V]``: random scores of both signs; a share ``forbid`` of them is -inf."""
    rng = np.random.default_rng(seed)
    table = rng.normal(-0.5, 1.0, (V, V))
    return np.where(rng.random((V, V)) < forbid, FORBIDDEN, table)


def _log_probabilities(seed: int) -> Floats:
    table = _random_table(seed)
    return np.asarray(table - np.log(np.exp(table).sum(axis=1, keepdims=True)))
