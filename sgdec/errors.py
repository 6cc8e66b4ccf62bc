"""Errors that the user can correct: one clear line each, with an exit status.

Any other exception is a defect of sgdec and keeps its traceback.
"""

from __future__ import annotations

import re

LONGEST = 2000
"""The most characters of a printed error, because an error may quote a whole file."""


class SgdecError(Exception):
    """A failed run. The message states in one line what was given, what was expected, and how to correct it."""

    exit_status = 1


class UsageError(SgdecError):
    """A wrong call: an unknown name, an option of the wrong type, combinations that cannot work."""

    exit_status = 2


def one_line(message: str) -> str:
    """Prepare a message for printing: escape control characters as Python does, and shorten it to `LONGEST`.

    A folder ``.`` or ``..`` is quoted: at the beginning it would look like the rest of a sentence that was cut.

    >>> one_line("a\\nb\\x1b[1m"), len(one_line("long" * 5000)), one_line("fst: .: a folder")
    ('a\\\\nb\\\\x1b[1m', 2000, "fst: '.': a folder")
    """
    message = re.sub(r"(^|: )(\.\.?)(?=: )", r"\1'\2'", message)
    shown = re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]", lambda found: repr(found[0])[1:-1], message)
    if len(shown) <= LONGEST:
        return shown
    return f"{shown[: LONGEST - 503]}...{shown[-500:]}"


def counted(number: int, noun: str) -> str:
    """A number with its noun, which is in the plural unless the number is 1.

    >>> counted(1, "sentence"), counted(10_000, "trial")
    ('1 sentence', '10,000 trials')
    """
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def described(found: object) -> str:
    """The type of an object, and its shape if it has one, for messages about unexpected return values.

    >>> described(None), described({}), described([1.0])
    ('None', 'a dict', 'a list')
    """
    if found is None:
        return "None"
    name = type(found).__name__
    article = "an" if name[0].lower() in "aeiou" else "a"
    shape = getattr(found, "shape", None)
    return f"{article} {name}" + (f" of shape {list(shape)}" if shape is not None else "")
