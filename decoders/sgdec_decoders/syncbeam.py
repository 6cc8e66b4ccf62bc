"""Synchronised beam search: compares hypotheses word by word, not token by token (Stahlberg et al. 2017, section 4).

Algorithm 2 with words as steps: tokens up to the next synchronisation ``symbol``, or up to ``</s>``. From each
hypothesis of the beam an inner beam search of the same ``size`` continues until all its hypotheses end with the
symbol or ``</s>``; these are the candidates for the next beam. So models over characters, pieces and words, which
score at different tokens, are compared after each has scored the whole word. Stopping, prunings, recombination and
ranking are those of `beam`. A finished hypothesis that loses its slot in an inner beam is remembered too; an inner
beam has one more slot if ``</s>`` takes none.

Guarantee: none; if every token is the symbol, that of `beam`. With ``stop length`` or ``proven`` and beams wide
enough, the n-best among the hypotheses without a word longer than ``max_word_length``.

Cost: at most ``size`` x ``size`` expansions per token, those of all inner beams in one batch.

Departures: if an inner beam reaches ``max_word_length``, SGNMT drops all of it; here only its unfinished words are
dropped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import InitVar, dataclass, field
from heapq import merge
from itertools import islice
from operator import attrgetter
from typing import Annotated, final

from pydantic import Field

import sgdec
from sgdec import UNK, Context, Decoder, Node, SearchSpace, UsageError
from sgdec_decoders._beams import Size, Stop, drop, prune_local, recombine
from sgdec_decoders.beam import BreadthFirst, Finished

_total = attrgetter("total")


@final
@dataclass(eq=False)
class SyncBeamDecoder(BreadthFirst):
    """Beam search whose steps are words."""

    symbol: Annotated[int | str, Field(description="the end of a word: a token id, or a piece of the vocabulary")]
    max_word_length: Annotated[int, Field(ge=1, description="limit on tokens per word, with the symbol")] = 25
    size: Size = field(default=4, kw_only=True)  # keyword-only, so that the required symbol comes first
    stop: Stop = field(default="best", kw_only=True)
    context: InitVar[Context | None] = field(default=None, kw_only=True)

    def __post_init__(self, context: Context | None) -> None:
        """Raises UsageError for a token id or a piece that the target vocabulary does not have."""
        super().__post_init__()
        self.symbol = token_of(self.symbol, context or Context())

    def first_beam(self, space: SearchSpace) -> list[Node]:
        return [space.root]

    def candidates(self, space: SearchSpace, beam: list[Node], finished: Finished) -> list[Node]:
        """The finished hypotheses, and the open ones with all words that can follow; best total first."""
        inner = [[node] for node in beam]
        growing = [node for node in beam if not node.finished]
        for _ in range(self.max_word_length):
            if not growing:
                break
            families = space.expand(growing, limit=self.children_needed, lazy=True)
            children = dict(zip(growing, families, strict=True))
            for place, nodes in enumerate(inner):
                if children.keys().isdisjoint(nodes):
                    continue  # all of them are complete
                inner[place] = self._grown(space, nodes, children)
                for node in nodes:
                    if node in children:
                        space.dropped_rest(node, "beam", inner[place])
                    elif node not in inner[place] and not node.finished:
                        space.dropped(node, "beam")
                finished.remember(node for node in nodes if node.finished and node not in inner[place])
            growing = [node for nodes in inner for node in nodes if not self._is_complete(node)]
        complete = [node for nodes in inner for node in nodes if self._is_complete(node)]
        drop(space, growing, "length")
        candidates = sorted(complete, key=_total, reverse=True)  # stable: ties stay in the order of the beam
        return recombine(space, candidates) if self.recombine else candidates

    def _grown(
        self, space: SearchSpace, nodes: list[Node], children: dict[Node, Iterator[Node]]
    ) -> list[Node]:
        """One step of one inner beam, best total first; hypotheses without children are complete, and stay."""
        candidates = (
            prune_local(space, children[node], self.prune_local) if node in children else [node] for node in nodes
        )
        best_first = merge(*candidates, key=_total, reverse=True)  # stable: ties stay in the order of the beam
        return list(islice(best_first, self.children_needed))

    def _is_complete(self, node: Node) -> bool:
        return node.finished or node.last == self.symbol


def token_of(symbol: int | str, context: Context) -> int:
    """The token of a piece, or a token id, which may be written as a string."""
    if isinstance(symbol, int) or re.fullmatch("-?[0-9]+", symbol):
        return _within(int(symbol), context.vocab_size)
    vocabulary = context.vocabularies.target
    if vocabulary is None:
        raise UsageError(f"syncbeam: symbol {symbol!r} needs a vocabulary to look it up in; give a token id.")
    token = vocabulary.token(symbol)
    if token == UNK:
        raise UsageError(f"syncbeam: the vocabulary has no piece {symbol!r}; give another, or a token id.")
    return token


def _within(token: int, vocab_size: int | None) -> int:
    if token < 0 or (vocab_size is not None and token >= vocab_size):
        those = "" if vocab_size is None else f" of {vocab_size} tokens"
        raise UsageError(f"syncbeam: symbol {token} is outside the target vocabulary{those}.")
    return token


@sgdec.hookimpl
def sgdec_decoders() -> dict[str, type[Decoder]]:
    return {"syncbeam": SyncBeamDecoder}
