"""Writing the scores of outputs: one line per output, or n-best lists in their new order.

An output that could not be scored is an empty line, or in a list an entry with the total -inf, so lines never shift.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

from sgdec.errors import SgdecError
from sgdec.io.nbest import NbestEntry
from sgdec.io.unfinished import UnfinishedRows
from sgdec.protocol import Hypothesis
from sgdec.ranking import Ranking
from sgdec.search.outcome import Outcome

UNSCORED = float("-inf")


class _Rescored(NamedTuple):
    """An entry of a list with its new score."""

    rank_score: float
    total: float
    features: str
    entry: NbestEntry


def require_total(entry: NbestEntry, old_weight: float) -> None:
    """Raises SgdecError if an entry has no total and its weight is not 0."""
    if old_weight and entry.total is None:
        raise SgdecError(f"{entry.where} has no total for --old-weight {old_weight:g}.")


class ScoreWriter:
    """Writes one output after the other, and the entries of a list when its sentence is complete."""

    def __init__(
        self, output: UnfinishedRows, format: str, names: Sequence[str], ranking: Ranking, old_weight: float
    ) -> None:
        self._output, self._format, self._names = output, format, names
        self._ranking, self._old_weight = ranking, old_weight
        self._list: list[_Rescored] = []
        self._written = output.done
        self._sentence, self._failed = 0, False
        """The sentence whose entries are being written, and whether one of them failed."""

    def write(self, entry: NbestEntry | None, outcome: Outcome) -> None:
        """Write the outcome of an output; ``entry`` is its entry in an n-best list."""
        if outcome.source.id != self._sentence:
            self._complete()
            self._sentence, self._failed = outcome.source.id, False
        self._failed |= outcome.error is not None
        found = outcome.result.hypotheses[0] if outcome.result.hypotheses else None
        if self._format == "jsonl":
            self._line(json.dumps(self._row(entry, outcome.source.id, found), ensure_ascii=False))
        elif entry is None:
            self._line("" if found is None else f"{found.rank_score:.6f}")
        elif self._format == "score":
            self._line("" if found is None else f"{self._rescored(entry, found).rank_score:.6f}")
        else:
            self._list.append(self._rescored(entry, found))

    def finish(self, sentences: int) -> None:
        """Write the last list and, if each sentence needs a line, an empty line for each of the ``sentences`` without
        one."""
        self._complete()
        self._skip_to(sentences)

    def _complete(self) -> None:
        """Note that the last sentence is complete."""
        if self._list:
            self._flush()
        if self._sentence:
            self._output.note(self._sentence, failed=self._failed)

    def _flush(self) -> None:
        """Write one sentence's list, best first; entries with equal totals keep their order."""
        ranked = sorted(self._list, key=lambda scored: -scored.rank_score)
        self._skip_to(ranked[0].entry.id - 1)
        for _, total, features, entry in ranked[:1] if self._format == "text" else ranked:
            listed = f"{entry.id} ||| {entry.text} ||| {features} ||| {total:.6f}"
            self._line(entry.text if self._format == "text" else listed)
        self._written += 1
        self._list = []

    def _skip_to(self, sentence: int) -> None:
        """Write empty lines for sentences without a list."""
        if self._format == "text":
            self._output.write("\n" * (sentence - self._written))
        self._written = max(self._written, sentence)

    def _rescored(self, entry: NbestEntry, found: Hypothesis | None) -> _Rescored:
        features = self._features(entry, found)
        if found is None:
            return _Rescored(UNSCORED, UNSCORED, features, entry)
        require_total(entry, self._old_weight)
        old = self._old_weight * (entry.total or 0.0)
        penalty = self._ranking.length_penalty(len(found.tokens) + 1)  # of </s>, too
        return _Rescored(found.rank_score + old / penalty, found.score + old, features, entry)

    def _features(self, entry: NbestEntry, found: Hypothesis | None) -> str:
        """The old features, and one feature per predictor; a number is added to a name that is already used."""
        old = [f"{name}= {' '.join(f'{value:g}' for value in values)}" for name, values in entry.features.items()]
        taken = set(entry.features)
        scores = found.scores if found is not None else [UNSCORED] * len(self._names)
        new = []
        for name, value in zip(self._names, scores, strict=True):
            free = next(n for n in chain([name], (f"{name}{i}" for i in range(2, 1000))) if n not in taken)
            taken.add(free)
            new.append(f"{free}= {value:.6f}")
        return " ".join([*old, *new])

    def _row(self, entry: NbestEntry | None, sentence: int, found: Hypothesis | None) -> dict[str, Any]:
        row: dict[str, Any] = {"id": sentence}
        if found is None:
            return {**row, "score": None}
        columns = zip(*found.ledger, strict=True)
        return {
            **row,
            "tokens": list(found.tokens),
            "score": found.score,
            "rank_score": found.rank_score,
            "scores": dict(zip(self._names, found.scores, strict=True)),
            "token_scores": dict(zip(self._names, map(list, columns), strict=True)),
        } | ({} if entry is None else {"text": entry.text, "old_total": entry.total})

    def _line(self, text: str) -> None:
        self._output.write(text + "\n")
        self._output.flush()
