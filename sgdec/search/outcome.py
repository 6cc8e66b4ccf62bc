"""Unreadable sentences, which a run accepts besides sources, and the outcome that it returns for each sentence."""

from __future__ import annotations

from dataclasses import dataclass

from sgdec.errors import SgdecError
from sgdec.protocol import Result, Source
from sgdec.trace.records import SentenceTrace


@dataclass(frozen=True)
class Unreadable:
    """A sentence that could not be read as a `Source`."""

    id: int
    """1-based number of the sentence in its input."""
    error: SgdecError


@dataclass(frozen=True)
class Outcome:
    """The outcome of one sentence."""

    source: Source
    """Has no tokens if the sentence was unreadable."""
    result: Result
    """Has no hypotheses if the search failed."""
    seconds: float
    """Wall-clock time from the start of its search to the end, during which other searches run too."""
    error: Exception | None = None
    """The reason why there is no hypothesis; None if there is one."""
    trace: SentenceTrace | None = None
    """The record of the search; None if it was not traced."""

    @property
    def at_limit(self) -> bool:
        """Whether the first output has as many tokens as the length limit allows: only ``</s>`` could follow."""
        return any(len(first.tokens) == self.source.max_length for first in self.result.hypotheses[:1])
