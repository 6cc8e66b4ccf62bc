"""Renormalised scores (``--NAME.renormalize``): a predictor's distribution over what the others allow.

For a predictor with scores s, and A, the tokens that no other predictor forbids after a prefix,

    s'(w) = s(w) - log sum over v in A of exp s(v)

so the probabilities of the tokens in A add up to 1. The other predictors are those that the prefix consults, whatever
their weights. The length limit of the search is none of them, and neither is the given output of ``sgdec score``:
scores do not depend on what is searched for. Only the constant of a prefix is subtracted, so the order of its tokens
stays, but not the order of outputs.

Cost: one pass over the scores of A; over ``[rows, V]`` in float64 if no predictor lists what can follow.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from sgdec.arrays import Floats
from sgdec.errors import UsageError
from sgdec.protocol import FORBIDDEN, BatchPredictor, Candidates
from sgdec.scores import Scores
from sgdec.search.combination.columns import Column
from sgdec.search.combination.dense import Term
from sgdec.search.combining import agreed_width
from sgdec.sparse import Wanted
from sgdec.wrapping import Wrapper


class Renormalized(Wrapper):
    """A predictor whose scores the constellation renormalises (`renormalized`); it returns them as they are.

    Its claims do not hold for s', which can be higher: no bound, relaxation or automaton is passed on. No s' of an
    allowed token is above 0.
    """

    forwards: ClassVar[tuple[str, ...]] = ("state_key", "attention", "state_label", "progress", "advancing")

    def __init__(self, inner: BatchPredictor) -> None:
        super().__init__(inner)
        self.max_score = 0.0


def renormalized(
    columns: Mapping[int, Column],
    chosen: Collection[int],
    candidates: Sequence[Candidates | None],
    vocab_size: int | None,
) -> dict[int, Column]:
    """The columns of all predictors, of which those with the numbers ``chosen`` are renormalised.

    ``candidates``: for each node the tokens that no row excludes, None = all. Raises UsageError if there are none and
    V is unknown.
    """
    found = dict(columns)
    for k in chosen:
        others = [column for other, column in columns.items() if other != k]
        sums = _log_sums(columns[k], others, candidates, vocab_size)
        found[k] = replace(columns[k], scores=_shifted(columns[k], sums))
    return found


def _log_sums(
    column: Column, others: Sequence[Column], candidates: Sequence[Candidates | None], vocab_size: int | None
) -> Floats:
    """``[nodes]``: the log-sum of its scores over what the others allow; 0 where that is infinite or NaN."""
    sums = np.zeros(len(candidates))
    listed = [node for node, tokens in enumerate(candidates) if tokens is not None]
    dense = [node for node, tokens in enumerate(candidates) if tokens is None]
    if listed:
        sums[listed] = _of_lists(column, others, listed, candidates)
    if dense:
        sums[dense] = _of_all(column, others, dense, vocab_size)
    return np.where(np.isfinite(sums), sums, 0.0)  # either nothing is allowed, or a fault is found later


def _of_lists(
    column: Column, others: Sequence[Column], nodes: Sequence[int], candidates: Sequence[Candidates | None]
) -> Floats:
    lists = candidates if len(nodes) == len(candidates) else [candidates[node] for node in nodes]
    wanted = Wanted.of(nodes, lists)  # type: ignore[arg-type]  # none of them is None
    scores = column.scores_of(wanted)
    for other in others:
        scores = np.where(other.scores_of(wanted) == FORBIDDEN, FORBIDDEN, scores)
    highest = np.full(len(nodes), FORBIDDEN)
    np.maximum.at(highest, wanted.place, scores)
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = np.exp(scores - highest[wanted.place])
        return highest + np.log(np.bincount(wanted.place, shares, minlength=len(nodes)))


def _of_all(column: Column, others: Sequence[Column], nodes: Sequence[int], vocab_size: int | None) -> Floats:
    columns = (column, *others)
    width = agreed_width([(each.name, each.scores.width) for each in columns], vocab_size)
    if width is None:
        raise UsageError(
            f"{column.name}.renormalize sums over all target tokens, and their number is unknown: give --vocab-size, "
            "or --tokenizer."
        )
    scores, *forbidding = [Term.of(each, nodes).filled(width) for each in columns]
    for other in forbidding:
        scores = np.where(other == FORBIDDEN, FORBIDDEN, scores)
    highest = scores.max(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(highest + np.log(np.exp(scores - highest[:, None]).sum(axis=1)))


def _shifted(column: Column, sums: Floats) -> Scores:
    """The scores, each row minus the sum of its node."""
    shift = np.zeros(len(column.scores))
    for place, total in zip(column.places, sums.tolist(), strict=True):
        if place is not None:
            shift[place] = total
    return column.scores.shifted(shift)
