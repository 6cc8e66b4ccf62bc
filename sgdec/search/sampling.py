"""Drawing one token from combined scores that go through a chain of samplers, independently of batching.

Every draw has its own generator, Philox (Salmon et al. 2011) keyed by (seed, sentence, sample number, step), so a
draw does not depend on any other draw.
"""

from __future__ import annotations

from dataclasses import dataclass
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


def draw(tokens: Ints, scores: Floats, drawn: Draw, *, sentence: int, step: int) -> tuple[int, float, float | None]:
    """Draw one of ``tokens`` ``[n]`` (ascending) from the chained distribution of ``scores`` ``[n]``.

    Returns the token, its log-probability, and the next state of the chain.

    >>> draw(np.array([4, 9]), np.array([0.0, -np.inf]), Draw(seed=1, number=0), sentence=1, step=0)
    (4, 0.0, None)
    """
    local = drawn.chain.apply(scores, drawn.state)
    cumulative = np.cumsum(np.exp(local.log_probs))
    generator = np.random.Generator(np.random.Philox(key=_key(drawn.seed, sentence, drawn.number, step)))
    at = int(np.searchsorted(cumulative, generator.random() * cumulative[-1], side="right"))
    at = min(at, int(np.flatnonzero(local.log_probs > FORBIDDEN)[-1]))
    state = None if local.states is None else float(local.states[at])
    return int(tokens[local.places[at]]), float(local.log_probs[at]), state


def _key(*parts: int) -> npt.NDArray[Any]:
    """A key of 128 well-mixed bits, as two 64-bit integers."""
    return np.random.SeedSequence([part & 0xFFFFFFFFFFFFFFFF for part in parts]).generate_state(2, np.uint64)
