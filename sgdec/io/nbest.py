"""Moses' n-best lists: ``id ||| tokens ||| name= value ... ||| total``, read one sentence at a time.

Ids are 0-based in Moses' own lists and 1-based in ours; a list whose first id is 0 is taken to be 0-based. A name may
have several values. Features and total may be missing, with everything behind them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from sgdec.errors import SgdecError
from sgdec.text.lines import read_lines

EXPECTED = "Expected Moses' format: id ||| tokens ||| name= value ... ||| total."


class NbestEntry(NamedTuple):
    """One hypothesis of a list."""

    id: int
    """1-based number of its sentence, whatever the file counts from."""
    text: str
    """Text or token ids, as the file has them."""
    features: Mapping[str, tuple[float, ...]]
    """By name, without the ``=``; unweighted."""
    total: float | None
    where: str
    """``FILE: line N``, for errors."""


def read_nbest(path: str | Path) -> Iterator[tuple[int, list[NbestEntry]]]:
    """For each sentence of a list, in the order of the file, its 1-based id and its entries.

    Raises SgdecError for what is no such list, and for ids that do not ascend.

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
    last = 0
    for number, group in groupby(_entries(path), key=lambda entry: entry.id):
        entries = list(group)
        if number <= last:
            raise SgdecError(f"{entries[0].where}: sentence ids do not ascend. Sort the list by its first field.")
        last = number
        yield number, entries


def _entries(path: str | Path) -> Iterator[NbestEntry]:
    offset: int | None = None
    for number, line in enumerate(read_lines(path), 1):
        entry = _entry(line, f"{path}: line {number}")
        if offset is None:
            offset = 1 if entry.id == 0 else 0
        if entry.id + offset < 1:
            raise SgdecError(f"{entry.where}: the id {entry.id} is too small. {EXPECTED}")
        yield entry._replace(id=entry.id + offset)


def _entry(line: str, where: str) -> NbestEntry:
    """The id as the file has it."""
    fields = [field.strip() for field in line.split("|||")]
    if len(fields) < 2 or not (fields[0].isascii() and fields[0].isdecimal()):
        raise SgdecError(f"{where} does not begin with a sentence id and a text. {EXPECTED}")
    features = _features(fields[2], where) if len(fields) > 2 else {}
    total = _number(fields[3], where) if len(fields) > 3 else None
    return NbestEntry(int(fields[0]), fields[1], features, total, where)


def _features(text: str, where: str) -> dict[str, tuple[float, ...]]:
    features: dict[str, list[float]] = {}
    values: list[float] | None = None
    for word in text.split():
        if word.endswith(("=", ":")):
            values = features.setdefault(word[:-1], [])
        elif values is None:
            raise SgdecError(f"{where}: the score {word!r} has no name. {EXPECTED}")
        else:
            values.append(_number(word, where))
    return {name: tuple(found) for name, found in features.items()}


def _number(word: str, where: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = float("nan")
    if value != value:
        raise SgdecError(f"{where}: {word!r} is no score. {EXPECTED}")
    return value
