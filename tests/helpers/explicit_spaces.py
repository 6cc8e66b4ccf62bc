"""Random spaces as plain tables: what predictors say, drawn first, and every hypothesis, found by plain recursion.

The predictors here only read the tables, each in one of the forms that a predictor can have; the oracle reads the
same tables and knows neither predictors nor searches. Scores have both signs; many are equal; some are forbidden.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sgdec import BatchPredictor, Predictor, Scores, Source
from sgdec.lifting import lift
from sgdec.protocol import Candidates, SparseRow
from sgdec.search.constellation import Constellation
from sgdec.search.member import Member

V = 4
UNK, BOS, EOS, OTHER = range(V)
FORMS = ("simple", "batch", "float32", "torch", "restricting", "open", "on demand")
DENSE = tuple(form for form in FORMS if form != "restricting")
Tokens = tuple[int, ...]
Row = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Table:
    """What one predictor says: a function of the sentence and the prefix."""

    form: str
    seed: int
    highest: float
    """No score is above it."""
    coarse: bool
    """Whether scores are multiples of a half."""
    forgetful: bool
    """Whether only the last token matters."""
    bounds: bool
    """Whether the predictor knows its best and worst remaining; if not, it only says its highest score."""
    same: bool = False
    """Whether all sentences are alike."""

    @cache  # noqa: B019 - tables are few and small
    def row(self, sentence: int, prefix: Tokens) -> Row:
        """``[V]``, the score of each next token."""
        known = prefix[-1:] if self.forgetful else prefix
        rng = np.random.default_rng([self.seed, 0 if self.same else sentence, *known])
        row = rng.uniform(self.highest - 4.0, self.highest, V)
        if self.coarse:
            row = np.floor(2 * row) / 2
        if self.form == "open":
            row[rng.random(V) < 0.5] = row[UNK]
        row = np.where(rng.random(V) < (0.4 if self.form == "restricting" else 0.15), -np.inf, row)
        if self.form == "open" and row[UNK] == -np.inf:
            row[UNK] = self.highest - 1.0
        return row.astype(np.float32).astype(np.float64) if self.form in ("float32", "torch") else row

    def attention(self, sentence: int, prefix: Tokens) -> Row:
        """``[source]``, with which the token after the prefix is predicted; sentence N has N source tokens."""
        known = prefix[-1:] if self.forgetful else prefix
        return np.random.default_rng([self.seed, 1, sentence, *known]).dirichlet(np.full(sentence, 0.5))

    def remaining(self, sentence: int, prefix: Tokens, limit: int, sign: int) -> float:
        """The best (1) or the worst (-1) sum of scores of all that can still come, by this table alone."""
        row, ends = self.row(sentence, prefix), []
        if row[EOS] > -math.inf:
            ends.append(sign * float(row[EOS]))
        if len(prefix) < limit:
            for token in (UNK, BOS, OTHER):
                after = self.remaining(sentence, (*prefix, token), limit, sign)
                if row[token] > -math.inf and math.isfinite(after):
                    ends.append(sign * (float(row[token]) + after))
        return sign * max(ends) if ends else -math.inf


class Space(NamedTuple):
    """Tables with their weights, over sentences 1, 2, ... with these limits."""

    tables: Sequence[Table]
    weights: Sequence[float | None]
    limits: Sequence[int]

    def constellation(self) -> Constellation:
        made = zip("abc", map(predictor_of, self.tables), self.weights, strict=False)
        return Constellation([Member(name, predictor, weight) for name, predictor, weight in made], vocab_size=V)

    def sources(self) -> list[Source]:
        return [Source(n, (3,) * n, max_length=limit) for n, limit in enumerate(self.limits, 1)]

    def hypotheses(self, sentence: int, weights: Sequence[float | None] | None = None) -> list[tuple[Tokens, float]]:
        """Every hypothesis of a sentence, with its total."""
        return list(self._hypotheses(sentence, (), 0.0, weights or self.weights))

    def coverage_penalty(self, sentence: int, tokens: Tokens, weights: Sequence[float | None] | None = None) -> float:
        """cp of a hypothesis with beta = 1: the mean over the tables that are consulted (equation 14)."""
        consulted = [table for table, w in zip(self.tables, weights or self.weights, strict=True) if w is not None]
        prefixes = [tokens[:length] for length in range(len(tokens) + 1)]
        received = [sum(table.attention(sentence, prefix) for prefix in prefixes) for table in consulted]
        return sum(float(np.log(np.clip(row, 1e-30, 1.0)).sum()) for row in received) / len(consulted)

    def _hypotheses(
        self, sentence: int, prefix: Tokens, total: float, weights: Sequence[float | None]
    ) -> Iterator[tuple[Tokens, float]]:
        for token, score in self.combined(sentence, prefix, weights):
            if token == EOS:
                yield prefix, total + score
            else:
                yield from self._hypotheses(sentence, (*prefix, token), total + score, weights)

    def combined(
        self, sentence: int, prefix: Tokens, weights: Sequence[float | None] | None = None
    ) -> list[tuple[int, float]]:
        """The tokens that can follow, with their combined scores."""
        consulted = [(t, w) for t, w in zip(self.tables, weights or self.weights, strict=True) if w is not None]
        rows = [(table.row(sentence, prefix), weight) for table, weight in consulted]
        tokens = [EOS] if len(prefix) == self.limits[sentence - 1] else range(V)
        return [
            (token, sum(weight * float(row[token]) for row, weight in rows))
            for token in tokens
            if all(row[token] > -math.inf for row, _ in rows)
        ]


def rank_score(total: float, tokens: Tokens, alpha: float, normalize: str) -> float:
    """GNMT's length penalty (Wu et al. 2016, equation 14); a length counts ``</s>``."""
    length = len(tokens) + 1
    return total / (length**alpha if normalize == "length" else ((5 + length) / 6) ** alpha)


def random_space(
    seed: int,
    *,
    forms: Sequence[str] = FORMS,
    weights: Sequence[float | None] = (1.0, 0.5, 2.0, -1.0, 0.0, None),
    sentences: int = 4,
    same: bool = False,
) -> Space:
    """One to three tables, at least one of which is consulted."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 4))
    chosen: list[float | None] = [weights[i] for i in rng.integers(len(weights), size=count)]
    if all(weight is None for weight in chosen):
        chosen[0] = 1.0
    tables = [
        Table(
            form=str(rng.choice(forms)),
            seed=int(rng.integers(2**31)),
            highest=float(rng.choice([-0.5, 0.0, 1.5])),
            coarse=bool(rng.integers(2)),
            forgetful=bool(rng.integers(2)),
            bounds=bool(rng.integers(2)) or (weight or 0.0) < 0.0,
            same=same,
        )
        for weight in chosen
    ]
    return Space(tables, chosen, [3] * sentences if same else rng.integers(4, size=sentences).tolist())


class Prefix(NamedTuple):
    """A state."""

    sentence: int
    limit: int
    tokens: Tokens


class Simple(Predictor):
    """A table in the simple form."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.max_score = table.highest

    def initialize(self, source: Source) -> None:
        assert source.max_length is not None
        self.prefix = Prefix(source.id, source.max_length, ())

    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        return Scores.dense(self.table.row(self.prefix.sentence, self.prefix.tokens))

    def consume(self, token: int) -> None:
        self.prefix = self.prefix._replace(tokens=(*self.prefix.tokens, token))

    def get_state(self) -> Prefix:
        return self.prefix

    def set_state(self, state: Prefix) -> None:
        self.prefix = state


class Batch(BatchPredictor):
    """A table in the batch form."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.max_score = table.highest
        self.on_demand = table.form == "on demand"

    def initialize_batch(self, sources: Sequence[Source]) -> list[Prefix]:
        return [Prefix(source.id, source.max_length or 0, ()) for source in sources]

    def predict_batch(
        self, states: Sequence[Prefix], candidates: Sequence[Candidates | None] | None = None
    ) -> Scores:
        rows = [self.table.row(state.sentence, state.tokens) for state in states]
        form = self.table.form
        if form == "on demand" and candidates is not None and None not in candidates:
            flat = [row[token] for row, wanted in zip(rows, candidates, strict=True) for token in wanted or ()]
            return Scores.of_candidates(candidates, np.array(flat))
        if form == "restricting":
            return Scores(rows=[listed(row, -math.inf) for row in rows])
        if form == "open":
            return Scores(rows=[listed(row, float(row[UNK])) for row in rows])
        if form == "torch":
            import torch

            return Scores.dense(torch.tensor(np.array(rows), dtype=torch.float32))
        return Scores.dense(np.array(rows, dtype=np.float32 if form == "float32" else np.float64))

    def consume_batch(self, states: Sequence[Prefix], tokens: Sequence[int]) -> list[Prefix]:
        return [state._replace(tokens=(*state.tokens, token)) for state, token in zip(states, tokens, strict=True)]


def listed(row: Row, default: float) -> SparseRow:
    """What differs from the default; highest token first, since the order must not matter."""
    tokens = [token for token in reversed(range(V)) if row[token] != default]
    return SparseRow(tokens, [float(row[token]) for token in tokens], default)


def _remaining(table: Table, states: Sequence[Prefix], sign: int) -> list[float]:
    return [table.remaining(state.sentence, state.tokens, state.limit, sign) for state in states]


class Bounded:
    """The abilities of a table that knows its future."""

    table: Table

    def best_remaining(self, states: Sequence[Prefix]) -> list[float]:
        return _remaining(self.table, states, 1)

    def worst_remaining(self, states: Sequence[Prefix]) -> list[float]:
        return _remaining(self.table, states, -1)


class Attentive:
    """The ability of a table that looks at the source."""

    table: Table

    def attention(self, states: Sequence[Prefix]) -> list[Row]:
        return [self.table.attention(state.sentence, state.tokens) for state in states]


class Forgetful:
    """The ability of a table for which only the last token matters."""

    def state_key(self, states: Sequence[Prefix]) -> list[Hashable]:
        return [(state.sentence, state.tokens[-1:]) for state in states]


def predictor_of(table: Table) -> BatchPredictor:
    """The predictor that reads the table, in its form and with its abilities."""
    abilities: list[type[Any]] = [Attentive] + [Bounded] * table.bounds + [Forgetful] * table.forgetful
    form: type[Any] = Simple if table.form == "simple" else Batch
    made: Predictor | BatchPredictor = type("Reader", (*abilities, form), {})(table)
    return lift(made)
