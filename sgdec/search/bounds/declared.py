"""Bounds: upper bounds on what the continuations of a prefix can still add to its total.

A predictor can bound what it still adds in one of two ways. Either it looks more than one token ahead and bounds
what follows each state, by `best_remaining` (or `worst_remaining` if its weight is negative). Or it declares
`max_score`, the highest score of any one token, and needs no call. After L tokens, with a limit of N tokens before
``</s>``, T more tokens follow, 1 <= T <= N - L + 1, so

    bound = sum of w_k r_k(state)                   over predictors k of the first kind, with weights w_k
          + max over T of T x sum of w_k m_k        over predictors k of the second kind, with max_score m_k

With c = sum of w_k m_k, the maximum is c if c < 0 and (N - L + 1) c if c > 0. Log-probabilities have m = 0: no total
ever rises. If c > 0 and there is no length limit, the bound is +inf. A search that only a bound could end is then
refused before it starts, unless it has a budget. Other searches without a limit end when their prefixes end, or with
an error for that sentence at `sgdec.search.space.ENDLESS` tokens.

A predictor that declares no bound is refused if a proof is required.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from sgdec.errors import UsageError
from sgdec.protocol import FORBIDDEN, BatchPredictor, State, ability
from sgdec.search.node import Node

BoundsOf: TypeAlias = Callable[[Sequence[State]], Sequence[float]]


class Bounds:
    """The bounds that predictors declare under given weights ``[K]``; weight None = not consulted."""

    def __init__(
        self, names: Sequence[str], predictors: Sequence[BatchPredictor], weights: Sequence[float | None]
    ) -> None:
        self.own: list[tuple[int, float, BoundsOf]] = []
        """The predictors with a bound for each state: number, weight, and the method that returns the bounds."""
        self.per_token: float
        """The most that all other predictors together can add with one token: the sum of w_k m_k."""
        self._names = names
        self._rising: list[int] = []
        """The numbers of those other predictors whose `max_score` is positive."""
        self.undeclared: set[int] = set()
        """The numbers of the predictors that declare no bound for their weight."""
        self._per_token_by: dict[int, float] = {}
        self._refusal: UsageError | None = None
        for k, (predictor, weight) in enumerate(zip(predictors, weights, strict=True)):
            if weight is None:
                continue
            name = bound_of(weight)
            bounds = ability(predictor, name)
            if bounds is not None:
                self.own.append((k, weight, bounds))
            elif weight > 0 and predictor.max_score < math.inf:
                self._per_token_by[k] = weight * predictor.max_score
                self._rising += [k] if predictor.max_score > 0 else []
            elif weight:
                self.undeclared.add(k)
                self._refusal = self._refusal or _nothing_declared(names[k], name, weight)
        self.per_token = self.per_token_of(self._per_token_by)

    def require_declared(self) -> None:
        """Raise UsageError if a predictor does not declare the bound that its weight needs."""
        if self._refusal is not None:
            raise self._refusal

    @property
    def declared(self) -> bool:
        """Whether every predictor declares the bound that its weight needs."""
        return not self.undeclared

    def per_token_of(self, predictors: Iterable[int]) -> float:
        """The most that these predictors can add with one token, those with a bound for each state left out."""
        return sum(self._per_token_by.get(k, 0.0) for k in predictors)

    def together(self, node: Node, remaining: Iterable[float]) -> float:
        """The bound of an unfinished node; ``remaining``: what the methods in `own` returned for it, in order.

        +inf if a predictor declares no bound.
        """
        found = self._declared(node, remaining)
        return found if self.declared or found == FORBIDDEN else math.inf

    def _declared(self, node: Node, remaining: Iterable[float]) -> float:
        """The same without predictors that declare nothing."""
        own, others = total_bound([weight for _, weight, _ in self.own], remaining), self.others(node)
        return FORBIDDEN if FORBIDDEN in (own, others) else own + others

    def others(self, node: Node) -> float:
        """The most that the predictors without a bound for each state can add after an unfinished node."""
        return most_of(self.per_token, node.source.max_length, node.length)

    def require_end(self, node: Node, remaining: Iterable[float]) -> None:
        """Raise UsageError if the bound of an unfinished node is +inf; name the predictors without a finite bound."""
        remaining = tuple(remaining)
        if self._declared(node, remaining) < math.inf:
            return
        endless = [k for (k, weight, _), most in zip(self.own, remaining, strict=True) if weight * most == math.inf]
        if self.others(node) == math.inf:
            endless += self._rising
        names = " and ".join(repr(self._names[k]) for k in sorted(endless))
        raise UsageError(
            f"{names} can add to a score without end, so without a length limit no bound ends this search: give "
            "--max-length N."
        )


def bound_of(weight: float) -> str:
    """The name of the ability that bounds what a predictor with this weight can still add."""
    return "best_remaining" if weight >= 0 else "worst_remaining"


def most_of(per_token: float, longest: int | None, length: int) -> float:
    """The most that T >= 1 more tokens, ``</s>`` included, can add if each adds at most ``per_token``.

    ``longest``: the most tokens before ``</s>``, None = no limit; ``length``: the number of tokens so far.

    >>> most_of(0.5, longest=3, length=1), most_of(-0.5, longest=3, length=1), most_of(0.0, None, 1)
    (1.5, -0.5, 0.0)
    """
    if per_token <= 0.0:
        return per_token
    return math.inf if longest is None else per_token * (longest - length + 1)


def max_score(predictors: Sequence[BatchPredictor], weights: Sequence[float | None]) -> float:
    """The highest combined score of any one token, from the predictors' `max_score`; +inf = unknown."""
    if any(weight is not None and weight < 0 for weight in weights):
        return math.inf
    return sum(weight * p.max_score for weight, p in zip(weights, predictors, strict=True) if weight)


def total_bound(weights: Iterable[float], remaining: Iterable[float]) -> float:
    """The weighted sum of the predictors' bounds: upper bounds for weights >= 0, lower bounds for negative weights.

    The sum is -inf if one predictor has a dead end (upper bound -inf or lower bound +inf), even if another has no
    finite bound. Otherwise a predictor with weight 0 adds nothing.

    >>> total_bound([0.5, -1.0, 0.0], [-2.0, 3.0, math.inf])
    -4.0
    >>> total_bound([1.0, 0.0], [math.inf, -math.inf])
    -inf
    """
    total = 0.0
    for weight, most in zip(weights, remaining, strict=True):
        if most == (FORBIDDEN if weight >= 0 else math.inf):
            return FORBIDDEN
        if weight:
            total += weight * most
    return total


def _nothing_declared(name: str, ability: str, weight: float) -> UsageError:
    or_max_score = " or max_score" if weight > 0 else ""
    way_out = f"give --{name}.max_score if it has that option, or " if weight > 0 else ""
    return UsageError(
        f"predictor {name!r} does not declare {ability}{or_max_score}, so a search that needs a bound cannot use it "
        f"with weight {weight:g}: {way_out}choose another decoder or stopping rule."
    )
