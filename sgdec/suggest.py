"""Did you mean? The end of every message about a name that nobody knows."""

from __future__ import annotations

from collections.abc import Iterable


def suggest(name: str, known: Iterable[str]) -> str:
    """Suggestions for an unknown ``name``: the nearest known name, if one is near, and all of them.

    >>> suggest("bigrm", ["ngram", "fst", "bigram"])
    "Did you mean 'bigram'? Available: bigram, fst, ngram."
    >>> suggest("x", [])
    'Available: none.'
    """
    from difflib import get_close_matches  # only when something went wrong

    names = sorted(set(known))
    near = get_close_matches(name, names, n=1, cutoff=0.5)  # wd is near to wc
    return f"{f'Did you mean {near[0]!r}? ' if near else ''}Available: {', '.join(names) or 'none'}."
