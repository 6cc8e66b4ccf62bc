"""Recurrent language model: ln P(token | the tokens before it) (Zaremba et al. 2014; Stahlberg et al. 2017, Table 2).

The model can be any language model of `sgdec train`, such as ``--model rnnlm`` or ``transformer-lm``. The prefix
starts with ``<s>``; the source is ignored. `consume_batch` is one inference step for all rows, `predict_batch`
projects and normalises. A state is a handle of slots in one pool of tensors, which hold the model's state and the
output that scores the next token.

Cost: one inference step per consumed token, one softmax over V per prediction, many rows at once.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

import sgdec
from sgdec import BOS, BatchPredictor, Context, Scores, Source
from sgdec.context import Vocabularies
from sgdec.protocol import Candidates
from sgdec.slots import PrefixPool, Trail

if TYPE_CHECKING:
    from torch import Tensor

    from sgdec.models.kernels import MatrixProducts


class RnnlmPredictor(BatchPredictor):
    """A language model from `sgdec train`, over its own tokenizer's vocabulary."""

    max_score = 0.0

    def __init__(
        self,
        model: Annotated[str, Field(description="checkpoint folder, such as 'run/best'")],
        context: Context | None = None,
    ) -> None:
        """Raises SgdecError if the checkpoint is damaged, or is that of a translation model."""
        import torch

        from sgdec.checkpoints.loading import load_language_model

        context = context or Context()
        self._model, self.vocabularies = context.once(
            ("rnnlm", os.path.realpath(model)),
            partial(
                load_language_model, model, device=context.device, precision=context.precision, host=context.host
            ),
        )
        self._device, self._precision = context.device, context.precision
        self._pool = PrefixPool(self._model.histories)
        with torch.inference_mode():
            (self._first,) = self._step(self._model.start(1), [BOS], None)
        """The state after ``<s>``, which is the same for all sentences."""

    @classmethod
    def read_vocabularies(cls, model: str) -> Vocabularies:
        """The target vocabulary of a checkpoint, without loading its weights."""
        from sgdec.checkpoints.layout import load_vocabularies

        return load_vocabularies(model)

    @property
    def products(self) -> MatrixProducts:
        """How the model's products are computed here."""
        from sgdec.models.kernels import MatrixProducts

        return MatrixProducts(self._precision, self._device, self._model.packed)

    def initialize_batch(self, sources: Sequence[Source]) -> list[Trail]:
        return [self._first] * len(sources)

    def predict_batch(self, states: Sequence[Trail], candidates: Sequence[Candidates | None] | None = None) -> Scores:
        import torch

        with torch.inference_mode():
            logits = self._model.project(self._pool.outputs(states))
            logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
            return Scores.dense(torch.log_softmax(logits, -1))  # [rows, V]

    def consume_batch(self, states: Sequence[Trail], tokens: Sequence[int]) -> list[Trail]:
        import torch

        with torch.inference_mode():
            return self._step(self._pool.states(states), tokens, states)

    def _step(self, state: tuple[Tensor, ...], tokens: Sequence[int], before: Sequence[Trail] | None) -> list[Trail]:
        import torch

        after, output = self._model.step(state, torch.tensor(tokens, device=self._device))
        return self._pool.put(after, output, before)


@sgdec.hookimpl
def sgdec_predictors() -> dict[str, type[BatchPredictor]]:
    return {"rnnlm": RnnlmPredictor}
