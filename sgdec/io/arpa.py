"""ARPA files: back-off n-gram language models as text, plain or gzipped.

A file lists for each order n its n-grams, one per line: ``log10 p(w_n | w_1..w_n-1)``, the words, and the log10 of
the back-off weight, which a line may omit (then it is 0). In memory all scores are natural logs in arrays, so a
million n-grams load in seconds.
"""

from __future__ import annotations

import gzip
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from sgdec.arrays import Floats
from sgdec.errors import SgdecError
from sgdec.io.limits import GZIP, whole_number
from sgdec.io.writing import whole_file
from sgdec.text.lines import open_bytes, reading, text_lines

PREAMBLE = 1000
"""Limit on the lines before ``\\data\\``."""
LN_10 = math.log(10.0)
"""Natural log = log10 x this: the border between ARPA (and KenLM) and the rest of sgdec."""


class NGrams(NamedTuple):
    """All n-grams of one order, in the order of the file."""

    words: npt.NDArray[np.int32]
    """``[count, n]``: positions in `Arpa.words`."""
    scores: Floats
    """``[count]``: ln p of the last word after the others."""
    backoffs: Floats
    """``[count]``: ln of the back-off weight of this n-gram as a history."""


@dataclass(frozen=True)
class Arpa:
    """One language model."""

    words: list[str]
    """The unigrams' words, in the order of the file."""
    orders: list[NGrams]
    """``orders[n - 1]`` has the n-grams."""


def read_arpa(path: str | Path) -> Arpa:
    """Read an ARPA file; a name that ends in ``.gz`` or ``.zst`` is unpacked.

    Raises `SgdecError`, naming the line, if the file cannot be read, is not an ARPA file, ends early, or has a line
    that is not an n-gram of its section. Words need not be UTF-8: stray bytes become surrogates, as in file names.
    """
    with reading(str(path)), open_bytes(path) as file:
        return _Reader(str(path), text_lines(file, str(path))).read()


def write_arpa(path: str | Path, model: Arpa) -> None:
    """Write an ARPA file, gzipped if its name ends in ``.gz``. Numbers keep 7 digits, more than a float32 has.

    Raises SgdecError if it cannot be written.
    """
    with whole_file(path) as raw, _packed(raw) if str(path).endswith(".gz") else nullcontext(raw) as file:
        file.write(b"\\data\\\n")
        for n, ngrams in enumerate(model.orders, 1):
            file.write(f"ngram {n}={len(ngrams.scores)}\n".encode())
        for n, ngrams in enumerate(model.orders, 1):
            file.write(f"\n\\{n}-grams:\n".encode())
            lines = _lines(model.words, ngrams, last=n == len(model.orders))
            while block := "".join(islice(lines, 100_000)):
                file.write(block.encode("utf-8", "surrogateescape"))
        file.write(b"\n\\end\\\n")


def _lines(words: list[str], ngrams: NGrams, *, last: bool) -> Iterator[str]:
    columns = [[words[i] for i in column] for column in ngrams.words.T.tolist()]
    phrases = map(" ".join, zip(*columns, strict=True))
    log10 = (ngrams.scores / LN_10).tolist(), (ngrams.backoffs / LN_10).tolist()  # natural logs to log10
    for score, phrase, backoff in zip(log10[0], phrases, log10[1], strict=True):
        yield f"{score:.7g}\t{phrase}\n" if last else f"{score:.7g}\t{phrase}\t{backoff:.7g}\n"


def _packed(file: IO[bytes]) -> IO[bytes]:
    """Gzip without name and time, so that equal models have equal files."""
    return cast(IO[bytes], gzip.GzipFile("", "wb", compresslevel=6, fileobj=file, mtime=0))


class _Reader:
    """One pass over the lines of a file; ``line`` is the number of the last line read."""

    def __init__(self, path: str, lines: Iterator[bytes | SgdecError]) -> None:
        self.path = path
        self.lines = map(self._sound, lines)
        self.line = 0

    def read(self) -> Arpa:
        counts = self._counts()
        words: list[bytes] = []
        index: dict[bytes, int] = {}
        orders = []
        for n, count in enumerate(counts, 1):
            self._expect(b"\\%d-grams:" % n)
            lines = list(islice(self.lines, count))
            if len(lines) < count:
                raise self._fault(lines, count, n, index)
            if n == 1:
                words = [line.split(None, 2)[1] if len(line.split(None, 2)) > 1 else b"" for line in lines]
                index = {word: i for i, word in enumerate(words)}
            orders.append(self._section(lines, count, n, last=n == len(counts), index=index))
            if n == 1 and len(index) < count:
                twice = next(word for i, word in enumerate(words) if index[word] != i)
                self.line += index[twice] + 1
                raise self._error(f"the word {_text(twice)!r} is listed twice among the 1-grams")
            self.line += count
        self._expect(b"\\end\\")
        for _ in self.lines:  # reads on to the checksum of a gzip file
            pass
        return Arpa([_text(word) for word in words], orders)

    def _counts(self) -> list[int]:
        """The counts that the header announces."""
        self._skip_preamble()
        counts: list[int] = []
        for raw in self.lines:
            self.line += 1
            if not raw.strip():
                if counts:
                    break
                continue
            found = re.fullmatch(r"ngram\s+(\d+)\s*=\s*(\d+)", _text(raw.strip()))
            order, count = map(whole_number, found.groups(), (256, 1 << 40)) if found else (None, None)
            if count is None or order != len(counts) + 1:
                raise self._error(f"expected 'ngram {len(counts) + 1}=COUNT', not {_text(raw.strip())!r}")
            counts.append(count)
        if not counts:
            raise self._error("the header announces no n-grams")
        return counts

    def _skip_preamble(self) -> None:
        """Skip lines up to ``\\data\\``: some tools write about themselves there."""
        found = f"there is no \\data\\ in its first {PREAMBLE} lines"
        for raw in islice(self.lines, PREAMBLE):
            self.line += 1
            if raw.strip() == b"\\data\\":
                return
            if self.line == 1 and raw.startswith(GZIP):
                found = "it is gzipped, so its name has to end in .gz"
        raise SgdecError(f"{self.path}: line 1: this is not an ARPA file: {found}.")

    def _expect(self, wanted: bytes) -> None:
        """Skip blank lines up to the line ``wanted``."""
        for raw in self.lines:
            self.line += 1
            found = raw.strip()
            if found == wanted:
                return
            if found:
                raise self._error(
                    f"expected {_text(wanted)!r}, as the header's counts say, not {_text(found[:40])!r}"
                )
        raise self._error(f"the file ends before {_text(wanted)!r}: it is cut short")

    def _section(self, lines: list[bytes], count: int, n: int, *, last: bool, index: dict[bytes, int]) -> NGrams:
        """The n-grams of some lines. All fields are put in one list, so that a column is a slice with a step."""
        width = n + 1 if last else n + 2
        fields = b"".join(lines).split()
        if len(fields) != width * count:  # some lines have no back-off weight, or lines are missing
            fields = b"".join([_with_backoff(line, n + 1) for line in lines]).split()
            width = n + 2
        try:
            columns = [
                np.fromiter(map(index.__getitem__, fields[j::width]), np.int32, count) for j in range(1, n + 1)
            ]
            scores = _numbers(fields[::width], count)
            backoffs = np.zeros(count)
            if width == n + 2:
                backoffs = _numbers(fields[n + 1 :: width], count)
            with np.errstate(over="ignore"):  # log10 to natural logs; values that overflow are refused later
                scores, backoffs = scores * LN_10, backoffs * LN_10
            if len(fields) != width * count or not (scores <= 0).all() or not np.isfinite(backoffs).all():
                raise ValueError
        except (KeyError, ValueError):
            raise self._fault(lines, count, n, index) from None
        return NGrams(np.stack(columns, axis=1), scores, backoffs)

    def _fault(self, lines: list[bytes], count: int, n: int, index: dict[bytes, int]) -> SgdecError:
        """The error about the first invalid line of a section."""
        for line in lines:
            self.line += 1
            fields = line.split()
            unknown = [_text(word) for word in fields[1 : n + 1] if word not in index]
            if len(fields) not in (n + 1, n + 2) or line.startswith(b"\\"):
                return self._error(f"expected a {n}-gram, as the header's counts say, not {_text(line.strip())!r}")
            if unknown:
                return self._error(f"the word {unknown[0]!r} is not among the 1-grams")
            try:
                numbers = _numbers([fields[0], *fields[n + 1 :]]).tolist()
            except ValueError:
                comma = any(re.fullmatch(rb"-?[0-9]+,[0-9]+", field) for field in (fields[0], fields[-1]))
                hint = " (numbers with a decimal point, not a comma)" if comma else ""
                return self._error(f"expected 'LOG10 WORDS [BACK-OFF]'{hint}, not {_text(line.strip())!r}")
            if not numbers[0] <= 0 or not all(math.isfinite(number * LN_10) for number in numbers[1:]):
                return self._error(f"{_text(fields[0])} is not the log10 of a probability, or the back-off no number")
        return self._error(f"the file ends after {len(lines)} of {count} {n}-grams: it is cut short")

    def _sound(self, line: bytes | SgdecError) -> bytes:
        if isinstance(line, SgdecError):
            raise SgdecError(f"{self.path}: {line}")
        return line

    def _error(self, message: str) -> SgdecError:
        return SgdecError(f"{self.path}: line {self.line}: {message}.")


def _with_backoff(line: bytes, width: int) -> bytes:
    return line.rstrip() + b"\t0\n" if len(line.split()) == width else line


def _numbers(fields: Sequence[bytes], count: int = -1) -> Floats:
    """Raises ValueError if one of these is not a number. Python itself also reads ``1_0``."""
    if b"_" in b" ".join(fields):
        raise ValueError
    return np.fromiter(map(float, fields), np.float64, count)


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")
