"""Moses' n-best lists: ``id ||| tokens ||| name= value ... ||| total``, read one sentence at a time.

Ids are 0-based in Moses' own lists and 1-based in ours; a list whose first id is 0 is read as 0-based. A name may
have several values. Features and the total may be missing; fields after the total are ignored.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from sgdec.errors import SgdecError
from sgdec.io.limits import real_number, whole_number
from sgdec.text.lines import read_lines

SEPARATOR = "|||"
NAME_ENDS = ("=", ":")
EXPECTED = "Expected Moses' format: id ||| tokens ||| name= value ... ||| total."


class NbestEntry(NamedTuple):
    """One hypothesis of a list."""

    id: int
    """The number of its sentence, always 1-based."""
    text: str
    """Text or token ids, as in the file."""
    features: Mapping[str, tuple[float, ...]]
    """The unweighted features by name, without the ``=``."""
    total: float | None
    where: str
    """``FILE: line N``, for errors."""


def read_nbest(path: str | Path) -> Iterator[tuple[int, list[NbestEntry]]]:
    """Yields the 1-based id and the entries of each sentence of a list, in the order of the file.

    Raises SgdecError for a malformed list, and for ids that do not ascend.

    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "list")
    ...     with open(path, "w") as file:
    ...         _ = file.write("0 ||| ein Hund ||| lm= -3.5 tm= -1 -2 ||| -2.5\\n2 ||| ja\\n")
    ...     for number, entries in read_nbest(path):
    ...         print(number, [(entry.text, dict(entry.features), entry.total) for entry in entries])
    1 [('ein Hund', {'lm': (-3.5,), 'tm': (-1.0, -2.0)}, -2.5)]
    3 [('ja', {}, None)]
    """
    yield from group_entries(read_lines(path), str(path))


def group_entries(lines: Iterable[str], name: str) -> Iterator[tuple[int, list[NbestEntry]]]:
    """`read_nbest` of lines that have been read; ``name``: the file, for errors."""
    last = 0
    for number, group in groupby(_entries(lines, name), key=lambda entry: entry.id):
        entries = list(group)
        refuse_descent(entries[0], last)
        last = number
        yield number, entries


def refuse_descent(first: NbestEntry, last: int) -> None:
    """Raises SgdecError unless the first entry of a sentence follows those of sentence ``last``."""
    if first.id <= last:
        raise SgdecError(f"{first.where}: sentence ids do not ascend. Sort the list by its first field.")


def _entries(lines: Iterable[str], name: str) -> Iterator[NbestEntry]:
    offset: int | None = None
    for number, line in enumerate(lines, 1):
        entry = parse_entry(line, f"{name}: line {number}")
        if offset is None:
            offset = offset_of(entry)
        yield shifted(entry, offset)


def offset_of(first: NbestEntry) -> int:
    """The number to add to the ids of a list that begins with this entry, as `parse_entry` returns it."""
    return 1 if first.id == 0 else 0


def shifted(entry: NbestEntry, offset: int) -> NbestEntry:
    """The entry with a 1-based id. Raises SgdecError if that is below 1."""
    if entry.id + offset < 1:
        raise SgdecError(f"{entry.where}: the id {entry.id} is too small. {EXPECTED}")
    return entry._replace(id=entry.id + offset)


def parse_entry(line: str, where: str) -> NbestEntry:
    """The entry of one line, with the id from the file. Raises SgdecError for a malformed line.

    >>> parse_entry("7 ||| ein Hund ||| -2.5", "list: line 1")
    NbestEntry(id=7, text='ein Hund', features={}, total=-2.5, where='list: line 1')
    """
    number = parse_id(line, where)
    _, text, *scores = [field.strip() for field in line.split(SEPARATOR)]
    if len(scores) == 1 and len(scores[0].split()) == 1 and not scores[0].endswith(NAME_ENDS):
        scores = ["", *scores]  # a total without features
    features = _features(scores[0], where) if scores else {}
    total = _number(scores[1], where) if len(scores) > 1 else None
    return NbestEntry(number, text, features, total, where)


def parse_id(line: str, where: str) -> int:
    """The id from the file. Raises SgdecError if the line has none."""
    field, separator, _ = line.partition(SEPARATOR)
    number = whole_number(field.strip()) if separator else None
    if number is None:
        raise SgdecError(f"{where} does not begin with a sentence id and a text. {EXPECTED}")
    return number


def _features(text: str, where: str) -> dict[str, tuple[float, ...]]:
    features: dict[str, list[float]] = {}
    values: list[float] | None = None
    for word in text.split():
        if word.endswith(NAME_ENDS):
            values = features.setdefault(word[:-1], [])
        elif values is None:
            raise SgdecError(f"{where}: the score {word!r} has no name. {EXPECTED}")
        else:
            values.append(_number(word, where))
    return {name: tuple(found) for name, found in features.items()}


def _number(word: str, where: str) -> float:
    value = real_number(word)
    if value is None or math.isnan(value):
        raise SgdecError(f"{where}: {word!r} is not a score. {EXPECTED}")
    return value
