"""The tokens of a vocabulary as a trie of their bytes, in arrays.

The bytes of a token depend on the state of the spelling before it (`sgdec_predictors.texts.spelling`), so there is
one trie for each of the S states. All are in the same arrays. An entry is a pair of a state and a token; entries are
sorted by state, then by bytes. A node is the range of the entries that begin with its bytes: first those that end
there, then those of its first child, of its second child, and so on. Nodes are numbered level by level, so node q < S
is the root of state q, and the children of a node have consecutive numbers.
"""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

import numpy as np

from sgdec import SgdecError
from sgdec.arrays import Floats, Ints
from sgdec.protocol import FORBIDDEN
from sgdec_predictors.texts.spelling import Spelling
from sgdec_predictors.wrapping.inner_tokens import REACH

LONGEST = 10_000
"""The number of bytes of a token; those of usual models have about 100 at most."""


class SpellingTrie:
    """The tries of all states of a spelling.

    >>> trie = SpellingTrie(Spelling([[None, b"a", b"ab", b"b", b"a"]], [[0] * 5]))
    >>> trie.tokens.tolist(), trie.label, trie.child(0, ord("a"))
    ([1, 4, 2, 3], b'\\x00abb', 1)
    >>> [int(place[1]) for place in (trie.first, trie.inside, trie.last)]  # 1 and 4 end there, 2 is inside
    [0, 2, 3]
    """

    tokens: Ints
    """``[n]``: the token of each entry."""
    after: Ints
    """``[n]``: the state of the spelling after it."""
    first: Ints
    """``[N]``: the first entry of each node."""
    inside: Ints
    """``[N]``: its first entry that is longer than the node; those before it end in the node."""
    last: Ints
    """``[N]``: the entry after its last one."""
    children: Ints
    """``[N + 1]``: the first child of each node; its last child is before the first one of the next node."""
    mean_bytes: float
    """The mean length of the entries."""
    label: bytes
    """``N`` bytes: the last byte of each node."""

    def __init__(self, spelling: Spelling) -> None:
        """Raises SgdecError for very long tokens, and if tokens without text could follow each other endlessly."""
        require_short(spelling)
        entries = sorted(
            (piece, state, token)
            for state, pieces in enumerate(spelling.adds)
            for token, piece in enumerate(pieces)
            if piece is not None
        )
        entries.sort(key=lambda entry: entry[1])  # stable: by state, then by bytes
        self.states = spelling.states
        self.mean_bytes = sum(len(piece) for piece, _, _ in entries) / max(len(entries), 1)
        self.tokens = np.array([token for _, _, token in entries], np.int64)
        states = np.array([state for _, state, _ in entries], np.int64)
        self.after = spelling.after[states, self.tokens] if len(entries) else self.tokens
        self._build([piece for piece, _, _ in entries], states)
        self._require_ends()

    def child(self, node: int, byte: int) -> int:
        """The child of a node for one more byte; -1 if there is none."""
        return self.label.find(byte, int(self.children[node]), int(self.children[node + 1]))

    def children_for(self, nodes: Ints, bytes_: Ints) -> Ints:
        """The same for arrays of nodes and bytes, of equal lengths."""
        if not len(self._ways):
            return np.full(len(nodes), -1)
        asked = (nodes << 8) + bytes_
        place = np.minimum(np.searchsorted(self._ways, asked), len(self._ways) - 1)
        return np.where(self._ways[place] == asked, place + self.states, -1)

    def _build(self, pieces: list[bytes], states: Ints) -> None:
        """The nodes, one level after the other."""
        lengths = np.array(list(map(len, pieces)), np.int64)
        begins = np.cumsum(lengths) - lengths
        spelled = np.frombuffer(b"".join(pieces), np.uint8)
        active = np.arange(len(pieces))  # the entries that reach the level
        bounds = np.searchsorted(states, np.arange(self.states + 1))
        ended = np.bincount(states[lengths == 0], minlength=self.states)
        firsts, insides, lasts = [bounds[:-1]], [bounds[:-1] + ended], [bounds[1:]]
        labels, counts, nodes = [np.zeros(self.states, np.uint8)], [], states
        base, depth = 0, 0
        while True:
            longer = lengths[active] > depth
            active, nodes, depth = active[longer], nodes[longer], depth + 1
            here = sum(map(len, firsts)) - base  # the nodes of the level above
            if not len(active):
                counts.append(np.zeros(here, np.int64))
                break
            byte = spelled[begins[active] + depth - 1]
            new = np.append(True, (nodes[1:] != nodes[:-1]) | (byte[1:] != byte[:-1]))
            starts = new.nonzero()[0]
            counts.append(np.bincount(nodes[starts] - base, minlength=here))
            base += here
            firsts.append(active[starts])
            insides.append(active[starts] + np.add.reduceat(lengths[active] == depth, starts, dtype=np.int64))
            lasts.append(active[starts] + np.diff(np.append(starts, len(active))))
            labels.append(byte[starts])
            nodes = base + np.cumsum(new) - 1
        self.first, self.inside, self.last = map(np.concatenate, (firsts, insides, lasts))
        self.children = self.states + np.append(0, np.cumsum(np.concatenate(counts)))
        label = np.concatenate(labels)
        parents = np.arange(len(label)).repeat(np.diff(self.children))
        self._ways = (parents << 8) + label[self.states :]  # sorted, as nodes are numbered
        self.label = label.tobytes()

    def _require_ends(self) -> None:
        """Refuse states that tokens without text lead around in a circle."""
        silent = {state: self.after[self.first[state] : self.inside[state]].tolist() for state in range(self.states)}
        try:
            TopologicalSorter(silent).prepare()
        except CycleError:
            token = next(self.tokens[self.first[state]] for state, after in silent.items() if after)
            raise SgdecError(
                f"tokens without text, such as token {token}, can be repeated without an end, so that each text has "
                "infinitely many tokenisations."
            ) from None


def require_short(spelling: Spelling) -> None:
    """Raises SgdecError for a token of more than `LONGEST` bytes: tries have a level for each byte."""
    for pieces in spelling.adds:
        size, token = max((len(piece or b""), token) for token, piece in enumerate(pieces))
        if size > LONGEST:
            raise SgdecError(
                f"token {token} of the vocabulary spells {size:,} bytes. The limit is {LONGEST:,}."
            )


def log_sums(values: Floats, starts: Ints) -> Floats:
    """``[starts]``: the log of the sum of exp(values) from each start up to the next one; no part is empty.

    Each sum has the precision of its own largest term, however small it is beside others.
    """
    values = values.astype(np.float64, copy=False)
    with np.errstate(divide="ignore", invalid="ignore"):
        highest = np.maximum.reduceat(values, starts)
        highest[highest == FORBIDDEN] = 0.0
        if (np.abs(highest) <= REACH).all():
            return np.asarray(np.log(np.add.reduceat(np.exp(values), starts)))
        lengths = np.diff(np.append(starts, len(values)))
        return np.asarray(highest + np.log(np.add.reduceat(np.exp(values - highest.repeat(lengths)), starts)))


def log_sums_by_place(places: Ints, values: Floats, size: int) -> Floats:
    """``[size]``: the same for the values at each place, in their order; -inf for a place without values."""
    highest = np.full(size, FORBIDDEN)
    with np.errstate(divide="ignore", invalid="ignore"):
        np.maximum.at(highest, places, values)
        highest[highest == FORBIDDEN] = 0.0
        return np.asarray(highest + np.log(np.bincount(places, np.exp(values - highest[places]), size)))
