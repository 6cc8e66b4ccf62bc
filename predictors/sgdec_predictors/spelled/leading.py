"""The texts that the tokens of a vocabulary add, each once, in arrays."""

from __future__ import annotations

import numpy as np

from sgdec.arrays import Ints
from sgdec_predictors.spelled.trie import require_short
from sgdec_predictors.texts.spelling import Spelling

NO_TEXT, EMPTY = -1, 0
"""The numbers for tokens without a text, such as ``<unk>``, and for the text without bytes."""


class LeaderTexts:
    """Texts by number, in the order of their bytes; text 0 has no bytes.

    >>> texts = LeaderTexts(Spelling([[None, b"ab", b"a", b"ab", b""]], [[0] * 5]))
    >>> texts.of.tolist(), texts.text(2)
    ([[-1, 2, 1, 2, 0]], b'ab')
    >>> texts.beginning.tolist()  # of a; of a and of ab
    [1, 1, 2]
    """

    of: Ints
    """``[S, V]``: the text of each token in each state of the spelling, or `NO_TEXT`."""
    spelled: Ints
    """``[B]``: the bytes of all texts, one text after the other."""
    first: Ints
    """``[U]``: the place of the first byte of each text."""
    length: Ints
    """``[U]``: its number of bytes."""
    beginning: Ints
    """``[B]``: a number for the bytes of the text up to each byte: equal for texts that begin with the same ones."""

    def __init__(self, spelling: Spelling) -> None:
        """Raises SgdecError for very long tokens."""
        require_short(spelling)
        texts = sorted({b"", *(piece for pieces in spelling.adds for piece in pieces if piece is not None)})
        number: dict[bytes | None, int] = {None: NO_TEXT, **{text: i for i, text in enumerate(texts)}}
        self.of = np.array([[number[piece] for piece in pieces] for pieces in spelling.adds], np.int64)
        self.length = np.array(list(map(len, texts)), np.int64)
        self.first = np.cumsum(self.length) - self.length
        self.spelled = np.frombuffer(b"".join(texts), np.uint8).astype(np.int64)
        self.beginning = self._beginnings()

    def text(self, number: int) -> bytes:
        """The bytes of a text."""
        first = int(self.first[number])
        return self.spelled[first : first + int(self.length[number])].astype(np.uint8).tobytes()

    def _beginnings(self) -> Ints:
        """Texts are sorted, so those with a common beginning follow each other."""
        found = np.zeros(len(self.spelled), np.int64)
        active = self.length.nonzero()[0]
        group, met, depth = np.zeros(len(active), np.int64), 0, 0
        while len(active):
            places = self.first[active] + depth
            byte = self.spelled[places]
            new = np.append(True, (group[1:] != group[:-1]) | (byte[1:] != byte[:-1]))
            group = met + np.cumsum(new)
            found[places] = group
            met, depth = int(group[-1]), depth + 1
            longer = self.length[active] > depth
            active, group = active[longer], group[longer]
        return found
