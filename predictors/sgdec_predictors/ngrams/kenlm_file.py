"""Reads KenLM's binary files, version 5 (Heafield 2011), of all six layouts.

Sizes are checked when a file is mapped, and every reference when it is followed: nothing is read that is not in the
file. The module ``kenlm`` follows references without a check, so files that it is to read are checked as a whole.
Probabilities are not checked, because they are only added up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np

from sgdec.arrays import Ints
from sgdec.errors import SgdecError
from sgdec_predictors.ngrams.kenlm_hashed import HashedNgrams
from sgdec_predictors.ngrams.kenlm_header import HASHED, DamagedKenlm, Entries, Entry, Singles, read_header
from sgdec_predictors.ngrams.kenlm_sorted import SortedNgrams

T = TypeVar("T")


class Ngrams(Protocol):
    """The n-grams of a file. They are found from their last word to the left. The methods raise `DamagedKenlm`."""

    order: int
    sizes: list[int]
    """By order, the number of places of n-grams; those of the highest order have none."""

    def check(self) -> None:
        """Follow all references."""

    def word(self, word: str) -> int:
        """The number of a word; 0 = the model does not list it."""

    def ending(self, word: int, before: Sequence[int]) -> list[Entry]:
        """The n-grams that end with a word, shortest first, as long as the file and the words before it, last word
        first, allow."""

    def unigrams(self, words: Ints) -> tuple[Singles, Singles]:
        """log10 p and back-off of words ``[n]``, as new arrays."""

    def all_ending(self, words: Ints, before: Ints, known: Ints) -> Iterator[Entries]:
        """The n-grams that end with words ``[n]``, for each order from 2. ``before`` ``[n, order - 1]`` has the words
        before them, as many as ``known`` ``[n]`` says."""


def read_kenlm(path: str | Path) -> Ngrams:
    """Map a file. Raises `SgdecError` if it is damaged, or of another version."""
    return translated(path, lambda: _read(path))


def check_kenlm(path: str | Path) -> None:
    """Follow every reference, which takes a pass over the file. Raises `SgdecError` if one leads out of it."""
    ngrams = read_kenlm(path)
    translated(path, ngrams.check)


def translated(path: str | Path, read: Callable[[], T]) -> T:
    """The value of a function, with `SgdecError` for `DamagedKenlm` and for errors of the system."""
    try:
        return read()
    except DamagedKenlm as error:
        raise cannot_read(path, error) from None
    except OSError as error:
        raise SgdecError(f"{path}: cannot be read ({error.strerror or error}).") from None


def cannot_read(path: str | Path, why: DamagedKenlm) -> SgdecError:
    return SgdecError(f"{path}: KenLM cannot read it: {why}. Build it again, or give the ARPA file.")


def _read(path: str | Path) -> Ngrams:
    if not Path(path).stat().st_size:
        raise DamagedKenlm("it is empty")
    data = np.memmap(path, np.uint8, "r").view(np.ndarray)  # a memmap is slow to index
    file = read_header(data)
    return HashedNgrams(file) if file.layout in HASHED else SortedNgrams(file)
