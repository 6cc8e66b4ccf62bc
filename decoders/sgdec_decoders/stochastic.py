"""Draws that depend on each other: without replacement (Kool et al. 2019), or spread evenly (Vilnis et al. 2023).

Both draw hypotheses from q, the product of the *locally* renormalised distributions after the links of ``chain``, as
`sample` does, but with fewer repetitions. A dead end is a leaf of q too: it takes its place and is lost. A draw
depends only on the seed, the sentence and its number, not on batches.

``method gumbel`` is stochastic beam search (Kool et al. 2019, Algorithm 1). Each leaf has its log-probability plus
Gumbel noise; the search finds the ``samples`` highest of these sums without visiting the other leaves, because the
maximum over the leaves below a prefix can be drawn before they are.

Guarantee: the leaves are drawn from q one after the other without replacement, so more samples contain the fewer
ones. `log_q` is ln q(y), and `log_weight` is ln q(y) - ln P(sum of y > kappa), with kappa the sum of the first leaf
that is not drawn. With these weights, sum_y exp(log_weight) f(y) over all hypotheses drawn is an unbiased estimate of
the sum of q(y) f(y) over all hypotheses. With fewer leaves than samples, all are drawn, and it is that
sum. Departures: kappa is the best sum that had no slot, which needs no slot of its own; the maximum over all leaves
is drawn too, where Algorithm 1 sets it to 0, which leaves the draw as it is, but not the weights.

``method arithmetic`` is arithmetic sampling (Vilnis et al. 2023). q divides the unit interval among the
leaves in the order of their tokens. Draw i of n is the leaf at the code i / (n + 1) + b, modulo 1, with one random b.

Guarantee: each draw by itself has the distribution q, whatever its length, so the mean of f over all draws is
unbiased. They are not independent: close codes share long prefixes. `count` says how often each hypothesis came.
Departure: a code of 64 bits would determine only some dozen tokens, so each step draws the bits below its precision.

The list has the ``--nbest`` best of the hypotheses drawn, each once; `Result.drawn` counts all draws, lost ones too.
Estimates need all of them: ask for ``--nbest`` of at least ``samples``.

Cost: at most one expansion per token and sample; all samples of a sentence are one batch. Memory: their last nodes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal, NamedTuple, final

import numpy as np
from pydantic import Field

import sgdec
from sgdec import Decoder, Distribution, Node, Result, SearchSpace
from sgdec.arrays import FORBIDDEN, Floats
from sgdec.chain import UNCHAINED, Chain
from sgdec.topk import top_tokens
from sgdec_decoders._beams import drop

PRECISION = 2.0**-53
"""The distance of neighbouring random numbers between 0 and 1."""


class PartialDraw(NamedTuple):
    """One draw so far."""

    node: Node
    log_q: float = 0.0
    state: float | None = None
    """The number that the chain keeps."""
    perturbed: float = 0.0
    """Gumbel: the highest sum of log-probability and noise of all leaves below the node."""
    code: float = 0.0
    """Arithmetic: the place of the leaf in the part of the unit interval that belongs to the node."""
    precision: float = PRECISION
    """Arithmetic: the code can be up to this much higher."""
    lost: bool = False
    """Whether the node is a dead end."""

    @property
    def leaf(self) -> bool:
        return self.lost or self.node.finished

    def child(self, children: Distribution, at: int) -> PartialDraw:
        """The draw with one token more, which is at this place of the local distribution."""
        (node,) = children.children([at])
        state = None if children.states is None else float(children.states[at])
        return PartialDraw(node, self.log_q + float(children.log_probs[at]), state)


@final
@dataclass(eq=False)
class StochasticDecoder(Decoder):
    """Hypotheses drawn without replacement, or spread evenly over the distribution."""

    samples: Annotated[int, Field(ge=1, description="number of draws; the best are listed")] = 4
    method: Annotated[
        Literal["gumbel", "arithmetic"],
        Field(description="draw without replacement, or with codes that are spread evenly"),
    ] = "gumbel"
    chain: Annotated[
        Chain, Field(description="links that change the distribution, in order: top_k=50+min_p=0.05")
    ] = UNCHAINED

    def decode(self, space: SearchSpace) -> Result:
        if self.method == "gumbel":
            draws, threshold = gumbel_top_k(space, self.samples, self.chain)
        else:
            draws, threshold = arithmetic(space, self.samples, self.chain), None
        for number, draw in enumerate(draws, 1):
            space.noted(draw.node, f"draw {number}")
        space.stopped("finished")
        counts = Counter(draw.node.tokens for draw in draws)
        ended = {draw.node.tokens: draw for draw in draws if draw.node.finished}
        return Result(
            [
                replace(
                    space.finish(node),
                    log_q=(log_q := ended[node.tokens].log_q),
                    count=counts[node.tokens] if threshold is None else None,
                    log_weight=None if threshold is None else log_q - log_inclusion(log_q, threshold),
                )
                for node in space.nbest_of(draw.node for draw in ended.values())
            ],
            drawn=len(draws),
        )


def gumbel_top_k(space: SearchSpace, k: int, chain: Chain = UNCHAINED) -> tuple[list[PartialDraw], float]:
    """Up to k leaves in the order in which they are drawn, and kappa (-inf if there are no more leaves)."""
    threshold = FORBIDDEN
    beam = [PartialDraw(space.root, perturbed=space.generator(0, 0).gumbel())]  # Algorithm 1, lines 1-2
    while any(not draw.leaf for draw in beam):
        families = expanded(space, beam, chain)
        sums = np.concatenate([family.sums for family in families])
        slot = np.repeat(np.arange(len(beam)), [len(family.sums) for family in families])
        at = np.concatenate([np.arange(len(family.sums)) for family in families])
        (best,) = top_tokens(sums[None], k + 1)
        if len(best) > k:
            threshold = max(threshold, float(sums[best[k]]))
        left = beam
        beam = [families[i].member(j) for i, j in zip(slot[best[:k]].tolist(), at[best[:k]].tolist(), strict=True)]
        if space.traced:
            drop(space, (draw.node for draw in left if draw.node.finished and draw not in beam), "beam")
    return beam, threshold


class PerturbedFamily(NamedTuple):
    """The candidates that a slot of the beam offers for the next one: children, or a leaf itself."""

    draw: PartialDraw
    sums: Floats
    """``[n]``: their log-probabilities with noise, or the highest sums below them."""
    children: Distribution | None
    """None for a leaf."""

    def member(self, at: int) -> PartialDraw:
        if self.children is None:
            return self.draw
        return self.draw.child(self.children, at)._replace(perturbed=float(self.sums[at]))


def expanded(space: SearchSpace, beam: Sequence[PartialDraw], chain: Chain) -> list[PerturbedFamily]:
    """The candidates of each slot of a beam (Algorithm 1, lines 6-15)."""
    found = iter(distributions(space, [draw for draw in beam if not draw.leaf], chain))
    families = []
    for slot, draw in enumerate(beam):
        children = None if draw.leaf else next(found)
        if children is None or not len(children.tokens):
            draw = draw._replace(lost=not draw.node.finished)
            families.append(PerturbedFamily(draw, np.array([draw.perturbed]), None))
        else:
            noise = space.generator(slot, draw.node.length + 1).gumbel(size=len(children.tokens))
            sums = with_maximum(draw.log_q + children.log_probs + noise, draw.perturbed)
            families.append(PerturbedFamily(draw, sums, children))
    return families


def with_maximum(perturbed: Floats, maximum: float) -> Floats:
    """Sums ``[n]`` of log-probabilities and Gumbel noise, under the condition that the highest is ``maximum``.

    The truncated Gumbels of Kool et al. 2019, in the stable form of their appendix B.3. The maximum is exact.

    >>> with_maximum(np.array([-1.0, 2.0, 0.5]), 0.0).round(3)
    array([-1.276,  0.   , -0.386])
    """
    with np.errstate(divide="ignore"):  # ln 0 for the highest
        v = maximum - perturbed + np.log(-np.expm1(perturbed - np.max(perturbed)))
    found: Floats = maximum - np.maximum(v, 0.0) - np.log1p(np.exp(-np.abs(v)))
    return found


def log_inclusion(log_q: float, threshold: float) -> float:
    """ln(1 - exp(-exp(log_q - threshold))): the log-probability that log_q plus Gumbel noise is above a threshold.

    >>> round(math.exp(log_inclusion(math.log(0.25), 0.0)), 4), log_inclusion(-1000.0, 0.0)
    (0.2212, -1000.0)
    """
    above = log_q - threshold
    if above < -40.0:  # 1 - exp(-x) is x
        return above
    return math.log(-math.expm1(-math.exp(min(above, 40.0))))


def arithmetic(space: SearchSpace, n: int, chain: Chain = UNCHAINED) -> list[PartialDraw]:
    """n leaves, in the order of their numbers."""
    shift = space.generator(0, 0).random()
    draws = [PartialDraw(space.root, code=(number / (n + 1) + shift) % 1.0) for number in range(1, n + 1)]
    while growing := [number for number, draw in enumerate(draws) if not draw.leaf]:
        found = distributions(space, [draws[number] for number in growing], chain)
        for number, children in zip(growing, found, strict=True):
            draw = draws[number]
            if not len(children.tokens):
                draws[number] = draw._replace(lost=True)
                continue
            below = space.generator(number, draw.node.length + 1).random()
            order = np.argsort(children.tokens)
            at, code, width = located(np.exp(children.log_probs[order]), draw.code + draw.precision * below)
            draws[number] = draw.child(children, int(order[at]))._replace(code=code, precision=PRECISION / width)
    return draws


def located(probabilities: Floats, code: float) -> tuple[int, float, float]:
    """The part of the unit interval that has a code: its index, the code's place in it, from 0 to 1, and its width.

    >>> located(np.array([0.5, 0.25, 0.25]), 0.625)
    (1, 0.5, 0.25)
    """
    upper = np.cumsum(probabilities)
    upper /= upper[-1]
    code = min(code, 1.0 - PRECISION)
    at = int(np.searchsorted(upper, code, side="right"))
    lower = float(upper[at - 1]) if at else 0.0
    width = float(upper[at]) - lower
    return at, (code - lower) / width, width


def distributions(space: SearchSpace, draws: Sequence[PartialDraw], chain: Chain) -> list[Distribution]:
    return space.distributions([draw.node for draw in draws], chain, [draw.state for draw in draws])


@sgdec.hookimpl
def sgdec_decoders() -> dict[str, type[Decoder]]:
    return {"stochastic": StochasticDecoder}
