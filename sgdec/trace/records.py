"""The trace of one sentence, as values.

A search is a tree of prefixes. `Expansion` N is the N-th prefix that was expanded, with its best children. Each child
has a *fate*: the number of its own expansion, or a word of `Fate`. So a node of the tree is a pair of an expansion
and a token, and the tree is connected by numbers alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from sgdec.errors import UsageError


class Fate(StrEnum):
    """The reason why a child was not expanded."""

    LISTED = "listed"
    """Finished, and in the n-best list."""
    OUTRANKED = "outranked"
    """Finished, but others of the list rank higher."""
    TEXT = "text"
    """Finished, but a hypothesis of the list has the same text."""
    BEAM = "beam"
    """The beam was full."""
    LOCAL = "local"
    """Pruned: too far below its best sibling."""
    BEAM_OR_LOCAL = "beam or local"
    """One of these two: of children that are not listed, the trace does not say which."""
    FINAL = "final"
    """Pruned: finished, too far below the best finished hypothesis."""
    RECOMBINED = "recombined"
    """Another node, which `Expansion.into` names, has the same future and a total at least as high."""
    BOUND = "bound"
    """No hypothesis that begins with it can enter the list."""
    SCORE = "score"
    """Its total is too low. It can rise again, and the search assumes that it does not."""
    LIMIT = "limit"
    """The decoder asked for fewer children."""
    UNREAD = "unread"
    """The decoder took the children one after the other, and never came to this one."""
    UNDRAWN = "undrawn"
    """A sampling decoder drew another child."""
    CAPACITY = "capacity"
    """The queue was full."""
    LENGTH = "length"
    """It reached a length limit of the decoder."""
    UNRECORDED = "unrecorded"
    """It was expanded after the last expansion that is recorded (`Tracing.expansions`)."""
    OPEN = "open"
    """Still open when the search stopped."""
    UNSAID = "unsaid"
    """The decoder did not say."""


@dataclass(frozen=True)
class Tracing:
    """The part of a run that is traced."""

    children: int = 20
    """The most children that are listed for each expansion; the others are a number."""
    first: int = 1
    last: int | None = None
    """The sentences, counted from 1, both included; None = to the end."""
    expansions: int = 10_000
    """The most expansions that are recorded for a sentence; later ones are only counted."""

    def __post_init__(self) -> None:
        """Raises UsageError for numbers below 1."""
        for name in ("children", "first", "expansions"):
            if getattr(self, name) < 1:
                raise UsageError(f"trace: {name} is {getattr(self, name)}; expected 1 or more.")

    def includes(self, sentence: int) -> bool:
        return self.first <= sentence and (self.last is None or sentence <= self.last)


@dataclass(frozen=True)
class Batch:
    """Prefixes, of one sentence or many, that the predictors scored together."""

    number: int
    """Counted from 1 over the run."""
    rows: int
    seconds: float
    """The time that the predictors took for it."""


@dataclass(frozen=True)
class Alone:
    """The token that one predictor alone, with its weight, would have chosen."""

    token: int
    score: float
    """The predictor's own score, unweighted."""
    forbidden_by: tuple[int, ...]
    """The numbers of the predictors that forbid it."""


@dataclass(frozen=True)
class Child:
    """A continuation of an expanded prefix."""

    token: int
    total: float
    """The weighted total of the prefix that ends with it."""
    scores: tuple[float, ...]
    """``[K]``: the unweighted score of the token by predictor; 0 = not consulted."""
    fate: int | str
    """The number of its expansion, or a word: of `Fate`, or of the decoder's own."""


@dataclass(frozen=True)
class Expansion:
    """One expanded prefix."""

    number: int
    """Counted from 0, in the order in which they happened."""
    parent: int | None
    """The expansion whose child it is; None for a root, of which a decoder can have several."""
    token: int | None
    """The last token; None for a root."""
    candidates: int
    """The number of tokens that no list excludes; a predictor can still forbid some by its score."""
    tokens: tuple[int, ...]
    """``[n]``: those of the best children, best first, and then of others that the decoder received."""
    totals: tuple[float, ...]
    """``[n]``: see `Child`; so are the next two."""
    scores: tuple[tuple[float, ...], ...]
    fates: tuple[int | str, ...]
    rest: str
    """The fate of all candidates that are not among these."""
    into: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """For recombined children, by token: the expansion and the token of the node that represents both."""
    notes: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """Those of the decoder about children, by token."""
    alone: tuple[Alone | None, ...] = ()
    """``[K]``; None for a predictor that is not consulted or has weight 0, prefers none, or scores only candidates of
    the others. Empty if there is only one predictor."""
    ending: bool = False
    """Whether the prefix has reached the length limit, so that only ``</s>`` can follow."""
    weights: tuple[float | None, ...] | None = None
    """``[K]``; None = those of the run."""
    attention: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """By predictor ``[source]``: the attention for the next token."""
    place: Mapping[str, str] = field(default_factory=dict)
    """By predictor where it is, such as the state of a lattice (`sgdec.protocol.StateLabel`)."""
    batch: int | None = field(default=None, compare=False)
    """The number of its `Batch`."""

    @property
    def children(self) -> tuple[Child, ...]:
        return tuple(map(Child, self.tokens, self.totals, self.scores, self.fates))

    def child(self, token: int) -> Child | None:
        """The child with this token."""
        if token not in self.tokens:
            return None
        i = self.tokens.index(token)
        return Child(token, self.totals[i], self.scores[i], self.fates[i])


@dataclass(frozen=True)
class Bound:
    """The bounds of an exact search at some moment."""

    expansions: int
    bound: float
    """The best that can still be found, as a rank score; +inf = unknown."""
    best: float | None
    """The rank score of the best hypothesis found; None = none."""
    seconds: float = field(default=0.0, compare=False)


@dataclass(frozen=True)
class Ended:
    """A hypothesis of the n-best list."""

    tokens: tuple[int, ...]
    """Without ``</s>``."""
    score: float
    rank_score: float
    expansion: int | None
    """The expansion whose child ``</s>`` it is; None if it was not recorded."""
    text: str | None = None
    part_scores: Mapping[str, Mapping[str, tuple[float | None, ...]]] = field(default_factory=dict)
    """By mix and part: the score of each token, ``</s>`` last; None from the first token on that the part forbids."""


@dataclass(frozen=True)
class SentenceTrace:
    """The whole search for one sentence. Comparison ignores times and batches."""

    id: int
    """1-based number of the sentence in the input."""
    tokens: tuple[int, ...]
    """The source tokens; empty if the sentence could not be read."""
    text: str | None
    max_length: int | None
    """The most tokens before ``</s>``; None = no limit."""
    expansions: tuple[Expansion, ...]
    bounds: tuple[Bound, ...]
    hypotheses: tuple[Ended, ...]
    """Best first."""
    stopped: str | None
    """The decoder's reason for ending the search; None = not said."""
    counted: int
    """The number of expansions, with those that were not recorded."""
    proven: bool | None
    gap: float | None
    error: str | None
    """The reason why there is no hypothesis; None if there is one."""
    pieces: tuple[str, ...] | None = None
    """The source tokens as strings; None without a vocabulary."""
    batches: tuple[Batch, ...] = field(default=(), compare=False)
    seconds: float = field(default=0.0, compare=False)

    def path(self, expansion: int) -> tuple[int, ...]:
        """The tokens of an expanded prefix."""
        found: list[int] = []
        at: int | None = expansion
        while at is not None:
            here = self.expansions[at]
            if here.token is not None:
                found.append(here.token)
            at = here.parent
        return tuple(reversed(found))

    def nodes(self) -> Iterator[tuple[Expansion, Child]]:
        """All children of all expansions."""
        return ((expansion, child) for expansion in self.expansions for child in expansion.children)


@dataclass(frozen=True)
class Header:
    """The run that a trace belongs to."""

    predictors: tuple[str, ...]
    weights: tuple[float | None, ...]
    decoder: str
    options: Mapping[str, object]
    """The decoder's options that were set."""
    ranking: Mapping[str, object]
    """The length and coverage penalties."""
    nbest: int
    signature: str
    """The line that reproduces the run."""
    children: int
    expansions: int
    """Both as in `Tracing`."""
    sgdec: str
    """The version of sgdec that wrote it."""


def unsaid(trace: SentenceTrace) -> Sequence[tuple[Expansion, Child]]:
    """The children that the decoder received, and of which it did not say what became."""
    return [(expansion, child) for expansion, child in trace.nodes() if child.fate == Fate.UNSAID]
