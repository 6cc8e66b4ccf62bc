"""Patterns of files, one per sentence: ``lattices/{id}.fst`` is ``lattices/7.fst`` for sentence 7."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from glob import escape, glob
from pathlib import PurePath
from typing import Any

ID = "{id}"
"""The placeholder for the number of a sentence."""


def is_pattern(path: str) -> bool:
    return ID in path


def path_of(pattern: str, number: int) -> str:
    """The file of one sentence.

    >>> path_of("lattices/{id}.fst", 17)
    'lattices/17.fst'
    """
    return pattern.replace(ID, str(number))


def names(pattern: str) -> re.Pattern[str]:
    """A regular expression for the names of a pattern's files; the group is the number.

    >>> bool(names("{id}/{id}.fst").fullmatch("7/7.fst")), bool(names("{id}/{id}.fst").fullmatch("7/8.fst"))
    (True, False)
    """
    before, _, after = map(re.escape, pattern.partition(ID))
    return re.compile(before + "([1-9][0-9]*)" + after.replace(re.escape(ID), "\\1"))


def numbers_of_files(pattern: str) -> list[int]:
    """The ascending sentence numbers for which a file (or a folder) exists."""
    found = map(names(pattern).fullmatch, glob("*".join(map(escape, pattern.split(ID)))))
    return sorted(int(match[1]) for match in found if match)


def named(value: Any) -> Iterator[str]:
    """Yields the files, folders and patterns that the value of an option names. The value can be a text, a text with
    commas, or a list of texts.

    A text names a file or folder if it exists, and a pattern if it contains the placeholder. ``.`` and ``/`` can also
    be tokens of a vocabulary; they count only if they contain a checkpoint.

    >>> list(named("lattices/{id}.fst")), list(named(3)), list(named("nowhere"))
    (['lattices/{id}.fst'], [], [])
    """
    listed = list(_texts(value))
    for path in dict.fromkeys([*listed, *(part.strip() for text in listed for part in text.split(","))]):
        symbol = not path.strip("./") and not os.path.exists(os.path.join(path, "config.json"))
        if "\0" not in path and not symbol and (is_pattern(path) or os.path.exists(path)):
            yield path


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str | PurePath):
        yield str(value)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)
