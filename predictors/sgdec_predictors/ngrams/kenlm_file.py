"""Checks of KenLM's binary files before KenLM maps them. KenLM trusts every size and reference in a file: a wrong one
crashes the process, or makes KenLM search a full hash table for ever.

A file of KenLM's version 5 is a header, the vocabulary, and the n-grams (Heafield 2011, sections 3.1 and 3.2), in

- ``probing``: hash tables. The check requires that each table has a free slot, and that the numbers of words are
  within the unigrams;
- ``trie``: sorted, bit-packed arrays, in which each n-gram refers to the beginning of its extensions. The check
  requires that these references ascend and stay inside the next array.

Probabilities are not checked, because KenLM only adds them up. Cost: one pass over the file, and a few megabytes.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sgdec.errors import SgdecError

MAGIC = b"mmap lm http://kheafield.com/code"
"""The first bytes of a KenLM binary."""
_SANITY = struct.pack("<56s3f3IQ", MAGIC + b" format version 5\n", 0.0, 1.0, -0.5, 1, 0xFFFFFFFF, 0, 1)
_FIXED = struct.Struct("<B3xfi?3xI")
"""Order, multiplier of hash tables, type of model, whether words are stored, version of the search."""
_PROBING, _REST_PROBING, _TRIE, _QUANTISED_TRIE = range(4)
_MOST_ORDER = 16
_ROWS = 1 << 18
"""The number of rows of a table that are checked at a time."""


class _Damaged(Exception):
    """The description of a defect."""


def check_kenlm(path: str | Path) -> None:
    """Raises `SgdecError` if the file is damaged, of another version, or packed in an unsupported way."""
    try:
        _check(np.memmap(path, np.uint8, "r"))
    except (_Damaged, struct.error) as error:
        why = str(error) if isinstance(error, _Damaged) else "it is cut short"
        raise SgdecError(f"{path}: KenLM cannot read it: {why}. Build it again, or give the ARPA file.") from None
    except OSError as error:
        raise SgdecError(f"{path}: cannot be read ({error.strerror or error}).") from None


def _check(data: Any) -> None:
    """``data``: the bytes of the file."""
    if data[: len(_SANITY)].tobytes() != _SANITY:
        raise _Damaged("it is not a binary of version 5 for machines like this one")
    order, multiplier, kind, _, _ = _FIXED.unpack_from(data, len(_SANITY))
    if not 2 <= order <= _MOST_ORDER:
        raise _Damaged(f"its order is {order}")
    counts = struct.unpack_from(f"<{order}Q", data, len(_SANITY) + _FIXED.size)
    begin = len(_SANITY) + _FIXED.size + 8 * order
    begin += -begin % 8
    if max(counts) > 8 * len(data):  # an n-gram takes more than a bit
        raise _Damaged("it is cut short")
    if kind in (_PROBING, _REST_PROBING):
        _check_probing(_Bytes(data, begin), counts, multiplier, 12 if kind == _REST_PROBING else 8)
    elif kind in (_TRIE, _QUANTISED_TRIE):
        _check_trie(_Bytes(data, begin), counts, kind == _QUANTISED_TRIE)
    else:
        raise _Damaged("it is a trie with array-compressed pointers, which cannot be checked; build it without -a")


class _Bytes:
    """The rest of a file; `take` removes parts from its beginning."""

    def __init__(self, data: npt.NDArray[np.uint8], begin: int) -> None:
        self._data = data
        self._at = begin

    def take(self, rows: int, kind: Any) -> npt.NDArray[Any]:
        """The next ``rows`` values of a type."""
        kind = np.dtype(kind)
        begin, self._at = self._at, self._at + rows * kind.itemsize
        if self._at > len(self._data):
            raise _Damaged("it is cut short")
        return self._data[begin : self._at].view(kind)


def _check_probing(file: _Bytes, counts: Sequence[int], multiplier: float, weights: int) -> None:
    if not 1 <= multiplier < math.inf:
        raise _Damaged(f"its hash tables are {multiplier} times as large as their content")
    sizes = [max(count + 1, int(np.float32(multiplier) * np.float32(count))) for count in counts]
    file.take(8, np.uint8)  # version and number of words
    words = file.take(sizes[0], [("key", "<u8"), ("value", "<u4")])
    _require_free(words, "words")
    for rows in _parts(words):
        if rows["value"][rows["key"] != 0].max(initial=0) > counts[0]:
            raise _Damaged("a word has a number beyond the unigrams")
    file.take(counts[0] + 1, f"V{weights}")
    for n, size in enumerate(sizes[1:], 2):
        last = n == len(counts)
        _require_free(file.take(size, [("key", "<u8"), ("weights", f"V{4 if last else weights}")]), f"{n}-grams")


def _require_free(table: npt.NDArray[Any], what: str) -> None:
    if not any((rows["key"] == 0).any() for rows in _parts(table)):
        raise _Damaged(f"its hash table of {what} has no free place")


def _check_trie(file: _Bytes, counts: Sequence[int], quantised: bool) -> None:
    (words,) = file.take(1, "<u8").tolist()
    if words > counts[0]:
        raise _Damaged("it has more words than unigrams")
    file.take(counts[0], "<u8")  # the words' hashes
    score, score_and_backoff = 31, 63
    if quantised:
        _, score, backoff, *_ = file.take(8, np.uint8).tolist()
        if not (1 <= score <= 25 and 1 <= backoff <= 25):
            raise _Damaged(f"its numbers have {score} and {backoff} bits")
        score_and_backoff = score + backoff
        file.take((len(counts) - 2) * ((1 << score) + (1 << backoff)) + (1 << score), "<f4")
    unigrams = file.take(counts[0] + 2, [("weights", "V8"), ("next", "<u8")])
    _require_ascending(iter([unigrams["next"][: words + 2]]), counts[1], 2)
    word_bits = counts[0].bit_length()
    for n in range(2, len(counts)):
        count, following = counts[n - 1], counts[n]
        bits = word_bits + score_and_backoff, following.bit_length()
        packed = file.take(((1 + count) * sum(bits) + 7) // 8 + 8, np.uint8)
        _require_ascending(_unpacked(packed, count + 1, *bits), following, n + 1)
    file.take(((1 + counts[-1]) * (word_bits + score) + 7) // 8 + 8, np.uint8)


def _unpacked(packed: npt.NDArray[np.uint8], rows: int, before: int, bits: int) -> Iterator[npt.NDArray[np.uint64]]:
    """The last ``bits`` bits of each row; each row begins with ``before`` other bits."""
    words = np.ndarray((len(packed) - 7,), "<u8", packed, strides=(1,))  # eight bytes from each offset
    for first in range(0, rows, _ROWS):
        place = np.arange(first, min(rows, first + _ROWS)) * (before + bits) + before
        yield (words[place >> 3] >> (place & 7).astype(np.uint64)) & np.uint64((1 << bits) - 1)


def _require_ascending(parts: Iterator[npt.NDArray[Any]], most: int, n: int) -> None:
    before = np.zeros(1, np.uint64)
    for part in parts:
        places = np.concatenate([before, part])
        if places.max() > most or (places[1:] < places[:-1]).any():
            raise _Damaged(f"a reference to {n}-grams leads out of them")
        before = places[-1:]


def _parts(table: npt.NDArray[Any]) -> Iterator[npt.NDArray[Any]]:
    return (table[first : first + _ROWS] for first in range(0, len(table), _ROWS))
