"""Mix: the mean of the probabilities of several predictors, ``interpolate:nmt+rnnlm``.

    score(w) = log sum_k lambda_k exp s_k(w)

s_k are the parts' scores, lambda their weights, which are at least 0 and sum to 1. A token is forbidden only if all
parts forbid it. A part that forbids a token of a prefix has probability 0 from there on.

The ``scheme`` says how lambda depends on the prefix y:

- ``fixed``: lambda_k is the given weight;
- ``bayesian``: lambda_k(y) is proportional to lambda_k times the probability exp(sum of s_k) that part k gives to y.
  So the total of an output is log sum_k lambda_k P_k(output), the mixture of distributions over whole outputs;
- ``entropy``: lambda_k(y) is proportional to lambda_k exp(-H_k(y)), where H_k is the entropy (nats) of part k's
  distribution of the next token, its scores normalised over all tokens: what is certain counts more. A part that
  forbids all tokens does not count.

State: the states of the parts, and for ``bayesian`` the log of lambda. Cost: that of the parts, and a log-sum of K
numbers per token; ``entropy`` needs whole rows. Bounds: no token scores more than log sum_k lambda_k exp(max_score_k)
with ``fixed``, and the largest max_score otherwise. Bounds of the parts on what follows are not passed on, because
bounds of parts do not bound a mixture: two parts, each certain at every second of four steps and at 0.001 at the
others, have -13.8 each, where the mixture has -2.77.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

import sgdec
from sgdec import BatchPredictor, Context, UsageError, arrays
from sgdec.arrays import Array
from sgdec.errors import counted
from sgdec.mixing import Mix, PartRows, log_sum_exp
from sgdec.protocol import FORBIDDEN

SLACK = 1e-6
"""The weights may miss 1 by this much."""


class Interpolate(Mix):
    """The mean of probabilities.

    >>> import numpy as np
    >>> from sgdec.testing import BatchTable
    >>> tables = {"a": BatchTable(np.log([[0.5, 0.5, 1e-9]] * 3)), "b": BatchTable(np.log([[0.1, 0.1, 0.8]] * 3))}
    >>> mean = Interpolate(tables, weights=(0.75, 0.25))
    >>> states = mean.initialize_batch([sgdec.Source(1, (7,))])
    >>> np.exp(mean.predict_batch(states).values).round(3).tolist()
    [[0.4, 0.4, 0.2]]
    """

    all_forbid: ClassVar[bool] = True

    def __init__(
        self,
        inner: Mapping[str, BatchPredictor],
        weights: Annotated[
            tuple[float, ...] | None, Field(description="lambda of each part, at least 0, together 1; default: equal")
        ] = None,
        scheme: Annotated[
            Literal["fixed", "bayesian", "entropy"],
            Field(description="what changes lambda: nothing, the prefix's probability, or the parts' entropy"),
        ] = "fixed",
        context: Context | None = None,
    ) -> None:
        """Raises UsageError unless there is one weight for each part, and they are at least 0 and sum to 1."""
        super().__init__(inner, context)
        chances = weights if weights is not None else (1.0 / len(inner),) * len(inner)
        if len(chances) != len(inner):
            given, parts = counted(len(chances), "weight"), "+".join(inner)
            raise UsageError(f"interpolate: {given} for {len(inner)} parts ({parts}). Give one each.")
        if not min(chances) >= 0.0 or not abs(math.fsum(chances) - 1.0) <= SLACK:
            raise UsageError(
                f"interpolate: weights {','.join(f'{each:g}' for each in chances)}: expected numbers of at least 0 "
                "whose sum is 1, such as 0.7,0.3. The factor of the whole mix is the weight of its entry."
            )
        self._scheme = scheme
        self.whole_rows = scheme == "entropy"
        self._logs = tuple(math.log(each / math.fsum(chances)) if each else FORBIDDEN for each in chances)
        highest = [part.max_score for part in inner.values()]
        self.max_score = max(highest)  # of any mean
        if scheme == "fixed" and self.max_score < math.inf:
            self.max_score = min(self.max_score, float(log_sum_exp(np.add(self._logs, highest), 0)))

    def begin(self) -> tuple[float, ...] | None:
        return self._logs if self._scheme == "bayesian" else None

    def remember(self, memory: tuple[float, ...] | None, scores: Sequence[float]) -> tuple[float, ...] | None:
        """The logs of lambda after a token, by Bayes' theorem."""
        if memory is None:
            return None
        joint = np.add(memory, scores)
        total = float(log_sum_exp(joint, 0))
        return memory if total == FORBIDDEN else tuple((joint - total).tolist())

    def combine(self, row: PartRows) -> Array:
        return log_sum_exp(row.scores + arrays.like(row.scores, self._weights(row)), 0)

    def _weights(self, row: PartRows) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        """The logs of lambda ``[K, R or 1, 1]``."""
        given = np.array(self._logs)[:, None, None]
        if self._scheme == "bayesian":
            return np.array(row.memories).T[:, :, None]
        if self._scheme == "fixed":
            return given
        sums = row.log_sum(row.scores)[..., None]  # [K, R, 1]
        xp = arrays.namespace(row.scores)
        logs = xp.where(row.scores == FORBIDDEN, 0.0, row.scores - sums)  # what is forbidden adds nothing
        chances = xp.exp(row.scores - xp.where(sums == FORBIDDEN, 0.0, sums))
        products = chances * logs if row.counts is None else chances * logs * row.counts
        entropies = arrays.to_numpy(-xp.sum(products, axis=-1)).astype(np.float64)  # [K, R]
        own = np.where(arrays.to_numpy(sums[..., 0]) == FORBIDDEN, FORBIDDEN, given[..., 0] - entropies)
        total = np.asarray(log_sum_exp(own, 0))
        return np.asarray(own - np.where(total == FORBIDDEN, 0.0, total))[:, :, None]


@sgdec.hookimpl
def sgdec_predictors() -> dict[str, type[BatchPredictor]]:
    return {"interpolate": Interpolate}
