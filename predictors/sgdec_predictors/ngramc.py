"""Given n-gram posteriors, for MBR-based decoding (Stahlberg et al. 2017, Table 2 and section 2.1).

Score of token w after a prefix: the sum of the scores of all listed n-grams that end with this w; 0 if there are
none. N-grams include the ``<s>`` and ``</s>`` of the sentence. With posteriors (``sgdec ngrams``) and a word penalty
a total is the expected gain of linearised BLEU (Tromble et al. 2008). With ``discount`` d an n-gram that the prefix
already has c times scores d^c times its score.

State: the longest end of the prefix that can begin an n-gram; the tokens that the length limit still allows, for
the bounds only; with a discount also the number of times that each listed n-gram was completed. Cost: a look-up per
row after the first row of a context; with a discount the row is corrected for each n-gram that was completed.
Relaxations: by context (exact without a discount), then by token alone.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from functools import cached_property
from typing import Annotated, NamedTuple

from pydantic import Field

import sgdec
from sgdec import Context, Predictor, Scores, SgdecError, Source
from sgdec.files import Ngram, read_ngrams
from sgdec.protocol import Candidates
from sgdec.relaxations import Relaxation
from sgdec_predictors.ngrams.relaxed import ByContext, ByToken
from sgdec_predictors.ngrams.table import MostToCome, NgramTable


class _State(NamedTuple):
    context: Ngram
    left: float
    """Tokens that the length limit still allows; infinite without one."""
    used: frozenset[tuple[Ngram, int]] = frozenset()
    """The completed n-grams with their counts, if a discount needs them."""


class NgramCounts(Predictor):
    """Adds up the scores of the n-grams of a hypothesis.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with open(folder + "/1.txt", "w") as file:
    ...         _ = file.write("7 : 0.5\\n1 7 : 0.25\\n7 2 : 0.125\\n")
    ...     predictor = NgramCounts(folder + "/{id}.txt")
    ...     predictor.initialize(Source(id=1, tokens=()))
    >>> predictor.predict_next().rows
    [SparseRow({7: 0.75}, default=0.0)]
    >>> predictor.consume(7)
    >>> predictor.predict_next().rows
    [SparseRow({7: 0.5, 2: 0.125}, default=0.0)]
    """

    def __init__(
        self,
        path: Annotated[
            str, Field(description="n-grams with scores, such as 1 7 4 : 0.25; {id} is the sentence number")
        ],
        order: Annotated[int, Field(ge=0, description="use n-grams of this length only; 0 = all")] = 0,
        discount: Annotated[
            float, Field(ge=0, le=1, description="factor of an n-gram's score for each earlier occurrence")
        ] = 1.0,
        context: Context | None = None,
    ) -> None:
        """A path without ``{id}`` holds the n-grams of all sentences, and is read at once."""
        self._path = path
        self._order = order
        self._discount = discount
        self._vocab_size = context.vocab_size if context else None
        self._shared = None if "{id}" in path else self._load(path, "")
        self._ngrams = self._shared or _Ngrams(NgramTable({}), discount)
        self._state = _State((), math.inf)

    def initialize(self, source: Source) -> None:
        """Raises SgdecError if the file cannot be read."""
        path = self._path.replace("{id}", str(source.id))
        self._ngrams = self._shared or self._load(path, f" (sentence {source.id})")
        limit = math.inf if source.max_length is None else source.max_length
        self._state = _State(self._ngrams.table.start, limit)

    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        context, _, used = self._state
        if not used:
            return self._ngrams.scores(context)
        table = self._ngrams.table
        row = dict(table.row(context))
        times = dict(used)
        endings = list(table.suffixes(context))
        for ngram in times:
            if ngram[:-1] in endings:
                row[ngram[-1]] = math.fsum(
                    table.own[ending].get(ngram[-1], 0.0) * self._discount ** times.get((*ending, ngram[-1]), 0)
                    for ending in endings
                )
        return Scores.sparse(list(row), list(row.values()), default=0.0)

    def consume(self, token: int) -> None:
        context, left, used = self._state
        table = self._ngrams.table
        if self._discount < 1:
            times = dict(used)
            for ngram in table.completed(context, token):
                times[ngram] = times.get(ngram, 0) + 1 if self._discount else 1  # with 0, once is enough
            used = frozenset(times.items())
        self._state = _State(table.follow(context, token), left - 1, used)

    def get_state(self) -> _State:
        return self._state

    def set_state(self, state: _State) -> None:
        self._state = state

    def best_remaining(self, states: Sequence[_State]) -> list[float]:
        """Exact for posteriors without discount, if only the length limit ends a hypothesis (`MostToCome`)."""
        return [min(self._ngrams.highest.after(state.context, state.left), self._ngrams.gain) for state in states]

    def worst_remaining(self, states: Sequence[_State]) -> list[float]:
        return [-min(self._ngrams.lowest.after(state.context, state.left), self._ngrams.loss) for state in states]

    def relaxations(self, state: _State) -> Sequence[Relaxation]:
        return self._ngrams.relaxations

    def state_key(self, states: Sequence[_State]) -> list[Hashable]:
        return [(state.context, state.used) for state in states]  # the tokens left are part of the space's own key

    def _load(self, path: str, sentence: str) -> _Ngrams:
        try:
            ngrams = read_ngrams(path, self._vocab_size)
        except SgdecError as error:
            raise SgdecError(f"ngramc: {str(error).rstrip('.')}{sentence}.") from None
        if self._order:
            ngrams = {ngram: score for ngram, score in ngrams.items() if len(ngram) == self._order}
        return _Ngrams(NgramTable(ngrams), self._discount)


class _Ngrams:
    """The n-grams of a sentence, with bounds on their scores; all prefixes share them."""

    def __init__(self, table: NgramTable, discount: float) -> None:
        self.table = table
        self._discount = discount
        self._scores: dict[Ngram, Scores] = {}

    def scores(self, context: Ngram) -> Scores:
        """The row after a context, before any discount; computed once."""
        if context not in self._scores:
            row = self.table.row(context)
            self._scores[context] = Scores.sparse(list(row), list(row.values()), default=0.0)
        return self._scores[context]

    @cached_property
    def highest(self) -> MostToCome:
        return MostToCome(self.table, 1.0, positive=self._discount < 1)

    @cached_property
    def lowest(self) -> MostToCome:
        """A bound on the negative scores, as a positive number."""
        return MostToCome(self.table, -1.0, positive=self._discount < 1)

    @cached_property
    def relaxations(self) -> tuple[Relaxation, ...]:
        discounted = self._discount < 1
        return ByContext(self.table, discounted), ByToken(self.table, discounted)

    @cached_property
    def gain(self) -> float:
        """The sum of all positive scores, each counted infinitely often with its discount; infinite without a
        discount."""
        return self._sum(1.0)

    @cached_property
    def loss(self) -> float:
        return self._sum(-1.0)

    def _sum(self, sign: float) -> float:
        if self._discount == 1:
            return math.inf
        scores = (max(sign * score, 0.0) for row in self.table.own.values() for score in row.values())
        return math.fsum(scores) / (1 - self._discount)


@sgdec.hookimpl
def sgdec_predictors() -> dict[str, type[Predictor]]:
    return {"ngramc": NgramCounts}
