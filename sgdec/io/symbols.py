"""Symbol tables, of sgdec and of other tools: which number stands for which word.

In all files of sgdec 1 is ``<s>`` and 2 is ``</s>``. Files that belong to a table of another numbering can be read
without any error, but as other words. So such a table is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from sgdec.context import BOS, EOS, UNK

RESERVED = {BOS: "<s>", EOS: "</s>"}
NAMES = {UNK: "<unk>", **RESERVED}
"""The names of the first numbers in the tables that sgdec writes."""
_ESCAPED = re.compile(r"[ \x00-\x1f\x7f-\x9f\u2028\u2029]|\\(?=[xue])")
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


def table_lines(pieces: Iterable[str]) -> Iterator[str]:
    """The lines of the table of a vocabulary, without line ends: symbol, tab, number.

    The first three have the names of `NAMES`. Other pieces are written as they are, except characters that would
    break the table, see `symbol_of`.
    """
    for number, piece in enumerate(pieces):
        yield f"{NAMES.get(number) or symbol_of(piece)}\t{number}"


def symbol_of(piece: str) -> str:
    r"""A piece as a symbol. Different pieces have different symbols, also those of `NAMES`.

    Blanks, control characters and line separators become ``\x20`` or ``\u2028``; ``\`` before ``x``, ``u`` or ``e``
    becomes ``\x5c``; the empty piece is ``\e``; a piece called ``<s>``, ``</s>`` or ``<unk>`` begins with ``\x3c``.

    >>> print(symbol_of("two words"), symbol_of("\n"), symbol_of("<s>"), symbol_of("\\"), symbol_of(r"\xe"))
    two\x20words \x0a \x3cs> \ \x5cxe
    """
    if not piece:
        return r"\e"
    if piece in NAMES.values():
        return rf"\x3c{piece[1:]}"
    return _ESCAPED.sub(_escape, piece)


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
