"""Scoring given outputs: what predictors say of target sentences that are known already.

Beside the predictors of the run stands one more, which allows exactly the given output, so that a search has one path
left. Whatever can decode can therefore score, in batches and with the same numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sgdec.context import BOS, EOS, Vocabulary
from sgdec.errors import SgdecError
from sgdec.lifting import lift
from sgdec.protocol import Candidates, Decoder, Predictor, Result, Scores, Source
from sgdec.ranking import Ranking
from sgdec.search.constellation import Constellation
from sgdec.search.member import Member
from sgdec.search.space import SearchSpace
from sgdec.text.steps import Stepping


@dataclass(frozen=True)
class Pair(Source):
    """A source and the output to be scored."""

    target: tuple[int, ...] = ()
    """Without ``<s>`` and ``</s>``."""


class GivenOutput(Predictor):
    """Allows the target of a `Pair`, with score 0, and nothing else."""

    max_score = 0.0

    def initialize(self, source: Source) -> None:
        """Raises TypeError for a source without an output."""
        if not isinstance(source, Pair):
            raise TypeError(f"expected a Pair, not {source!r}")
        self._allowed = (*source.target, EOS)
        self._state = 0

    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        return Scores.sparse((self._allowed[self._state],), (0.0,))

    def consume(self, token: int) -> None:
        self._state += 1

    def get_state(self) -> int:
        return self._state

    def set_state(self, state: int) -> None:
        self._state = state


class GivenOutputDecoder(Decoder):
    """Follows the one path that is left; no hypothesis where another predictor forbids it."""

    def __init__(self, ranking: Ranking | None = None) -> None:
        self.ranking = ranking or Ranking()

    def decode(self, space: SearchSpace) -> Result:
        """The hypothesis, without `GivenOutput` in its ledger."""
        node = space.root
        while not node.finished:
            (children,) = space.expand([node], limit=1)
            if not children:
                return Result([])
            node = children[0]
        found = space.finish(node)
        ledger = tuple(scores[:-1] for scores in found.ledger)
        return Result([replace(found, ledger=ledger, weights=tuple(row[:-1] for row in found.weights))])


def paired(source: Source, target: tuple[int, ...]) -> Pair:
    """A source with the tokens of its output. Raises SgdecError for tokens that no output has."""
    for token in target:
        if token in (BOS, EOS):
            raise SgdecError(f"'{token}' is no token id of an output.")
    return Pair(source.id, source.tokens, source.text, len(target), target)


def encoded(text: str, vocabulary: Vocabulary, source: Source, sources: Vocabulary | None) -> tuple[int, ...]:
    """The tokens of an output's text.

    ``sources``: the vocabulary of ``source``, with which a target meets that has steps. Raises SgdecError if it is
    missing, and if the text cannot be read.
    """
    if isinstance(vocabulary, Stepping) and sources is not None:
        return tuple(vocabulary.with_steps(sources, source.tokens, vocabulary.plain.encode(text)))
    return vocabulary.encode(text)


def with_given_output(constellation: Constellation) -> Constellation:
    """The same predictors, and last the one that leaves only the target of a `Pair`."""
    last = Member("(given output)", lift(GivenOutput()), 1.0)  # no plugin can have this name
    return Constellation([*constellation.members, last], vocab_size=constellation.vocab_size)
