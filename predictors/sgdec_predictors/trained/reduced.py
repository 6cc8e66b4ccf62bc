"""`nmt` with a projection onto some tokens of the vocabulary: what `clusternmt` and `shortlist` have in common."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sgdec import Context, UsageError
from sgdec.context import Vocabularies
from sgdec_predictors.nmt import NmtPredictor

if TYPE_CHECKING:
    from torch import Tensor

    from sgdec.models.kernels import MatrixProducts


class ReducedNmtPredictor(NmtPredictor):
    """A sequence-to-sequence model of whose vocabulary each row has some tokens, which are *active*."""

    def __init__(self, model: str, context: Context | None, *, name: str) -> None:
        """``name``: the predictor's, for messages. Raises `UsageError` for 8-bit models, and errors as `nmt`."""
        if context is not None and context.precision == "int8":
            raise UsageError(
                f"{name}: 8-bit models project onto the whole vocabulary. Give the model that this one was made of, "
                "without --precision int8, or the predictor nmt."
            )
        super().__init__(model, context)
        self._projections = self._columns = 0

    @classmethod
    def read_vocabularies(cls, model: str, **options: Any) -> Vocabularies:
        """The vocabularies of a checkpoint, without loading its weights."""
        return super().read_vocabularies(model)

    @property
    def active_share(self) -> float:
        """The mean share of the vocabulary that is active in a projection: the union of its rows' tokens."""
        assert self.vocabularies.target is not None
        return self._columns / (self._projections * self.vocabularies.target.size) if self._projections else 0.0

    @property
    def products(self) -> MatrixProducts:
        """How the model's products are computed here; those onto active tokens are not packed."""
        return replace(super().products, packed=False)

    def summary(self) -> str:
        """The line at the end of a run."""
        said = f"{self.active_share:.2%} of the vocabulary active, mean of {self._projections} projections"
        more = super().summary()
        return said if more is None else f"{said}; {more}"

    def _counted(self, scores: Tensor, columns: int) -> Tensor:
        """The scores of a projection onto this number of tokens, which is counted."""
        self._projections += 1
        self._columns += columns
        return scores
