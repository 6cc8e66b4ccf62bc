"""Interpolated modified Kneser-Ney: estimates an n-gram language model from text, with arrays (Chen & Goodman 1998).

    p(w | h)  = max(a(h w) - D(a(h w)), 0) / A(h) + gamma(h) p(w | suffix of h)
    gamma(h)  = sum over w of D(a(h w)) / A(h),             A(h) = sum over w of a(h w)
    p(w)      = max(a(w) - D(a(w)), 0) / A + gamma / |V|

a is the adjusted count. For an n-gram of the highest order, or one that begins with ``<s>``, it is the number of
occurrences; for other n-grams it is the number of different words that occur before it. D is the discount D1, D2 or
D3+ of the n-gram's order, for adjusted counts 1, 2 and >= 3:

    Y = n1 / (n1 + 2 n2),    D_k = k - (k + 1) Y n_(k+1) / n_k,    n_k = number of n-grams with adjusted count k

V is the whole vocabulary without ``<s>``: every token, seen or not, including ``<unk>``, has its own unigram with the
share gamma / |V|. So the probabilities after any history sum to one over V, and no token of the vocabulary is
unknown. An unseen token is as probable as ``<unk>``, unless the text itself contains unknown tokens: they count like
words.

Pruning is that of lmplz (Heafield et al. 2013): an n-gram that occurs at most as often as its order's threshold is
left out, and its whole adjusted count is added to gamma(h). Counts and discounts are computed before pruning.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from sgdec.arrays import Flags, Floats, Ints
from sgdec.context import BOS, EOS
from sgdec.errors import UsageError
from sgdec.io.arpa import LN_10, Arpa, NGrams

FALLBACK = (0.5, 1.0, 1.5)
"""lmplz's discounts if they cannot be computed from the counts of counts."""
NEVER = -99 * LN_10
"""The value that ARPA files have for ln 0."""


class Estimate(NamedTuple):
    """A model, and the discounts D1, D2, D3+ of each order."""

    model: Arpa
    discounts: list[tuple[float, float, float]]


class _Counts(NamedTuple):
    """The ``count`` different n-grams of one order."""

    history: Ints
    """``[count]``: the index of the n-gram's first n - 1 words among the (n - 1)-grams."""
    last: Ints
    """``[count]``: the n-gram's last token."""
    suffix: Ints
    """``[count]``: the index of the n-gram's last n - 1 words among the (n - 1)-grams."""
    occurs: Ints
    """``[count]``: the number of occurrences."""
    at_start: Flags
    """``[count]``: whether the n-gram begins with ``<s>``."""


def join(sentences: Iterable[Sequence[int]]) -> Ints:
    """All sentences in one array, each as ``<s> tokens </s>``; empty sentences are left out."""
    text = array("i")
    for sentence in sentences:
        if len(sentence):
            text.append(BOS)
            text.extend(sentence)
            text.append(EOS)
    return np.frombuffer(text, dtype=np.intc).astype(np.int64) if text else np.empty(0, np.int64)


def estimate(
    text: Ints,
    words: Sequence[str],
    *,
    order: int = 5,
    prune: Sequence[int] = (),
    discounts: Sequence[Sequence[float]] = (),
    fallback: bool = False,
    report: Callable[[str], None] = lambda message: None,
) -> Estimate:
    """Estimate the model of a text, which `join` has prepared.

    ``words[token]`` is the token's word in the model; tokens 0, 1, 2 are ``<unk>``, ``<s>``, ``</s>``. ``prune``: for
    each order the count up to which n-grams are left out; the last value holds for all higher orders. ``discounts``:
    D1, D2, D3+ for each order, or once for all orders, instead of those of the text. ``fallback``: use `FALLBACK` for
    an order whose discounts the text does not determine. ``report`` receives a message at each stage.

    Raises UsageError if the text is too small for the order, or does not determine the discounts.
    """
    thresholds = _thresholds(prune, order)
    _check_given(discounts, order)
    if not len(text):
        raise UsageError("there is no sentence to estimate a model from.")
    levels = _count(text, len(words), order, report)
    model: list[NGrams] = []
    used: list[tuple[float, float, float]] = []
    tokens = np.arange(len(words), dtype=np.int32)[:, None]  # [count, n]
    lower = np.full(1, 1.0 / (len(words) - 1))  # p of each n-gram of the order below; for unigrams 1 / |V|
    lower_kept = np.ones(1, bool)
    for n, level in enumerate(levels, 1):
        report(f"estimating {n}-grams")
        adjusted = _adjusted(level, levels[n] if n < order else None)
        if n == 1:
            adjusted[BOS] = 0
        else:
            tokens = np.column_stack([tokens[level.history], level.last.astype(np.int32)])
        kept = level.occurs > thresholds[n - 1] if n > 1 else np.ones(len(words), bool)
        by_count = _discounts(n, adjusted, discounts, fallback)  # D(0), D1, D2, D3+
        used.append((by_count[1], by_count[2], by_count[3]))
        taken = np.array(by_count)[np.minimum(adjusted, 3)]  # D(a)
        total = np.bincount(level.history, adjusted, minlength=len(lower))  # A(h)
        freed = np.bincount(level.history, np.where(kept, taken, adjusted), minlength=len(lower))
        gamma = np.divide(freed, total, out=np.ones(len(lower)), where=total > 0)
        p = (adjusted - taken) / total[level.history] + gamma[level.history] * lower[level.suffix]
        if n == 1:
            p[BOS] = 0.0
        else:
            model[-1] = model[-1]._replace(backoffs=_ln(gamma[lower_kept]))
        model.append(NGrams(tokens[kept], _ln(p[kept]), np.zeros(np.count_nonzero(kept))))
        lower, lower_kept = p, kept
    while not len(model[-1].scores):  # an order whose n-grams were all pruned
        model.pop()
    return Estimate(Arpa(list(words), model), used)


def _count(text: Ints, size: int, order: int, report: Callable[[str], None]) -> list[_Counts]:
    """The n-grams of every order within sentences."""
    tokens = np.arange(size)
    nothing = np.zeros(size, np.int64)
    levels = [_Counts(nothing, tokens, nothing, np.bincount(text, minlength=size), tokens == BOS)]
    starts = np.flatnonzero(text == BOS)
    depth = np.arange(len(text)) - np.repeat(starts, np.diff(np.append(starts, len(text))))  # words before a position
    number = text  # at each position: the index of the n-gram that ends there
    for n in range(2, order + 1):
        report(f"counting {n}-grams")
        ends = np.flatnonzero(depth >= n - 1)
        if not len(ends):
            raise UsageError(f"order {order} is too high: no sentence, with <s> and </s>, is {n} words long.")
        keys, first, numbers, occurs = np.unique(
            number[ends - 1] * size + text[ends], return_index=True, return_inverse=True, return_counts=True
        )
        history = keys // size
        suffix = number[ends[first]]
        levels.append(_Counts(history, keys % size, suffix, occurs, levels[-1].at_start[history]))
        number = np.zeros(len(text), np.int64)
        number[ends] = numbers
    return levels


def _adjusted(level: _Counts, higher: _Counts | None) -> Ints:
    """The adjusted counts of one order, given the n-grams of the next higher order."""
    if higher is None:
        return level.occurs
    different = np.bincount(higher.suffix, minlength=len(level.last))  # number of different words before each n-gram
    return np.where(level.at_start, level.occurs, different)


def _discounts(
    n: int, adjusted: Ints, given: Sequence[Sequence[float]], fallback: bool
) -> tuple[float, float, float, float]:
    """The discounts D(0) = 0, D1, D2, D3+ of the n-grams of one order."""
    if given:
        d1, d2, d3 = given[n - 1 if len(given) > 1 else 0]
        return 0.0, d1, d2, d3
    having = np.bincount(np.minimum(adjusted, 5), minlength=6).tolist()  # n_k of the paper
    missing = [k for k in (1, 2, 3) if not having[k]]
    if not missing:
        y = having[1] / (having[1] + 2 * having[2])
        d1, d2, d3 = (k - (k + 1) * y * having[k + 1] / having[k] for k in (1, 2, 3))
        if d1 >= 0 and d2 >= 0 and d3 >= 0:
            return 0.0, d1, d2, d3
    if fallback:
        return 0.0, *FALLBACK
    reason = f"none has adjusted count {missing[0]}" if missing else f"the formula gives {d1:.2f}, {d2:.2f}, {d3:.2f}"
    raise UsageError(
        f"the text does not determine the discounts of {n}-grams: {reason}; it may be small or artificial. "
        f"Set --discount-fallback for {FALLBACK[0]:g}, {FALLBACK[1]:g}, {FALLBACK[2]:g}, or give --discounts."
    )


def _thresholds(prune: Sequence[int], order: int) -> list[int]:
    """The pruning threshold of each order."""
    given = list(prune) or [0]
    thresholds = given + given[-1:] * (order - len(given))
    if len(given) > order or thresholds[0] != 0 or thresholds != sorted(thresholds):
        raise UsageError(
            f"--prune {' '.join(map(str, given))}: expected at most {order} counts that start with 0 "
            "(unigrams are never pruned) and do not decrease, such as --prune 0 0 1."
        )
    return thresholds


def _check_given(discounts: Sequence[Sequence[float]], order: int) -> None:
    if len(discounts) not in (0, 1, order):
        raise UsageError(f"--discounts: expected three numbers, or {3 * order}: three for each order.")
    for triple in discounts:
        if len(triple) != 3 or not all(0 <= d <= k for k, d in enumerate(triple, 1)):
            raise UsageError(
                f"discounts {', '.join(f'{d:g}' for d in triple)}: expected D1, D2, D3+ with "
                "0 <= D1 <= 1, 0 <= D2 <= 2, 0 <= D3+ <= 3."
            )


def _ln(probability: Floats) -> Floats:
    return np.log(np.maximum(probability, np.exp(NEVER)))
