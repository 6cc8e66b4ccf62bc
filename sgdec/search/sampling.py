"""Drawing one token from combined scores with temperature, top-k and nucleus sampling, independently of batching.

Every draw has its own generator, Philox (Salmon et al. 2011) keyed by (seed, sentence, sample number, step), so a
draw does not depend on any other draw.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sgdec.arrays import Floats, Ints


@dataclass(frozen=True)
class Draw:
    """The settings for drawing one token."""

    seed: int
    number: int
    """The number of this sample among the samples of the sentence."""
    temperature: float = 1.0
    """Scores are divided by the temperature, then renormalised."""
    top_k: int = 0
    """Draw only from the k best candidates; 0 = all."""
    top_p: float = 1.0
    """Draw only from the smallest set of best candidates whose probability reaches p (Holtzman et al. 2020)."""


def draw(tokens: Ints, scores: Floats, drawn: Draw, *, sentence: int, step: int) -> tuple[int, float]:
    """Draw one of ``tokens`` ``[n]`` (ascending), with probability softmax(``scores`` / temperature).

    Also returns its log-probability in this draw.

    >>> draw(np.array([4, 9]), np.array([0.0, -np.inf]), Draw(seed=1, number=0), sentence=1, step=0)
    (4, 0.0)
    """
    order = np.lexsort((tokens, -scores))
    if drawn.top_k:
        order = order[: drawn.top_k]
    kept = scores[order]
    with np.errstate(over="ignore"):  # a difference that overflows to -inf has probability 0
        probabilities = np.exp((kept - kept[0]) / drawn.temperature)
    probabilities /= probabilities.sum()
    if drawn.top_p < 1.0:
        reached = int(np.searchsorted(np.cumsum(probabilities), drawn.top_p)) + 1
        order, probabilities = order[:reached], probabilities[:reached]
    cumulative = np.cumsum(probabilities)
    generator = np.random.Generator(np.random.Philox(key=_key(drawn.seed, sentence, drawn.number, step)))
    at = int(np.searchsorted(cumulative, generator.random() * cumulative[-1], side="right"))
    at = min(at, len(order) - 1)
    return int(tokens[order[at]]), math.log(probabilities[at] / cumulative[-1])


def _key(*parts: int) -> npt.NDArray[Any]:
    """A key of 128 well-mixed bits, as two 64-bit integers."""
    return np.random.SeedSequence([part & 0xFFFFFFFFFFFFFFFF for part in parts]).generate_state(2, np.uint64)
