"""Markov chains over whole outputs: Metropolis-Hastings with redrawn suffixes (Hastings 1970; Faria et al. 2024).

The target is the distribution that all predictors define together,

    pi(y) = exp(s(y)) / Z     with s(y) the total,

over the finished hypotheses within the length limit. Nobody knows Z, so `sample` draws from another distribution, q,
the product of *locally* renormalised ones. Each of ``walks`` Markov chains begins with a draw from q. One step from
y, of |y| tokens with ``</s>``:

1. choose the place t of one of the |y| tokens, each with the same probability;
2. keep the tokens before it and redraw the others from q: this is the proposal y';
3. go to y' with probability min(1, w(y') |y| / (w(y) |y'|)), where w = exp(s) / q; otherwise stay.

A proposal that reaches a dead end is rejected. The step is conditioned on t: the way back from y' has the same place,
hence the factor |y| / |y'|. Detailed balance, for each t and the prefix before it that y and y' share:

    pi(y) (1 / |y|) (q(y') / q(prefix)) min(1, ...)  =  min(pi(y) q(y') / |y|, pi(y') q(y) / |y'|) / q(prefix),

which is symmetric in y and y'. The factors of q before t cancel in w(y') / w(y), so w is that of whole hypotheses.

Guarantee: pi is the stationary distribution, and as the number of steps grows, the share of the steps at which a walk
is at y tends to pi(y), if the sum Z is finite. With any number of steps the hypotheses of a walk depend on each other
and on its beginning; the first ``burn_in`` steps do not count. Links of ``chain`` change q, not pi, but walks reach
only what q can draw: links that cut, such as ``top_k``, restrict pi to that. A walk depends only on the seed, the
sentence and its number, so more walks contain the fewer ones, and more steps the fewer ones. If the beginning of a
walk reaches a dead end, it is drawn again, up to 100 times; a walk without a beginning has no steps.

The list has the ``--nbest`` best of the hypotheses, each once, with the number of counted steps at which a walk was
at it (`count`) and log q (`log_q`); `Result.drawn` is the number of all counted steps. A trace has a note for each
proposal: accepted, or rejected and with which probability it would have been accepted.

Related: Faria et al. 2024 ("Quest: Quality-Aware Metropolis-Hastings Sampling for Machine Translation") redraw
suffixes for a target that a metric of quality defines; Miao et al. 2019 ("CGMH") change single words.

Cost: one expansion per redrawn token, about half a hypothesis per step. The walks of a sentence are one batch, each
at its own step. Memory: for each walk the prefixes of one hypothesis with their states, and a link per counted step.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from itertools import count
from typing import Annotated, NamedTuple, TypeAlias, final

from pydantic import Field

import sgdec
from sgdec import Decoder, Node, Result, SearchSpace
from sgdec.chain import UNCHAINED, Chain
from sgdec_decoders._beams import drop

TRIES = 100
"""The most draws of the beginning of a walk."""


class Reached(NamedTuple):
    """A prefix, or a whole hypothesis, as it was drawn."""

    node: Node
    log_q: float = 0.0
    state: float | None = None
    """The number that the chain keeps."""


Path: TypeAlias = list[Reached]
"""All prefixes of a hypothesis, from the empty one to itself."""
Redraw: TypeAlias = Generator[tuple[Reached, int], "Reached | None", Path]
"""Yields a prefix and the number of its draw; is sent the prefix with one more token, or None at a dead end."""


@final
@dataclass(eq=False)
class McmcDecoder(Decoder):
    """Hypotheses from Markov chains whose stationary distribution is exp(total), renormalised over whole outputs."""

    steps: Annotated[int, Field(ge=1, description="counted steps of each walk")] = 50
    walks: Annotated[int, Field(ge=1, description="independent Markov chains")] = 4
    burn_in: Annotated[int, Field(ge=0, description="steps of each walk before those that are counted")] = 0
    chain: Annotated[
        Chain, Field(description="links that change the distribution of proposals, in order: top_k=50+temperature=2")
    ] = UNCHAINED

    def decode(self, space: SearchSpace) -> Result:
        visited = [reached for walk in self.walked(space) for reached in walk]
        space.stopped("finished")
        counts = Counter(reached.node.tokens for reached in visited)
        ended = {reached.node.tokens: reached for reached in visited}
        drop(space, (reached.node for reached in ended.values()), "outranked")
        return Result(
            [
                replace(space.finish(node), count=counts[node.tokens], log_q=ended[node.tokens].log_q)
                for node in space.nbest_of(reached.node for reached in ended.values())
            ],
            drawn=len(visited),
        )

    def walked(self, space: SearchSpace) -> list[Path]:
        """For each walk the hypotheses at which it is after each counted step."""
        walks = [self.walk(space, number) for number in range(self.walks)]
        visited: list[Path] = [[] for _ in walks]
        asked = {number: next(walk) for number, walk in enumerate(walks)}
        while asked:
            prefixes, numbers = zip(*asked.values(), strict=True)
            nodes, states = [each.node for each in prefixes], [each.state for each in prefixes]
            children = space.draw(nodes, numbers, self.chain, states)
            for walk, prefix, drawn in zip(list(asked), prefixes, children, strict=True):
                longer = None if drawn is None else Reached(drawn.node, prefix.log_q + drawn.log_prob, drawn.state)
                try:
                    asked[walk] = walks[walk].send(longer)
                except StopIteration as ended:
                    visited[walk] = ended.value
                    del asked[walk]
        return visited

    def walk(self, space: SearchSpace, walk: int) -> Redraw:
        """One Markov chain; its draws have numbers of their own, and so do its decisions."""
        numbers = count(walk << 32)
        current = yield from begun(space, numbers)
        visited: Path = []
        if current is None:
            return visited
        tell(space, current[-1].node, f"walk {walk + 1}: start", "uncounted")
        for step in range(1, self.burn_in + self.steps + 1):
            random = space.generator(next(numbers), 0)
            place = int(random.integers(current[-1].node.length))
            proposal = yield from redrawn(current[: place + 1], next(numbers))
            probability = acceptance(current[-1], proposal[-1])
            note = f"walk {walk + 1}: step {step}"
            if random.random() < probability:
                current = proposal
                tell(space, proposal[-1].node, f"{note} accepted", "uncounted")
            else:
                tell(space, proposal[-1].node, f"{note} rejected, {probability:.2g}", "rejected")
            if step > self.burn_in:
                visited.append(current[-1])
        return visited


def begun(space: SearchSpace, numbers: Iterator[int]) -> Generator[tuple[Reached, int], Reached | None, Path | None]:
    """A draw of a whole hypothesis; None if all are lost in dead ends."""
    for _ in range(TRIES):
        path = yield from redrawn([Reached(space.root)], next(numbers))
        if path[-1].node.finished:
            return path
    return None


def redrawn(kept: Path, number: int) -> Redraw:
    """A path that begins with the prefixes ``kept``; it ends with ``</s>`` or in a dead end."""
    path = list(kept)
    while not path[-1].node.finished:
        longer = yield path[-1], number
        if longer is None:
            break
        path.append(longer)
    return path


def acceptance(current: Reached, proposal: Reached) -> float:
    """The probability of going to a proposal, a hypothesis or a dead end, that shares the place of the step."""
    if not proposal.node.finished:
        return 0.0
    log_ratio = log_weight(proposal) - log_weight(current) + math.log(current.node.length / proposal.node.length)
    return math.exp(min(0.0, log_ratio))


def log_weight(reached: Reached) -> float:
    """ln w, with w = exp(s) / q, so that q w is proportional to pi."""
    return reached.node.total - reached.log_q


def tell(space: SearchSpace, proposal: Node, note: str, fate: str) -> None:
    """Tell a search that is traced what became of a proposal; `decode` replaces the fate of what was counted."""
    space.noted(proposal, note)
    if proposal.finished:
        space.dropped(proposal, fate)


@sgdec.hookimpl
def sgdec_decoders() -> dict[str, type[Decoder]]:
    return {"mcmc": McmcDecoder}
