"""Errors that are the user's to mend: one clear line each, and the exit status that belongs to it.

Everything else that is raised is a defect of ours and keeps its traceback.
"""

from __future__ import annotations

import re

LONGEST = 2000
"""Characters of an error; what it quotes may be a whole file in one line."""


class SgdecError(Exception):
    """What was given, what was expected, what to do: in one line. A run that failed."""

    exit_status = 1


class UsageError(SgdecError):
    """A wrong call: an unknown name, an option of the wrong type, constellations that cannot work."""

    exit_status = 2


def one_line(message: str) -> str:
    """A message as it is printed: control characters as they are written in Python, and not endless.

    >>> one_line("a\\nb\\x1b[1m"), len(one_line("long" * 5000))
    ('a\\\\nb\\\\x1b[1m', 2000)
    """
    shown = re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]", lambda found: repr(found[0])[1:-1], message)
    if len(shown) <= LONGEST:
        return shown
    return f"{shown[: LONGEST - 503]}...{shown[-500:]}"
