"""Files of weights: a line for each sentence, with one number for each predictor of the run, in its order."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sgdec.errors import SgdecError
from sgdec.io.limits import real_number
from sgdec.protocol import Source
from sgdec.text.lines import read_lines


class SentenceWeights:
    """The weights ``[K]`` of each sentence, by the sentence's number."""

    def __init__(self, path: str, names: Sequence[str]) -> None:
        """Read a whole file. ``names``: those of the K predictors.

        Raises SgdecError, with file and line, unless each line has K finite numbers.
        """
        self._path = path
        numbered = enumerate(read_lines(path), 1)
        self._lines = [_weights(line, f"{path}, line {place}", names) for place, line in numbered]

    def of(self, source: Source) -> tuple[float, ...]:
        """Raises SgdecError if the file ends before this sentence."""
        if source.id > len(self._lines):
            raise SgdecError(
                f"--weights {self._path} has {len(self._lines):,} lines, none of them for sentence {source.id:,}."
            )
        return self._lines[source.id - 1]


def _weights(line: str, place: str, names: Sequence[str]) -> tuple[float, ...]:
    found = list(map(real_number, line.split()))
    if len(found) != len(names) or not all(number is not None and math.isfinite(number) for number in found):
        raise SgdecError(
            f"{place}: {line.strip()[:60]!r}; expected {len(names)} numbers, the weights of {', '.join(names)}."
        )
    return tuple(number for number in found if number is not None)
