"""Diverse beam search: groups of a beam that keep away from each other (Vijayakumar et al. 2018, Algorithm 1).

The ``size`` slots of the beam are divided among ``groups``. At each position the groups choose their hypotheses one
after the other, each by its own beam search with the score (equation 3 of arXiv 1610.02424)

    score(y) = total(y) - strength * (sum of the similarities of y to all hypotheses h of the groups before it)

where ``diversity`` names the similarity of y to h, for prefixes y of t tokens (their section 5.1):

- ``hamming``: at how many positions y has the token of h. Each position counts the hypotheses that the groups held
  when y got its token there, and what is counted once is not taken back when these are dropped. So penalties add up
  in scores, as in `generate()` of transformers.
- ``cumulative``: exp(-d / ``gamma``), with d the number of the t positions at which y and h differ, or h has ended.
- ``ngram``: how often the n-grams of y occur in h, at any position; n is ``order``.

Only the choice is penalised: totals and ledgers are the model's. Lists are ranked by the score under the length
penalty, which is the `rank_score`. A hypothesis that several groups have found is listed once, with its best score.

The option ``stop`` is that of `beam`, for each group by itself: ``full`` (all its hypotheses are finished), ``best``,
or ``hf-true``, ``hf-false``, ``hf-never`` for the group search of transformers 4.56.2 with this ``early_stopping``.
That one compares the worst of a full list with the best candidate, even if it is finished; `beam` follows
transformers 5, which compares it with the best open one.

With ``sampling`` a group draws its hypotheses: candidates without replacement, in proportion to q(y) exp(-strength *
similarities), with q the product of the local distributions after the links of ``chain``. The random numbers depend
only on the seed, the sentence, the group and the position.

Guarantee: none. The first group is `beam` of its size, and one group is `beam` with the same ``full`` or ``best``.
Cost: at most ``size`` expansions for each position, all in one batch; prefixes of several groups are expanded once.

Departures: the paper prints the sum over the hypotheses of a group within the exponent of ``cumulative`` too; here it
is that of its equation 2. The similarity of neural embeddings is not built.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import KW_ONLY, dataclass, field, replace
from itertools import islice, tee
from typing import Annotated, Literal, NamedTuple, TypeAlias, final

import numpy as np
from pydantic import Field

import sgdec
from sgdec import Decoder, Distribution, Node, Result, SearchSpace, UsageError
from sgdec.arrays import Floats
from sgdec.chain import UNCHAINED, Chain
from sgdec.ranking import Ranking
from sgdec.topk import top_tokens
from sgdec_decoders._beams import LengthOffset, drop
from sgdec_decoders._generate import greatest_length, is_of_generate, require_options_of_generate
from sgdec_decoders._ranking_options import Alpha, Beta, Normalize

Tokens: TypeAlias = tuple[int, ...]
Similarity: TypeAlias = tuple[float, Mapping[int, float]]
"""The similarity of a prefix with any token more, and what is added for some tokens."""


class HeldHypothesis(NamedTuple):
    """A hypothesis of a group."""

    node: Node
    similarity: float = 0.0
    """The sum of its similarities to the hypotheses of the groups before its own."""
    log_q: float = 0.0
    """The log-probability of drawing it, without penalties."""
    state: float | None = None
    """The number that the chain keeps."""


@dataclass(eq=False)
class BeamGroup:
    """The beam search of one group."""

    number: int
    beam: list[HeldHypothesis]
    finished: list[HeldHypothesis] = field(default_factory=list)
    """Those that have left the beam."""
    done: bool = False


class Families(NamedTuple):
    """The children of the open prefixes of one length."""

    nodes: list[Node]
    """The prefixes."""
    ranked: Mapping[Tokens, Iterator[Node]]
    """Without sampling: by prefix, best first. A copy of the iterator reads from the beginning."""
    drawn: Mapping[Tokens, Distribution]
    """With sampling."""


@final
@dataclass(eq=False)
class DiverseDecoder(Decoder):
    """Beam search in groups, each of which is penalised for what the groups before it have chosen."""

    size: Annotated[int, Field(ge=1, description="hypotheses kept at each length, by all groups together")] = 4
    _: KW_ONLY
    groups: Annotated[int, Field(ge=1, description="groups; must divide size")] = 2
    strength: Annotated[
        float, Field(ge=0, le=1e6, description="lambda: weight of similarities to other groups")
    ] = 0.5
    diversity: Annotated[
        Literal["hamming", "cumulative", "ngram"],
        Field(description="what is similar: equal tokens at one position, few differences, common n-grams"),
    ] = "hamming"
    gamma: Annotated[
        float, Field(gt=0, allow_inf_nan=False, description="with cumulative: differences that divide it by e")
    ] = 1.0
    order: Annotated[int, Field(ge=1, description="with ngram: length of n-grams")] = 2
    stop: Annotated[
        Literal["full", "best", "hf-true", "hf-false", "hf-never"],
        Field(description="when the search of a group ends; see 'sgdec plugins diverse'"),
    ] = "full"
    sampling: Annotated[bool, Field(description="draw the hypotheses of a group instead of taking the best")] = False
    chain: Annotated[
        Chain, Field(description="with sampling: links that change the distribution: top_k=50+min_p=0.05")
    ] = UNCHAINED
    alpha: Alpha = 0.0
    beta: Beta = 0.0
    normalize: Normalize = "gnmt"
    length_offset: LengthOffset = 0

    def __post_init__(self) -> None:
        """Raises UsageError for groups that don't divide the size, and for options that contradict each other."""
        if self.size % self.groups:
            fits, next_size = math.gcd(self.size, self.groups), self.size + -self.size % self.groups
            raise UsageError(
                f"diverse: {self.groups} groups do not divide a beam of size {self.size} into equal parts; give a "
                f"number of groups that does, such as {fits}, or another size, such as {next_size}."
            )
        if self.chain.links and not self.sampling:
            raise UsageError(f"diverse: chain {self.chain} changes what is drawn: add sampling true, or omit it.")
        if is_of_generate(self.stop):
            require_options_of_generate(self)
        self.of_each = self.size // self.groups
        self.ranking = Ranking(self.alpha, self.beta, self.normalize, self.length_offset)
        if self.groups > 1 and self.strength:
            self.ranks_by = "the total less similarities"

    def decode(self, space: SearchSpace) -> Result:
        """Raises UsageError for ``hf-never`` with alpha > 0 and without a length limit."""
        greatest = greatest_length(space) if self.stop == "hf-never" else None
        groups = [BeamGroup(number, [HeldHypothesis(space.root)]) for number in range(self.groups)]
        while any(not group.done for group in groups):  # Algorithm 1, line 2
            found = self.expanded(space, groups)
            held: list[Tokens] = []
            for group in groups:  # lines 3-6
                if not group.done:
                    number = self.of_each * (2 if is_of_generate(self.stop) else 1)
                    if self.sampling:
                        candidates = self.drawn(space, group, found, held, number)
                    else:
                        candidates = self.best(group, found, held, number)
                    if is_of_generate(self.stop):
                        self.next_of_generate(space, group, candidates, greatest)
                    else:
                        self.next_beam(group, candidates)
                held += [slot.node.tokens for slot in group.beam]
            if space.traced:
                self.tell(space, groups, found.nodes)
        space.stopped(self.stop, [slot.node for group in groups for slot in group.beam])
        ended = [slot for group in groups for slot in group.beam if slot.node.finished]
        return self.listed(space, [*ended, *(slot for group in groups for slot in group.finished)])  # line 7

    def expanded(self, space: SearchSpace, groups: Sequence[BeamGroup]) -> Families:
        """The children of each open prefix of all groups; what several groups have is expanded once."""
        growing = [slot for group in groups if not group.done for slot in group.beam if not slot.node.finished]
        slots = {slot.node.tokens: slot for slot in growing}
        nodes = [slot.node for slot in slots.values()]
        if self.sampling:
            drawn = space.distributions(nodes, self.chain, [slot.state for slot in slots.values()])
            return Families(nodes, {}, dict(zip(slots, drawn, strict=True)))
        ranked = (tee(children, 1)[0] for children in space.expand(nodes, lazy=True))
        return Families(nodes, dict(zip(slots, ranked, strict=True)), {})

    def best(self, group: BeamGroup, found: Families, held: Sequence[Tokens], number: int) -> list[HeldHypothesis]:
        """The best candidates of a group, best first: children, and finished hypotheses of its beam.

        ``held``: the hypotheses of the groups before it. Among equal candidates the one whose parent is earlier in
        the beam is first, as in `beam`, then that with the higher total, then the lower token.
        """
        candidates = []
        for slot in group.beam:
            if slot.node.finished:
                candidates.append(slot)
                continue
            base, more = self.similarity(slot, held)
            plain = 0  # of these as many as are wanted are enough: those after them are worse
            for child in copy(found.ranked[slot.node.tokens]):
                candidates.append(HeldHypothesis(child, base + more.get(child.last, 0.0)))
                plain += child.last not in more
                if plain == number:
                    break
        return sorted(candidates, key=self.score, reverse=True)[:number]

    def drawn(
        self, space: SearchSpace, group: BeamGroup, found: Families, held: Sequence[Tokens], number: int
    ) -> list[HeldHypothesis]:
        """The same, but drawn without replacement: the highest sums of logarithmic weights and Gumbel noise."""
        offers = []
        for slot in group.beam:
            if slot.node.finished:
                weight = slot.log_q - self.strength * slot.similarity
                offers.append(OfferedFamily(slot, np.array([weight]), np.array([slot.similarity]), None))
            else:
                children = found.drawn[slot.node.tokens]
                base, more = self.similarity(slot, held)
                similarity = np.full(len(children.tokens), base)
                for token, extra in more.items():
                    similarity[children.tokens == token] += extra
                weights = slot.log_q + children.log_probs - self.strength * similarity
                offers.append(OfferedFamily(slot, weights, similarity, children))
        weights = np.concatenate([offer.log_weights for offer in offers])
        if not len(weights):
            return []
        step = max(slot.node.length for slot in group.beam) + 1
        noise = space.generator(group.number, step).gumbel(size=len(weights))
        owner = np.repeat(np.arange(len(offers)), [len(offer.log_weights) for offer in offers])
        at = np.concatenate([np.arange(len(offer.log_weights)) for offer in offers])
        (best,) = top_tokens((weights + noise)[None], number)
        return [offers[i].member(j) for i, j in zip(owner[best].tolist(), at[best].tolist(), strict=True)]

    def similarity(self, slot: HeldHypothesis, held: Sequence[Tokens]) -> Similarity:
        """The similarity of the children of a hypothesis to the hypotheses in ``held``."""
        prefix = slot.node.tokens
        if self.diversity == "hamming":
            return slot.similarity, hamming(prefix, held)
        if self.diversity == "cumulative":
            return cumulative(prefix, held, self.gamma)
        return ngram(prefix, held, self.order)

    def score(self, slot: HeldHypothesis) -> float:
        return slot.node.total - self.strength * slot.similarity

    def rank_score(self, slot: HeldHypothesis) -> float:
        return self.ranking.score(self.score(slot), slot.node.length, slot.node.coverage)

    def next_beam(self, group: BeamGroup, candidates: list[HeldHypothesis]) -> None:
        """Finished hypotheses keep their slots until better ones take them."""
        group.finished += [slot for slot in group.beam if slot.node.finished and slot not in candidates]
        group.beam = candidates
        if self.stop == "best":
            group.done = not candidates or candidates[0].node.finished
        else:
            group.done = all(slot.node.finished for slot in candidates)

    def next_of_generate(
        self, space: SearchSpace, group: BeamGroup, candidates: list[HeldHypothesis], greatest: int | None
    ) -> None:
        """Finished hypotheses are set aside; ``greatest`` as in `sgdec_decoders._generate`."""
        ended = [*group.finished, *(slot for slot in candidates[: self.of_each] if slot.node.finished)]
        ended.sort(key=self.rank_score, reverse=True)
        group.finished = ended[: self.of_each]
        drop(space, (slot.node for slot in ended[self.of_each :]), "outranked")
        group.beam = [slot for slot in candidates if not slot.node.finished][: self.of_each]
        if not group.beam or len(ended) < self.of_each:
            group.done = not group.beam
            return
        highest = self.score(candidates[0]) / self.ranking.length_penalty(greatest or candidates[0].node.length)
        group.done = self.stop == "hf-true" or highest <= self.rank_score(group.finished[-1])

    def tell(self, space: SearchSpace, groups: Sequence[BeamGroup], expanded: Sequence[Node]) -> None:
        """Tell a search that is traced which children of these nodes the groups hold."""
        held = {group.number: [slot.node for slot in (*group.beam, *group.finished)] for group in groups}
        for number, nodes in held.items():
            for node in nodes:
                space.noted(node, f"group {number + 1}")
        kept = [node for nodes in held.values() for node in nodes]
        for parent in expanded:
            space.dropped_rest(parent, "undrawn" if self.sampling else "beam", kept)

    def listed(self, space: SearchSpace, ended: list[HeldHypothesis]) -> Result:
        """The list of these finished hypotheses; of equal rank scores the first one is first."""
        once: dict[Tokens, HeldHypothesis] = {}
        for slot in sorted(ended, key=self.rank_score, reverse=True):
            once.setdefault(slot.node.tokens, slot)
        ranked = list(once.values())
        best = list(islice(space.distinct(ranked, lambda slot: slot.node.tokens[:-1]), space.nbest))
        drop(space, (slot.node for slot in ranked if slot not in best), "outranked")
        return Result([replace(space.finish(slot.node), rank_score=self.rank_score(slot)) for slot in best])


class OfferedFamily(NamedTuple):
    """The candidates that a hypothesis offers to be drawn for the next beam: its children, or itself if finished."""

    slot: HeldHypothesis
    log_weights: Floats
    """``[n]``"""
    similarity: Floats
    """``[n]``"""
    children: Distribution | None

    def member(self, at: int) -> HeldHypothesis:
        if self.children is None:
            return self.slot
        (node,) = self.children.children([at])
        state = None if self.children.states is None else float(self.children.states[at])
        log_q = self.slot.log_q + float(self.children.log_probs[at])
        return HeldHypothesis(node, float(self.similarity[at]), log_q, state)


def hamming(prefix: Tokens, held: Sequence[Tokens]) -> Mapping[int, float]:
    """By token the number of hypotheses in ``held`` that have it after as many tokens as the prefix has.

    >>> hamming((3, 4), [(3, 4, 5), (3, 6, 5), (3, 2)])
    Counter({5: 2})
    """
    at = len(prefix)
    return Counter(tokens[at] for tokens in held if len(tokens) > at)


def cumulative(prefix: Tokens, held: Sequence[Tokens], gamma: float) -> Similarity:
    """The similarity of a prefix with any token more, and what is added for some of them.

    >>> cumulative((3, 4), [(3, 6, 5)], 1.0) == (math.exp(-2), {5: math.exp(-1) - math.exp(-2)})
    True
    """
    at, base, more = len(prefix), 0.0, dict[int, float]()
    for tokens in held:
        differences = sum(a != b for a, b in zip(prefix, tokens, strict=False)) + max(0, at - len(tokens))
        equal, different = math.exp(-differences / gamma), math.exp(-(differences + 1) / gamma)
        base += different
        if len(tokens) > at:
            more[tokens[at]] = more.get(tokens[at], 0.0) + equal - different
    return base, more


def ngram(prefix: Tokens, held: Sequence[Tokens], n: int) -> Similarity:
    """The same for common n-grams.

    >>> ngram((3, 4), [(4, 3, 4, 5), (4, 5)], 2)
    (1.0, {3: 1.0, 5: 2.0})
    """
    counts = Counter(gram for tokens in held for gram in _ngrams(tokens, n))
    begun = prefix[len(prefix) - n + 1 :]
    more = {gram[-1]: float(count) for gram, count in counts.items() if gram[:-1] == begun}
    return float(sum(counts[gram] for gram in _ngrams(prefix, n))), more


def _ngrams(tokens: Tokens, n: int) -> list[Tokens]:
    return [tokens[at : at + n] for at in range(len(tokens) - n + 1)]


@sgdec.hookimpl
def sgdec_decoders() -> dict[str, type[Decoder]]:
    return {"diverse": DiverseDecoder}
