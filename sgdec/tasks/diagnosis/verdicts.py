"""The verdicts on one output: did the search miss a better hypothesis, or does the model prefer it to the reference?

- **Search error**: a hypothesis of the space ranks higher than the output. It is *proven* if the best hypothesis of
  the space is known, and *witnessed* if only some better one is known. That there is none has to be proven, too.
- **Model error**: the reference ranks lower than the output, or a predictor forbids it.

The two are independent. Stahlberg and Byrne 2019 ("On NMT Search Errors and Model Errors: Cat Got Your Tongue?")
count the first with exact search.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

from sgdec.ranking import is_better
from sgdec.tasks.diagnosis.scored import Decision, Scored, decision

Search: TypeAlias = Literal["proven", "witnessed", "none", "unknown"]
Model: TypeAlias = Literal["error", "forbidden", "none", "unknown"]


PROOF, REFERENCE, EMPTY = "exact search", "reference", "empty output"


class KnownOutput(NamedTuple):
    """A hypothesis of the space that is known beside the output."""

    origin: str
    """`PROOF`, `REFERENCE`, `EMPTY`, `Stopping.origin`, or the file that it is from."""
    scored: Scored
    text: str


@dataclass(frozen=True)
class SearchVerdict:
    """Whether the space has a hypothesis that ranks higher than the output."""

    error: Search
    by: float
    """By how much the best known hypothesis ranks higher: exactly, if `error` is "proven"; 0 without an error."""
    gap: float
    """The most by which any hypothesis can rank higher: 0 if none does, `by` if the best one is known, infinite if
    nothing is known."""
    better: KnownOutput | None = None
    """The best known hypothesis if it ranks higher than the output."""
    decision: Decision | None = None
    """The reason why it does; None without an output."""


PROVEN_BEST = SearchVerdict("none", 0.0, 0.0)


@dataclass(frozen=True)
class Forbidden:
    """The first token of a reference that a predictor forbids."""

    predictors: tuple[str, ...]
    """Those that forbid this token."""
    token: int
    position: int
    """From 1; ``</s>`` has the last one."""
    later: tuple[str, ...] = ()
    """Those that forbid a later token, and not this one."""


@dataclass(frozen=True)
class ModelVerdict:
    """Whether the reference ranks lower than the output."""

    error: Model
    by: float | None = None
    """The output's rank score minus that of the reference, 0 if they rank equally; None if one of them has none."""
    decision: Decision | None = None
    """The reason why the better of the two ranks higher; None if they rank equally."""
    forbidden: Forbidden | None = None


class Judge:
    """Decides about the outputs of a constellation with these names and weights."""

    def __init__(self, names: Sequence[str], weights: Sequence[float | None]) -> None:
        self._names, self._weights = names, weights

    def search(self, output: Scored | None, others: Sequence[KnownOutput], bound: float) -> SearchVerdict:
        """``others``: hypotheses of the space; of those that rank equally the first is named.

        ``bound``: the most that any hypothesis of the space can have as its rank score; -inf = there is none.
        """
        floor = -math.inf if output is None else output.rank_score
        highest = max((known.scored.rank_score for known in others), default=-math.inf)
        if not is_better(highest, floor):
            return SearchVerdict("unknown", 0.0, bound - floor) if is_better(bound, floor) else PROVEN_BEST
        best = next(known for known in others if not is_better(highest, known.scored.rank_score))
        by, why = best.scored.rank_score - floor, self.why(best.scored, output)
        if is_better(bound, highest):
            return SearchVerdict("witnessed", by, bound - floor, best, why)
        return SearchVerdict("proven", by, by, best, why)

    def model(self, output: Scored | None, reference: Scored | None, forbidden: Forbidden | None) -> ModelVerdict:
        """``reference`` is None if it is forbidden or could not be scored."""
        if forbidden is not None:
            return ModelVerdict("forbidden", forbidden=forbidden)
        if reference is None:
            return ModelVerdict("unknown")
        if output is None:
            return ModelVerdict("none")
        by = output.rank_score - reference.rank_score
        if is_better(output.rank_score, reference.rank_score):
            return ModelVerdict("error", by, self.why(output, reference))
        if is_better(reference.rank_score, output.rank_score):
            return ModelVerdict("none", by, self.why(reference, output))
        return ModelVerdict("none", 0.0)

    def why(self, better: Scored, worse: Scored | None) -> Decision | None:
        return None if worse is None else decision(better, worse, self._names, self._weights)


@dataclass(frozen=True)
class JudgedSentence:
    """All that is known about one sentence."""

    id: int
    """From 1."""
    source: str | None
    limit: int | None
    """The limit on the tokens of an output before ``</s>``; None = none."""
    output: Scored | None
    """None if the decoder found no hypothesis."""
    output_text: str
    reference: Scored | None
    """None if a predictor forbids it, or it could not be read or scored."""
    reference_text: str
    reference_length: int | None
    """In tokens; None if it could not be read."""
    empty: Scored | None
    """The empty hypothesis; None if a predictor forbids it, or it could not be scored."""
    empty_forbidden: bool
    """Whether a predictor forbids it."""
    witnesses: tuple[KnownOutput, ...]
    """The outputs of other runs, and of a second search (`Stopping`), that no predictor forbids."""
    optimum: Scored | None
    """The best hypothesis of the space; None if it is not known."""
    search: SearchVerdict
    model: ModelVerdict
    expansions: int
    """Those of the exact search."""
    problems: tuple[str, ...] = ()
    """The reasons why something above could not be found out."""

    @property
    def failed(self) -> bool:
        """Whether there is no output."""
        return self.output is None

    @property
    def too_long(self) -> bool:
        """Whether the reference is longer than the length limit, so that no search can find it."""
        return self.limit is not None and self.reference_length is not None and self.reference_length > self.limit

    @property
    def lost(self) -> bool:
        """Whether no search and no weight can find the reference: a predictor forbids it, or it is `too_long`."""
        return self.model.forbidden is not None or self.too_long

    @property
    def verdict(self) -> str:
        """In a few words.

        >>> VERDICTS["proven", True]
        'search error and model error'
        """
        return VERDICTS[self.search.error, self.model.error in ("error", "forbidden")]

    def to_dict(self) -> dict[str, Any]:
        """A dictionary for `json`; infinite numbers are None."""
        search, model = self.search, self.model
        return {
            "id": self.id,
            "verdict": self.verdict,
            "source": self.source,
            "output": _scored(self.output, self.output_text),
            "reference": {
                **(_scored(self.reference, self.reference_text) or {"text": self.reference_text}),
                "length": self.reference_length,
                "too_long": self.too_long,
            },
            "empty": _scored(self.empty, ""),
            "empty_forbidden": self.empty_forbidden,
            "witnesses": [_known(known) for known in self.witnesses],
            "optimum": _scored(self.optimum),
            "search": {
                "error": search.error,
                "by": _finite(search.by),
                "gap": _finite(search.gap),
                "better": None if search.better is None else _known(search.better),
                "decision": _decision(search.decision),
            },
            "model": {
                "error": model.error,
                "by": model.by,
                "decision": _decision(model.decision),
                "forbidden": None
                if model.forbidden is None
                else {
                    "predictors": model.forbidden.predictors,
                    "token": model.forbidden.token,
                    "position": model.forbidden.position,
                    "later": model.forbidden.later,
                },
            },
            "expansions": self.expansions,
            "problems": self.problems,
        }


VERDICTS = {
    ("proven", True): "search error and model error",
    ("proven", False): "search error",
    ("witnessed", True): "search error and model error",
    ("witnessed", False): "search error",
    ("none", True): "model error",
    ("none", False): "neither",
    ("unknown", True): "model error, search unknown",
    ("unknown", False): "unknown",
}
"""By the search verdict, and whether there is a model error."""


def _scored(scored: Scored | None, text: str | None = None) -> dict[str, Any] | None:
    if scored is None:
        return None
    row = {"tokens": scored.tokens, "rank_score": scored.rank_score, "score": scored.score}
    return row if text is None else {"text": text, **row}


def _known(known: KnownOutput) -> dict[str, Any]:
    return {"origin": known.origin, **(_scored(known.scored, known.text) or {})}


def _decision(decision: Decision | None) -> dict[str, Any] | None:
    if decision is None:
        return None
    return {
        "predictor": decision.predictor,
        "contributions": dict(decision.contributions),
        "turning_weight": decision.turning_weight,
        **({"inside": dict(decision.inside)} if decision.inside else {}),
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
