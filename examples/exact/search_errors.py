"""Search errors of beam search: tables, and a plot, of what exact searches of the same lattices prove to be better.

    python search_errors.py WORK --weights 0.3 1 3 --beams 1 2 5 10

Reads the results of the step ``search``. A beam makes a search error in a sentence if the proven best score is higher
than that of its hypothesis; the difference is the score lost (natural logs). Each side checks the other: all exact
searches have to be proven, and no beam may have found a better score. Writes WORK/search_errors.svg.
"""

from __future__ import annotations

import argparse
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SAME = 1e-6
"""Sums of the same scores in another order differ by less."""
KINDS = {"plain": "lattices as they are", "pushed": "costs pushed to the front"}
BEAMS = {"beam": "beam", "recombined": "beam, recombined"}


@dataclass
class Run:
    """One search of all lattices."""

    scores: list[float]
    """The score of the best hypothesis of each lattice; -inf = no hypothesis."""
    expansions: int
    seconds: float

    def lost(self, exact: Run) -> list[float]:
        """The score that each sentence loses to the exact search; 0 = no search error."""
        differences = [best - found for best, found in zip(exact.scores, self.scores, strict=True)]
        assert min(differences) > -SAME, "a beam has found a better score than the exact search"
        return [max(difference, 0) if difference > SAME else 0.0 for difference in differences]


def read(results: Path) -> Run:
    found = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
    speed = re.search(r"([\d.]+) sentences/s", results.with_suffix(".log").read_text(encoding="utf-8"))
    assert speed, f"{results}: no speed in the log"
    if results.stem.endswith("exact"):
        assert all(sentence["proven"] for sentence in found), f"{results}: not every sentence is proven"
    scores = ([hypothesis["score"] for hypothesis in sentence["hypotheses"]] for sentence in found)
    return Run(
        [max(listed, default=-math.inf) for listed in scores],
        sum(sentence["expansions"] for sentence in found),
        len(found) / float(speed[1]),
    )


def table(rows: Sequence[Sequence[object]]) -> str:
    """Rows as a Markdown table in columns."""
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["| " + " | ".join(map(str.ljust, row, widths)) + " |" for row in cells]
    return "\n".join([lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]])


def report(exact: Run, beams: dict[str, dict[int, Run]]) -> str:
    """The table of one language model weight: errors, score lost, expansions and time of each search."""
    count = len(exact.scores)
    rows: list[list[object]] = [
        ["search", "errors", "share", "mean lost", "most lost", "expansions", "seconds", "times exact"],
        ["exact", 0, "0 %", "", "", f"{exact.expansions:,}", f"{exact.seconds:.2f}", "1.0"],
    ]
    for name, runs in beams.items():
        for size, run in runs.items():
            lost = run.lost(exact)
            errors = sum(score > 0 for score in lost)
            rows.append([
                f"{BEAMS[name].replace('beam', f'beam {size}')}", errors, f"{errors / count:.0%}".replace("%", " %"),
                f"{sum(lost) / count:.3f}", f"{max(lost):.2f}", f"{run.expansions:,}", f"{run.seconds:.2f}",
                f"{run.seconds / exact.seconds:.1f}",
            ])  # fmt: skip
    return table(rows)


def overview(exact: dict[Any, Run], runs: dict[Any, Run], weights: list[str], beams: list[int]) -> str:
    """Search errors without and with recombination, side by side for all lattices and weights."""

    def errors(kind: str, weight: str, name: str, size: int) -> int:
        return sum(score > 0 for score in runs[kind, weight, name, size].lost(exact[kind, weight]))

    settings = [(kind, weight) for kind in KINDS for weight in weights]
    rows = [["beam", *(f"{kind}, {weight}" for kind, weight in settings)]]
    for size in beams:
        pairs = ([errors(*setting, name, size) for name in BEAMS] for setting in settings)
        rows.append([str(size), *(f"{plain} / {recombined}" for plain, recombined in pairs)])
    return table(rows)


def plot(path: Path, exact: dict[Any, Run], runs: dict[Any, Run], weights: list[str], beams: list[int]) -> None:
    """Share of sentences with an error (above) and mean score lost (below) against the beam."""
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure
    from matplotlib.ticker import NullLocator, PercentFormatter

    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "sgdec", "font.size": 9})
    figure = Figure(figsize=(7.5, 5.5), layout="constrained")
    FigureCanvasSVG(figure)
    panels = figure.subplots(2, len(KINDS), sharex=True, sharey="row")
    for column, (kind, title) in zip(panels.T, KINDS.items(), strict=True):
        for color, weight in enumerate(weights):
            for name, line in zip(BEAMS, ("-", "--"), strict=True):
                lost = [runs[kind, weight, name, size].lost(exact[kind, weight]) for size in beams]
                label = f"weight {weight}" + (", recombined" if name == "recombined" else "")
                style = {"linestyle": line, "color": f"C{color}", "label": label}
                column[0].plot(beams, [sum(score > 0 for score in row) / len(row) for row in lost], **style)
                column[1].plot(beams, [sum(row) / len(row) for row in lost], **style)
        column[0].set_title(title)
        column[1].set(xlabel="beam size", xscale="log")
        column[1].set_xticks(beams, map(str, beams))
        column[1].xaxis.set_minor_locator(NullLocator())
        for panel in column:
            panel.grid(alpha=0.3)
    panels[0, 0].set(ylabel="sentences with a search error", ylim=(-0.02, 1.02))
    panels[0, 0].yaxis.set_major_formatter(PercentFormatter(1))
    panels[1, 0].set(ylabel="mean score lost (natural logs)", ylim=(0, None))
    panels[1, 1].legend(title="language model", fontsize=8)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("work", type=Path)
    parser.add_argument("--weights", nargs="+", required=True)
    parser.add_argument("--beams", nargs="+", type=int, required=True)
    given = parser.parse_args()
    weights, beams = given.weights, given.beams
    folder = given.work / "search"
    exact = {(kind, weight): read(folder / f"{kind}.{weight}.exact.jsonl") for kind in KINDS for weight in weights}
    runs = {
        (*setting, name, size): read(folder / "{}.{}.{}.{}.jsonl".format(*setting, name, size))
        for setting in exact for name in BEAMS for size in beams
    }  # fmt: skip
    for weight in weights:  # pushing changes no total, apart from rounding in the 32 bits of a cost
        pairs = zip(exact["plain", weight].scores, exact["pushed", weight].scores, strict=True)
        assert all(math.isclose(*pair, rel_tol=1e-5, abs_tol=1e-3) for pair in pairs), "pushing has changed a score"
    for (kind, weight), best in exact.items():
        sentences = f"{len(best.scores)} sentences, all proven"
        print(f"\n{KINDS[kind].capitalize()}, language model weight {weight}: {sentences}\n")
        print(report(best, {name: {size: runs[kind, weight, name, size] for size in beams} for name in BEAMS}))
    print("\nSearch errors without / with recombination, by lattices and language model weight\n")
    print(overview(exact, runs, weights, beams))
    plot(given.work / "search_errors.svg", exact, runs, weights, beams)
    print(f"\n{given.work / 'search_errors.svg'}")


if __name__ == "__main__":
    main()
