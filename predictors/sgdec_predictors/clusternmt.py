"""Neural machine translation over the active part of the vocabulary ("Fast Vocabulary Projection Method via
Clustering for Multilingual Machine Translation on GPU", section 2.3).

The model's output vector h selects a cluster (equation 2), the cluster determines an active set A of tokens, and

    log P(token | h) = z_token - log sum_{t in A} exp z_t    for tokens in A, -inf for all others

The softmax is only over the active tokens, as in the paper's steps 4 and 5. So they share the probability that `nmt`
gives to all other tokens, and score higher. ``</s>`` is always active. A token outside A cannot follow, regardless of
other predictors: this can make paths of lattices and forced references impossible.

Differences from the paper: it projects onto the *union* of the active sets of all rows of a batch, and lets every row
use all of it, so that scores depend on the other rows of the batch. Here each row uses only its own cluster's set, so
its scores do not depend on the batch; the projection is computed for the union. ``shared`` is the paper's method. (If
two centroids are equally near, to within rounding, either may win.)

State: that of `nmt`. Cost of a row: r x d to find its centroid, a x d to project, V to fill in -inf. Here a is the
number of tokens in its active set and of those common to many sets, which are always multiplied. `summary` reports
the size of the union, as a share of V.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

import sgdec
from sgdec import BatchPredictor, Context, SgdecError, UsageError
from sgdec_predictors.trained.reduced import ReducedNmtPredictor

if TYPE_CHECKING:
    from torch import Tensor


class ClusterNmtPredictor(ReducedNmtPredictor):
    """A sequence-to-sequence model that scores the active tokens of a context's cluster."""

    def __init__(
        self,
        model: Annotated[str, Field(description="checkpoint folder, such as 'run/best'")],
        clusters: Annotated[str, Field(description="folder that `sgdec cluster` wrote for this model")],
        k: Annotated[
            int, Field(ge=0, description="use only this many likely tokens of each context; 0 = all recorded")
        ] = 0,
        shared: Annotated[bool, Field(description="let a row use the active tokens of its whole batch")] = False,
        context: Context | None = None,
    ) -> None:
        from sgdec.checkpoints.clusters import load_clusters
        from sgdec.models.active import output_layer
        from sgdec.models.clusters import ClusterProjection

        super().__init__(model, context, name="clusternmt")
        found = load_clusters(clusters, model=model)
        if k > found.k:
            raise UsageError(f"--clusternmt.k {k}: {clusters} was built with the {found.k} likeliest tokens at most.")
        layer = output_layer(self._model)
        if layer.weight.shape != (found.vocab_size, found.centroids.shape[1]):
            raise SgdecError(f"{clusters}: the clusters do not fit the model's projection. Run `sgdec cluster`.")
        self._projection = ClusterProjection(found, k or found.k, layer, shared=shared)

    def _log_probabilities(self, output: Tensor) -> Tensor:
        """Outputs ``[rows, d]`` to scores ``[rows, V]``."""
        return self._counted(*self._projection(output))


@sgdec.hookimpl
def sgdec_predictors() -> dict[str, type[BatchPredictor]]:
    return {"clusternmt": ClusterNmtPredictor}
