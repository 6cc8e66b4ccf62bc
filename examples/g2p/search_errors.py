"""Search errors of greedy and beam search, against the most probable outputs, which exact searches prove.

    python search_errors.py WORK --words FOLDER --beams 2 3 5 10

Reads the results of the step ``search``. A search makes an error in a word if the proven best score is higher than
that of its output; the difference is the score lost (natural logs). Each side checks the other: all exact searches
have to be proven and to agree, and no other search may have found a better score. Each file of FOLDER is one kind of
word. Writes WORK/search_errors.svg.
"""

from __future__ import annotations

import argparse
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

SAME = 1e-9
"""Sums of the same scores in another order differ by less."""
BUDGETS = (5, 10, 20, 50, 100)
"""Limits on expansions per word."""
SHOWN = 8
"""The number of words in the list of the largest errors."""


@dataclass
class Run:
    """One search of all words; every list has one entry per word."""

    scores: list[float]
    outputs: list[str]
    expansions: list[int]
    proven: list[bool]
    seconds: float

    def lost(self, exact: Run) -> list[float]:
        """The score that each word loses to the exact search; 0 = no search error."""
        differences = [best - found for best, found in zip(exact.scores, self.scores, strict=True)]
        assert min(differences) > -SAME, "a search has found a better score than the exact one"
        return [difference if difference > SAME else 0.0 for difference in differences]

    def lengths(self) -> list[int]:
        return [len(output.split()) for output in self.outputs]


def rows(results: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]


def read(results: Path) -> Run:
    found = rows(results)
    speed = re.search(r"([\d.]+) sentences/s", results.with_suffix(".log").read_text(encoding="utf-8"))
    assert speed, f"{results}: no speed in the log"
    best = [word["hypotheses"][0] for word in found]
    return Run(
        [hypothesis["score"] for hypothesis in best],
        [hypothesis["text"] for hypothesis in best],
        [word["expansions"] for word in found],
        [word["proven"] is True for word in found],
        len(found) / float(speed[1]),
    )


def table(rows: Sequence[Sequence[object]]) -> str:
    """Rows as a Markdown table in columns."""
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["| " + " | ".join(map(str.ljust, row, widths)) + " |" for row in cells]
    return "\n".join([lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]])


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def searches(runs: dict[str, Run], exact: Run) -> str:
    """For each search the errors, the probability and score lost, and the cost."""
    found: list[list[object]] = [
        ["search", "errors", "share", "mean P", "mean lost", "most lost", "expansions", "seconds", "times greedy"]
    ]
    for name, run in runs.items():
        lost = run.lost(exact)
        wrong = [score for score in lost if score]
        found.append([
            name, len(wrong), percent(len(wrong) / len(lost)), f"{fmean(map(math.exp, run.scores)):.4f}",
            f"{fmean(wrong):.2f}" if wrong else "", f"{max(wrong):.2f}" if wrong else "",
            f"{sum(run.expansions):,}", f"{run.seconds:.2f}", f"{run.seconds / runs['greedy'].seconds:.1f}",
        ])  # fmt: skip
    return table(found)


def by_kind(kinds: dict[str, slice], runs: dict[str, Run], exact: Run) -> str:
    """For each kind of word the probability and length of the best outputs, and the share of errors."""
    found: list[list[object]] = [["words", "mean P of the best", "phonemes", *runs]]
    for kind, place in kinds.items():
        errors = [[score > 0 for score in run.lost(exact)[place]] for run in runs.values()]
        best = fmean(map(math.exp, exact.scores[place]))
        shares = (percent(fmean(wrong)) for wrong in errors)
        found.append([kind, f"{best:.3f}", f"{fmean(exact.lengths()[place]):.1f}", *shares])
    return table(found)


def budgets(runs: dict[str, Run]) -> str:
    """For each exact search the share of words that a limit on expansions lets it prove."""
    found: list[list[object]] = [["search", "median", "most", *(f"within {budget}" for budget in BUDGETS)]]
    for name, run in runs.items():
        shares = (percent(fmean(count <= budget for count in run.expansions)) for budget in BUDGETS)
        found.append([name, f"{median(run.expansions):.0f}", max(run.expansions), *shares])
    return table(found)


def lengths(greedy: Run, exact: Run, unlimited: Run, empty: list[float]) -> str:
    """Lines about short and long outputs."""
    pairs = zip(exact.lengths(), greedy.lengths(), greedy.lost(exact), strict=True)
    longer = [best - found for best, found, lost in pairs if lost]
    counts = {"shorter": sum(d < 0 for d in longer), "as long": longer.count(0), "longer": sum(d > 0 for d in longer)}
    shares = ", ".join(f"{count} {name}" for name, count in counts.items())
    nearest = min(best - score for best, score in zip(exact.scores, empty, strict=True))
    return "\n".join([
        f"Best outputs where greedy search errs: {shares}",
        f"Phonemes of the shortest best output: {min(exact.lengths())}",
        f"Score of the empty output below the best: {nearest:.1f} or more",
        f"Better outputs beyond the limit on length: {sum(lost > 0 for lost in exact.lost(unlimited))}",
    ])  # fmt: skip


def largest(words: list[str], greedy: Run, exact: Run) -> str:
    """The words in which greedy search loses most."""
    lost = greedy.lost(exact)
    order = sorted((i for i in range(len(words)) if lost[i]), key=lambda i: -lost[i])[:SHOWN]
    found: list[list[object]] = [["word", "greedy", "P", "best", "P", "lost"]]
    for i in order:
        shown = ((run.outputs[i], f"{math.exp(run.scores[i]):.4f}") for run in (greedy, exact))
        found.append([words[i], *(cell for pair in shown for cell in pair), f"{lost[i]:.2f}"])
    return table(found)


def plot(path: Path, kinds: dict[str, slice], beams: dict[int, Run], exact: dict[str, Run]) -> None:
    """Share of words with an error against the beam (left), share of words proven against expansions (right)."""
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure
    from matplotlib.ticker import NullLocator, PercentFormatter

    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "sgdec", "font.size": 9})
    figure = Figure(figsize=(7.5, 3.2), layout="constrained")
    FigureCanvasSVG(figure)
    left, right = figure.subplots(1, 2)
    best = exact["astar"]
    for kind, place in kinds.items():
        shares = [fmean(score > 0 for score in run.lost(best)[place]) for run in beams.values()]
        left.plot(list(beams), shares, marker=".", label=kind)
    left.set(xlabel="beam size (1 = greedy)", ylabel="words with a search error", xscale="log")
    left.set_xticks(list(beams), map(str, beams))
    left.xaxis.set_minor_locator(NullLocator())
    left.legend(fontsize=8)
    for name, run in exact.items():
        counts = sorted(run.expansions)
        right.step(counts, [(i + 1) / len(counts) for i in range(len(counts))], where="post", label=name)
    right.set(xlabel="expansions", ylabel="words with a proof", xscale="log", ylim=(0, 1.02))
    right.set_xticks(BUDGETS, map(str, BUDGETS))
    right.xaxis.set_minor_locator(NullLocator())
    right.legend(fontsize=8)
    for panel in (left, right):
        panel.grid(alpha=0.3)
        panel.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("work", type=Path)
    parser.add_argument("--words", type=Path, required=True)
    parser.add_argument("--beams", nargs="+", type=int, required=True)
    given = parser.parse_args()
    kinds: dict[str, slice] = {}
    words: list[str] = []
    for path in sorted(given.words.glob("*.txt")):
        listed = path.read_text(encoding="utf-8").splitlines()
        kinds[path.stem] = slice(len(words), len(words) + len(listed))
        words += listed
    folder = given.work / "search"
    beams = {1: read(folder / "greedy.jsonl"), **{size: read(folder / f"beam.{size}.jsonl") for size in given.beams}}
    inexact = {"greedy" if size == 1 else f"beam {size}": run for size, run in beams.items()}
    exact = {name: read(folder / f"{name}.jsonl") for name in ("dfs", "astar")}
    best, unlimited = exact["astar"], read(folder / "any-length.jsonl")
    for name, run in {**exact, "any-length": unlimited}.items():
        assert all(run.proven), f"{folder}/{name}.jsonl: not every word is proven"
    assert not any(exact["dfs"].lost(best)), "dfs has proven another score than astar"
    empty = [word["score"] for word in rows(folder / "empty.jsonl")]
    print(f"words: {len(words)}\n\n{searches({**inexact, **exact}, best)}\n\n{by_kind(kinds, inexact, best)}")
    print(f"\nExpansions of a proof:\n\n{budgets(exact)}\n\n{lengths(beams[1], best, unlimited, empty)}")
    print(f"\nThe largest errors of greedy search:\n\n{largest(words, beams[1], best)}")
    path = given.work / "search_errors.svg"
    plot(path, kinds, beams, exact)
    print(f"\nplot: {path}")


if __name__ == "__main__":
    main()
