"""Shared code of beam searches: options with the same meaning in all of them, ranking, and stopping.

Source: Wu et al. 2016, section 7. Most beam searches are variants of Algorithm 2, which is in `sgdec_decoders.beam`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from sgdec import Decoder, Node, SearchSpace, UsageError
from sgdec.arrays import FORBIDDEN
from sgdec.ranking import Ranking
from sgdec_decoders._ranking_options import Alpha, Beta, Normalize

Size: TypeAlias = Annotated[int, Field(ge=1, description="hypotheses kept at each length")]
PruneLocal: TypeAlias = Annotated[
    float, Field(ge=0, description="drop tokens that score more than this below the best sibling; 0 = off")
]
PruneFinal: TypeAlias = Annotated[
    float, Field(ge=0, description="drop finished hypotheses that rank more than this below the best so far; 0 = off")
]
Recombine: TypeAlias = Annotated[
    bool, Field(description="keep only the best of all hypotheses with the same future scores")
]
LengthOffset: TypeAlias = Annotated[
    int, Field(ge=0, le=1000, description="added to |Y| in the length penalty; 1 counts a forced first token")
]
Banks: TypeAlias = Annotated[
    bool, Field(description="divide the beam by how much of a constraint is met, as phrases count it")
]
OwnStop: TypeAlias = Literal["best", "full", "length", "proven"]
GenerateStop: TypeAlias = Literal["hf-true", "hf-false", "hf-never"]
"""The stops of `sgdec_decoders._generate`."""
AnyStop: TypeAlias = OwnStop | GenerateStop
_stop = Field(description="when the search ends; see 'sgdec plugins beam'")
Stop: TypeAlias = Annotated[OwnStop, _stop]
StopOfBeam: TypeAlias = Annotated[AnyStop, _stop]


@dataclass(eq=False)
class BeamSearch(Decoder):
    """A search with slots for ``size`` hypotheses of each length. Its fields and those of its subclasses are
    options."""

    size: Size = 4
    _: KW_ONLY
    alpha: Alpha = 0.0
    beta: Beta = 0.0
    normalize: Normalize = "gnmt"
    prune_local: PruneLocal = 0.0

    def __post_init__(self) -> None:
        self.ranking = Ranking(self.alpha, self.beta, self.normalize)

    def losses_of_stop_best(self, nbest: int, never_rises: bool) -> str | None:
        """The reason why a search with ``stop best`` can end too early; None if it cannot."""
        reasons = {
            "alpha or beta is not 0": self.ranking.uses_length or self.ranking.uses_coverage,
            "totals can rise": not never_rises,
            "more than one hypothesis is asked for": nbest > 1,
        }
        return " and ".join(reason for reason, holds in reasons.items() if holds) or None


class StoppingBeamSearch(BeamSearch):
    """A beam search with the option ``stop``."""

    stop: AnyStop
    """Not a field of this class: each subclass declares it at its own position among the other fields."""
    banks: bool = False
    """Whether the beam is divided by met constraints; declared by each subclass that has banks, as `stop` is."""

    @cached_property
    def sets_aside(self) -> bool:
        """Whether finished hypotheses leave the beam."""
        return self.stop in ("length", "proven")

    @cached_property
    def children_needed(self) -> int:
        """The number of children of one hypothesis that can be needed: one more if ``</s>`` takes no slot."""
        return self.size + self.sets_aside

    def require_end(self, space: SearchSpace, beam: Sequence[Node]) -> None:
        """Raises UsageError if ``stop length`` has no length limit, ``stop proven`` no bound, or banks no progress.

        ``beam``: the first beam.
        """
        if self.banks:
            space.require_progress()
        if self.stop == "proven":
            space.require_end(beam)
        if self.stop == "length" and space.source.max_length is None:
            raise UsageError("stop length searches up to the length limit; there is none: give --max-length N.")

    def caveat(self, nbest: int, never_rises: bool) -> str | None:
        why = self.losses_of_stop_best(nbest, never_rises) if self.stop == "best" else None
        return why and f"with stop best the search can end too early, because {why}."

    def way_out(self, limited: bool, bounded: bool) -> str | None:
        return f"with {patient_stops(limited, bounded)} it cannot"


def patient_stops(limited: bool, bounded: bool) -> str:
    """The stops with which a search cannot end too early, if it has what they need (`Decoder.way_out`).

    Without a length limit a proof may need hypotheses without end, so the limit comes first.

    >>> patient_stops(limited=True, bounded=True), patient_stops(limited=False, bounded=True)
    ('stop length or stop proven', '--max-length N and stop length')
    """
    if not limited:
        return "--max-length N and stop length"
    return "stop length or stop proven" if bounded else "stop length"


def prune_local(space: SearchSpace, children: Iterable[Node], width: float) -> Iterator[Node]:
    """The children, given best first, without those more than ``width`` below the first; 0 = all children."""
    lowest = FORBIDDEN
    for rank, child in enumerate(children):
        if rank == 0 and width:
            lowest = child.total - width
        if child.total < lowest:
            space.dropped(child, "local")
            return
        yield child


def recombine(space: SearchSpace, candidates: list[Node]) -> list[Node]:
    """Keeps only the first, which is the best, of the candidates with the same key."""
    kept: dict[Hashable, Node] = {}
    for node, key in zip(candidates, space.keys(candidates), strict=True):
        best = kept.setdefault(key, node)
        if best is not node:
            space.dropped(node, "recombined", best)
    return list(kept.values())


def drop(space: SearchSpace, nodes: Iterable[Node], reason: str) -> None:
    """Tell a search that is traced that these nodes are dropped."""
    if space.traced:
        for node in nodes:
            space.dropped(node, reason)
