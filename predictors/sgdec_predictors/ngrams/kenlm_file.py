"""Reads KenLM's binary files, version 5 (Heafield 2011), of all six layouts.

Sizes are checked when a file is mapped, and every reference when it is followed: nothing is read that is not in the
file. The module ``kenlm`` follows references without a check, so files that it is to read are checked as a whole.
Probabilities are not checked, because they are only added up.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np

from sgdec.errors import SgdecError
from sgdec_predictors.ngrams.kenlm_hashed import HashedNgrams
from sgdec_predictors.ngrams.kenlm_header import HASHED, Damaged, read_header
from sgdec_predictors.ngrams.kenlm_sorted import SortedNgrams

T = TypeVar("T")


def read_kenlm(path: str | Path) -> HashedNgrams | SortedNgrams:
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


def _read(path: str | Path) -> HashedNgrams | SortedNgrams:
    if not Path(path).stat().st_size:
        raise Damaged("it is empty")
    file = read_header(np.memmap(path, np.uint8, "r"))
    return HashedNgrams(file) if file.layout in HASHED else SortedNgrams(file)
