"""Symbol tables of other tools: which number stands for which word.

In all files of sgdec 1 is ``<s>`` and 2 is ``</s>``. Files that belong to a table of another numbering can be read
without any error, but as other words. So such a table is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from sgdec.context import BOS, EOS

RESERVED = {BOS: "<s>", EOS: "</s>"}
_SPECIAL = re.compile(r"[<\[{(!#].+|s?[be]os|/?s|sent[-_]?(start|end)", re.IGNORECASE)
"""Names of symbols that are not words: tools have several for ``<s>`` and ``</s>``."""


def misnumbered(table: Mapping[int, str]) -> str | None:
    """Return how a table departs from 1 = ``<s>`` and 2 = ``</s>``, or None if it does not.

    Entries may be missing.

    >>> misnumbered({0: "<eps>", 1: "the", 2: "cat"})
    "1 is 'the', not <s>"
    >>> misnumbered({1: "<eps>", 2: "<s>", 3: "</s>"})
    '<s> is 2, not 1'
    >>> misnumbered({0: "<eps>", 1: "<bos>", 2: "<eos>", 3: "the"})
    """
    for number, name in RESERVED.items():
        others = [other for other, word in table.items() if word == name and other != number]
        if others and table.get(number) != name:
            return f"{name} is {others[0]}, not {number}"
    for number, name in RESERVED.items():
        word = table.get(number, name)
        if not _SPECIAL.fullmatch(word):
            return f"{number} is {word!r}, not {name}"
    return None
