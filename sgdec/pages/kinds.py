"""Kinds of rows, among which the reader of a table selects (``sentences.html`` and ``sentences.js``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import NamedTuple


class Kinds(NamedTuple):
    """The kinds that rows of a table have."""

    counts: dict[str, int]
    """By kind, in words, the number of rows that are of it."""
    of_rows: list[str]
    """For each row the value of its attribute ``data-kinds``: the places of its kinds among the counts."""


def kinds(rows: Collection[Collection[str]], order: Iterable[str]) -> Kinds:
    """``rows``: the kinds of each row; ``order``: all kinds, in the order of the list. Those that no row has
    are left out.

    >>> kinds([["short"], [], ["short", "late"]], ["late", "early", "short"])
    Kinds(counts={'late': 1, 'short': 2}, of_rows=['1', '', '0 1'])
    """
    found = Counter(kind for row in rows for kind in set(row))
    counts = {kind: found[kind] for kind in order if found[kind]}
    return Kinds(counts, [" ".join(str(place) for place, kind in enumerate(counts) if kind in row) for row in rows])
