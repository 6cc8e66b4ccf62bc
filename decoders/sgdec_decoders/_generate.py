"""Beam search as `generate()` of transformers does it, for the stops ``hf-true``, ``hf-false`` and ``hf-never``.

Source: ``GenerationMixin._beam_search`` of transformers 5. The part after ``hf-`` is the value of ``early_stopping``.
The search has a beam of open hypotheses and a list of finished ones, at most ``size`` of each. One step:

1. The candidates are the best children of the beam by total.
2. Those that end and are among the first ``size`` candidates enter the list, which keeps the best by rank score.
3. The ``size`` best candidates that do not end are the next beam.
4. A full list can end the search: always (``hf-true``), or if the best total of the beam, divided by the length
   penalty of some length, does not beat the worst of the list. ``hf-false`` takes the present length; ``hf-never``
   takes the greatest length, or the present one if alpha <= 0.

At the length limit, ``</s>`` is the only continuation, so the whole beam ends. There transformers lists
hypotheses without ``</s>``, unless the model forces it (``forced_eos_token_id``).
"""

from __future__ import annotations

from typing import Protocol, TypeGuard

from sgdec import Node, SearchSpace, UsageError
from sgdec_decoders._beams import AnyStop, GenerateStop, drop

LACKING = ("beta", "prune_local", "prune_final", "recombine", "banks")
"""Options of `beam` that `generate()` does not have."""


def is_of_generate(stop: AnyStop) -> TypeGuard[GenerateStop]:
    return stop in ("hf-true", "hf-false", "hf-never")


def search_of_generate(space: SearchSpace, size: int, stop: GenerateStop) -> list[Node]:
    """The finished hypotheses, at most ``size`` of them, best rank score first (ties: the one that ended earlier).

    Raises UsageError for ``hf-never`` with alpha > 0 and without a length limit.
    """
    greatest = greatest_length(space) if stop == "hf-never" else None
    beam, finished = [space.root], list[Node]()
    while beam:
        candidates = space.best_children(beam, size + 1)  # at least `size`, and `size` open ones
        finished += [node for node in candidates[:size] if node.finished]
        finished = sorted(finished, key=space.rank_score, reverse=True)[:size]  # stable
        going = [node for node in candidates if not node.finished]
        beam = going[:size]
        drop(space, [*going[size:], *(node for node in candidates[size:] if node.finished)], "beam")
        if beam and len(finished) == size:
            highest = beam[0].total / space.ranking.length_penalty(greatest or beam[0].length)
            if stop == "hf-true" or highest <= space.rank_score(finished[-1]):
                break
    space.stopped(stop if beam else "empty", beam)
    return finished


class GenerateOptions(Protocol):
    """Those that the searches of `generate()` have, whichever their decoder."""

    @property
    def stop(self) -> AnyStop: ...
    @property
    def alpha(self) -> float: ...
    @property
    def normalize(self) -> str: ...


def require_options_of_generate(options: GenerateOptions) -> None:
    """Raises UsageError for options that `generate()` does not have."""
    given = [name for name in LACKING if getattr(options, name, None)]
    if given:
        verb = "has" if len(given) == 1 else "have"
        raise UsageError(
            f"stop {options.stop} is the search of generate() in transformers, where {' and '.join(given)} {verb} no "
            f"counterpart: omit {'it' if len(given) == 1 else 'them'}, or use another stop."
        )
    if options.alpha and options.normalize != "length":
        raise UsageError(
            f"stop {options.stop} divides by |Y|^alpha, as generate() in transformers does: add normalize length, or "
            "use another stop."
        )


def caveat_of_generate(stop: GenerateStop, alpha: float, never_rises: bool) -> str | None:
    """A warning that says why the search can end too early; None if it cannot.

    It does not depend on the number of hypotheses that the run wants: the list must be full in any case.
    """
    reasons = {
        "it ends as soon as its list is full": stop == "hf-true",
        "alpha is above 0": stop == "hf-false" and alpha > 0.0,
        "totals can rise": stop != "hf-true" and not never_rises,
    }
    why = " and ".join(reason for reason, holds in reasons.items() if holds)
    if not why:
        return None
    return f"with stop {stop} the search can end too early, because {why}."


def greatest_length(space: SearchSpace) -> int | None:
    """The greatest length of a hypothesis with its ``</s>``; None if `hf-never` needs none, because alpha <= 0."""
    if space.ranking.alpha <= 0.0:
        return None
    if space.source.max_length is None:
        raise UsageError(
            "stop hf-never with alpha above 0 divides by the penalty of the greatest length, and there is no length "
            "limit: give --max-length N."
        )
    return space.source.max_length + 1
