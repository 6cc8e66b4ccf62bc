"""How many lines should a chunk of ``sgdec corpus`` have, and what breaks first with 10^9 lines and 1,000 workers?

Simulated, not run: workers that die (1 % of them an hour, and starters, too), workers of different speed (lognormal,
and 1 % that are five times slower), storage that is slow (20 ms an operation, 2,000 operations a second). The rules
of starters and workers are in `corpus_model.py`, the costs in `corpus_costs.py`; ``--measure`` measures those of this
machine and its disk and uses them instead of the assumed fast storage. The ideal is that all workers decode all the
time. Columns, for each number of lines in a chunk: the time by the ideal; the share of lines that were decoded in
vain; the busy share of the starters' threads and of the storage; the most deaths in a row, by the number at which a
starter stops; the time after the last chunk was handed out, by the ideal. By formulas: the time of the merge, by the
ideal, and the manifest in the memory of each process.

    python benchmarks/corpus_simulation.py [--plot docs/figures/corpus-chunks.png] [--measure] [--tiny] [--seed 1]
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from corpus_costs import CLAIM, FAST, PUBLISH, SETTLE, SLOW, Costs, measure, report
from corpus_model import Case, Ran, around, run, young

SIZES = (100, 300, 1000, 3000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
Found = dict[str, list[Ran]]
"""By scenario, a run for each number of lines in a chunk."""


def scenarios(fast: Costs) -> Mapping[str, Case]:
    return {
        "fast storage, one starter": Case(costs=fast),
        "slow storage, one starter": Case(costs=SLOW),
        "slow storage, 16 starters": Case(costs=SLOW, starters=16),
        "the same, if all try the same chunks": Case(costs=SLOW, starters=16, leapfrog=True),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--plot", metavar="FILE", help="file to draw; .png or .svg")
    parser.add_argument("--measure", action="store_true", help="measure the costs here instead of assuming them")
    parser.add_argument("--tiny", action="store_true", help="10^5 lines, 10 workers")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    fast = measure() if given.measure else FAST
    print("costs:")
    report(fast)
    sizes = [size for size in SIZES if not given.tiny or 1000 <= size <= 10_000]
    found: Found = {}
    for name, case in scenarios(fast).items():
        case = replace(case, seed=given.seed)
        if given.tiny:
            case = replace(case, lines=100_000, workers=10, starters=min(case.starters, 2))
        found[name] = []
        print(f"\n{name} ({case.lines:,} lines, {case.workers:,} workers)")
        print(f"{'chunk':>10}{'time/ideal':>12}{'in vain':>10}{'starters':>10}{'storage':>9}{'deaths':>8}{'tail':>7}"
              f"{'merge':>8}{'manifest':>10}")  # fmt: skip
        for size in sizes:
            one = replace(case, chunk=size)
            ran, formulas = run(one), around(one)
            found[name].append(ran)
            print(
                f"{size:>10,}{ran.relative:>12.3f}{ran.wasted:>10.2%}{ran.busy:>10.0%}{ran.storage:>9.0%}"
                f"{ran.in_a_row:>8.2f}{ran.tail / ran.ideal:>7.2f}{formulas['merge'] / ran.ideal:>8.2f}"
                f"{formulas['manifest bytes'] / 2**20:>6,.0f} MiB", flush=True,
            )  # fmt: skip
        print(rule(case))
    if given.plot:
        draw(sizes, {name: ran for name, ran in found.items() if "storage" in name}, given.plot)


def rule(case: Case) -> str:
    """The seconds of a chunk that two formulas ask for."""
    costs = case.costs
    best = young(costs.seconds(PUBLISH), case.failures)
    thread = costs.seconds(CLAIM) + costs.seconds(SETTLE) + costs.message
    least = 2 * thread * case.workers / case.starters
    return f"Young's formula: chunks of {best:.0f} s. Starters are idle half of the time: {least:.0f} s or more."


def draw(sizes: Sequence[int], found: Mapping[str, Sequence[Ran]], file: str) -> None:
    """Time by the ideal, and lines in vain, by the number of lines in a chunk."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, NullFormatter

    figure = Figure(figsize=(7.4, 3.2), layout="constrained")
    FigureCanvasAgg(figure)
    times, losses = figure.subplots(1, 2)
    for (name, ran), marker in zip(found.items(), "o^s", strict=True):
        times.plot(sizes, [each.relative for each in ran], marker=marker, markersize=4, label=name)
        losses.plot(sizes, [100 * each.wasted for each in ran], marker=marker, markersize=4)
    times.set(ylabel="time / ideal time", xscale="log", yscale="log")
    losses.set(ylabel="lines decoded in vain (%)", xscale="log", yscale="log")
    times.set_yticks([1, 2, 5, 10, 20], ["1", "2", "5", "10", "20"])
    times.yaxis.set_minor_formatter(NullFormatter())
    losses.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    for axes in (times, losses):
        axes.set_xlabel("lines in a chunk (0.1 s each)")
        axes.grid(alpha=0.25)
    figure.legend(*times.get_legend_handles_labels(), loc="outside upper center", ncols=3, fontsize="small")
    Path(file).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=150)


if __name__ == "__main__":
    main()
