"""Neural machine translation over a lexical shortlist of the source (Jean et al. 2015, "On using very large target
vocabulary for neural machine translation", section 3.3).

The shortlist of a sentence has the k most probable translations of each of its source tokens, the most frequent
target tokens, and ``</s>``:

    log P(token | h) = z_token - log sum_{t in list} exp z_t    for tokens of the list, -inf for all others

The softmax is only over the list. So its tokens share the probability that `nmt` gives to all other tokens, and score
higher. A token outside cannot follow, regardless of other predictors: this can make paths of lattices and forced
references impossible.

Difference from the usual implementations, such as Marian's: theirs project a batch onto the union of the lists of its
sentences. Here each row uses only its own sentence's list, so its scores do not depend on the batch.

State: that of `nmt`. Cost of a row: a x d to project, V to fill in -inf. Here a is the length of its list. `summary`
reports the size of the union, as a share of V.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

import sgdec
from sgdec import BatchPredictor, Context, UsageError
from sgdec_predictors.nmt import NmtState
from sgdec_predictors.trained.reduced import ReducedNmtPredictor

if TYPE_CHECKING:
    from torch import Tensor


class ShortlistPredictor(ReducedNmtPredictor):
    """A sequence-to-sequence model that scores likely translations of the source's tokens, and frequent tokens."""

    def __init__(
        self,
        model: Annotated[str, Field(description="checkpoint folder, such as 'run/best'")],
        path: Annotated[str, Field(description="folder that `sgdec shortlist` wrote for this model")],
        k: Annotated[
            int, Field(ge=0, description="use this many translations of each source token; 0 = all recorded")
        ] = 0,
        frequent: Annotated[
            int | None, Field(ge=0, description="use this many of the most frequent tokens; default: all recorded")
        ] = None,
        context: Context | None = None,
    ) -> None:
        from sgdec.checkpoints.shortlists import load_shortlist
        from sgdec.models.active import output_layer
        from sgdec.models.shortlists import ShortlistProjection

        super().__init__(model, context, name="shortlist")
        found = load_shortlist(path, self.vocabularies)
        if k > found.k:
            raise UsageError(f"--shortlist.k {k}: {path} has {found.k} translations of a source token at most.")
        frequent = len(found.frequent) if frequent is None else frequent
        if frequent > len(found.frequent):
            raise UsageError(f"--shortlist.frequent {frequent}: {path} lists {len(found.frequent)} frequent tokens.")
        self._projection = ShortlistProjection(found, k or found.k, frequent, output_layer(self._model))

    def _predict(self, states: Sequence[NmtState]) -> Tensor:
        sources = [state.sentence.tokens for state in states]
        return self._counted(*self._projection(self._outputs(states), sources))


@sgdec.hookimpl
def sgdec_predictors() -> dict[str, type[BatchPredictor]]:
    return {"shortlist": ShortlistPredictor}
