"""The exact search beside a decoder: the best hypothesis of each sentence under the decoder's own ranking."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from sgdec.decoder import Decoder
from sgdec.errors import SgdecError, UsageError
from sgdec.library import LoadedRun
from sgdec.plugins.host import name_of
from sgdec.plugins.options import configure
from sgdec.protocol import Result, Source
from sgdec.search.constellation import Constellation
from sgdec.search.outcome import Outcome
from sgdec.search.scheduler import Scheduler

Proof: TypeAlias = Literal["astar", "dfs", "none"]
PROOFS: tuple[Proof, ...] = get_args(Proof)


@dataclass(frozen=True)
class ProofBudget:
    """The exact search, and what it may cost for each sentence; 0 = no limit."""

    proof: Proof = "astar"
    max_expansions: int = 300
    max_seconds: float = 0.0


def prove(run: LoadedRun, sources: Iterable[Source], budget: ProofBudget) -> Iterator[Outcome]:
    """The outcome of the exact search for each source.

    Raises UsageError if a predictor declares no bound, so that nothing can be proven.
    """
    constellation, settings = run.parts.constellation, run.settings
    names = ("seed", "batch_size", "window", "max_rows", "deterministic")
    chosen = {name: getattr(settings, name) for name in names}
    try:
        yield from Scheduler(constellation, exact_decoder(run, budget), **chosen).run(sources)
    except UsageError as error:
        bounds = constellation.bounds_under(constellation.weights)
        undeclared = " and ".join(repr(constellation.names[k]) for k in sorted(bounds.undeclared))
        problem = f"{str(error).rstrip('.')}; or"
        if undeclared:  # another decoder, as the error proposes, would be diagnosed by the same exact search
            problem = f"no bound is known for the scores of {undeclared}, so nothing can be proven;"
        raise UsageError(f"--proof {budget.proof}: {problem} give --proof none.") from error


def can_tell(run: LoadedRun, budget: ProofBudget) -> str | None:
    """The option with which an exact search tells more about the sentences that this one leaves unknown.

    None = there is none: predictors do not declare bounds, or a search without a length limit may never end.
    """
    falls = run.never_rises and not run.parts.decoder.ranking.uses_length
    if not run.bounded or not (run.limited or falls):
        return None
    if budget.proof == "none":
        return f"--proof {ProofBudget.proof}"
    limits = {"--max-expansions": budget.max_expansions, "--max-seconds": budget.max_seconds}
    return " and ".join(f"a larger {name}" for name, limit in limits.items() if limit) or None


def exact_decoder(run: LoadedRun, budget: ProofBudget) -> Decoder:
    """The exact decoder with the ranking of the run's decoder."""
    cls = run.parts.host.load("decoder", budget.proof)
    given = {"max_expansions": budget.max_expansions, "max_seconds": budget.max_seconds, "recombine": True}
    decoder: Decoder = cls(**configure(cls, given, name=name_of(budget.proof)))
    decoder.ranking = run.parts.decoder.ranking
    return decoder


def bound_of(result: Result, source: Source, run: LoadedRun) -> float:
    """The most that any hypothesis can have as its rank score, as far as an exact search has shown; -inf = there is
    none."""
    best = result.hypotheses[0].rank_score if result.hypotheses else -math.inf
    if result.proven:
        return best
    if result.hypotheses and result.gap is not None:
        return best + result.gap
    return bound_at_the_root(run.parts.constellation, source, run) if result.proven is False else math.inf


def bound_at_the_root(constellation: Constellation, source: Source, run: LoadedRun) -> float:
    """The bound on all hypotheses of a sentence that predictors declare before any search."""
    try:
        roots = constellation.roots([source])
    except SgdecError:
        return math.inf
    try:
        (bound,) = constellation.bounds(roots)
    finally:
        constellation.release(roots)
    longest = None if source.max_length is None else source.max_length + 1
    return run.parts.decoder.ranking.best_possible(bound, 1, longest)
