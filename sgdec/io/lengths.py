"""Files about target lengths: given scores, one line per sentence, and the weights of a length model.

A line of length scores lists the allowed lengths, separated by blanks: ``7:-0.5 8:-1.2``, or ``7`` for ``7:0``. A
file of weights, as ``sgdec fit-length`` writes it, has one weight per line, a name and a number; text after a ``#``
is a comment.
"""

from __future__ import annotations

import math
from pathlib import Path

from sgdec.errors import SgdecError
from sgdec.io.limits import real_number, whole_number
from sgdec.io.writing import write_whole
from sgdec.models.length import FEATURES, LengthWeights
from sgdec.text.lines import read_lines

NAMES = tuple(f"{parameter}.{name}" for parameter in ("r", "p") for name in (*FEATURES, "bias"))


def read_length_scores(path: str | Path) -> list[dict[int, float]]:
    """For each sentence its lengths, ascending, with their scores. Raises SgdecError that names an invalid line."""
    return [_scores_of(line, f"{path}: line {number}") for number, line in enumerate(list(read_lines(path)), 1)]


def _scores_of(line: str, where: str) -> dict[int, float]:
    scores: dict[int, float] = {}
    for entry in line.split():
        word, colon, score = entry.partition(":")
        length = whole_number(word)
        value = real_number(score) if colon else 0.0
        if length is None or value is None or not math.isfinite(value):
            raise SgdecError(f"{where}: {entry!r} is not a length. Expected LENGTH:SCORE or LENGTH, such as 7:-0.5.")
        if length in scores:
            raise SgdecError(f"{where}: length {length} is listed twice.")
        scores[length] = value
    if not scores:
        raise SgdecError(f"{where}: lists no length. Expected at least one per sentence, such as 7:-0.5.")
    return dict(sorted(scores.items()))


def read_length_weights(path: str | Path) -> LengthWeights:
    """Read the weights of a length model. Raises SgdecError that names the invalid line or the missing weight."""
    found: dict[str, float] = {}
    for number, line in enumerate(list(read_lines(path)), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        where = f"{path}: line {number}"
        if len(words) != 2 or words[0] not in NAMES or words[0] in found:
            raise SgdecError(f"{where}: expected each of {NAMES[0]}, ..., {NAMES[-1]} once, with its weight.")
        weight = real_number(words[1])
        if weight is None:
            raise SgdecError(f"{where}: {words[1]!r} is not a number.")
        if not math.isfinite(weight):
            raise SgdecError(f"{where}: {words[1]!r} is not finite.")
        found[words[0]] = weight
    missing = [name for name in NAMES if name not in found]
    if missing:
        raise SgdecError(f"{path}: there is no weight {missing[0]}. `sgdec fit-length` writes such files.")
    weights = [found[name] for name in NAMES]
    half = len(NAMES) // 2
    return LengthWeights(tuple(weights[:half]), tuple(weights[half:]))


def write_length_weights(path: str | Path, weights: LengthWeights, about: str) -> None:
    """Write the weights of a length model. ``about`` is one line about their origin. Raises SgdecError if the file
    cannot be written."""
    numbers = [*weights.r, *weights.p]
    lines = [f"# {about}", *(f"{name} {number!r}" for name, number in zip(NAMES, numbers, strict=True))]
    write_whole(path, "\n".join([*lines, ""]))
