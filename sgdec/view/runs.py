"""The runs that a page shows: one trace, or two traces of the same sources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from unicodedata import category

from sgdec.context import EOS
from sgdec.errors import UsageError
from sgdec.trace.records import Header, SentenceTrace

HIDDEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Unicode's categories of controls, such as those that change the direction of text, lone surrogates and breaks."""


@dataclass(frozen=True)
class SearchError:
    """By how much a hypothesis of the space ranks higher than the output."""

    by: float
    """A difference of rank scores; 0 = the output is the best hypothesis."""
    at_most: bool
    """Whether this is a bound, and no better hypothesis is known."""


@dataclass(frozen=True)
class TracedRun:
    """One trace in memory."""

    name: str
    """The name of its file."""
    header: Header
    pieces: Mapping[int, str]
    """The target tokens as strings; empty without a vocabulary."""
    sentences: Sequence[SentenceTrace]
    diagnosed: Mapping[int, SearchError] = field(default_factory=dict)
    """Search errors that the trace does not know, by number of the sentence (`sgdec.view.diagnosed`)."""

    @cached_property
    def by_id(self) -> dict[int, SentenceTrace]:
        return {sentence.id: sentence for sentence in self.sentences}

    def label(self, token: int | None) -> str:
        """A target token as it is shown.

        >>> from sgdec.trace.records import Header
        >>> run = TracedRun("a", Header((), (), "beam", {}, {}, 1, "", 1, 1, ""), {7: "cat"}, ())
        >>> run.label(7), run.label(8), run.label(2), run.label(None)
        ('cat', '8', '</s>', '<s>')
        """
        if token is None:
            return "<s>"
        return "</s>" if token == EOS else visible(self.pieces.get(token, str(token)))

    def output(self, sentence: SentenceTrace) -> str | None:
        """The best hypothesis as text, as tokens without a vocabulary; None if the search found none."""
        if not sentence.hypotheses:
            return None
        best = sentence.hypotheses[0]
        return " ".join(map(self.label, best.tokens)) if best.text is None else best.text


def visible(piece: str) -> str:
    """A token as one readable word, in which blanks and control characters have signs.

    >>> visible("▁cat"), visible(" "), visible("\\u202e\\n"), visible("")
    ('▁cat', '␣', '⟨202E⟩⟨A⟩', '␀')
    """
    signs = [f"⟨{ord(sign):X}⟩" if category(sign) in HIDDEN else sign for sign in piece.replace(" ", "␣")]
    return "".join(signs) or "␀"


def require_same_sources(runs: Sequence[TracedRun]) -> None:
    """Raises UsageError if two runs have no sentence in common, or other sources for one."""
    if len(runs) < 2:
        return
    first, second = runs
    common = [sentence.id for sentence in first.sentences if sentence.id in second.by_id]
    if not common:
        raise UsageError(
            f"{first.name} and {second.name} have no sentence in common. Give two traces of the same input."
        )
    for id in common:
        one, other = first.by_id[id], second.by_id[id]
        if not _same_source(one, other):
            raise UsageError(
                f"{first.name} and {second.name} are traces of different sources: sentence {id} is "
                f"{_shown(one)} and {_shown(other)}. Give two traces of the same input."
            )


def _same_source(one: SentenceTrace, other: SentenceTrace) -> bool:
    """Texts are compared if there are any, because two models can have different tokens for one text."""
    if one.text is not None and other.text is not None:
        return one.text == other.text
    return one.tokens == other.tokens


def _shown(sentence: SentenceTrace, longest: int = 60) -> str:
    text = " ".join(map(str, sentence.tokens)) if sentence.text is None else sentence.text
    return repr(text if len(text) <= longest else f"{text[:longest]}...")
