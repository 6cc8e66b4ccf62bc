"""Sequential Monte Carlo: weighted draws of whole outputs (Lew et al. 2023; Loula et al. 2025).

The target is the distribution of finished hypotheses y within the length limit

    pi(y) = exp(s(y)) / Z

where s is the total of all predictors with their weights. `sample` follows another distribution: it renormalises the
scores of each step by themselves, and so prefers prefixes of which constraints leave few continuations. Here each
particle carries a weight w that corrects this. A step has two parts (Loula et al. 2025, "Syntactic and Semantic
Control of Large Language Models via Sequential Monte Carlo"):

1. Each unfinished particle y draws a token v from a proposal q, and w becomes w exp(s(v | y)) / q(v | y).
2. If the effective number of particles, (sum w psi)^2 / sum (w psi)^2, is below ``threshold`` times ``particles``,
   the particles are drawn again with probabilities proportional to w psi, finished ones too. Each copy gets the
   weight (mean of w psi) / psi(y).

The proposal is the combined scores of the predictors that ``propose`` names, renormalised, after the links of
``chain``. These predictors have their weights, or 1 where the weight is 0, which makes one a predictor that only
proposes. All others only weigh; but a token that any predictor forbids is never proposed.

The twist psi says how promising an unfinished prefix is; psi = 1 for a finished one (Zhao et al. 2024, "Probabilistic
Inference in Language Models via Twisted Sequential Monte Carlo"). It decides which particles survive, and leaves the
target as it is. With ``twist bound`` ln psi is the upper bound on the score that can still be added; with the name of
a predictor it is the sum of the predictor's unweighted scores of the prefix. Such a predictor can have weight 0.

``resampling`` is one of the schemes that Douc et al. 2005, "Comparison of Resampling Schemes for Particle Filtering",
compare. All copy a particle equally often on average; ``stratified`` never adds more noise than ``multinomial``, and
``systematic`` usually adds less. With ``threshold 0`` nothing is drawn again (importance sampling), with 1 whenever
weights differ.

Guarantee: over all hypotheses y that are drawn, sum exp(`log_weight`) is an unbiased estimate of Z, and
sum exp(`log_weight`) f(y) one of the sum of exp(s(y)) f(y) over all hypotheses, for every f. Their ratio is a
consistent estimate of the mean of f under pi. A link that removes tokens removes the hypotheses with them: then
this holds for the others. A particle in a dead end has weight 0. No proof is claimed.

The list has the ``--nbest`` hypotheses with the highest totals, each once, with the number of its particles
(`count`) and the logarithm of the sum of their weights (`log_weight`); `Result.drawn` is the number of all particles.
Estimates need all hypotheses: ask for ``--nbest`` of at least ``particles``, and not for distinct texts.

The tokens of a particle depend only on the seed, the sentence, its number and the weights of the others, not on
batches. Without resampling, with all predictors proposing, the particles are the draws of `sample`.

Cost: at most one expansion per token and particle, by all predictors, whichever propose; equal prefixes are expanded
once, and all prefixes of a sentence are one batch. ``twist bound`` adds the bound of each prefix. Memory: the last
nodes, and in each step the local distributions of their prefixes.

Departures: Lew et al. 2023, "Sequential Monte Carlo Steering of Large Language Models using Probabilistic Programs",
copy particles before each draw, and then choose among the copies without replacement; here they are drawn again as
Loula et al. do it. Loula et al. score only the drawn token with the predictors that only weigh.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count, islice
from typing import Annotated, Literal, NamedTuple, TypeAlias, final

import numpy as np
from pydantic import Field

import sgdec
from sgdec import Decoder, Distribution, Node, Result, SearchSpace, UsageError
from sgdec.arrays import FORBIDDEN, Floats, Ints
from sgdec.chain import UNCHAINED, Chain
from sgdec_decoders._beams import drop

Scheme: TypeAlias = Literal["multinomial", "stratified", "systematic"]
SHOWN = 8
"""A note in a trace lists the numbers of at most this many particles."""


class Particle(NamedTuple):
    """One weighted draw so far. Particles with equal prefixes are equal."""

    node: Node
    """Its weights, and so its total, are those of the proposal."""
    log_weight: float
    """ln (w / number of particles); -inf = lost in a dead end."""
    total: float = 0.0
    """s of the prefix."""
    log_twist: float = 0.0
    """ln psi of the prefix."""
    state: float | None = None
    """The number that the chain keeps."""

    @property
    def growing(self) -> bool:
        return not self.node.finished and self.log_weight > FORBIDDEN


Population: TypeAlias = list[Particle]


@final
@dataclass(eq=False)
class ParticlesDecoder(Decoder):
    """Hypotheses drawn at random, with weights that make estimates unbiased for the predictors' product."""

    particles: Annotated[int, Field(ge=1, description="number of particles; the best hypotheses are listed")] = 64
    propose: Annotated[
        tuple[str, ...] | None,
        Field(description="names of the predictors that propose tokens, and do not only weigh them; default: all"),
    ] = None
    twist: Annotated[
        str,
        Field(description="what else prefixes are weighed by at resampling: none, bound, or a predictor's name"),
    ] = "none"
    resampling: Annotated[Scheme, Field(description="how particles are drawn again")] = "systematic"
    threshold: Annotated[
        float,
        Field(ge=0, le=1, description="resample below this share of effective particles; 0 = never"),
    ] = 0.5
    chain: Annotated[
        Chain, Field(description="links that change the proposal, in order: temperature=1.5+top_k=50")
    ] = UNCHAINED

    def decode(self, space: SearchSpace) -> Result:
        proposal = self._proposal(space)
        twist = None if self.twist in ("none", "bound") else consulted(space, "twist", self.twist)
        start = Particle(space.root.with_weights(proposal), -math.log(self.particles))
        population = [start] * self.particles
        for step in count():
            if not any(each.growing for each in population):
                break
            population = self._extended(space, population, step, twist)
            if self.threshold and any(each.growing for each in population):
                if self.twist == "bound":
                    population = with_bounds(space, population)
                population = self._resampled(space, population, step)
            tell(space, [each if each.growing else None for each in population])
        space.stopped("finished")
        tell(space, population)
        return listed(space, population)

    def _proposal(self, space: SearchSpace) -> tuple[float | None, ...]:
        """``[K]``: the weights of the proposal. Raises UsageError for a name that no consulted predictor has."""
        if self.propose is None:
            return space.weights
        proposing = {consulted(space, "propose", name) for name in self.propose}
        return tuple(
            weight if weight is None else (weight or 1.0) if k in proposing else 0.0
            for k, weight in enumerate(space.weights)
        )

    def _extended(self, space: SearchSpace, population: Population, step: int, twist: int | None) -> Population:
        """The particles with one token more each. ``twist``: the number of the predictor that is the twist."""
        growing = list(dict.fromkeys(each for each in population if each.growing))
        found = space.distributions([each.node for each in growing], self.chain, [each.state for each in growing])
        families = dict(zip(growing, found, strict=True))
        children: dict[tuple[Particle, int], Particle] = {}
        extended = list(population)
        for number, parent in enumerate(population):
            if not parent.growing:
                continue
            family = families[parent]
            if not len(family.tokens):
                extended[number] = parent._replace(log_weight=FORBIDDEN)
                continue
            at = drawn(family.log_probs, space.generator(number, step).random())
            if (parent, at) not in children:
                children[parent, at] = child(space, parent, family, at, twist)
            extended[number] = children[parent, at]
        return extended

    def _resampled(self, space: SearchSpace, population: Population, step: int) -> Population:
        """The particles drawn again, if too few of them are effective."""
        logs = np.array([each.log_weight + each.log_twist for each in population])
        highest = float(np.max(logs))
        if highest == FORBIDDEN:
            return population
        weights = np.exp(logs - highest)
        if np.sum(weights) ** 2 >= self.threshold * self.particles * np.sum(weights**2):
            return population
        log_mean = highest + math.log(np.mean(weights))
        chosen = ancestors(weights, self.resampling, space.generator(self.particles, step))
        survivors = [population[number] for number in chosen.tolist()]
        after = [each._replace(log_weight=log_mean - each.log_twist) for each in survivors]
        if space.traced:
            kept = {each.node for each in after}
            drop(space, (each.node for each in population if each.node not in kept), "resampling")
        return after


def consulted(space: SearchSpace, option: str, name: str) -> int:
    """The number of the predictor of this name. Raises UsageError if there is none, or it has no weight."""
    names, weights = space.constellation.names, space.weights
    known = [each for each, weight in zip(names, weights, strict=True) if weight is not None]
    if name in known:
        return names.index(name)
    what = f"predictor {name!r} has no weight" if name in names else f"there is no predictor {name!r} in this run"
    others = ["none", "bound"] if option == "twist" else []
    raise UsageError(f"particles: {option}: {what}; expected one of {', '.join([*others, *known])}.")


def drawn(log_probs: Floats, uniform: float) -> int:
    """The place ``uniform`` (at least 0, below 1) of the way through the probabilities, as in `SearchSpace.draw`.

    >>> [drawn(np.log([0.5, 0.25, 0.25]), uniform) for uniform in (0.0, 0.49, 0.5, 0.75)]
    [0, 0, 1, 2]
    """
    cumulative = np.cumsum(np.exp(log_probs))
    return int(np.searchsorted(cumulative, uniform * cumulative[-1], side="right"))


def child(space: SearchSpace, parent: Particle, family: Distribution, at: int, twist: int | None) -> Particle:
    """The particle with one token more, which is at this place of the local distribution."""
    (node,) = family.children([at])
    score = sum(weight * each for weight, each in zip(space.weights, node.scores, strict=True) if weight is not None)
    return Particle(
        node,
        parent.log_weight + score - float(family.log_probs[at]),
        parent.total + score,
        0.0 if twist is None or node.finished else parent.log_twist + node.scores[twist],
        None if family.states is None else float(family.states[at]),
    )


def with_bounds(space: SearchSpace, population: Population) -> Population:
    """The particles with the bounds of their prefixes as twists. Raises UsageError if a bound is infinite."""
    growing = list(dict.fromkeys(each for each in population if each.growing))
    nodes = [each.node.with_weights(space.weights) for each in growing]
    found = dict[Particle, Particle]()
    for each, node, bound in zip(growing, nodes, space.bound(nodes), strict=True):
        if bound == math.inf:
            raise UsageError("particles: twist bound needs finite bounds; give --max-length N, or another twist.")
        found[each] = each._replace(node=node.with_weights(each.node.weights), log_twist=bound)
    return [found.get(each, each) for each in population]


def ancestors(weights: Floats, scheme: Scheme, generator: np.random.Generator) -> Ints:
    """``[n]``: the numbers of the particles that n new ones are copies of, in proportion to weights ``[n]``."""
    n = len(weights)
    if scheme == "multinomial":
        points = generator.random(n)
    else:
        points = (np.arange(n) + generator.random(n if scheme == "stratified" else None)) / n
    cumulative = np.cumsum(weights)
    below = np.minimum(points, 1.0 - 2.0**-53) * cumulative[-1]  # below the last sum, whatever rounding does
    chosen: Ints = np.searchsorted(cumulative, below, side="right")
    return chosen


def tell(space: SearchSpace, population: Sequence[Particle | None]) -> None:
    """Note beside each node of a search that is traced which particles are there; None = not to be noted."""
    if not space.traced:
        return
    numbers: dict[Node, list[int]] = {}
    for number, each in enumerate(population, 1):
        if each is not None:
            numbers.setdefault(each.node, []).append(number)
    for node, there in numbers.items():
        few = f"particle{'s' * (len(there) > 1)} {', '.join(map(str, there))}"
        space.noted(node, few if len(there) <= SHOWN else f"{len(there):,} particles")


def listed(space: SearchSpace, population: Population) -> Result:
    """The list of the hypotheses among these particles; of equal rank scores the first one is first."""
    counts = Counter(each for each in population if each.node.finished)
    rank = {each: space.ranking.score(each.total, each.node.length, each.node.coverage) for each in counts}
    ranked = sorted(counts, key=rank.__getitem__, reverse=True)
    best = list(islice(space.distinct(ranked, lambda each: each.node.tokens[:-1]), space.nbest))
    drop(space, (each.node for each in ranked if each not in best), "outranked")
    hypotheses = [
        replace(
            space.finish(each.node),
            score=each.total,
            rank_score=rank[each],
            weights=(space.weights,) * each.node.length,
            count=counts[each],
            log_weight=each.log_weight + math.log(counts[each]),
        )
        for each in best
    ]
    return Result(hypotheses, drawn=len(population))


@sgdec.hookimpl
def sgdec_decoders() -> dict[str, type[Decoder]]:
    return {"particles": ParticlesDecoder}
