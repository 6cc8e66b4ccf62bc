"""What goes into a run besides sources, and what comes out of it: sentences that cannot be read, and outcomes."""

from __future__ import annotations

from dataclasses import dataclass

from sgdec.errors import SgdecError
from sgdec.protocol import Result, Source


@dataclass(frozen=True)
class Unreadable:
    """A sentence that never became a `Source`."""

    id: int
    """1-based number of the sentence in its input."""
    error: SgdecError


@dataclass(frozen=True)
class Outcome:
    """The outcome of one sentence."""

    source: Source
    """Without tokens where the sentence was unreadable."""
    result: Result
    """No hypotheses where the search failed."""
    seconds: float
    """From the start of its search to the end; others were in flight at the same time."""
    error: Exception | None = None
    """Why there is no hypothesis; None if there is one."""
