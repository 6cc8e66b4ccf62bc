"""Counting how often a constraint forbids what a model wants: the token that the model scores highest.

A constraint that does so at most steps and the habits of the model differ, for example in the blanks of JSON. Then
outputs follow the constraint, but are not what the model would have written.

Steps are looked at while a search runs: the first ones of a run, and a share of the later ones, so that the cost does
not matter. A step is one call of the predictors for the open hypotheses of all searches in flight; the first of them
counts, which for a beam is its best one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from sgdec.arrays import FORBIDDEN
from sgdec.search.combination.columns import Column
from sgdec.search.constellation import Constellation
from sgdec.sparse import Wanted

FIRST = 64
"""The number of first steps that are looked at."""
LATER = 17
"""One in so many of the later steps is looked at; a prime, which no period of batches divides."""


class Refusals:
    """The steps at which a predictor forbids the token that another one scores highest of the whole vocabulary."""

    def __init__(self, constellation: Constellation) -> None:
        """Looks at the steps of searches in this constellation from now on."""
        self.steps = 0
        """The number of steps that were looked at."""
        self.forbidden: Counter[tuple[str, str]] = Counter()
        """The number of those at which the first predictor forbade what the second one scored highest."""
        self._seen = 0
        constellation.answered = self.see

    def see(self, columns: Sequence[Column]) -> None:
        """The predictors have answered for the nodes of a step."""
        models = [column for column in columns if column.scores.values is not None]
        others = [column for column in columns if column.scores.values is None]
        if not models or not others:
            return
        self._seen += 1
        if self._seen > FIRST and self._seen % LATER:
            return
        self.steps += 1
        for model in models:
            place = model.places[0]
            if place is not None and (model.weights[0] or 0.0) > 0.0:
                matrix: Any = model.scores.values
                wanted = Wanted.of([0], [[int(matrix[place].argmax())]])
                for other in others:
                    self.forbidden[other.name, model.name] += bool(other.scores_of(wanted)[0] == FORBIDDEN)

    def lines(self) -> Iterator[str]:
        """A sentence about each predictor that forbade what another one scored highest at most of the steps."""
        for (name, model), number in self.forbidden.items():
            if 2 * number > self.steps:
                yield (
                    f"{name} forbade the token that {model} scored highest at {number:,} of the {self.steps:,} steps "
                    f"looked at: the constraint and the habits of {model} differ. Compare outputs without {name}"
                )
