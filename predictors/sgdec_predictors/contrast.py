"""Mix: a weighted sum of several models over the tokens that the first finds plausible, ``contrast:hf+small=hf``.

    score(w) = sum_k w_k s_k(w)        for w with s_1(w) >= log alpha + max_v s_1(v), -inf otherwise

s_k are the parts' scores, w_k their signed weights. The first part is the expert, and ``plausibility`` is alpha
(contrastive decoding; Li et al. 2023, "Contrastive Decoding: Open-ended Text Generation as Optimization", section
3.3). With ``normalize`` the scores become a distribution over what is left after each prefix; the option
``renormalize``, which every entry has, also leaves out what other predictors of the run forbid. Classifier-free
guidance (Sanchez et al. 2023), context-aware decoding (Shi et al. 2023) and DExperts (Liu et al. 2021) are such sums:
docs/howto/mixes.md has them. A token that any part forbids is forbidden.

State: the states of the parts. Cost: that of the parts; with ``plausibility`` or ``normalize`` whole rows. Bounds: 0
if normalised; otherwise the weighted sum of the parts' bounds, where a part with a negative weight needs lower
bounds, which models do not have.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any

import numpy as np
from pydantic import Field

import sgdec
from sgdec import BatchPredictor, Context, UsageError, arrays
from sgdec.arrays import Array
from sgdec.errors import counted
from sgdec.mixing import Mix, MixState, PartRows
from sgdec.protocol import FORBIDDEN, ability


class Contrast(Mix):
    """A signed sum over plausible tokens.

    >>> import numpy as np
    >>> from sgdec.testing import BatchTable
    >>> tables = {"expert": BatchTable(np.log([[0.6, 0.35, 0.05]] * 3)),
    ...           "amateur": BatchTable(np.log([[0.6, 0.1, 0.3]] * 3))}
    >>> contrast = Contrast(tables, weights=(1, -1), plausibility=0.5)
    >>> states = contrast.initialize_batch([sgdec.Source(1, (7,))])
    >>> np.exp(contrast.predict_batch(states).values).round(2).tolist()
    [[1.0, 3.5, 0.0]]
    """

    def __init__(
        self,
        inner: Mapping[str, BatchPredictor],
        weights: Annotated[
            tuple[Annotated[float, Field(allow_inf_nan=False)], ...] | None,
            Field(description="signed weight of each part, the expert first; default: 1, and -1 for the others"),
        ] = None,
        plausibility: Annotated[
            float, Field(ge=0, le=1, description="alpha: the expert's least probability / its highest; 0 = any")
        ] = 0.0,
        normalize: Annotated[bool, Field(description="make the scores after each prefix a distribution")] = False,
        context: Context | None = None,
    ) -> None:
        """Raises UsageError unless there is one weight for each part."""
        super().__init__(inner, context)
        signed = weights if weights is not None else (1.0, *(-1.0 for _ in range(len(inner) - 1)))
        if len(signed) != len(inner):
            given, parts = counted(len(signed), "weight"), "+".join(inner)
            raise UsageError(f"contrast: {given} for {len(inner)} parts ({parts}). Give one each.")
        self._weights = signed
        self._threshold = math.log(plausibility) if plausibility else FORBIDDEN
        self._normalizes = normalize
        self.whole_rows = plausibility > 0.0 or normalize
        self._bounds = None if normalize else self._bounds_of_parts()
        if normalize:
            self.max_score = 0.0
        elif min(signed) >= 0.0:
            self.max_score = sum(w * part.max_score for w, part in zip(signed, inner.values(), strict=True) if w)
        if self._bounds is None:
            vars(self)["best_remaining"] = None  # hides the method

    def combine(self, row: PartRows) -> Array:
        total = row.scores[0] * self._weights[0]
        for scores, weight in zip(row.scores[1:], self._weights[1:], strict=True):
            total = total + scores * weight
        xp = arrays.namespace(total)
        left = ~row.forbidden()
        if self._threshold > FORBIDDEN:
            expert = row.scores[0]
            left = left & (expert >= row.highest(expert)[:, None] + self._threshold)
        total = xp.where(left, total, FORBIDDEN)
        if self._normalizes:
            sums = row.log_sum(total)[:, None]
            total = total - xp.where(sums == FORBIDDEN, 0.0, sums)
        found: Array = total
        return found

    def best_remaining(self, states: Sequence[MixState]) -> list[float]:
        """The weighted sum of the parts' bounds; -inf if one of them allows no completion."""
        assert self._bounds is not None
        found = np.zeros(len(states))
        for k, (weight, bounds) in enumerate(zip(self._weights, self._bounds, strict=True)):
            own = np.array([float(bound) for bound in bounds([state.parts[k] for state in states])])
            with np.errstate(invalid="ignore"):
                added = np.where(own == math.copysign(math.inf, -weight), FORBIDDEN, weight * own if weight else 0.0)
                found = np.where((found == FORBIDDEN) | (added == FORBIDDEN), FORBIDDEN, found + added)
        return list(map(float, found))

    def _bounds_of_parts(self) -> list[Callable[[Sequence[Any]], Sequence[float]]] | None:
        """For each part the method that bounds what it can still add; None if one has none and may add anything, or
        if none of them looks ahead."""
        found: list[Callable[[Sequence[Any]], Sequence[float]]] = []
        ahead = False
        for weight, part in zip(self._weights, self.inner.values(), strict=True):
            method = ability(part, "best_remaining" if weight >= 0 else "worst_remaining")
            if method is not None:
                ahead = True
                found.append(method)
            elif weight == 0.0 or (weight > 0.0 and part.max_score <= 0.0):
                most = 0.0 if weight == 0.0 else part.max_score  # at least one token follows, and more add no more
                found.append(partial(_same_for_all, most))
            else:
                return None
        return found if ahead else None


def _same_for_all(bound: float, states: Sequence[Any]) -> list[float]:
    return [bound] * len(states)


@sgdec.hookimpl
def sgdec_predictors() -> dict[str, type[BatchPredictor]]:
    return {"contrast": Contrast}
