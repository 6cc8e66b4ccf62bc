"""Checks of traces: their numbers against each other, and what they say of dropped nodes against the whole space."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sgdec.context import EOS
from sgdec.protocol import Result
from sgdec.ranking import Ranking
from sgdec.testing.enumeration import Path
from sgdec.trace.records import Child, Expansion, Fate, SentenceTrace, unsaid


def require_complete(trace: SentenceTrace, at: str) -> None:
    """Check that the decoder said why it stopped, and what became of each node that it had received."""
    silent = [(trace.path(expansion.number), child.token) for expansion, child in unsaid(trace)]
    assert not silent, (
        f"a decoder must say what becomes of each node that it receives, by space.dropped: it is silent about token "
        f"{silent[0][1]} after {silent[0][0]} {at}"
    )
    assert trace.stopped is not None, f"a decoder must say why it stops, by space.stopped {at}"


def require_true(
    trace: SentenceTrace,
    result: Result,
    weights: Sequence[float | None],
    space: Sequence[Path],
    ranking: Ranking,
    tolerance: float,
    at: str,
) -> None:
    """Check a trace against the result of its search, and against the enumeration of its space, best first."""
    _require_a_tree(trace, weights, tolerance, at)
    listed = [(each.tokens, each.rank_score) for each in trace.hypotheses]
    expected = [(each.tokens, each.rank_score) for each in result.hypotheses]
    assert listed == expected, f"a trace must have the list {at}"
    of_list = [(expansion, child) for expansion, child in trace.nodes() if child.fate == Fate.LISTED]
    ended = {(*trace.path(expansion.number), child.token) for expansion, child in of_list}
    recorded = {(*each.tokens, EOS) for each in trace.hypotheses if each.expansion is not None}
    assert ended == recorded, f"hypotheses must be listed nodes {at}"
    assert trace.counted == result.expansions >= len(trace.expansions), f"expansions must be counted {at}"
    ranks = {path.tokens: path.rank_score(ranking) for path in space}
    worst = min((found.rank_score for found in result.hypotheses), default=-math.inf)
    for expansion, child in trace.nodes():
        prefix = (*trace.path(expansion.number), child.token)
        where = f"token {child.token} after {prefix[:-1]} {at}"
        if child.fate == Fate.BOUND and expansion.weights is None:
            after = (rank for tokens, rank in ranks.items() if (*tokens, EOS)[: len(prefix)] == prefix)
            highest = max(after, default=-math.inf)
            assert highest <= worst + tolerance, f"a bound must cut no node that can enter the list: {where}"
        elif child.fate in (Fate.OUTRANKED, Fate.TEXT):
            assert child.token == EOS, f"only finished nodes must be {child.fate}: {where}"
        elif child.fate == Fate.LOCAL:
            assert child.total < max(expansion.totals), f"a pruned node must be below its best sibling: {where}"
        elif child.fate == Fate.RECOMBINED:
            _require_represented(trace, expansion, child, where)
        elif child.fate == Fate.OPEN:
            assert trace.stopped != "proven", f"no node must be open after a proof: {where}"
    optimum = max(ranks.values(), default=-math.inf)
    for bound in trace.bounds:
        best = -math.inf if bound.best is None else bound.best
        assert max(bound.bound, best) >= optimum - tolerance, f"the optimum must be within the bound: {bound} {at}"
        assert best <= optimum + tolerance, f"no hypothesis must be better than the optimum: {bound} {at}"


def _require_a_tree(trace: SentenceTrace, weights: Sequence[float | None], tolerance: float, at: str) -> None:
    """Check that the numbers of expansions connect them, and that the scores of each path add up."""
    totals = {}
    for number, expansion in enumerate(trace.expansions):
        where = f"expansion {number} {at}"
        assert expansion.number == number, f"expansions must be numbered in order: {where}"
        assert len(set(expansion.tokens)) == len(expansion.tokens), f"a child must be listed once: {where}"
        assert len(expansion.tokens) <= expansion.candidates, f"children must be candidates: {where}"
        parent = None if expansion.parent is None else trace.expansions[expansion.parent]
        if parent is None:
            assert expansion.token is None, where
            totals[number] = 0.0
        else:
            assert expansion.parent is not None and expansion.parent < number and expansion.token is not None, where
            child = parent.child(expansion.token)
            assert child is not None and child.fate == number, f"a child must be expanded under its number: {where}"
            totals[number] = child.total
        under = weights if expansion.weights is None else expansion.weights
        for child in expansion.children:
            gained = math.fsum(w * s for w, s in zip(under, child.scores, strict=True) if w)
            assert math.isclose(child.total, totals[number] + gained, rel_tol=tolerance, abs_tol=tolerance), (
                f"the scores of a path must add up to its total: token {child.token} of {where}"
            )
            if isinstance(child.fate, int):
                found = trace.expansions[child.fate]
                assert (found.parent, found.token) == (number, child.token), f"fate {child.fate} of {where}"


def _require_represented(trace: SentenceTrace, expansion: Expansion, child: Child, where: str) -> None:
    """Check that a recombined node names another one, with a total that is at least as high."""
    into = expansion.into.get(child.token)
    assert into is not None, f"a recombined node must say into which: {where}"
    found = trace.expansions[into[0]].child(into[1])
    assert found is not None and found is not child and found.total >= child.total, f"recombined into {into}: {where}"
