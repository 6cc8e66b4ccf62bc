"""Search spaces that are hard in different ways: mixes of the small model, lattices and bigrams.

- ``model``: the small translation model and a lattice. No two prefixes have the same future. The bound of the lattice
  is exact, that of the model is 0.
- ``bigrams``: a lattice and a bigram table. Many prefixes meet in the same state with the same last token.
- ``lattices``: two lattices and a bigram table. Many prefixes of one lattice are dead ends of the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import count
from typing import TypeAlias

import numpy as np

from models.language import SOURCE_SIZE, TRANSLATIONS
from models.small import SmallModel
from sgdec import EOS, BatchPredictor, Constellation, Predictor, Source
from sgdec.testing import Lattice, Table, TinySpace

Arcs: TypeAlias = dict[int, dict[int, tuple[float, int]]]
Predictors: TypeAlias = Mapping[str, Predictor | BatchPredictor]
END = 1_000_000
"""The state that ``</s>`` leads to."""


class Mix(TinySpace):
    """One sentence with its predictors."""

    @property
    def length(self) -> int:
        """Tokens of each output, without ``</s>``."""
        assert self.source.max_length is not None
        return self.source.max_length


def draw_mixes(kind: str, rng: np.random.Generator) -> Iterator[Mix]:
    """Different sentences of one kind, without end."""
    for number in count(1):
        yield MIXES[kind](rng, number)


def _model_and_lattice(rng: np.random.Generator, number: int) -> Mix:
    source = tuple(rng.integers(3, SOURCE_SIZE, rng.integers(6, 10)).tolist())
    arcs: Arcs = {}
    for layer in range(len(source)):
        near = source[max(0, layer - 1) : layer + 2]
        fitting = sorted({token for word in near for token in TRANSLATIONS[word - 3][0]})
        for state in _layer(layer):
            tokens = rng.permutation(fitting)[:6].tolist()
            arcs[state] = _arcs(rng, layer, tokens, spread=1.5)
    predictors: Predictors = {"small": SmallModel(), "lattice": _lattice(rng, arcs, len(source))}
    return _mix("model and lattice", predictors, source, number)


def _bigrams_and_lattice(rng: np.random.Generator, number: int) -> Mix:
    length, vocabulary = int(rng.integers(10, 15)), 24
    arcs: Arcs = {}
    for state in range(length * WIDTH):
        tokens = rng.permutation(np.arange(3, vocabulary))[:6].tolist()
        arcs[state] = _arcs(rng, state // WIDTH, tokens, spread=1.0)
    table = Table(rng.normal(-2.0, 1.5, (vocabulary, vocabulary)))
    return _mix("bigrams", {"table": table, "lattice": _lattice(rng, arcs, length)}, (3,) * length, number)


def _two_lattices(rng: np.random.Generator, number: int) -> Mix:
    length, vocabulary = int(rng.integers(9, 13)), 15
    way = rng.integers(3, vocabulary, length)  # so that there is at least one output
    pair = []
    for _ in range(2):
        arcs: Arcs = {}
        for state in range(length * WIDTH):
            others = rng.permutation(np.arange(3, vocabulary))[:4].tolist()
            arcs[state] = _arcs(rng, state // WIDTH, others, spread=1.5)
        state = 0
        for layer, token in enumerate(way.tolist()):
            target = (layer + 1) * WIDTH + int(rng.integers(WIDTH))
            arcs[state].setdefault(token, (float(rng.normal(-4.0, 1.0)), target))
            state = arcs[state][token][1]
        pair.append(_lattice(rng, arcs, length))
    table = Table(rng.normal(-1.0, 1.0, (vocabulary, vocabulary)))
    return _mix("two lattices", {"first": pair[0], "second": pair[1], "table": table}, (3,) * length, number)


MIXES: dict[str, Callable[[np.random.Generator, int], Mix]] = {
    "model": _model_and_lattice,
    "bigrams": _bigrams_and_lattice,
    "lattices": _two_lattices,
}
WIDTH = 6
"""States in each layer of a lattice."""


def _layer(layer: int) -> range:
    return range(layer * WIDTH, (layer + 1) * WIDTH)


def _arcs(rng: np.random.Generator, layer: int, tokens: list[int], spread: float) -> dict[int, tuple[float, int]]:
    """Arcs with these tokens to random states of the next layer."""
    scores = rng.normal(-2.0, spread, len(tokens)).tolist()
    targets = (rng.integers(0, WIDTH, len(tokens)) + (layer + 1) * WIDTH).tolist()
    return dict(zip(tokens, zip(scores, targets, strict=True), strict=True))


def _lattice(rng: np.random.Generator, arcs: Arcs, length: int) -> Lattice:
    """The lattice whose arcs score more if they lead to some states, and as much less after them.

    The totals of whole paths remain, but those of prefixes mislead.
    """
    gain = {state: float(rng.normal(0.0, 3.0)) if state else 0.0 for state in arcs}
    misleading: Arcs = {state: {EOS: (0.0, END)} for state in _layer(length)}
    for state, out in arcs.items():
        misleading[state] = {
            token: (score + gain.get(target, 0.0) - gain[state], target) for token, (score, target) in out.items()
        }
    return Lattice(misleading)


def _mix(name: str, predictors: Predictors, source: tuple[int, ...], number: int) -> Mix:
    sentence = Source(number, source, max_length=len(source))
    return Mix(name, partial(Constellation.of, dict(predictors)), sentence)
