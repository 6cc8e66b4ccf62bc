"""Two searches for the same sentence: their first difference, and the reason why one lacks the other's output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sgdec.trace.records import SentenceTrace
from sgdec.view.layout import best_place, path
from sgdec.view.runs import TracedRun
from sgdec.view.tree import TreePrefix

Sums = Mapping[str, float]
"""By predictor: the sum of its weighted scores along a hypothesis."""


@dataclass(frozen=True)
class Missed:
    """The end of another run's output in the tree of this run."""

    place: int
    """The longest prefix of the output in this tree."""
    complete: bool
    """Whether this is the whole output."""


@dataclass(frozen=True)
class Parting:
    """The best hypotheses of two runs, side by side."""

    step: int | None
    """The first token, from 0, that differs; None if the outputs are equal."""
    sums: tuple[Sums, Sums]
    """Empty if the trace does not have the whole hypothesis."""
    missed: tuple[Missed | None, Missed | None]
    """The part of the other run's output that each run has; None if a run has no output."""


def parting(
    runs: Sequence[TracedRun], sentences: Sequence[SentenceTrace], trees: Sequence[Sequence[TreePrefix]]
) -> Parting:
    """Compare the best hypotheses of two runs. Tokens are compared as strings."""
    outputs = [_output(run, sentence) for run, sentence in zip(runs, sentences, strict=True)]
    first, second = outputs
    sums = tuple(map(sums_along, runs, sentences, trees))
    missed = (_missed(runs[0], trees[0], second), _missed(runs[1], trees[1], first))
    return Parting(_first_difference(first, second), (sums[0], sums[1]), missed)


def sums_along(run: TracedRun, sentence: SentenceTrace, tree: Sequence[TreePrefix]) -> Sums:
    """By predictor: the sum of its weighted scores along the best hypothesis; empty if some of it is not recorded."""
    places = path(tree, best_place(tree))[1:]
    if not places or not all(tree[place].scores for place in places):
        return {}
    found = dict.fromkeys(run.header.predictors, 0.0)
    for place in places:
        parent = tree[place].parent
        assert parent is not None
        weights = weights_at(run, sentence, tree[parent])
        for name, weight, score in zip(found, weights, tree[place].scores, strict=True):
            found[name] += (weight or 0.0) * score
    return found


def weights_at(run: TracedRun, sentence: SentenceTrace, prefix: TreePrefix) -> tuple[float | None, ...]:
    """The weights for the children of a prefix."""
    if not prefix.expansions:
        return run.header.weights
    return sentence.expansions[prefix.expansions[0]].weights or run.header.weights


def _output(run: TracedRun, sentence: SentenceTrace) -> list[str] | None:
    """The best hypothesis with its end."""
    if not sentence.hypotheses:
        return None
    return [*map(run.label, sentence.hypotheses[0].tokens), "</s>"]


def _first_difference(first: list[str] | None, second: list[str] | None) -> int | None:
    if first is None or second is None or first == second:
        return None
    return next(step for step, (one, other) in enumerate(zip(first, second, strict=False)) if one != other)


def _missed(run: TracedRun, tree: Sequence[TreePrefix], output: list[str] | None) -> Missed | None:
    """Follow an output from a root as far as the tree goes: with several roots, as far as any of them leads."""
    if output is None or not tree:
        return None
    children: dict[tuple[int, str], int] = {
        (prefix.parent, run.label(prefix.token)): place
        for place, prefix in enumerate(tree)
        if prefix.parent is not None
    }
    ends = []
    for root in (place for place, prefix in enumerate(tree) if prefix.parent is None):
        at, steps = root, 0
        while steps < len(output) and (at, output[steps]) in children:
            at, steps = children[at, output[steps]], steps + 1
        ends.append((steps, at))
    steps, at = max(ends, key=lambda end: end[0])
    return Missed(at, steps == len(output))
