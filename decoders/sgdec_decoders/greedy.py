"""Greedy search: always the best next token (Stahlberg et al. 2017, Algorithm 1).

Searches one path. Guarantee: none. It equals `beam` of size 1. Cost: one expansion per token. In batches of automata,
such as lattices and n-gram models, the prefixes of all sentences in flight are rows of arrays.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

import sgdec
from sgdec import EOS, Decoder, Hypothesis, Result, SearchSpace
from sgdec.protocol import BatchDecoder, Feed
from sgdec.rows import HypothesisRows
from sgdec_decoders._streaming import StreamingDecoder, enough_for_arrays, number_to_begin


class GreedyDecoder(Decoder):
    """Takes the best continuation until it is ``</s>``; finds no hypothesis if a prefix has no continuation."""

    def in_batches(self, batch_size: int, automata: bool) -> BatchDecoder | None:
        return GreedyOnArrays() if automata and enough_for_arrays(batch_size) else None

    def decode(self, space: SearchSpace) -> Result:
        node = space.root  # line 2
        while not node.finished:  # line 8
            (children,) = space.expand([node], limit=1)  # line 4
            if not children:
                space.stopped("dead end")
                return Result([])
            node = children[0]  # lines 5-7
        space.stopped("finished")
        return Result([space.finish(node)])


@dataclass(slots=True)
class Path:
    """The one hypothesis of a sentence."""

    space: SearchSpace
    total: float = 0.0
    tokens: list[int] = field(default_factory=list)
    ledger: list[tuple[float, ...]] = field(default_factory=list)

    def result(self) -> Result:
        """The result, with its expansions counted; no hypothesis if the path has come to a dead end."""
        length = len(self.tokens)
        finished = bool(length) and self.tokens[-1] == EOS
        self.space.count_expansions(length if finished else length + 1, 0)
        if not finished:
            return Result([])
        rank_score, weights = self.space.ranking.score(self.total, length), (self.space.weights,) * length
        return Result([Hypothesis(tuple(self.tokens[:-1]), self.total, rank_score, tuple(self.ledger), weights)])


class GreedyOnArrays(StreamingDecoder):
    """The same for many sentences at once: each path is one row of arrays."""

    def decode_stream(self, more: Feed, in_flight: int) -> Iterator[tuple[SearchSpace, Result]]:
        rows: HypothesisRows | None = None
        paths: list[Path] = []
        totals = left = np.zeros(0)  # [paths]: the totals so far, and the tokens that may come before </s>
        while True:
            wanted = number_to_begin(len(paths), in_flight)
            begun = more(wanted) if wanted else []
            if rows is None and begun:
                rows = HypothesisRows(begun)
            elif rows is not None and begun:
                rows.add(begun)
            paths += map(Path, begun)
            totals = np.append(totals, np.zeros(len(begun)))
            limits = [space.source.max_length for space in begun]
            left = np.append(left, [math.inf if limit is None else limit for limit in limits])
            if rows is None or not paths:
                return
            for row in np.isinf(left).nonzero()[0].tolist():
                paths[row].space.count_expansions(0, len(paths[row].tokens))  # raises if the path becomes endless
            children = rows.best_together(np.arange(len(paths)), totals, 1, left == 0)
            for row, token, total, _, scores in zip(*(part.tolist() for part in children), strict=True):
                path = paths[row]
                path.total = total
                path.tokens.append(token)
                path.ledger.append(tuple(scores))
            children = children.at(children.token != EOS)
            rows.consume(children.row, children.token)
            totals, left = children.total, left[children.row] - 1
            going = children.row.tolist()
            ended = [paths[row] for row in sorted(set(range(len(paths))).difference(going))]
            paths = [paths[row] for row in going]
            for path in ended:
                yield path.space, path.result()


@sgdec.hookimpl
def sgdec_decoders() -> dict[str, type[Decoder]]:
    return {"greedy": GreedyDecoder}
