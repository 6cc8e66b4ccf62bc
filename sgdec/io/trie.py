"""Tries: sets of allowed outputs as prefix trees, in memory and in files that are memory-mapped.

The entries of a trie are token sequences, each of which ends with ``</s>``. Nodes are numbered breadth first, and the
root is 0. So the children of a node have consecutive numbers, and they ascend by token. Two numbers per node describe
the tree: its first child, and the token that leads to it. (These are compressed sparse rows; the column of targets is
left out, because arc n leads to node n + 1.)

Weights are pushed towards the root (Mohri, Pereira and Riley 2002, section 3.4): the score of an arc is the highest
weight of the entries after it, minus that of the entries after its origin. Weights are rounded to multiples of 2^-30.
Then all differences and sums are exact, and the scores along an entry add up to its weight bit for bit.

A file is little-endian. With N nodes it has

    128 bytes      the header (`_HEADER`), padded with zeros
    8 N bytes      only with weights: the score of the arc to each node; for the root the highest weight of all
    8 N bytes      only with weights: the lowest score that can still follow each node
    4 N + 4 bytes  the first child of each node; the last number is N
    4 N bytes      the token that leads to each node; 0 for the root
    4 B bytes      the CRC-32 of each of the B blocks of 4,096 nodes

So an arc takes 8 bytes without weights, and 24 with weights. The checksum of a block is that of all numbers of its
nodes, and the header has one of itself and one of the list of checksums. To open a trie, only the header, that list
and the first block are read. Any other block is checked when a search first visits one of its nodes, at two GB per
second, so a search never uses a number that has changed. Files of version 1 have no checksums. When one is opened,
some samples are checked; and that children are in the file, when a search visits them.
"""

from __future__ import annotations

import hashlib
import os
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from sgdec.arcs import DEAD, spread
from sgdec.arrays import Copies, Floats, Ints, Put, namespace
from sgdec.context import EOS, Vocabulary
from sgdec.errors import SgdecError
from sgdec.io.entries import Entries
from sgdec.io.writing import whole_file
from sgdec.protocol import FORBIDDEN, Arcs, Listed
from sgdec.text.lines import open_bytes, reading

MAGIC = b"\x93sgdec trie\n"
"""The first bytes of a file; the first one is not UTF-8."""
VERSION = 2
WITHOUT_CHECKSUMS = 1
"""The version before, which is still read."""
QUANTUM = 2.0**-30
"""Weights are multiples of this number."""
_HEADER = struct.Struct("<12sIIIQQQI32s")
"""Magic, version, whether there are weights, length of the longest entry, nodes, entries, size of the vocabulary (0 =
unknown), largest token, hash of the vocabulary (zeros = entries are token ids). The CRC-32 of the list of checksums
follows, except in version 1, and then the CRC-32 of all before it."""
_CRC = struct.Struct("<I")
_SIZE = 128
_MOST_NODES = (1 << 32) - 1
_BLOCK_BITS = 12
"""A block has 2^12 nodes: 32 KiB without weights and 96 KiB with weights, which are checked in 50 microseconds."""
_SAMPLES = 1024
_TOKEN_BITS = 31


@dataclass(frozen=True, eq=False)
class Trie:
    """A set of entries. In the arrays, which may be a file's, node n has place n."""

    first: npt.NDArray[np.uint32]
    """``[N + 1]``: the first child of each node; its children end where those of the next node begin."""
    tokens: npt.NDArray[np.int32]
    """``[N]``: the token that leads to the node; 0 for the root. Nodes after ``</s>`` have no children."""
    scores: Floats | None
    """``[N]``: the score of this token; for the root the weight of the best entry. None = all scores are 0."""
    least: Floats | None
    """``[N]``: the least that can follow a node, ``</s>`` included."""
    entries: int
    """The number of different entries."""
    longest: int
    """The number of tokens of the longest entry."""
    largest: int
    """The largest token."""
    where: str = "the trie"
    """The name in errors."""
    vocab_size: int = 0
    """The size of the vocabulary of the entries; 0 = unknown."""
    vocabulary: bytes = bytes(32)
    """`fingerprint_of` this vocabulary; zeros = the entries were token ids."""
    blocks: _Blocks | None = field(default=None, repr=False)
    """The checksums of a file; None = it has none, or the trie is of no file."""
    _copies: Copies[Trie] = field(default_factory=lambda: Copies(Trie._moved), init=False, repr=False)

    @property
    def nodes(self) -> int:
        """N: one for each prefix of an entry, from the empty one to the whole entry with its ``</s>``."""
        return len(self.tokens)

    @property
    def best(self) -> float:
        """The weight of the best entry."""
        return 0.0 if self.scores is None else float(self.scores[0])

    def without_weights(self) -> Self:
        """The same entries, with weight 0."""
        return replace(self, scores=None, least=None)

    def check(self) -> None:
        """Check all blocks of a file. Raises SgdecError if one is damaged."""
        self._check(0, self.nodes)

    def least_after(self, node: int) -> float:
        """The least that can follow a node, ``</s>`` included. Raises SgdecError if the file is damaged there."""
        self._check(node, node)
        return 0.0 if self.least is None else float(self.least[node])

    def children(self, node: int) -> slice:
        """The children of one node. Raises SgdecError if the file is damaged there."""
        self._check(node, node)
        begin, end = int(self.first[node]), int(self.first[node + 1])
        if not node < begin <= end <= self.nodes:
            raise self._damaged(node)
        self._check(begin, end)
        return slice(begin, end)

    def arcs(self, nodes: Ints, candidates: Listed | None) -> Arcs:
        """The arcs of nodes, or those for candidates: `sgdec.protocol.ArcsAhead.arcs`. Negative nodes have none.

        Cost: linear in the number of arcs, or a binary search per candidate. Raises SgdecError if the file is damaged
        at one of these nodes.
        """
        return self._copies.beside(self, nodes)._arcs(nodes, candidates)

    def write(self, path: str | Path) -> None:
        """Write a file that `open_trie` maps. Raises SgdecError if it cannot be written."""
        body = [
            None if array is None else np.ascontiguousarray(array, kind)
            for array, kind in ((self.scores, "<f8"), (self.least, "<f8"), (self.first, "<u4"), (self.tokens, "<i4"))
        ]
        blocks = range((self.nodes >> _BLOCK_BITS) + 1)
        sums = np.array([_checksum(body, block) for block in blocks], "<u4")
        header = _HEADER.pack(
            MAGIC, VERSION, self.scores is not None, self.longest, self.nodes, self.entries, self.vocab_size,
            self.largest, self.vocabulary,
        )  # fmt: skip
        header += _CRC.pack(zlib.crc32(sums.data))
        header += _CRC.pack(zlib.crc32(header))
        with whole_file(path) as file:
            file.write(header.ljust(_SIZE, b"\0"))
            for array in (*body, sums):
                if array is not None:
                    file.write(array.data)

    def _arcs(self, nodes: Ints, candidates: Listed | None) -> Arcs:
        """`arcs` on the device of this trie."""
        xp, (begin, count) = namespace(nodes), self._ranges(nodes)
        if candidates is None:
            offsets, found = spread(begin, count)
            return offsets, xp.asarray(self.tokens[found], dtype=xp.int64), self._scores_of(found), found
        offsets, tokens = candidates
        row = xp.repeat(xp.arange(len(nodes), device=nodes.device), offsets[1:] - offsets[:-1])
        found = self._search(begin[row], count[row], tokens)
        return offsets, tokens, xp.where(found == DEAD, FORBIDDEN, self._scores_of(found)), found

    def _moved(self, put: Put) -> Trie:
        """The same on another device, for `_arcs` alone."""
        self.check()
        arrays = {"first": put(self.first), "tokens": put(self.tokens), "scores": put(self.scores)}
        return replace(self, **arrays, least=None, blocks=None)

    def _check(self, begin: int, end: int) -> None:
        """Check the blocks of the nodes from ``begin`` to ``end``."""
        if self.blocks is not None:
            self.blocks.check(begin, end)

    def _ranges(self, nodes: Ints) -> tuple[Ints, Ints]:
        """``[R]``: the first child of each node, and the number of its children."""
        xp, alive = namespace(nodes), nodes >= 0
        places = xp.where(alive, nodes, 0)
        begin = xp.asarray(self.first[places], dtype=xp.int64)
        end = xp.asarray(self.first[places + 1], dtype=xp.int64)
        sound = (places < begin) & (begin <= end) & (end <= self.nodes)
        if not sound.all():
            raise self._damaged(int(places[~sound][0]))
        if self.blocks is not None:
            self.blocks.check_all(places, begin, end)
        return begin, xp.where(alive, end - begin, 0)

    def _search(self, begin: Ints, count: Ints, tokens: Ints) -> Ints:
        """For each range of children the one that ``tokens [n]`` leads to; `DEAD` if there is none."""
        xp, low, high, last = namespace(begin), begin, begin + count, self.nodes - 1
        for _ in range(int(count.max()).bit_length() if len(count) else 0):
            middle = (low + high) >> 1
            before = (self.tokens[xp.minimum(middle, last)] < tokens) & (low < high)
            low, high = xp.where(before, middle + 1, low), xp.where(before, high, middle)
        found = (low < begin + count) & (self.tokens[xp.minimum(low, last)] == tokens)
        nodes: Ints = xp.where(found, low, DEAD)
        return nodes

    def _scores_of(self, nodes: Ints) -> Floats:
        if self.scores is not None:
            return self.scores[nodes]
        xp = namespace(nodes)
        scores: Floats = xp.zeros(len(nodes), dtype=xp.float64, device=nodes.device)
        return scores

    def _damaged(self, node: int) -> SgdecError:
        return SgdecError(f"{self.where}: damaged: the children of node {node} are not in it. Build it again.")


def fingerprint_of(vocabulary: Vocabulary) -> bytes:
    """32 bytes that are equal for equal vocabularies."""
    return hashlib.sha256(vocabulary.fingerprint.encode()).digest()


def build_trie(
    entries: Entries,
    where: str = "the trie",
    vocabulary: Vocabulary | None = None,
    vocab_size: int | None = None,
    *,
    note: Callable[[str], None] | None = None,
) -> Trie:
    """The trie of some entries; equal ones count once, with the best weight. ``note`` is told how far it is.

    Cost: memory linear in the number of tokens; the entries are sorted once per level. Raises SgdecError if there is
    no entry, or if there are too many nodes.
    """
    if len(entries.offsets) == 1:
        raise SgdecError(f"{where}: no entries, so nothing would be allowed. Expected one entry on each line.")
    tokens, counts, levels, ends = _levels(entries, note)
    size = len(tokens)
    if size > _MOST_NODES:
        raise SgdecError(f"{where}: {size} nodes, but a trie has at most {_MOST_NODES}. Divide the list.")
    first = np.append(1, 1 + np.cumsum(counts))
    scores = least = None
    if entries.weights is not None:
        scores, least = _pushed(first, levels, ends, np.rint(entries.weights / QUANTUM) * QUANTUM)
    return Trie(
        first.astype(np.uint32),
        tokens,
        scores,
        least,
        entries=int((tokens == EOS).sum()),
        longest=len(levels) - 2,
        largest=int(tokens.max()),
        where=where,
        vocab_size=vocab_size or 0,
        vocabulary=bytes(32) if vocabulary is None else fingerprint_of(vocabulary),
    )


def _levels(
    entries: Entries, note: Callable[[str], None] | None
) -> tuple[npt.NDArray[np.int32], Ints, list[slice], Ints]:
    """The tree: token ``[N]`` and number of children ``[N]`` of each node, the nodes of each level, and for each
    entry the node of its ``</s>`` ``[E]``.

    The entries that reach a level are sorted by their node in it and their next token. Each different pair is a node
    of the next level.
    """
    ends = np.zeros(len(entries.offsets) - 1, np.int64)
    active = np.arange(len(ends))
    parents = np.zeros(len(ends), np.int64)  # of each active entry its node, counted from the first of the level
    place = entries.offsets[:-1]
    tokens, counts, levels = [np.zeros(1, np.int32)], [], [slice(0, 1)]
    while len(active):
        if note:
            note(f"level {len(levels)}, {len(active):,} entries")
        keys = (parents << _TOKEN_BITS) | entries.tokens[place]
        order = np.argsort(keys, kind="stable")
        keys, active, place = keys[order], active[order], place[order]
        new = np.append(True, keys[1:] != keys[:-1])
        found = keys[new]
        level = levels[-1]
        counts.append(np.bincount(found >> _TOKEN_BITS, minlength=level.stop - level.start))
        tokens.append((found & ((1 << _TOKEN_BITS) - 1)).astype(np.int32))
        levels.append(slice(level.stop, level.stop + len(found)))
        nodes = np.cumsum(new) - 1
        ended = (keys & ((1 << _TOKEN_BITS) - 1)) == EOS
        ends[active[ended]] = level.stop + nodes[ended]
        active, parents, place = active[~ended], nodes[~ended], place[~ended] + 1
    counts.append(np.zeros(levels[-1].stop - levels[-1].start, np.int64))
    return np.concatenate(tokens), np.concatenate(counts), levels, ends


def _pushed(first: Ints, levels: list[slice], ends: Ints, weights: Floats) -> tuple[Floats, Floats]:
    """``[N]``: the score of each arc, and the least that can follow each node."""
    best = np.full(len(first) - 1, -np.inf)
    np.maximum.at(best, ends, weights)
    worst = np.where(best > -np.inf, best, np.inf)
    for level in reversed(levels):
        begin, end = first[level], first[level.start + 1 : level.stop + 1]
        inner = begin < end
        if inner.any():
            below, starts = slice(begin[inner][0], end[-1]), begin[inner] - begin[inner][0]
            best[level][inner] = np.maximum.reduceat(best[below], starts)
            worst[level][inner] = np.minimum.reduceat(worst[below], starts)
    before = np.append(0.0, best[1:])  # the sum of the scores on the way to each node
    parents = np.repeat(np.arange(len(before)), np.diff(first))
    scores = np.append(best[0], best[1:] - before[parents])
    return scores, worst - before


def is_trie(path: str | Path) -> bool:
    """Whether a file, unpacked, begins like a trie of any version; false for pipes, which can be read only once.

    Raises SgdecError if it cannot be read.
    """
    if not os.path.isfile(path):
        return False
    with reading(str(path)), open_bytes(path) as file:
        return file.read(len(MAGIC)) == MAGIC


def open_trie(path: str | Path) -> Trie:
    """Map a file that `Trie.write` wrote.

    Damage to its body is found when a search first visits it. Raises SgdecError if the file cannot be read, is of an
    unknown version, is cut short, or has a damaged beginning.
    """
    try:
        data = np.memmap(path, np.uint8, "r")
    except OSError as error:
        raise SgdecError(f"{path}: cannot be read ({error.strerror or error}).") from None
    except ValueError:
        raise SgdecError(f"{path}: empty, not a trie. `sgdec trie` builds one.") from None
    head = data[:_SIZE].tobytes()
    if str(path).endswith((".gz", ".zst")):
        raise SgdecError(f"{path}: a packed trie cannot be mapped into memory. Unpack it.")
    if not head.startswith(MAGIC):
        raise SgdecError(f"{path}: not a trie. `sgdec trie` builds one.")
    if len(head) < _SIZE:
        raise SgdecError(f"{path}: cut short: it has only {len(data)} bytes. Build it again.")
    (version,) = struct.unpack_from("<I", head, len(MAGIC))
    if version not in (VERSION, WITHOUT_CHECKSUMS):
        raise SgdecError(
            f"{path}: a trie of version {version}; expected version {VERSION}. Build it with this version of sgdec."
        )
    checked = _HEADER.size + (_CRC.size if version == VERSION else 0)
    if _CRC.unpack_from(head, checked)[0] != zlib.crc32(head[:checked]):
        raise SgdecError(f"{path}: damaged: its header does not fit its checksum. Build it again.")
    _, _, weighted, longest, nodes, entries, vocab_size, largest, vocabulary = _HEADER.unpack_from(head)
    blocks = (nodes >> _BLOCK_BITS) + 1 if version == VERSION else 0
    size = _SIZE + (24 if weighted else 8) * nodes + 4 + 4 * blocks
    if len(data) != size:
        short = "cut short" if len(data) < size else "damaged"
        raise SgdecError(f"{path}: {short}: it has {len(data)} bytes, but {nodes} nodes take {size}. Build it again.")
    parts = _Parts(data)
    scores, least = (parts.take(nodes, "<f8") if weighted else None for _ in range(2))
    first, tokens, sums = parts.take(nodes + 1, "<u4"), parts.take(nodes, "<i4"), parts.take(blocks, "<u4")
    trie = Trie(first, tokens, scores, least, entries, longest, largest, str(path), vocab_size, vocabulary)
    if version == WITHOUT_CHECKSUMS:
        _check_samples(trie)
        return trie
    if _CRC.unpack_from(head, _HEADER.size)[0] != zlib.crc32(sums):
        raise SgdecError(f"{path}: damaged: its checksums do not fit their own checksum. Build it again.")
    trie = replace(trie, blocks=_Blocks((scores, least, first, tokens), sums, str(path)))
    trie._check(0, 0)
    return trie


class _Blocks:
    """The blocks of a file. Each is checked when one of its nodes is visited, and then never again."""

    def __init__(self, body: Sequence[npt.NDArray[Any] | None], sums: npt.NDArray[np.uint32], where: str) -> None:
        """``body``: the arrays of the file, in their order; ``sums [B]``: the checksums of blocks."""
        self._body = body
        self._sums = sums
        self._where = where
        self._unchecked = bytearray(b"\1" * len(sums))
        """For each block 1 until it has been checked; single ones are read faster than those of an array."""
        self._flags = np.frombuffer(self._unchecked, np.bool_)

    def check(self, begin: int, end: int) -> None:
        """Check the nodes from ``begin`` to ``end``. Raises SgdecError if one is damaged."""
        first, last = begin >> _BLOCK_BITS, end >> _BLOCK_BITS
        if 1 in self._unchecked[first : last + 1]:
            for block in range(first, last + 1):
                self._check_block(block)

    def check_all(self, nodes: Ints, begin: Ints, end: Ints) -> None:
        """Check nodes ``[R]``, and ranges of nodes ``[R]``. Raises SgdecError if one is damaged."""
        blocks = np.concatenate((nodes, begin, end)) >> _BLOCK_BITS
        if self._flags[blocks].any() or (end - begin).max(initial=0) >> _BLOCK_BITS:
            _, inner = spread(begin >> _BLOCK_BITS, (end >> _BLOCK_BITS) - (begin >> _BLOCK_BITS) + 1)
            for block in np.union1d(blocks, inner).tolist():
                self._check_block(block)

    def _check_block(self, block: int) -> None:
        if self._unchecked[block] and _checksum(self._body, block) != self._sums[block]:
            first, last = block << _BLOCK_BITS, (block + 1 << _BLOCK_BITS) - 1
            raise SgdecError(
                f"{self._where}: damaged: nodes {first} to {last} do not fit their checksum. Build it again."
            )
        self._unchecked[block] = 0


def _checksum(body: Sequence[npt.NDArray[Any] | None], block: int) -> int:
    """The CRC-32 of the numbers of a block and of the node after it, which says where the last children end."""
    begin, end = block << _BLOCK_BITS, (block + 1 << _BLOCK_BITS) + 1
    found = 0
    for array in body:
        if array is not None:
            found = zlib.crc32(array[begin:end].data, found)
    return found


class _Parts:
    """The arrays of a file, one after the other, none of which is read."""

    def __init__(self, data: npt.NDArray[np.uint8]) -> None:
        self._data = np.asarray(data)
        self._at = _SIZE

    def take(self, count: int, kind: str) -> Any:
        begin, self._at = self._at, self._at + count * np.dtype(kind).itemsize
        return self._data[begin : self._at].view(kind)


def _check_samples(trie: Trie) -> None:
    """Checks nodes at regular distances. Raises SgdecError."""
    samples = np.unique(np.linspace(0, trie.nodes - 1, _SAMPLES).astype(np.int64))
    if trie.first[0] != 1 or trie.first[-1] != trie.nodes:
        raise trie._damaged(0)
    trie._ranges(samples)
    tokens = trie.tokens[samples]
    if tokens.min() < 0 or tokens.max() > trie.largest:
        node = int(samples[((tokens < 0) | (tokens > trie.largest)).argmax()])
        raise SgdecError(f"{trie.where}: damaged: node {node} has token {trie.tokens[node]}. Build it again.")
