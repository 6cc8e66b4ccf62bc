"""The lists of a decode as arrays: what re-ranking needs to know of each hypothesis."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sgdec.arrays import Floats, Ints
from sgdec.errors import SgdecError
from sgdec.io.documents import parse_json
from sgdec.ranking import Ranking
from sgdec.text.lines import read_lines
from sgdec.tuning.lists import FeatureLists
from sgdec.tuning.metrics import CorpusMetric

LARGEST = 1e100
"""Scores, weights and coverage penalties are smaller."""
COVERAGE = "coverage"
"""The name of the coverage penalty among features."""


@dataclass(frozen=True, eq=False)
class ScoredLists:
    """N hypotheses of S sentences; those of a sentence are neighbours, in the order of its list."""

    weights: Mapping[str, float]
    """``[K]``: the predictors with their weights in the decode."""
    scores: Floats
    """``[N, K]``: the unweighted sums by predictor."""
    lengths: Ints
    """``[N]``: the numbers of tokens, ``</s>`` included."""
    coverage: Floats | None
    """``[N]``: coverage penalties at beta 1; None if the lists do not have them."""
    texts: tuple[str, ...]
    """``[N]``"""
    starts: Ints
    """``[S + 1]``: where each sentence begins."""

    @classmethod
    def of(cls, rows: Iterable[Mapping[str, Any]], name: str) -> ScoredLists:
        """From rows as ``sgdec decode --output-format jsonl`` writes them; messages call them ``name``.

        Row N must be that of sentence N. Raises SgdecError for another one, for a sentence without hypotheses, and
        for hypotheses without finite scores by predictor or with weights that differ.
        """
        weights: Mapping[str, float] = {}
        scores, lengths, coverage, texts, starts = [], [], [], [], [0]
        for number, row in enumerate(rows, 1):
            where = f"{name}, sentence {number}"
            if row.get("id") != number or isinstance(row["id"], bool):
                raise SgdecError(f"{where}: the row has the id {row.get('id')}; expected all sentences in order.")
            hypotheses = row.get("hypotheses")
            if not hypotheses or not isinstance(hypotheses, list):
                raise SgdecError(f"{where} has no hypotheses: expected a list for each sentence.")
            for place, each in enumerate(hypotheses, 1):
                try:
                    own = {predictor: _number(weight) for predictor, weight in each["weights"].items()}
                    found = [_number(score) for score in each["scores"].values()]
                    tokens, text = each["tokens"], each["text"]
                    covered = each.get(COVERAGE)
                    coverage.append(None if covered is None else _number(covered))
                    if list(own) != list(each["scores"]) or not isinstance(tokens, list) or (
                        not all(type(token) is int for token in tokens) or not isinstance(text, (str, type(None)))
                    ):
                        raise ValueError
                except (KeyError, TypeError, ValueError, AttributeError):
                    raise SgdecError(
                        f"{where}, hypothesis {place}: expected its tokens, its text, and finite scores and weights "
                        "of the same predictors, as sgdec decode writes them; sepbeam gives some predictors no "
                        "weight, so its lists cannot be used."
                    ) from None
                lengths.append(len(tokens) + 1)
                texts.append(" ".join(map(str, tokens)) if text is None else text)
                if list(own.items()) != list((weights := weights or own).items()):
                    raise SgdecError(
                        f"{where}: a hypothesis has the weights {own}, and others have {dict(weights)}; expected the "
                        "same for all."
                    )
                scores.append(found)
            starts.append(len(scores))
        if not scores:
            raise SgdecError(f"{name} has no lists.")
        known = None if None in coverage else np.array(coverage, np.float64)
        return cls(weights, np.array(scores), np.array(lengths), known, tuple(texts), np.array(starts))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.weights)

    def features(self, ranking: Ranking) -> Floats:
        """``[N, K]``: the scores by predictor, divided by the length penalty; ``[N, K + 1]`` with coverage.

        With the weights of the predictors, and beta for the coverage, their sum is the rank score.
        """
        penalty = {length: ranking.length_penalty(length) for length in set(self.lengths.tolist())}
        divided = self.scores / np.array([penalty[length] for length in self.lengths.tolist()])[:, None]
        return divided if self.coverage is None else np.column_stack([divided, self.coverage])

    def lists(self, ranking: Ranking, statistics: Floats, metric: CorpusMetric) -> FeatureLists:
        """For optimisers. ``statistics`` ``[N, D]``: those of the metric. Raises what `FeatureLists` raises."""
        names = self.names if self.coverage is None else (*self.names, COVERAGE)
        return FeatureLists(names, self.features(ranking), statistics, self.starts, metric)

    def statistics(self, metric: CorpusMetric, references: Sequence[str]) -> Floats:
        """``[N, D]``: of each hypothesis with the reference of its sentence; equal texts are compared once.

        Raises SgdecError unless there are S references.
        """
        sentences = len(self.starts) - 1
        if len(references) != sentences:
            raise SgdecError(f"{len(references):,} references for {sentences:,} lists: expected one for each.")
        pairs = [
            (text, reference)
            for reference, begin, end in zip(references, self.starts[:-1], self.starts[1:], strict=True)
            for text in self.texts[begin:end]
        ]
        places = {pair: place for place, pair in enumerate(dict.fromkeys(pairs))}
        outputs, own = zip(*places, strict=True)
        return metric.statistics(outputs, own)[[places[pair] for pair in pairs]]


def _number(value: Any) -> float:
    """The number as a float. Raises ValueError or TypeError unless it is one, finite and below `LARGEST`."""
    if isinstance(value, (bool, str)) or not abs(value) < LARGEST:
        raise ValueError
    return float(value)


def read_lists(path: str) -> ScoredLists:
    """From a file of JSON lines. Raises SgdecError as `ScoredLists.of` and `read_rows` do."""
    return ScoredLists.of(read_rows(path), path)


def read_rows(path: str) -> Iterator[dict[str, Any]]:
    """The JSON lines of a decode. Raises SgdecError for other lines."""
    for number, line in enumerate(read_lines(path), 1):
        try:
            row = parse_json(line)
        except ValueError as error:
            raise SgdecError(f"{path}, line {number}: {error}. Expected JSON lines of sgdec decode.") from None
        if not isinstance(row, dict):
            raise SgdecError(f"{path}, line {number}: expected an object, as sgdec decode writes it.")
        yield row
