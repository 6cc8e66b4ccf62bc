"""The plots of a diagnosis."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from sgdec.pages.figures import MUTED, SERIES, TEXT, svg
from sgdec.tasks.diagnosis.calibration import Reliability
from sgdec.tasks.diagnosis.curve import Point
from sgdec.tasks.diagnosis.lengths import LengthBin
from sgdec.tasks.diagnosis.report import Report

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS = 3
"""The number of reliability diagrams side by side."""
DRAWN = 1e9
"""Differences above this are not drawn, and those that differ by less than the largest (or 1) / this have one bin."""


class Plot(NamedTuple):
    """A plot in words, and as an SVG element."""

    title: str
    description: str
    svg: str

    @classmethod
    def drawn(cls, draw: Callable[[Figure], object], title: str, description: str, **size: float) -> Plot:
        return cls(title, description, svg(draw, title, description, **size))


def plots(report: Report) -> Iterator[Plot]:
    """The plots that have something to show."""
    differences = [
        each.model.by
        for each in report.diagnosis.sentences
        if each.model.by is not None and abs(each.model.by) < DRAWN
    ]
    if differences:
        yield _differences(differences)
    if report.summary.lengths.bins:
        yield _lengths(report.summary.lengths.bins)
    if len(report.curve) > 1:
        yield _curve(report.curve)
    drawn = {name: each for name, each in report.summary.calibration.items() if each.steps}
    if drawn:
        yield _reliability(drawn)


def _differences(differences: Sequence[float]) -> Plot:
    higher = sum(each < 0 for each in differences)

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        distinct = max(differences) - min(differences) > max(*map(abs, differences), 1.0) / DRAWN
        axes.hist(differences, bins=min(40, max(10, len(differences) // 5)) if distinct else 1, color=SERIES[0])
        axes.axvline(0, color=MUTED, linestyle="--")
        axes.set(xlabel="rank score of the output minus that of the reference", ylabel="sentences")

    what = f"{higher} of {len(differences)} references rank higher than the output: left of 0."
    return Plot.drawn(draw, "Output against reference", what)


def _lengths(bins: Sequence[LengthBin]) -> Plot:
    names = [f"{each.shortest}+" if each.longest is None else f"{each.shortest}-{each.longest}" for each in bins]

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        axes.bar(names, [each.ratio for each in bins], color=SERIES[0])
        axes.axhline(1, color=MUTED, linestyle="--")
        axes.set(xlabel="tokens of the reference", ylabel="length ratio")

    listed = ", ".join(f"{name}: {each.ratio:.2f}" for name, each in zip(names, bins, strict=True))
    return Plot.drawn(draw, "Length of outputs", f"Tokens of the outputs per token of the references. {listed}.")


def _curve(curve: Sequence[Point]) -> Plot:
    sizes = [each.size for each in curve]
    columns: dict[str, list[Any]] = {
        "BLEU": [each.bleu for each in curve],
        "length ratio": [each.length_ratio for each in curve],
        "search errors": [each.search_errors for each in curve],
    }

    def draw(figure: Figure) -> None:
        for place, (name, values) in enumerate(columns.items()):
            axes = figure.add_subplot(1, len(columns), place + 1)
            known = [(size, value) for size, value in zip(sizes, values, strict=True) if value is not None]
            axes.plot(*zip(*known, strict=True), color=SERIES[place], marker="o") if known else None
            axes.set_xscale("log")
            axes.set_xticks(sizes, list(map(str, sizes)))
            axes.minorticks_off()
            axes.set(xlabel="beam", title=name)

    ends = ", ".join(f"BLEU {each.bleu:.1f} with beam {each.size}" for each in (curve[0], curve[-1]))
    return Plot.drawn(
        draw, "Beam curve", f"BLEU, length ratio and search errors by size of the beam: {ends}.", width=7.2, height=3
    )


def _reliability(drawn: Mapping[str, Reliability]) -> Plot:
    rows = math.ceil(len(drawn) / COLUMNS)
    columns = min(len(drawn), COLUMNS)

    def draw(figure: Figure) -> None:
        for place, (name, each) in enumerate(drawn.items()):
            axes = figure.add_subplot(rows, columns, place + 1)
            width = 1 / len(each.bins)
            full = [bin for bin in each.bins if bin.steps]
            axes.bar(
                [bin.low for bin in full], [bin.accuracy or 0.0 for bin in full], width, align="edge", color=SERIES[0]
            )
            axes.plot([0, 1], [0, 1], color=TEXT, linestyle="--")
            axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="confidence", ylabel="accuracy", title=name)

    errors = ", ".join(f"{name} {each.error:.3f}" for name, each in drawn.items())
    what = f"Share of right tokens by probability of the best token; on the diagonal both are equal. ECE: {errors}."
    return Plot.drawn(draw, "Reliability", what, width=2.3 * columns + 0.3, height=2.6 * rows)
