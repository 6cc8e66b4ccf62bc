"""All results of a diagnosis together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sgdec.tasks.diagnosis.curve import Oracle, Point
from sgdec.tasks.diagnosis.run import Diagnosis
from sgdec.tasks.diagnosis.summary import DiagnosisSummary


@dataclass(frozen=True)
class Report:
    """A diagnosis with its summary, and what was computed beside it."""

    diagnosis: Diagnosis
    summary: DiagnosisSummary
    curve: Sequence[Point] = ()
    oracle: Oracle | None = None

    @property
    def weights(self) -> dict[str, float | None]:
        """By predictor."""
        return dict(self.diagnosis.subject.weights)

    def piece(self, token: int) -> str:
        """The string of a token; its number without a vocabulary."""
        vocabulary = self.diagnosis.vocabulary
        return str(token) if vocabulary is None else vocabulary.piece(token)

    def to_dict(self) -> dict[str, Any]:
        """All numbers of the set, for `json`."""
        return {
            **self.diagnosis.subject.to_dict(),
            **self.summary.to_dict(),
            "curve": [asdict(point) for point in self.curve],
            "oracle": None if self.oracle is None else asdict(self.oracle),
        }
