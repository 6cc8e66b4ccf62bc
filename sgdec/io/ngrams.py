"""Files of n-gram posteriors in SGNMT's format: one n-gram per line, ``1 7 4 : 0.25``.

Tokens are ids, sentences begin with 1 (``<s>``) and end with 2 (``</s>``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

from sgdec.errors import SgdecError
from sgdec.io.limits import real_number, whole_number
from sgdec.io.writing import write_whole
from sgdec.text.lines import read_lines

Ngram: TypeAlias = tuple[int, ...]


def read_ngrams(path: str | Path, vocab_size: int | None = None) -> dict[Ngram, float]:
    """The n-grams of a file with their scores.

    Raises SgdecError that names the line if it is malformed, repeats an n-gram or has a token outside the vocabulary.
    """
    ngrams: dict[Ngram, float] = {}
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            continue
        where = f"{path}: line {number}"
        words, _, score = line.rpartition(":")
        value = real_number(score)
        tokens = [whole_number(word) for word in words.split()]
        ngram = tuple(token for token in tokens if token is not None)
        if not ngram or len(ngram) < len(tokens) or value is None or not math.isfinite(value):
            raise SgdecError(f"{where}: {line.strip()!r} is not an n-gram. Expected ids and a score: 1 7 4 : 0.25.")
        if vocab_size is not None and max(ngram) >= vocab_size:
            raise SgdecError(f"{where}: token {max(ngram)} is outside the target vocabulary of {vocab_size} tokens.")
        if ngram in ngrams:
            raise SgdecError(f"{where}: the n-gram {' '.join(map(str, ngram))} is listed twice.")
        ngrams[ngram] = value
    return ngrams


def write_ngrams(path: str | Path, ngrams: Mapping[Ngram, float]) -> None:
    """Write the n-grams with their scores, by ascending tokens. Raises SgdecError if the file cannot be written."""
    lines = [f"{' '.join(map(str, ngram))} : {score:.9g}\n" for ngram, score in sorted(ngrams.items())]
    write_whole(path, "".join(lines), durable=False)
