"""Whether the decoder's stop rule ends searches too early.

A decoder knows when its rule can do so (`Decoder.caveat`). Then all sentences whose output is not proven to be the
best are searched again with a rule that cannot. What this search finds is a witness like any other, and the stop rule
is the cause if it ranks higher.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sgdec.decoder import Decoder
from sgdec.errors import UsageError
from sgdec.library import LoadedRun
from sgdec.plugins.options import describe
from sgdec.ranking import is_better
from sgdec.search.outcome import Outcome
from sgdec.tasks.diagnosis.repeating import decoded, with_option

OPTION = "stop"
PATIENT = ("proven", "length")
"""Rules that never end too early, the cheaper one first. Neither works in every run."""


@dataclass(frozen=True)
class Stopping:
    """The stop rule of a run, and a second search with another."""

    rule: str | None
    """None if the decoder has no option for it."""
    caveat: str | None = None
    """The reason why the decoder's searches can end too early, and rules that cannot; None if they cannot."""
    other: str | None = None
    """The rule of the second search; None without one."""
    found: Mapping[int, Outcome] = field(default_factory=dict)
    """Its outcomes, by sentence."""

    @property
    def origin(self) -> str:
        """The name of its hypotheses among the witnesses."""
        return f"the same search with stop {self.other}"

    def shorter_lists(self, outcomes: Sequence[Outcome]) -> int:
        """The number of outcomes whose n-best lists lack a hypothesis that the second search found."""
        return sum(
            _lacks(outcome, self.found[outcome.source.id]) for outcome in outcomes if outcome.source.id in self.found
        )


def stopping(run: LoadedRun, outcomes: Sequence[Outcome], bounds: Mapping[int, float]) -> Stopping:
    """``bounds``: the most that any hypothesis of a sentence can have as its rank score, where it is known.

    With n-best lists all sentences are searched again, because a proof is about the first hypothesis alone.
    """
    rule = options_of(run).get(OPTION)
    if run.caveat is None:
        return Stopping(rule)
    caveat = f"{run.parts.config.decoder_name}: {run.caveat}"
    nbest = run.settings.nbest
    sources = [each.source for each in outcomes if each.source.tokens and (nbest > 1 or _is_open(each, bounds))]
    for other, decoder in _patient(run):
        try:
            found = list(decoded(run, sources, decoder, f"search with stop {other}", nbest))
        except UsageError:  # it needs bounds, or a length limit
            continue
        return Stopping(rule, caveat, other, {each.source.id: each for each in found})
    return Stopping(rule, caveat)


def options_of(run: LoadedRun) -> dict[str, Any]:
    """All options of the decoder with their values, those of an object as far as its attributes have them."""
    config, decoder = run.parts.config, run.parts.decoder
    described = describe(type(decoder))
    if isinstance(config.decoder, (str, type)):
        given = run.parts.options[config.decoder_name]
        return {option.name: given.get(option.name, option.default) for option in described}
    return {option.name: getattr(decoder, option.name) for option in described if hasattr(decoder, option.name)}


def _patient(run: LoadedRun) -> list[tuple[str, Decoder]]:
    """The run's decoder with each rule of `PATIENT` that it has and with which it has no caveat."""
    types = {option.name: option.type for option in describe(type(run.parts.decoder))}
    known = [rule for rule in PATIENT if rule in types.get(OPTION, "").split(" | ")]
    made = [(rule, with_option(run, OPTION, rule)) for rule in known]
    return [(rule, each) for rule, each in made if each and each.caveat(run.settings.nbest, run.never_rises) is None]


def _is_open(outcome: Outcome, bounds: Mapping[int, float]) -> bool:
    """Whether the output of a sentence may not be its best hypothesis."""
    found, bound = outcome.result.hypotheses, bounds.get(outcome.source.id)
    return not found or bound is None or is_better(bound, found[0].rank_score)


def _lacks(outcome: Outcome, other: Outcome) -> bool:
    """Whether the list of the other search is longer, or one of its ranks has a better hypothesis."""
    found, more = outcome.result.hypotheses, other.result.hypotheses
    return len(more) > len(found) or any(
        is_better(theirs.rank_score, ours.rank_score) for ours, theirs in zip(found, more, strict=False)
    )
