"""Metropolis-Hastings over whole outputs, by redrawn suffixes (Metropolis et al. 1953; Hastings 1970).

The target is the distribution of finished hypotheses y within the length limit

    pi(y) = exp(s(y)) / Z

where s is the weighted total. A walk goes from hypothesis to hypothesis. One step from y, which has T(y) tokens with
``</s>``:

1. a place t is drawn evenly from the T(y) tokens;
2. the tokens before t are kept, and the others drawn again from q, the product of the *locally* renormalised
   distributions after the links of ``chain``, as `sample` draws them: the proposal y';
3. the walk goes to y' with probability

       A = min(1, exp(s(y') - s(y)) q(y) / q(y') T(y) / T(y'))

   and stays at y otherwise, also if the proposal ends in a dead end.

The tokens before t are the same, so the quotient of the q of whole hypotheses is that of the suffixes. T(y) / T(y')
is the quotient of the probabilities of drawing the place t. Detailed balance holds for each place alone: pi(y) q(y'
after t) A / T(y) is the same if y and y' are exchanged.

A walk begins with a draw from q; one that ends in a dead end is drawn again, at most ``TRIES`` times. Then the
``steps`` steps count, after ``burn_in`` steps that do not.

Guarantee: if q gives each hypothesis of pi a probability, the law of a walk tends to pi, whatever q is, and so do the
shares `count` / `Result.drawn`. For a finite number of steps they depend on the beginning, and neighbouring steps on
each other. A link that removes tokens from q removes hypotheses: then the law tends to pi restricted to the others.
A walk depends only on the seed, the sentence and its number; more steps contain the fewer ones, as do more walks.

The list has the ``--nbest`` best hypotheses at which a walk was in a counted step, each once, with the number of
these steps (`count`) and ln q (`log_q`). Estimates need all of them: ask for ``--nbest`` of at least steps times
walks.

Cost: a step expands as many prefixes as it draws tokens, on average half an output; all walks of a sentence are one
batch. Memory: the nodes of the present hypothesis and of the proposal of each walk.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import Annotated, NamedTuple, final

from pydantic import Field

import sgdec
from sgdec import Decoder, Node, Result, SearchSpace
from sgdec.chain import UNCHAINED, Chain

TRIES = 100
"""The number of attempts to begin a walk."""
APART = 1 << 32
"""Walk w has the numbers of draws from w times this; no walk has as many steps."""
FIRST = 1 << 31
"""The numbers of a walk from which those of its first draws begin."""


class DrawnPath(NamedTuple):
    """A hypothesis so far, token by token, from the root."""

    nodes: tuple[Node, ...]
    log_q: tuple[float, ...] = (0.0,)
    """ln q of each prefix."""
    states: tuple[float | None, ...] = (None,)
    """The number that the chain keeps after each prefix."""

    @property
    def end(self) -> Node:
        return self.nodes[-1]

    @property
    def tokens(self) -> int:
        """T."""
        return len(self.nodes) - 1

    def extended(self, node: Node, log_prob: float, state: float | None) -> DrawnPath:
        """The hypothesis with one token more."""
        return DrawnPath((*self.nodes, node), (*self.log_q, self.log_q[-1] + log_prob), (*self.states, state))

    def before(self, place: int) -> DrawnPath:
        """The prefix of this number of tokens."""
        return DrawnPath(self.nodes[: place + 1], self.log_q[: place + 1], self.states[: place + 1])


@final
@dataclass(eq=False)
class McmcDecoder(Decoder):
    """Hypotheses that random walks visit as often as the product of all predictors says."""

    steps: Annotated[int, Field(ge=1, description="steps of each walk that count")] = 64
    walks: Annotated[int, Field(ge=1, description="number of independent walks")] = 4
    burn_in: Annotated[int, Field(ge=0, description="first steps of each walk, which do not count")] = 16
    chain: Annotated[
        Chain, Field(description="links that change the proposals, in order: temperature=1.5+top_k=50")
    ] = UNCHAINED

    def decode(self, space: SearchSpace) -> Result:
        walks = begun(space, self.walks, self.chain)
        counts: Counter[tuple[int, ...]] = Counter()
        visited: dict[tuple[int, ...], DrawnPath] = {}
        left = {path.end: "uncounted" for path in walks.values()}
        """The fates of finished nodes at which no walk was when steps counted."""
        for walk, path in walks.items():
            space.noted(path.end, f"walk {walk + 1}: start")
        for step in range(1, self.burn_in + self.steps + 1):
            chances = {walk: space.generator(-(number(walk, step)) - 1, 0).random(2) for walk in walks}
            kept = {walk: path.before(int(chances[walk][0] * path.tokens)) for walk, path in walks.items()}
            proposals = redrawn(space, kept, step, self.chain)
            for walk, path in walks.items():
                proposal = proposals.get(walk)
                if proposal is not None:
                    chance = acceptance(path, proposal)
                    accepted = chances[walk][1] < chance
                    fate = "accepted" if accepted else f"rejected, {chance:.2f}"
                    space.noted(proposal.end, f"walk {walk + 1}: step {step} {fate}")
                    left[proposal.end] = "uncounted" if accepted else "rejected"
                    walks[walk] = proposal if accepted else path
                if step > self.burn_in:
                    counts[walks[walk].end.tokens] += 1
                    visited.setdefault(walks[walk].end.tokens, walks[walk])
        for node, fate in left.items():
            if node.tokens not in visited:
                space.dropped(node, fate)
        space.stopped("finished")
        return Result(
            [
                replace(space.finish(node), count=counts[node.tokens], log_q=visited[node.tokens].log_q[-1])
                for node in space.nbest_of(path.end for path in visited.values())
            ],
            drawn=self.steps * self.walks,
        )


def acceptance(path: DrawnPath, proposal: DrawnPath) -> float:
    """A: the probability that a walk goes from ``path`` to ``proposal``."""
    log = proposal.end.total - path.end.total + path.log_q[-1] - proposal.log_q[-1]
    return math.exp(min(0.0, log + math.log(path.tokens / proposal.tokens)))


def begun(space: SearchSpace, walks: int, chain: Chain) -> dict[int, DrawnPath]:
    """For each walk a draw from q; none for a walk of which each try is lost."""
    found: dict[int, DrawnPath] = {}
    for attempt in range(TRIES):
        missing = {walk: DrawnPath((space.root,)) for walk in range(walks) if walk not in found}
        if not missing:
            break
        found |= redrawn(space, missing, FIRST + attempt, chain)
    return dict(sorted(found.items()))


def redrawn(space: SearchSpace, kept: dict[int, DrawnPath], step: int, chain: Chain) -> dict[int, DrawnPath]:
    """For each walk a hypothesis that begins with its prefix; none for a walk that ends in a dead end."""
    growing, found = dict(kept), dict[int, DrawnPath]()
    while growing:
        paths = list(growing.values())
        nodes, states = [path.end for path in paths], [path.states[-1] for path in paths]
        children = space.draw(nodes, [number(walk, step) for walk in growing], chain, states)
        longer = {
            walk: path.extended(child.node, child.log_prob, child.state)
            for (walk, path), child in zip(growing.items(), children, strict=True)
            if child is not None
        }
        found |= {walk: path for walk, path in longer.items() if path.end.finished}
        growing = {walk: path for walk, path in longer.items() if not path.end.finished}
    return found


def number(walk: int, step: int) -> int:
    """The number of the draws of a step."""
    return walk * APART + step


@sgdec.hookimpl
def sgdec_decoders() -> dict[str, type[Decoder]]:
    return {"mcmc": McmcDecoder}
