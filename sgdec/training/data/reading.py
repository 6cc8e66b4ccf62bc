"""Reading training text in one pass: lines become token ids, one block of lines at a time.

A text has one file per *side*: the target, and before it the source, if any. Line N of each side belongs to
example N. Bad training lines are left out and counted by reason (`LengthLimits`). In held-out text only empty
lines are left out, because every line counts there; a line that is not UTF-8 is an error.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, zip_longest
from typing import NamedTuple

from sgdec.errors import SgdecError
from sgdec.text import sides
from sgdec.text.lines import raw_lines, read_lines
from sgdec.text.vocabulary import StoredVocabulary

EMPTY, LONG, UNEVEN, UNDECODABLE = "empty", "too long", "of absurd lengths", "not UTF-8"
"""The reasons why examples are left out."""

BLOCK = 10_000
"""The number of lines that are tokenised together."""


class LengthLimits(NamedTuple):
    """Limits on training examples: those beyond a limit are left out, and so are lines that are not UTF-8."""

    max_line: int
    """The largest number of tokens on a side."""
    max_ratio: float = 0.0
    """The largest ratio of the lengths of two sides; 0 = no limit."""

    def fault(self, *lengths: int) -> str | None:
        """The reason to leave out an example whose sides have these lengths in tokens (all > 0), or None.

        >>> LengthLimits(9).fault(8, 10), LengthLimits(9, 3.0).fault(2, 7), LengthLimits(9, 3.0).fault(2, 6)
        ('too long', 'of absurd lengths', None)
        """
        if max(lengths) > self.max_line:
            return LONG
        return UNEVEN if 0 < self.max_ratio < max(lengths) / min(lengths) else None


class LineBlock(NamedTuple):
    """Some examples in the order of the text, and the number of those left out among them."""

    lines: list[int]
    """The line number of each example, from 1."""
    texts: tuple[list[str], ...]
    """One list per side: the lines themselves."""
    sides: tuple[list[list[int]], ...]
    """One list per side: the token ids of each line."""
    left_out: Counter[str]
    """The number of lines left out for each reason."""

    @property
    def size(self) -> int:
        """The number of lines read, including those left out."""
        return len(self.lines) + self.left_out.total()

    @property
    def tokens(self) -> int:
        """The number of tokens on all sides."""
        return sum(len(tokens) for side in self.sides for tokens in side)


def read_blocks(
    paths: Sequence[str], vocabularies: Sequence[StoredVocabulary], limits: LengthLimits | None = None
) -> Iterator[LineBlock]:
    """Read one file per side, two for `TwoSources`, with their vocabularies; with ``limits`` leave bad lines out.

    Raises `SgdecError` if a file cannot be read or the files differ in their number of lines.
    """
    examples = zip_longest(*(_lines(path, limits) for path in paths), fillvalue=_END)
    first = 1
    while block := list(islice(examples, BLOCK)):
        if any(_END in example for example in block):
            raise _unequal(paths, [_count(path) for path in paths])
        texts = tuple([line or "" for line in side] for side in zip(*block, strict=True))
        tokens = tuple(v.encode_all(side) for v, side in zip(sides.of_files(vocabularies), texts, strict=True))
        faults = [
            UNDECODABLE if None in example else _fault(limits, *map(len, rows))
            for example, *rows in zip(block, *tokens, strict=True)
        ]
        kept = [n for n, fault in enumerate(faults) if fault is None]
        yield LineBlock(
            [first + n for n in kept],
            *sides.met(
                vocabularies,
                tuple([side[n] for n in kept] for side in texts),
                tuple([side[n] for n in kept] for side in tokens),
            ),
            Counter(fault for fault in faults if fault),
        )
        first += len(block)


def require_some(examples: int, left_out: Mapping[str, int], paths: Sequence[str], unit: str) -> None:
    """Raises `SgdecError`, with the reasons, if no example of a text is left."""
    if not examples:
        reasons = ", ".join(f"{count} {fault}" for fault, count in left_out.items()) or "there was none"
        raise SgdecError(
            f"{', '.join(paths)}: no {unit} is left of {sum(left_out.values())}: {reasons}. "
            "Give other text, or see --max-line and --max-ratio."
        )


def count_lines(paths: Sequence[str]) -> int:
    """The number of lines of each file. Raises `SgdecError` if the files differ in it or cannot be read."""
    counts = [_count(path) for path in paths]
    if len(set(counts)) > 1:
        raise _unequal(paths, counts)
    return counts[0]


_END = "\n"
"""Stands for the missing lines of a shorter file. No line can be equal to it."""


def _lines(path: str, limits: LengthLimits | None) -> Iterator[str | None]:
    """The lines of a file; with ``limits``, None for a line that is not UTF-8."""
    if limits is None:
        yield from read_lines(path)
        return
    for raw in raw_lines(path):
        try:
            yield raw.decode("utf-8")
        except UnicodeDecodeError:
            yield None


def _fault(limits: LengthLimits | None, *lengths: int) -> str | None:
    """The reason why an example is left out, or None."""
    if not all(lengths):
        return EMPTY
    return None if limits is None else limits.fault(*lengths)


def _count(path: str) -> int:
    return sum(1 for _ in raw_lines(path))


def _unequal(paths: Sequence[str], counts: Sequence[int]) -> SgdecError:
    first, *others = [f"{path} has {count}" for path, count in zip(paths, counts, strict=True)]
    return SgdecError(
        f"{first} lines but {' and '.join(others)}. Line N of one must be the translation of line N of the other."
    )
