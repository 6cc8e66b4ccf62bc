"""The tables of a comparison as text, for a terminal and for a page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from sgdec.errors import counted
from sgdec.tasks.comparison import Comparison, Lists, Overlap, System
from sgdec.tasks.metrics import NAMES, Score, Test

NONE = "-"
"""Stands for a number that is undefined."""


class TextTable(NamedTuple):
    """A table whose first column has texts and whose other columns have numbers."""

    title: str
    head: list[str]
    rows: list[list[str]]
    notes: list[str]


def tables(comparison: Comparison) -> Iterator[TextTable]:
    """The tables that a comparison has: scores, overlap with the first run, n-best lists."""
    if comparison.has_references:
        yield _scores(comparison)
    yield _overlaps(comparison)
    listed = [(system.name, system.lists) for system in comparison.systems if system.lists is not None]
    if listed:
        yield _lists(dict(listed))


def _scores(comparison: Comparison) -> TextTable:
    rows = []
    for system in comparison.systems:
        rows.append([system.name, *map(_value, system.scores.values()), *_lengths(system)])
        if system is not comparison.systems[0]:
            rows.append(["  difference", *map(_difference, system.scores.values()), "", ""])
    notes = ["Higher BLEU and chrF are better, lower TER is. Length and brevity are those of BLEU."]
    notes += _test_notes(comparison.test, comparison.samples)
    if any(system.missing for system in comparison.systems):
        missing = ", ".join(f"{system.name} {system.missing:,}" for system in comparison.systems)
        notes.append(f"Missing outputs count as empty ones: {missing}.")
    if "bleu" in comparison.signatures:
        notes += _without_4_grams([system.name for system in comparison.systems if not system.has_4_grams])
    return TextTable(
        "Scores against the references",
        ["", *(NAMES[key] for key in comparison.signatures), "length ratio", "brevity penalty"],
        rows,
        [*notes, *_signed(comparison.signatures)],
    )


def _without_4_grams(names: Sequence[str]) -> Iterator[str]:
    if names:
        yield (
            f"BLEU is 0 for {', '.join(names)}, even of equal outputs: none has 4 words (13a tokens), and without "
            "4-grams BLEU of a corpus is 0 (eff:no in the signature). Use chrF."
        )


def _test_notes(test: Test, samples: int) -> Iterator[str]:
    if test == "approx":
        yield f"p is that of approximate randomisation, two-sided, with {counted(samples, 'trial')}."
    if test == "bootstrap":
        yield "± is half of the 95 % confidence interval."
        yield (
            f"p is that of sacreBLEU's bootstrap with {counted(samples, 'resample')}, smaller than the two-sided p "
            "of --test approx."
        )


def _value(score: Score) -> str:
    margin = "" if score.margin is None else f" ± {score.margin:.2f}"
    return f"{score.value:.2f}{margin}"


def _difference(score: Score) -> str:
    p_value = "" if score.p_value is None else f" (p {score.p_value:.2g})"
    return f"{score.difference:+.2f}{p_value}"


def _lengths(system: System) -> list[str]:
    return [_ratio(system.length_ratio), _ratio(system.brevity_penalty)]


def _overlaps(comparison: Comparison) -> TextTable:
    rows = [_overlap(each) for each in comparison.overlaps]
    head = ["", "equal outputs", "BLEU", "chrF", "word ratio", "character ratio", "score", "higher in", "lower in"]
    if all(each.scores is None for each in comparison.overlaps):
        head, rows = head[:6], [row[:6] for row in rows]
    name = comparison.systems[0].name
    title = f"Overlap with {name}, whose outputs take the place of references"
    return TextTable(title, head, rows, [*_overlap_notes(comparison), *_signed(comparison.overlap_signatures)])


def _overlap_notes(comparison: Comparison) -> Iterator[str]:
    first, *others = comparison.systems
    for overlap in comparison.overlaps:
        if overlap.sentences < len(comparison.sentences):
            yield (
                f"{overlap.name}: over the {counted(overlap.sentences, 'sentence')} of {len(comparison.sentences):,} "
                f"with an output in both files; neither has one for {overlap.missing_in_both:,}."
            )
    for system, overlap in zip(others, comparison.overlaps, strict=True):
        if overlap.scores is not None and not overlap.same_weights:
            yield (
                f"{system.name}: its scores are not comparable with those of {first.name}, because predictors or "
                f"weights differ: {_weighted(system)} and {_weighted(first)}."
            )
    yield from _without_4_grams(
        [each.name for each in comparison.overlaps if each.sentences and not each.has_4_grams]
    )


def _weighted(system: System) -> str:
    """The predictors with their weights, where they are known."""
    weights = system.weights.items()
    return ", ".join(name if weight is None else f"{weight:g}*{name}" for name, weight in weights)


def _overlap(overlap: Overlap) -> list[str]:
    scores = [NONE] * 3
    if overlap.scores is not None:
        of = f" of {overlap.scores.sentences}"
        scores = [f"{overlap.scores.mean:+.4f}", f"{overlap.scores.higher}{of}", f"{overlap.scores.lower}{of}"]
    return [
        overlap.name,
        f"{overlap.equal} of {overlap.sentences}",
        _score(overlap.bleu),
        _score(overlap.chrf),
        _ratio(overlap.words),
        _ratio(overlap.characters),
        *scores,
    ]


def _lists(lists: Mapping[str, Lists]) -> TextTable:
    head = ["", "fewest", "mean", "most", "chrF of the first", "chrF of the best", "rank of the best"]
    rows = [
        [
            name,
            str(each.smallest),
            f"{each.mean:.1f}",
            str(each.largest),
            *map(_score, (each.first_chrf, each.best_chrf, each.best_rank)),
        ]
        for name, each in lists.items()
    ]
    if all(each.best_chrf is None for each in lists.values()):
        return TextTable("Hypotheses per sentence", head[:4], [row[:4] for row in rows], [])
    (sentences,) = {each.sentences for each in lists.values()}
    notes = [
        "The best hypothesis of a list (the oracle) has the highest chrF.",
        f"Means of chrF and rank: over the {counted(sentences, 'sentence')} with an output in every file.",
    ]
    return TextTable("Hypotheses per sentence", head, rows, notes)


def _signed(signatures: Mapping[str, str]) -> list[str]:
    return [f"{NAMES[key]}: {signature}" for key, signature in signatures.items()]


def _ratio(value: float | None) -> str:
    return NONE if value is None else f"{value:.3f}"


def _score(value: float | None) -> str:
    return NONE if value is None else f"{value:.2f}"
