"""The place where a search without a result came furthest, in words.

That is the longest prefix that was expanded, and the tokens that predictors allow after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from sgdec.context import EOS, Vocabulary
from sgdec.errors import SgdecError
from sgdec.protocol import FORBIDDEN
from sgdec.search.constellation import Constellation
from sgdec.search.node import Node
from sgdec.sparse import SparseRow

NAMED, SHOWN = 5, 20
"""The most tokens that are named as allowed or forbidden, and those at the end of a prefix that are shown."""
NameOf: TypeAlias = Callable[[int], str]
"""The name of a token in a message."""


def dead_end(constellation: Constellation, node: Node, name_of: NameOf) -> str | None:
    """One sentence about a prefix; None if no predictor forbids anything there, or if one fails."""
    ending = node.length == node.source.max_length
    found = []
    try:
        columns = constellation.combine([node]).columns
    except SgdecError:
        return None
    for column in columns:
        row = column.sparse_row(0)
        said = None if row is None else _allowed(row, ending, name_of)
        if said is not None:
            found.append(f"{column.name} {said}")
    if not found:
        return None
    tokens = "... " * (node.length > SHOWN) + " ".join(map(name_of, node.tokens[-SHOWN:]))
    prefix = f"the longest prefix, {tokens}" if tokens else "the empty prefix"
    return f"After {prefix}{', which has the full length' if ending else ''}: {'; '.join(found)}."


def _allowed(row: SparseRow, ending: bool, name_of: NameOf) -> str | None:
    """The tokens that a row allows, as the end of a sentence; None if it forbids none."""
    if ending:
        return "forbids </s>" if row.get(EOS) == FORBIDDEN else None
    if row.restricts:
        allowed = [token for token, score in row.lookup.items() if score != FORBIDDEN]
        return f"allows only {_named(allowed, name_of)}" if allowed else "allows nothing"
    forbidden = [token for token, score in row.lookup.items() if score == FORBIDDEN]
    return f"forbids {_named(forbidden, name_of)}" if forbidden else None


def _named(tokens: Sequence[int], name_of: NameOf) -> str:
    """Some of these tokens."""
    names = ["</s>" if token == EOS else name_of(token) for token in sorted(tokens)[:NAMED]]
    more = len(tokens) - NAMED
    return ", ".join(names) + (f" and {more:,} more" if more > 0 else "")


def names_of(vocabulary: Vocabulary | None) -> NameOf:
    """Pieces in quotes; numbers without a vocabulary, and for the tokens that only the models have."""
    if vocabulary is None:
        return str
    return lambda token: repr(vocabulary.piece(token)) if token < vocabulary.size else str(token)
