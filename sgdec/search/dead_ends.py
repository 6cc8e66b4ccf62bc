"""The place where a search without a result came furthest, in words.

That is the longest prefix that was expanded, and the tokens that predictors allow after it.
"""

from __future__ import annotations

from collections.abc import Sequence

from sgdec.context import EOS
from sgdec.errors import SgdecError
from sgdec.protocol import FORBIDDEN
from sgdec.scores import DenseScores, SparseRow
from sgdec.search.constellation import Constellation
from sgdec.search.node import Node

NAMED = 5
"""The number of tokens that are named."""


def dead_end(constellation: Constellation, node: Node) -> str | None:
    """One sentence about a prefix; None if no predictor forbids anything there, or if one fails."""
    ending = node.length == node.source.max_length
    found = []
    try:
        columns = constellation.combine([node]).columns
    except SgdecError:
        return None
    for column in columns:
        row = None if isinstance(column.scores, DenseScores) else column.sparse_row(0)
        said = None if row is None else _allowed(row, ending)
        if said is not None:
            found.append(f"{column.name} {said}")
    if not found:
        return None
    tokens = " ".join(map(str, node.tokens))
    prefix = f"the longest prefix, {tokens}" if tokens else "the empty prefix"
    return f"After {prefix}{', which has the full length' if ending else ''}: {'; '.join(found)}."


def _allowed(row: SparseRow, ending: bool) -> str | None:
    """The tokens that a row allows, as the end of a sentence; None if it forbids none."""
    if ending:
        return "forbids </s>" if row.get(EOS) == FORBIDDEN else None
    if row.restricts:
        allowed = [token for token, score in row.lookup.items() if score != FORBIDDEN]
        return f"allows only {_named(allowed)}" if allowed else "allows nothing"
    forbidden = [token for token, score in row.lookup.items() if score == FORBIDDEN]
    return f"forbids {_named(forbidden)}" if forbidden else None


def _named(tokens: Sequence[int]) -> str:
    """Some of these tokens."""
    names = ["</s>" if token == EOS else str(token) for token in sorted(tokens)]
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more:,} more" if more > 0 else "")
