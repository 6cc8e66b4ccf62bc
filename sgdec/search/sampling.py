"""Drawing one token from combined scores that go through a chain of samplers, independently of batching.

Every draw has its own generator, Philox (Salmon et al. 2011) keyed by (seed, sentence, sample number, step), so a
draw does not depend on any other draw.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sgdec.arrays import FORBIDDEN, Floats, Ints
from sgdec.chain import UNCHAINED, Chain
from sgdec.search.node import Node


@dataclass(frozen=True)
class Draw:
    """The settings for drawing one token."""

    seed: int
    number: int
    """The number of this sample among the samples of the sentence."""
    chain: Chain = UNCHAINED
    """The links that the renormalised scores go through."""
    state: float | None = None
    """The number that the chain keeps for this sample; None = the sample begins, or the chain keeps none."""


class Drawn(NamedTuple):
    """One child that was drawn."""

    node: Node
    log_prob: float
    """Its log-probability under the chained distribution, from which it was drawn."""
    state: float | None
    """`Draw.state` of the draw of the next token."""


@dataclass(eq=False, slots=True)
class Distribution:
    """The local distribution of the token after one node, and the children that it can lead to."""

    tokens: Ints
    """``[n]``: the tokens that can follow and that the chain keeps, best score first; ties: lower token."""
    scores: Floats
    """``[n]``: their combined scores."""
    log_probs: Floats
    """``[n]``: natural logarithms of chained probabilities, which sum to 1."""
    states: Floats | None
    """``[n]``: the number that the chain keeps after each token (`Drawn.state`); None if it keeps none."""
    made: Callable[[Sequence[int]], list[Node]] = field(repr=False)
    """Makes the children of these tokens."""

    def children(self, places: Sequence[int] | Ints) -> list[Node]:
        """The children at these places of the arrays; only these cost an object."""
        return self.made(self.tokens[list(places)].tolist()) if len(places) else []


def distribution(
    tokens: Ints, scores: Floats, chain: Chain, state: float | None, made: Callable[[Sequence[int]], list[Node]]
) -> Distribution:
    """The chained distribution of ``tokens`` ``[n]`` (ascending) with these scores ``[n]``; empty without a token."""
    if not len(tokens) or np.max(scores) == FORBIDDEN:
        nothing = np.zeros(0)
        return Distribution(np.zeros(0, np.int64), nothing, nothing, None if chain.start is None else nothing, made)
    local = chain.apply(scores, state)
    left = local.log_probs > FORBIDDEN
    places = local.places[left]
    states = None if local.states is None else local.states[left]
    return Distribution(tokens[places], scores[places], local.log_probs[left], states, made)


def draw(tokens: Ints, scores: Floats, drawn: Draw, *, sentence: int, step: int) -> tuple[int, float, float | None]:
    """Draw one of ``tokens`` ``[n]`` (ascending) from the chained distribution of ``scores`` ``[n]``.

    Returns the token, its log-probability, and the next state of the chain.

    >>> draw(np.array([4, 9]), np.array([0.0, -np.inf]), Draw(seed=1, number=0), sentence=1, step=0)
    (4, 0.0, None)
    """
    uniform = generator(drawn.seed, sentence, drawn.number, step).random()
    place, log_prob, state = drawn.chain.draw(scores, uniform, drawn.state)
    return int(tokens[place]), log_prob, state


def generator(seed: int, sentence: int, number: int, step: int) -> np.random.Generator:
    """The random numbers of one step of one sample."""
    return np.random.Generator(np.random.Philox(key=_key(seed, sentence, number, step)))


def _key(*parts: int) -> npt.NDArray[Any]:
    """A key of 128 well-mixed bits, as two 64-bit integers."""
    return np.random.SeedSequence([part & 0xFFFFFFFFFFFFFFFF for part in parts]).generate_state(2, np.uint64)
