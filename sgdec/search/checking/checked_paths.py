"""The paths of a search whose claims are checked, and the tightest claims about what can follow their prefixes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sgdec.arcs import Automaton
from sgdec.protocol import Source
from sgdec.relaxations import Relaxation
from sgdec.search.node import Node

TOGETHER = None
"""In place of a predictor's number: the product bound of all of them."""
Weights = tuple[float | None, ...]


class Claim(NamedTuple):
    """A bound on what can follow a prefix, as a limit on the sum of a whole hypothesis."""

    limit: float
    """For a lower bound both numbers are negated."""
    most: float
    length: int
    """The length of the prefix."""


Claims = dict[tuple[int | None, str], Claim]
"""By predictor and ability the tightest claim of the prefixes of a path."""


class CheckedPath(NamedTuple):
    """The tokens of a prefix, and how they were scored."""

    tokens: tuple[int, ...]
    sums: Sequence[float]
    """``[K]``: the unweighted scores so far."""
    history: tuple[Weights, ...]
    """The weights under which each token was scored, and those for the next one."""

    @classmethod
    def of(cls, node: Node) -> CheckedPath:
        if not node.scores:
            return cls((), [0.0] * len(node.weights), (node.weights,))
        tokens, scores, weights = node.columns()
        return cls(tokens, list(map(math.fsum, zip(*scores, strict=True))), (*weights, node.weights))

    @property
    def key(self) -> tuple[object, ...]:
        return self.tokens, self.history

    @property
    def key_before(self) -> tuple[object, ...]:
        """That of the prefix without the last token."""
        return self.tokens[:-1], self.history[:-1]


@dataclass
class CheckedSentence:
    """The claims and objects of one sentence, as far as its search has seen them."""

    source: Source
    claims: dict[tuple[object, ...], Claims] = field(default_factory=dict)
    """By the key of a path."""
    relaxations: dict[int, Sequence[Relaxation]] = field(default_factory=dict)
    """By predictor."""
    automata: dict[int, Automaton] = field(default_factory=dict)
    """By predictor: known as a whole."""
    begun: set[Weights] = field(default_factory=set)
    """The weights of the roots whose greedy paths are checked."""

    def claims_before(self, path: CheckedPath) -> Claims:
        """The claims of shorter prefixes that also limit the hypotheses after this one, with its weights."""
        weights, before = path.history[-1], path.history[-2:-1]
        found = self.claims.get(path.key_before, {}) if path.tokens else {}
        return {
            (k, name): claim
            for (k, name), claim in found.items()
            if ((weights,) == before if k is TOGETHER else weights[k] is not None)
        }
