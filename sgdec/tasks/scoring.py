"""Scoring given outputs: the predictors' scores of known target sentences.

One more predictor is added to those of the run. It allows only the given output, so that the search has one path. So
scoring uses the code of decoding, in batches and with the same numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from sgdec.context import BOS, EOS, Vocabulary
from sgdec.decoder import Decoder
from sgdec.errors import SgdecError
from sgdec.io.limits import whole_number
from sgdec.lifting import lift
from sgdec.protocol import Candidates, Predictor, Result, Scores, Source
from sgdec.ranking import Ranking
from sgdec.search.constellation import Constellation
from sgdec.search.dead_ends import dead_end, names_of
from sgdec.search.member import Member
from sgdec.search.outcome import Unreadable
from sgdec.search.space import SearchSpace
from sgdec.text.steps import Stepping


@dataclass(frozen=True)
class ScoringPair(Source):
    """A source and the output to be scored."""

    target: tuple[int, ...] = ()
    """The tokens of the output, without ``<s>`` and ``</s>``."""


class ForbiddenOutput(SgdecError):
    """The given output has no score, because a predictor forbids it."""


class GivenOutput(Predictor):
    """Allows only the target of a `ScoringPair`, with score 0."""

    max_score = 0.0

    def initialize(self, source: Source) -> None:
        """Raises TypeError for a source without an output."""
        if not isinstance(source, ScoringPair):
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
    """Follows the only path."""

    def __init__(self, ranking: Ranking | None = None, vocabulary: Vocabulary | None = None) -> None:
        """``vocabulary``: that of the outputs; its pieces name tokens in messages."""
        self.ranking = ranking or Ranking()
        self._name_of = names_of(vocabulary)

    def decode(self, space: SearchSpace) -> Result:
        """The hypothesis, without `GivenOutput` in its ledger. Raises ForbiddenOutput."""
        node = space.root
        while not node.finished:
            (children,) = space.expand([node], limit=1)
            if not children:
                where = dead_end(space.constellation, node, self._name_of)
                said = f"no hypothesis: the predictors forbid the given output. {where or ''}"
                raise ForbiddenOutput(said.rstrip())
            node = children[0]
        found = space.finish(node)
        ledger = tuple(scores[:-1] for scores in found.ledger)
        return Result([replace(found, ledger=ledger, weights=tuple(row[:-1] for row in found.weights))])


def paired(source: Source, target: tuple[int, ...]) -> ScoringPair:
    """A source with the tokens of its output. Raises SgdecError for tokens that cannot be in an output."""
    for token in target:
        if token in (BOS, EOS):
            raise SgdecError(f"'{token}' cannot be a token of an output.")
    return ScoringPair(source.id, source.tokens, source.text, len(target), target)


def encoded(text: str, vocabulary: Vocabulary, source: Source, sources: Vocabulary | None) -> tuple[int, ...]:
    """The tokens of an output's text.

    ``sources`` is the vocabulary of ``source``, which is needed to insert the steps of hard attention. Raises
    SgdecError if it is missing then, and if the text cannot be encoded.
    """
    if isinstance(vocabulary, Stepping) and sources is not None:
        return tuple(vocabulary.with_steps(sources, source.tokens, vocabulary.plain.encode(text)))
    return vocabulary.encode(text)


class Pairing:
    """Pairs sources with outputs that are text or token ids, as lines of files."""

    def __init__(
        self, format: Literal["text", "ids"], target: Vocabulary | None, source: Vocabulary | None
    ) -> None:
        """``target`` and ``source``: the vocabularies, if there are any."""
        self._target = target if format == "text" else None
        self._source = source
        self._for_text = (
            "Text needs a target vocabulary: --tokenizer FILE."
            if target is None
            else "For text give --target-format text."
        )

    def pair(self, source: Source | Unreadable, output: str, where: str) -> ScoringPair | Unreadable:
        """A source with its output, which errors call ``where``; unreadable if one of them is."""
        if isinstance(source, Unreadable):
            return source
        try:
            if self._target is None:
                return paired(source, self._token_ids(output, where))
            return paired(source, encoded(output, self._target, source, self._source))
        except SgdecError as error:
            return Unreadable(source.id, error)

    def _token_ids(self, output: str, where: str) -> tuple[int, ...]:
        for word in output.split():
            if whole_number(word) in (None, 1, 2):
                raise SgdecError(f"{where}: {word!r} is not a token id of an output. {self._for_text}")
        return tuple(map(int, output.split()))


def with_given_output(constellation: Constellation) -> Constellation:
    """The same predictors, and as the last one `GivenOutput`, which allows only the target of a `ScoringPair`."""
    last = Member("(given output)", lift(GivenOutput()), 1.0, given=True)  # no plugin can have this name
    members, kind = [*constellation.members, last], constellation.bounds_kind
    return type(constellation)(members, vocab_size=constellation.vocab_size, bounds=kind)
