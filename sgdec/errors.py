"""Errors that are the user's to mend: one clear line each, and the exit status that belongs to it.

Everything else that is raised is a defect of ours and keeps its traceback.
"""

from __future__ import annotations


class SgdecError(Exception):
    """What was given, what was expected, what to do: in one line. A run that failed."""

    exit_status = 1


class UsageError(SgdecError):
    """A wrong call: an unknown name, an option of the wrong type, constellations that cannot work."""

    exit_status = 2
