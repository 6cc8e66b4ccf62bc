"""Fitting a length model (`sgdec.models.length`) by maximum likelihood on pairs of a source line and a target length.

The weights are optimised in another parametrisation, with features of mean 0 and variance 1, and a scale s:

    r = max(0.1, e^s (w_r . features + b_r))        log p / (1 - p) = w_p . features - s

A change of s changes r and p together but not the mean. Without s, if the lengths vary little more than those of a
Poisson distribution, the optimiser has to follow a narrow, curved valley. The optimiser is L-BFGS with a line search
(Nocedal and Wright 2006, algorithm 7.5), in double precision. The result is converted to weights of the original
features.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from sgdec.errors import SgdecError
from sgdec.models.length import FEATURES, LEAST_P, LEAST_R, LengthWeights, features_of

STEPS = 1000
"""Limit on the number of L-BFGS iterations; it ends earlier if it converges."""
LARGEST_SCALE = 8.0
"""Limit on s minus its first value; at this limit p is below its bound, and P is a Poisson distribution."""


@dataclass(frozen=True)
class FittedLengths:
    """A length model and its fit to the data."""

    weights: LengthWeights
    pairs: int
    log_probability: float
    """The mean natural log of the probability of a target length."""
    by_mean: float
    """The same for a baseline: one Poisson distribution for all target lengths, whatever the source."""
    gradient: float
    """The largest component of the gradient of `log_probability` at the end; 0 at an optimum."""
    evaluations: int
    """The number of evaluations of the likelihood and its gradient."""


def fit_lengths(
    lines: Sequence[str], lengths: Sequence[int], report: Callable[[str], None] = lambda message: None
) -> FittedLengths:
    """The weights that maximise the probability of the target ``lengths`` given the source ``lines``.

    Raises SgdecError if there are fewer than two pairs, or all lengths are 0.
    """
    if len(lines) < 2 or not any(lengths):
        raise SgdecError("expected at least two sentence pairs, and at least one target line that is not empty.")
    model = _Model([features_of(line) for line in lines], lengths)
    optimizer = torch.optim.LBFGS(
        [model.parameters],
        max_iter=STEPS,
        max_eval=10 * STEPS,
        history_size=20,
        line_search_fn="strong_wolfe",
        tolerance_grad=1e-8,
        tolerance_change=1e-15,
    )
    evaluations = 0

    def evaluate() -> torch.Tensor:
        nonlocal evaluations
        evaluations += 1
        loss = model.backward()
        report(f"evaluation {evaluations}: log-probability {-float(loss):.6f} per sentence")
        return loss

    optimizer.step(evaluate)
    loss = model.backward()
    gradient = model.parameters.grad
    assert gradient is not None
    n = torch.tensor(lengths, dtype=torch.float64)
    poisson = (n * n.mean().log() - n.mean() - torch.lgamma(n + 1)).mean()
    steepest = float(gradient.abs().max())
    return FittedLengths(model.weights(), len(lines), -float(loss), float(poisson), steepest, evaluations)


class _Model:
    """The likelihood as a function of the parameters ``[12]``: w_r, b_r, w_p, s."""

    def __init__(self, features: Sequence[Sequence[float]], lengths: Sequence[int]) -> None:
        plain = torch.tensor(features, dtype=torch.float64)  # [pairs, 5]
        self._n = torch.tensor(lengths, dtype=torch.float64)  # [pairs]
        self._mean = plain.mean(0)
        deviation = plain.std(0)
        self._deviation = torch.where(deviation > 1e-9, deviation, torch.inf)  # a constant feature gets weight 0
        self._features = (plain - self._mean) / self._deviation
        mean, variance = float(self._n.mean()), float(self._n.var())
        p = min(max(1 - mean / max(variance, 1e-9), 0.2), 0.9)  # method of moments on all lengths
        self._first_scale = math.log((1 - p) / p)
        self.parameters = torch.zeros(2 * len(FEATURES) + 2, dtype=torch.float64)
        self.parameters[len(FEATURES)] = mean
        self.parameters[-1] = self._first_scale
        self.parameters.requires_grad_()

    def backward(self) -> torch.Tensor:
        """Minus the mean log-probability of a length; sets the gradient of the parameters."""
        self.parameters.grad = None
        r_weights, p_weights, scale = self._parts()
        r = ((self._features @ r_weights[:-1] + r_weights[-1]) * scale.exp()).clamp(min=LEAST_R)
        logit = self._features @ p_weights - scale
        edge = math.log(1 / LEAST_P - 1)
        logit = logit.clamp(-edge, edge)
        ways = torch.lgamma(self._n + r) - torch.lgamma(r) - torch.lgamma(self._n + 1)
        log_p, log_q = torch.nn.functional.logsigmoid(logit), torch.nn.functional.logsigmoid(-logit)
        loss: torch.Tensor = -(ways + self._n * log_p + r * log_q).mean()
        loss.backward()
        return loss.detach()

    def weights(self) -> LengthWeights:
        """The weights of the original features."""
        with torch.no_grad():
            r_weights, p_weights, scale = self._parts()
            r = r_weights[:-1] * scale.exp() / self._deviation
            p = p_weights / self._deviation
            r_bias = r_weights[-1] * scale.exp() - r @ self._mean
            p_bias = -scale - p @ self._mean
            return LengthWeights((*r.tolist(), float(r_bias)), (*p.tolist(), float(p_bias)))

    def _parts(self) -> tuple[Any, Any, Any]:
        """The parts of the parameters: w_r with b_r ``[6]``, w_p ``[5]``, s."""
        count = len(FEATURES)
        scale = self.parameters[-1].clamp(max=self._first_scale + LARGEST_SCALE)
        return self.parameters[: count + 1], self.parameters[count + 1 : -1], scale
