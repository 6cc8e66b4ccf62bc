"""The data of a page: traces as compact JSON, with the prefixes of each search in the order in which they are drawn.

A tree is a set of columns, one value per prefix. The types in ``types.d.ts`` describe the form. Each sentence is
packed by itself, and ``packed.js`` unpacks the one that the reader looks at: a page can have millions of numbers.
"""

from __future__ import annotations

import gzip
import json
import math
from base64 import b64encode
from collections.abc import Iterator, Sequence
from typing import Any

from sgdec.trace.records import Batch, Bound, Expansion, SentenceTrace
from sgdec.view.layout import overview
from sgdec.view.parting import Parting, parting
from sgdec.view.runs import TracedRun, visible
from sgdec.view.sentences import search_errors
from sgdec.view.tree import TreePrefix, prefixes

REASONS = {
    "listed": "in the n-best list",
    "outranked": "finished, but others of the list rank higher",
    "text": "finished, but a hypothesis of the list has the same text",
    "beam": "the beam was full",
    "local": "pruned: too far below its best sibling",
    "beam or local": "the beam was full, or it was pruned: too far below its best sibling",
    "final": "pruned: finished, too far below the best finished hypothesis",
    "recombined": "recombined: another prefix has the same future and at least the same total",
    "bound": "no hypothesis that begins with it can enter the list",
    "score": "its total is too low; the search assumes that it does not rise again",
    "limit": "the decoder asked for fewer continuations",
    "unread": "the decoder never read this continuation",
    "undrawn": "sampling drew another continuation",
    "capacity": "the queue was full",
    "length": "it reached a length limit of the decoder",
    "open": "still open when the search stopped",
    "unsaid": "the decoder did not say why",
    "unrecorded": "expanded after the last recorded expansion",
}
"""The fates of prefixes without an expansion of their own, in words."""
OVERVIEW = 200
"""The most prefixes that a graph shows before the reader opens more."""
LEVEL = 5
"""The effort of gzip: the next level takes twice the time for 2 % fewer bytes."""


def page_data(runs: Sequence[TracedRun]) -> dict[str, Any]:
    """The data that the scripts of a page read first."""
    ids = sorted({id for run in runs for id in run.by_id})
    return {"runs": [_run(run) for run in runs], "reasons": REASONS, "ids": ids}


def sentence_data(runs: Sequence[TracedRun], id: int) -> dict[str, Any]:
    """The data of one sentence."""
    traces = [run.by_id.get(id) for run in runs]
    trees = [[] if trace is None else prefixes(trace) for trace in traces]
    errors = [cell.text for cell in search_errors(runs, traces)]
    return {
        "searches": [
            None if trace is None else _search(trace, tree) | {"searchError": error}
            for trace, tree, error in zip(traces, trees, errors, strict=True)
        ],
        "parting": _parting(runs, traces, trees),
    }


def packed(data: Any) -> str:
    """JSON, packed by gzip, in base64. Equal data are equal texts.

    Lone surrogates become question marks. Raises ValueError for NaN and infinities, which JSON cannot contain.
    """
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return b64encode(gzip.compress(text.encode("utf-8", "replace"), LEVEL, mtime=0)).decode("ascii")


def _run(run: TracedRun) -> dict[str, Any]:
    header = run.header
    return {
        "name": run.name,
        "predictors": header.predictors,
        "weights": header.weights,
        "decoder": header.decoder,
        "options": {name: str(value) for name, value in header.options.items()},
        "ranking": {name: str(value) for name, value in header.ranking.items()},
        "nbest": header.nbest,
        "children": header.children,
        "pieces": {str(token): visible(piece) for token, piece in run.pieces.items()},
    }


def _search(trace: SentenceTrace, tree: Sequence[TreePrefix]) -> dict[str, Any]:
    """One sentence of one run."""
    batches = {batch.number: batch for batch in trace.batches}
    places = {number: place for place, prefix in enumerate(tree) for number in prefix.expansions}
    ends = {prefix.rank: place for place, prefix in enumerate(tree) if prefix.rank is not None}
    return {
        "source": [visible(piece) for piece in trace.pieces or map(str, trace.tokens)],
        "text": trace.text,
        "limit": trace.max_length,
        "tree": _tree(tree),
        "shown": overview(tree, OVERVIEW),
        "expansions": [_expansion(expansion, places, batches) for expansion in trace.expansions],
        "recombined": list(_recombined(trace, tree, places)),
        "notes": _notes(trace, tree, places),
        "bounds": [_bound(bound) for bound in trace.bounds],
        "hypotheses": [
            {
                "place": ends.get(rank),
                "tokens": hypothesis.tokens,
                "text": hypothesis.text,
                "score": finite(hypothesis.score),
                "rankScore": finite(hypothesis.rank_score),
            }
            for rank, hypothesis in enumerate(trace.hypotheses)
        ],
        "stopped": trace.stopped,
        "counted": trace.counted,
        "proven": trace.proven,
        "gap": finite(trace.gap),
        "seconds": finite(trace.seconds),
        "error": trace.error,
    }


def _tree(tree: Sequence[TreePrefix]) -> dict[str, list[Any]]:
    """One list per property; -1 stands for no parent, token, expansion or rank."""
    return {
        "parent": [-1 if prefix.parent is None else prefix.parent for prefix in tree],
        "token": [-1 if prefix.token is None else prefix.token for prefix in tree],
        "total": [finite(prefix.total) for prefix in tree],
        "scores": [[*map(finite, prefix.scores)] for prefix in tree],
        "fate": [prefix.fate for prefix in tree],
        "expansion": [prefix.expansions[0] if prefix.expansions else -1 for prefix in tree],
        "times": [len(prefix.expansions) for prefix in tree],
        "rank": [-1 if prefix.rank is None else prefix.rank for prefix in tree],
        "below": [prefix.below for prefix in tree],
    }


def _expansion(expansion: Expansion, places: dict[int, int], batches: dict[int, Batch]) -> dict[str, Any]:
    """An expansion without its children. Properties without a value are left out."""
    found: dict[str, Any] = {"place": places[expansion.number], "candidates": expansion.candidates}
    found["rest"] = expansion.rest
    if expansion.ending:
        found["ending"] = True
    if expansion.weights is not None:
        found["weights"] = expansion.weights
    if expansion.alone:
        found["alone"] = [
            None if alone is None else [alone.token, finite(alone.score), alone.forbidden_by]
            for alone in expansion.alone
        ]
    if expansion.attention:
        found["attention"] = {
            name: [round(weight, 4) for weight in weights] for name, weights in expansion.attention.items()
        }
    if expansion.place:
        found["where"] = dict(expansion.place)
    if expansion.batch in batches:
        batch = batches[expansion.batch]
        found["batch"] = [batch.number, batch.rows, finite(batch.seconds)]
    return found


def _recombined(
    trace: SentenceTrace, tree: Sequence[TreePrefix], places: dict[int, int]
) -> Iterator[tuple[int, int]]:
    """The place of each recombined prefix, and of the one that represents both."""
    children = {(prefix.parent, prefix.token): place for place, prefix in enumerate(tree)}
    for expansion in trace.expansions:
        for token, (other, other_token) in expansion.into.items():
            start = children.get((places[expansion.number], token))
            end = children.get((places[other], other_token)) if other in places else None
            if start is not None and end is not None:
                yield start, end


def _notes(trace: SentenceTrace, tree: Sequence[TreePrefix], places: dict[int, int]) -> dict[str, list[str]]:
    """The decoder's notes about a prefix, by its place."""
    children = {(prefix.parent, prefix.token): place for place, prefix in enumerate(tree)}
    return {
        str(children[places[each.number], token]): list(notes)
        for each in trace.expansions
        for token, notes in each.notes.items()
        if (places[each.number], token) in children
    }


def _bound(bound: Bound) -> tuple[int, float | None, float | None]:
    return bound.expansions, finite(bound.bound), finite(bound.best)


def _parting(
    runs: Sequence[TracedRun], traces: Sequence[SentenceTrace | None], trees: Sequence[Sequence[TreePrefix]]
) -> dict[str, Any] | None:
    both = [trace for trace in traces if trace is not None]
    if len(both) < 2:
        return None
    found: Parting = parting(runs, both, trees)
    return {
        "step": found.step,
        "sums": [{name: finite(sum) for name, sum in sums.items()} for sums in found.sums],
        "missed": [missed and [missed.place, missed.complete] for missed in found.missed],
    }


def finite(number: float | None) -> float | None:
    """None for infinities, which JSON cannot contain.

    >>> finite(-0.5), finite(float("-inf"))
    (-0.5, None)
    """
    return number if number is not None and math.isfinite(number) else None

