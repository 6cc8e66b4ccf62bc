"""Target length: a negative binomial distribution that depends on the source line (Stahlberg et al. 2017, Table 2).

    P(n) = Gamma(n - o + r) / ((n - o)! Gamma(r)) p^(n - o) (1 - p)^r,    n = o, o + 1, ... tokens before ``</s>``

with r and p computed from features of the source's text (`sgdec.models.length`) and o the offset. The offset is
positive if every hypothesis has tokens that the distribution does not count; if o is negative, P is renormalised over
n >= 0. Over all lengths it sums to one.

After n tokens ``</s>`` scores the hazard, ``log P(n) - log P(n or more)``, and every other token ``log P(more than
n) - log P(n or more)``: the factors of the chain rule, so that a hypothesis of n tokens has log P(n) in total. With
``point``, ``</s>`` scores the whole log P(n), and every other token 0. The length limit truncates the distribution:
mass beyond it is lost, and the length at the limit scores as usual.

State: n, in a range of numbers of its sentence. Cost: n steps, once per length and sentence; then a look-up.
Relaxations: by n, exact up to the length limit or 510 tokens; then a constant.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Annotated, NamedTuple

from pydantic import Field

import sgdec
from sgdec import EOS, BatchPredictor, Context, SgdecError, Source, UsageError
from sgdec.errors import counted
from sgdec.files import read_length_weights, read_lines
from sgdec.models.length import LengthWeights, NegativeBinomial
from sgdec.protocol import FORBIDDEN, SparseRow
from sgdec.relaxations import Constant, Relaxation
from sgdec_predictors.automata.counted import COUNTED, Counted
from sgdec_predictors.automata.numbered import Counting, Number, Sentences


class LengthPredictor(Counting):
    """The log-probability of the length of the hypothesis, given the source line.

    >>> predictor = LengthPredictor("0,0.5,0,0,0, 0,0,0,0,0", point=True)  # r = half the words, p = 1/2
    >>> states = predictor.initialize_batch([Source(id=1, tokens=(5, 6), text="two words")])
    >>> round(math.exp(predictor.predict_batch(states).rows[0].get(EOS)), 9)  # P(n) = 1/2^(n+1)
    0.5
    """

    max_score = 0.0

    def __init__(
        self,
        weights: Annotated[
            str | tuple[float, ...],
            Field(
                description="file that `sgdec fit-length` wrote, or 10 numbers in SGNMT's order: 5 of r and "
                "5 of p (characters, words, punctuation, characters per word, punctuation per word); or 12, with "
                "the biases of r and p at the end"
            ),
        ],
        text: Annotated[
            str | None,
            Field(
                description="file with the text of the sources, one line per sentence, .gz too, for an input of "
                "token ids; default: the text of the input, or what its ids spell in the source vocabulary"
            ),
        ] = None,
        point: Annotated[
            bool, Field(description="true: only </s> is scored, with all of log P; false: each token, by hazards")
        ] = False,
        offset: Annotated[
            int,
            Field(
                description="subtracted from a hypothesis' length before the distribution is asked, as SGNMT's "
                "length_model_offset; shorter lengths than it are impossible (in SGNMT they score as length 1 does)"
            ),
        ] = 0,
        context: Context | None = None,
    ) -> None:
        """Raises SgdecError if a file cannot be read, or the number of weights is wrong."""
        try:
            self._weights = _weights(weights)
            self._lines = None if text is None else tuple(read_lines(text))
        except SgdecError as error:
            raise SgdecError(f"length: {error}") from None
        self._path = text
        self._vocabulary = context.vocabularies.source if context else None
        self._point = point
        self._offset = offset
        self._sentences = Sentences[_Sentence]()

    def initialize_batch(self, sources: Sequence[Source]) -> list[int]:
        """Raises UsageError if the text of the sources is not known, SgdecError if the file has too few lines."""
        sentences = list(map(self._sentence, sources))  # all, before one of them takes numbers
        return list(map(self._sentences.begin, sentences))

    def release(self, roots: Sequence[int]) -> None:
        self._sentences.release(roots)

    def _row(self, state: int) -> SparseRow:
        sentence, n = self._sentences.find(state)
        return sentence.row(n)

    def _after(self, states: Number, tokens: Number) -> Number:
        return states + 1

    def best_remaining(self, states: Sequence[int]) -> list[float]:
        """The probability grows up to the mode and falls from there, so the nearest length is the best."""
        best = []
        for sentence, n in map(self._sentences.find, states):
            lowest = max(n, self._offset)
            if lowest > sentence.limit:
                best.append(FORBIDDEN)
            else:
                best.append(self._left(sentence, n, int(min(max(sentence.lengths.mode, lowest), sentence.limit))))
        return best

    def worst_remaining(self, states: Sequence[int]) -> list[float]:
        """The worst is at an end of the range of lengths; -inf if the length has no limit."""
        worst = []
        for sentence, n in map(self._sentences.find, states):
            lowest = max(n, self._offset)
            if lowest > sentence.limit:
                worst.append(math.inf)
            elif sentence.limit == math.inf:
                worst.append(-math.inf)
            else:
                ends = (lowest, int(sentence.limit))
                worst.append(min(self._left(sentence, n, end) for end in ends))
        return worst

    def relaxations(self, state: int) -> Sequence[Relaxation]:
        return self._sentences.find(state)[0].relaxations

    def _sentence(self, source: Source) -> _Sentence:
        lengths = _Lengths(self._weights.distribution(self._text(source)), self._offset)
        limit = math.inf if source.max_length is None else source.max_length
        row = lru_cache(None)(partial(lengths.row, self._point))
        exact = limit < COUNTED
        by_length = Counted(
            int(limit) + 1 if exact else COUNTED,
            row,
            self._sentences.count,
            beyond=None if exact else (-math.inf, 0.0),
        )
        return _Sentence(lengths, limit, row, (by_length, Constant(-math.inf, 0.0)))

    def _text(self, source: Source) -> str:
        if self._lines is not None:
            if source.id > len(self._lines):
                found = counted(len(self._lines), "line")
                raise SgdecError(
                    f"length: {self._path} has {found}, so none for sentence {source.id}. Expected one line per "
                    "source sentence."
                )
            return self._lines[source.id - 1]
        if self._vocabulary is not None:
            return source.spell(self._vocabulary)
        if source.text is None and any((*self._weights.r[:-1], *self._weights.p[:-1])):  # biases need no text
            raise UsageError(
                "length: the weights are for features of the source's text, and the input has only token ids. Give "
                "the text, one line per sentence, as --length.text FILE."
            )
        return source.text or ""

    def _left(self, sentence: _Sentence, n: int, end: int) -> float:
        """The score that remains for a hypothesis of ``end`` tokens after n of them."""
        return sentence.lengths.log_probability(end) - sentence.lengths.paid(self._point, n)


class _Sentence(NamedTuple):
    lengths: _Lengths
    limit: float
    row: Callable[[int], SparseRow]
    """The scores after a number of tokens; computed once."""
    relaxations: Sequence[Relaxation]


class _Lengths(NamedTuple):
    """P of the module's formula."""

    distribution: NegativeBinomial
    offset: int

    @property
    def mode(self) -> int:
        return max(self.distribution.mode + self.offset, 0)

    def row(self, point: bool, n: int) -> SparseRow:
        """The scores after n tokens."""
        before = self.paid(point, n)
        other = 0.0 if point else self.log_tail(n + 1) - before
        return SparseRow([EOS], [self.log_probability(n) - before], default=other)

    def paid(self, point: bool, n: int) -> float:
        """The score of n tokens."""
        return 0.0 if point else self.log_tail(n)

    def log_probability(self, n: int) -> float:
        return self.distribution.log_probability(n - self.offset) - self._log_whole()

    def log_tail(self, n: int) -> float:
        return self.distribution.log_tail(n - self.offset) - self._log_whole()

    def _log_whole(self) -> float:
        """The mass of the distribution at lengths of at least 0."""
        return self.distribution.log_tail(-self.offset)


def _weights(given: str | tuple[float, ...]) -> LengthWeights:
    """Reads weights from a file's path, comma-separated numbers, or numbers."""
    if not isinstance(given, str):
        return LengthWeights.of_numbers(given)
    try:
        numbers = tuple(map(float, given.split(",")))
    except ValueError:
        return read_length_weights(given)
    return LengthWeights.of_numbers(numbers)


@sgdec.hookimpl
def sgdec_predictors() -> dict[str, type[BatchPredictor]]:
    return {"length": LengthPredictor}
