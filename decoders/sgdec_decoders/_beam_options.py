"""The options that decoders of beam search share, so that one name means one thing (Wu et al. 2016, section 7)."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from sgdec import SearchSpace, UsageError
from sgdec.ranking import Ranking
from sgdec_decoders._ranking_options import Alpha as Alpha
from sgdec_decoders._ranking_options import Beta as Beta
from sgdec_decoders._ranking_options import Normalize as Normalize

Size: TypeAlias = Annotated[int, Field(ge=1, description="hypotheses kept at each length")]
PruneLocal: TypeAlias = Annotated[
    float, Field(ge=0, description="drop tokens more than this below their expansion's best; 0 = off")
]
PruneFinal: TypeAlias = Annotated[
    float, Field(ge=0, description="drop finished hypotheses more than this below the best so far; 0 = off")
]
Recombine: TypeAlias = Annotated[bool, Field(description="keep only the best of hypotheses with the same future")]
Stop: TypeAlias = Annotated[
    Literal["best", "full", "length", "proven"], Field(description="when the search ends; see 'sgdec plugins beam'")
]


def sets_aside(stop: Stop) -> bool:
    """Whether finished hypotheses leave the beam."""
    return stop in ("length", "proven")


def children_needed(size: int, stop: Stop) -> int:
    """How many children of one hypothesis can have a place: where ``</s>`` takes no slot, it is one more."""
    return size + sets_aside(stop)


def require_end(stop: Stop, space: SearchSpace) -> None:
    """Raises UsageError where ``stop length`` has no length at which to end, and ``stop proven`` no bound."""
    if stop == "proven":
        space.require_end()
    if stop == "length" and space.source.max_length is None:
        raise UsageError(
            "stop length goes on to the length limit, and there is none: give --max-length N, or use stop proven."
        )


def losses_of_stop_best(ranking: Ranking, nbest: int, never_rises: bool) -> str | None:
    """Why a search that ends as ``stop best`` does can end too early, in a few words; None if it cannot."""
    reasons = {
        "alpha or beta is not 0": ranking.uses_length or ranking.uses_coverage,
        "scores can rise": not never_rises,
        "more than one hypothesis is asked for": nbest > 1,
    }
    return " and ".join(reason for reason, holds in reasons.items() if holds) or None


def stop_best_caveat(stop: Stop, ranking: Ranking, nbest: int, never_rises: bool) -> str | None:
    """What decoders with this option say (`sgdec.Decoder.caveat`)."""
    why = losses_of_stop_best(ranking, nbest, never_rises) if stop == "best" else None
    return why and f"stop best can end too early, because {why}; stop length and stop proven cannot."
