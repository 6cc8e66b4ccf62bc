"""Patterns of files, one a sentence: ``lattices/{id}.fst`` stands for ``lattices/1.fst``, ``lattices/2.fst``, ..."""

from __future__ import annotations

import re
from glob import escape, glob

ID = "{id}"
"""What stands for the number of a sentence."""


def is_pattern(path: str) -> bool:
    return ID in path


def path_of(pattern: str, number: int) -> str:
    """The file of one sentence.

    >>> path_of("lattices/{id}.fst", 17)
    'lattices/17.fst'
    """
    return pattern.replace(ID, str(number))


def names(pattern: str) -> re.Pattern[str]:
    """What the names of a pattern's files look like; the group is the number.

    >>> bool(names("{id}/{id}.fst").fullmatch("7/7.fst")), bool(names("{id}/{id}.fst").fullmatch("7/8.fst"))
    (True, False)
    """
    before, _, after = map(re.escape, pattern.partition(ID))
    return re.compile(before + "([1-9][0-9]*)" + after.replace(re.escape(ID), "\\1"))


def numbers_of_files(pattern: str) -> list[int]:
    """The sentence numbers, ascending, for which there is a file (or a folder)."""
    found = map(names(pattern).fullmatch, glob("*".join(map(escape, pattern.split(ID)))))
    return sorted(int(match[1]) for match in found if match)
