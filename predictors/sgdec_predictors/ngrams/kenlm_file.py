"""Reads KenLM's binary files, version 5 (Heafield 2011), of all six layouts.

Sizes are checked when a file is mapped, and every reference when it is followed: nothing is read that is not in the
file. The module ``kenlm`` follows references without a check, so files that it is to read are checked as a whole.
Probabilities are not checked, because they are only added up.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from sgdec.arrays import Ints
from sgdec.errors import SgdecError
from sgdec_predictors.ngrams.kenlm_hashed import HashedNgrams
from sgdec_predictors.ngrams.kenlm_header import HASHED, Damaged, read_header
from sgdec_predictors.ngrams.kenlm_sorted import SortedNgrams

T = TypeVar("T")
Singles = npt.NDArray[np.float32]
Bools = npt.NDArray[np.bool_]


class Ngrams(Protocol):
    """The n-grams of a file. They are found from their last word to the left: a node is where the search for longer
    n-grams with the same end goes on. The methods raise `Damaged`."""

    order: int
    sizes: list[int]
    """By order, the number of places of n-grams; those of the highest order have none."""

    def check(self) -> None:
        """Follow all references."""

    def word(self, word: str) -> int:
        """The number of a word; 0 = the model does not list it."""

    def unigram(self, word: int) -> tuple[float, float, Any, bool]:
        """log10 p, back-off and node of a word, and whether there are longer n-grams that end with it."""

    def longer(self, n: int, before: int, node: Any) -> tuple[int, float, float, Any, bool] | None:
        """The n-gram of order n with one more word before: its place in its order, and the rest as in `unigram`."""

    def longest(self, before: int, node: Any) -> float | None:
        """log10 p of an n-gram of the highest order."""

    def unigrams(self, words: Ints) -> tuple[Singles, Singles, Any, Bools]:
        """`unigram` for each of an array."""

    def all_longer(self, n: int, before: Ints, nodes: Any) -> tuple[Ints, Singles, Singles, Any, Bools]:
        """`longer` for each of an array; place -1 = there is none, and the rest means nothing."""

    def all_longest(self, before: Ints, nodes: Any) -> tuple[Ints, Singles]:
        """Places, and log10 p, for each of an array; place -1 = there is none."""


def read_kenlm(path: str | Path) -> Ngrams:
    """Map a file. Raises `SgdecError` if it is damaged, or of another version."""
    return translated(path, lambda: _read(path))


def check_kenlm(path: str | Path) -> None:
    """Follow every reference, which takes a pass over the file. Raises `SgdecError` if one leads out of it."""
    ngrams = read_kenlm(path)
    translated(path, ngrams.check)


def translated(path: str | Path, read: Callable[[], T]) -> T:
    """What a function returns, with `SgdecError` for `Damaged` and for errors of the system."""
    try:
        return read()
    except Damaged as error:
        raise SgdecError(
            f"{path}: KenLM cannot read it: {error}. Build it again, or give the ARPA file."
        ) from None
    except OSError as error:
        raise SgdecError(f"{path}: cannot be read ({error.strerror or error}).") from None


def _read(path: str | Path) -> Ngrams:
    if not Path(path).stat().st_size:
        raise Damaged("it is empty")
    file = read_header(np.memmap(path, np.uint8, "r"))
    return HashedNgrams(file) if file.layout in HASHED else SortedNgrams(file)
