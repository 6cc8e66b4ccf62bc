"""The result for one sentence, for users of the library, with conversion to JSON and to a table for notebooks.

It adds the names of predictors and the strings of tokens to the numbers of `sgdec.protocol.Result`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from typing import Any

from sgdec.context import EOS, Vocabulary
from sgdec.errors import one_line
from sgdec.protocol import Hypothesis
from sgdec.search.outcome import Outcome
from sgdec.trace.records import SentenceTrace


@dataclass(frozen=True)
class TokenScores:
    """One row of a ledger: the scores of one token by predictor. They add up to `FoundHypothesis.score`."""

    token: int
    piece: str | None
    """The string of the token; None without a vocabulary."""
    scores: Mapping[str, float]
    """Natural logs, unweighted; 0 if the predictor was not consulted."""
    weights: Mapping[str, float | None]
    """The weights under which this token was scored; None = not consulted."""


@dataclass(frozen=True)
class FoundHypothesis:
    """A `Hypothesis` with the names of the predictors."""

    found: Hypothesis = field(repr=False)
    names: tuple[str, ...] = field(repr=False)
    """The names of the predictors."""
    vocabulary: Vocabulary | None = field(repr=False, compare=False)
    """The target vocabulary."""

    @property
    def tokens(self) -> tuple[int, ...]:
        """The token ids, without ``<s>`` and ``</s>``."""
        return self.found.tokens

    @cached_property
    def text(self) -> str | None:
        """The text of the tokens; None without a vocabulary."""
        if self.found.text is not None or self.vocabulary is None:
            return self.found.text
        return self.vocabulary.decode(self.found.tokens)

    @property
    def score(self) -> float:
        """The weighted total: the sum of weight x score over the ledger."""
        return self.found.score

    @property
    def rank_score(self) -> float:
        """The score that sorts lists: the total under the decoder's ranking, or the decoder's own criterion."""
        return self.found.rank_score

    @property
    def count(self) -> int | None:
        """The number of its draws; None if the decoder draws nothing."""
        return self.found.count

    @property
    def log_q(self) -> float | None:
        """The log-probability of one draw under the local distributions of its steps; None if it was not drawn so."""
        return self.found.log_q

    @property
    def log_weight(self) -> float | None:
        """The log of its weight in estimates from weighted draws; None = draws have equal weights."""
        return self.found.log_weight

    @property
    def coverage(self) -> float | None:
        """The coverage penalty of GNMT's equation 14 at beta 1, if the run computes coverage."""
        return self.found.coverage

    @cached_property
    def scores(self) -> dict[str, float]:
        """For each predictor the sum of its unweighted scores."""
        return dict(zip(self.names, self.found.scores, strict=True))

    @cached_property
    def ledger(self) -> tuple[TokenScores, ...]:
        """The scores of each token, ``</s>`` last."""
        tokens = (*self.found.tokens, EOS)
        rows = zip(tokens, self.found.ledger, self.found.weights, strict=True)
        return tuple(
            TokenScores(
                token,
                None if self.vocabulary is None else self.vocabulary.piece(token),
                dict(zip(self.names, scores, strict=True)),
                dict(zip(self.names, weights, strict=True)),
            )
            for token, scores, weights in rows
        )

    def to_dict(self, *, ledger: bool = True) -> dict[str, Any]:
        """A dictionary for `json`. ``ledger``: add ``token_scores`` and ``token_weights``, one list per predictor."""
        row: dict[str, Any] = {
            "tokens": [int(token) for token in self.tokens],
            "text": self.text,
            "score": float(self.score),  # `json` refuses some NumPy types
            "rank_score": float(self.rank_score),
            **self._drawn(),
            **({} if self.found.coverage is None else {"coverage": float(self.found.coverage)}),
            "scores": self.scores,
            "weights": dict(zip(self.names, map(_number, self.found.weights[-1]), strict=True)),
        }
        if ledger:
            row["token_scores"] = _columns(self.names, self.found.ledger)
            row["token_weights"] = _columns(self.names, self.found.weights)
        return row

    def _drawn(self) -> dict[str, int | float]:
        """Its numbers from random draws, by name, if it has any."""
        found = self.found
        numbers = {"log_q": _number(found.log_q), "log_weight": _number(found.log_weight)}
        counted: dict[str, int | float] = {} if found.count is None else {"count": int(found.count)}
        return counted | {name: number for name, number in numbers.items() if number is not None}

    def __str__(self) -> str:
        return " ".join(map(str, self.tokens)) if self.text is None else self.text

    def __repr__(self) -> str:
        return f"FoundHypothesis({str(self)!r}, score={self.score:.6g})"


@dataclass(frozen=True, repr=False)
class Found:
    """The result of one sentence. Comparison ignores ``seconds`` and ``error``."""

    id: int
    """1-based number of the sentence in the input."""
    source: str | None
    """The source line if it was text, otherwise None."""
    source_tokens: tuple[int, ...]
    """The source tokens; empty if the sentence could not be read."""
    hypotheses: tuple[FoundHypothesis, ...]
    """Best first (`sgdec.Decoder.ranks_by`); empty if the sentence failed."""
    proven: bool | None
    """True: no better list exists; False: a budget ended the search; None: no claim."""
    gap: float | None
    """If not proven: an upper bound on the optimum's score minus the score of the best hypothesis."""
    expansions: int
    """The number of expanded nodes, which measures the cost of the search."""
    bounds: str | None
    """The bounds on future scores that the search used, ``sum`` or ``product``; None = none."""
    seconds: float = field(compare=False)
    """Wall-clock time from the start of its search to the end, during which other searches run too."""
    error: Exception | None = field(compare=False)
    """The reason why there is no hypothesis; None if there is one."""
    trace: SentenceTrace | None = field(default=None, compare=False)
    """The record of the search; None unless it was traced."""
    drawn: int | None = None
    """The number of all draws, lost ones included; None = the decoder does not draw."""
    at_limit: bool = False
    """Whether the best hypothesis has as many tokens as the length limit allows, so that only ``</s>`` could follow.
    The limit of an output that is scored is its own length."""

    @classmethod
    def of(cls, outcome: Outcome, names: Sequence[str], vocabulary: Vocabulary | None) -> Found:
        """``names``: the predictors' names; ``vocabulary``: the target vocabulary."""
        result, source = outcome.result, outcome.source
        hypotheses = tuple(FoundHypothesis(each, tuple(names), vocabulary) for each in result.hypotheses)
        return cls(
            source.id, source.text, source.tokens, hypotheses, result.proven, result.gap, result.expansions,
            result.bounds, outcome.seconds, outcome.error, outcome.trace, result.drawn,
            outcome.at_limit,
        )  # fmt: skip

    @property
    def best(self) -> FoundHypothesis:
        """The first hypothesis. Raises the sentence's own `error` if there is none."""
        if not self.hypotheses:
            assert self.error is not None
            raise self.error
        return self.hypotheses[0]

    def to_dict(self, *, ledger: bool = True) -> dict[str, Any]:
        """A dictionary for `json`: the row that ``sgdec decode --output-format jsonl`` writes.

        ``ledger``: add the scores of every token, as ``--ledger`` does.
        """
        row: dict[str, Any] = {
            "id": self.id,
            "hypotheses": [hypothesis.to_dict(ledger=ledger) for hypothesis in self.hypotheses],
            "proven": self.proven,
            "gap": self.gap if self.gap is None or math.isfinite(self.gap) else None,  # JSON has no Infinity
            "expansions": self.expansions,
            "bounds": self.bounds,
            **({} if self.drawn is None else {"drawn": int(self.drawn)}),
            "seconds": round(self.seconds, 6),
        }
        if self.error is not None:
            row["error"] = _why(self.error)
        return row

    def __repr__(self) -> str:
        if self.error is not None:
            return f"Found({self.id}, error={one_line(_why(self.error))!r})"
        proof = "" if self.proven is None else f", proven={self.proven}"
        best = f"{str(self.best)!r}, score={self.best.score:.6g}"
        return f"Found({self.id}, {best}, hypotheses={len(self.hypotheses)}{proof})"

    def _repr_html_(self) -> str:
        """A table of hypotheses for notebooks, and the ledger of the best one."""
        given = self.source if self.source is not None else " ".join(map(str, self.source_tokens))
        title = f"<p><b>{self.id}</b> {escape(given)}</p>"
        if self.error is not None:
            return f"{title}<p>failed: {escape(_why(self.error))}</p>"
        names = self.hypotheses[0].names
        head = ["", "output", "score", "rank score", *names]
        rows = [
            [str(rank), str(each), _short(each.score), _short(each.rank_score), *map(_short, each.scores.values())]
            for rank, each in enumerate(self.hypotheses, 1)
        ]
        steps = [
            [str(step.token) if step.piece is None else step.piece, *map(_short, step.scores.values())]
            for step in self.best.ledger
        ]
        ledger = f"<details><summary>token by token</summary>{_table(['token', *names], steps)}</details>"
        return f"{title}{_table(head, rows)}{ledger}"


def _columns(names: Sequence[str], rows: Sequence[Sequence[float | None]]) -> dict[str, list[float | None]]:
    """Convert rows ``[T, K]`` to one list of length T per predictor."""
    columns = zip(*rows, strict=True)
    return {name: list(map(_number, column)) for name, column in zip(names, columns, strict=True)}


def _number(value: float | None) -> float | None:
    return None if value is None else float(value)


def _why(error: Exception) -> str:
    return str(error) or type(error).__name__


def _short(value: float) -> str:
    return f"{value:.4f}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    def line(cell: str, texts: Sequence[str]) -> str:
        return f"<tr>{''.join(f'<{cell}>{escape(text)}</{cell}>' for text in texts)}</tr>"

    return f"<table>{line('th', head)}{''.join(line('td', row) for row in rows)}</table>"
