"""'Did you mean ...?': the end of each error message about an unknown name."""

from __future__ import annotations

from collections.abc import Iterable


def suggest(name: str, known: Iterable[str]) -> str:
    """Suggestions for an unknown ``name``: the most similar known name, if one is similar, and all known names.

    >>> suggest("bigrm", ["ngram", "fst", "bigram"])
    "Did you mean 'bigram'? Available: bigram, fst, ngram."
    >>> suggest("x", [])
    'Available: none.'
    """
    from difflib import get_close_matches  # imported late, because it is only needed for errors

    names = sorted(set(known))
    near = get_close_matches(name, names, n=1, cutoff=0.5)  # low enough for 'wd' to suggest 'wc'
    return f"{f'Did you mean {near[0]!r}? ' if near else ''}Available: {', '.join(names) or 'none'}."
