"""`glossary`: a bonus for each target token that the glossary gives for a token of the source.

The glossary is the file `terms.tsv` beside this module: source token, target token, bonus.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field

import sgdec
from sgdec import Predictor, Scores, SgdecError, Source

OWN = Path(__file__).with_name("terms.tsv")


class Glossary(Predictor):
    """Without memory: the bonus of a token is the same wherever it stands."""

    def __init__(self, path: Annotated[str, Field(description="a glossary; empty: the plugin's own")] = "") -> None:
        self._terms: dict[int, dict[int, float]] = {}
        for line in Path(path or OWN).read_text().splitlines():
            if not line.startswith("#"):
                try:
                    source, target, bonus = line.split("\t")
                    self._terms.setdefault(int(source), {})[int(target)] = float(bonus)
                except ValueError:
                    raise SgdecError(f"{path}: {line!r} is no line of a glossary.") from None
        self.max_score = max((max(found.values()) for found in self._terms.values()), default=0.0)
        self._bonus: dict[int, float] = {}

    def initialize(self, source: Source) -> None:
        self._bonus = {}
        for token in source.tokens:
            self._bonus |= self._terms.get(token, {})

    def predict_next(self, candidates: Sequence[int] | None = None) -> Scores:
        tokens = sorted(self._bonus)
        return Scores.sparse(tokens, [self._bonus[token] for token in tokens], default=0.0)

    def state_key(self, states: Sequence[None]) -> list[Hashable]:
        return [None for _ in states]


@sgdec.hookimpl
def sgdec_predictors() -> dict[str, type[Predictor]]:
    return {"glossary": Glossary}
