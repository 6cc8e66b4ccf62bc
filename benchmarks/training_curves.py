"""Do the constraints of quantised inference slow down the progress of training? GNMT's Figure 4: log-perplexity
against steps.

Reads the metrics.jsonl of two or more runs (with the same data, settings and seed, one of them with
``--gnmt.constrained true``; they may still be running) and draws two panels: the training objective in nats per
target token, as logged and as its running mean; and the log-perplexity of the validation set, for which there is
neither label smoothing nor dropout. Prints the validations side by side, and the mean training loss of the last rows
of the log that all runs have.

    python benchmarks/training_curves.py RUN RUN --labels unconstrained constrained [--smooth 9]
        [--output docs/figures/constrained.png]
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from sgdec.checkpoints.layout import read_config
from sgdec.training.run.report import METRICS, Row, read_metrics

Curve = list[tuple[int, float]]
"""Steps and nats."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("runs", nargs="+", metavar="RUN", help="folders of sgdec train")
    parser.add_argument("--labels", nargs="+", help="by default the folders' names")
    parser.add_argument("--smooth", type=int, default=9, help="logged losses that a running mean is taken over")
    parser.add_argument("--output", default="docs/figures/constrained.png")
    given = parser.parse_args()
    labels = given.labels or [Path(run).name for run in given.runs]
    if len(labels) != len(given.runs):
        parser.error(f"{len(given.runs)} runs, but {len(labels)} labels")
    rows = {label: read_metrics(Path(run) / METRICS) for label, run in zip(labels, given.runs, strict=True)}
    for label, run in zip(labels, given.runs, strict=True):
        if not rows[label]:
            parser.error(f"{run}: no {METRICS} with rows")
    losses = {label: training(log) for label, log in rows.items()}
    valid = {label: validation(log) for label, log in rows.items()}
    report(losses, valid, given.smooth)
    draw(losses, valid, given.smooth, objective(given.runs), Path(given.output))


def objective(runs: Sequence[str]) -> str:
    """The name of the training loss, according to the checkpoints of the runs that have one already."""
    folders = [Path(run) / "last" for run in runs]
    smoothing = {read_config(folder)["training"]["label_smoothing"] for folder in folders if folder.exists()}
    smoothings = " or ".join(f"{value:g}" for value in sorted(smoothing))
    return f"cross-entropy with dropout, label smoothing {smoothings or 'as configured'}"


def training(rows: Sequence[Row]) -> Curve:
    """The mean objective per target token since the previous row."""
    return [(row["step"], row["loss"]) for row in rows if "loss" in row]


def validation(rows: Sequence[Row]) -> Curve:
    """The mean -ln P per validation token."""
    return [(row["step"], math.log(row["perplexity"])) for row in rows if "perplexity" in row]


def smoothed(curve: Curve, width: int) -> Curve:
    """The running mean over windows of ``width`` values; windows at the ends are smaller, so that they stay centred.

    >>> smoothed([(1, 3.0), (2, 6.0), (3, 0.0), (4, 3.0)], 3)
    [(1, 3.0), (2, 3.0), (3, 3.0), (4, 3.0)]
    """
    means = []
    for n, (step, _) in enumerate(curve):
        reach = min(width // 2, n, len(curve) - 1 - n)
        near = [value for _, value in curve[n - reach : n + reach + 1]]
        means.append((step, sum(near) / len(near)))
    return means


def report(losses: Mapping[str, Curve], valid: Mapping[str, Curve], width: int) -> None:
    """Print the numbers at the steps that all runs share."""
    print("step    " + "".join(f"{label:>16}" for label in losses) + "   validation log-perplexity")
    for step in shared(valid):
        print(f"{step:<8}" + "".join(f"{dict(curve)[step]:>16.4f}" for curve in valid.values()))
    steps = shared(losses)[-width:]
    print("means   " + "".join(f"{mean(curve, steps):>16.4f}" for curve in losses.values()), end="")
    print(f"   training objective, steps {steps[0]} to {steps[-1]}" if steps else "")


def shared(curves: Mapping[str, Curve]) -> list[int]:
    """The steps that all curves have."""
    return sorted(set.intersection(*({step for step, _ in curve} for curve in curves.values())))


def mean(curve: Curve, steps: Sequence[int]) -> float:
    values = [value for step, value in curve if step in steps]
    return sum(values) / len(values) if values else math.nan


def draw(losses: Mapping[str, Curve], valid: Mapping[str, Curve], width: int, objective: str, file: Path) -> None:
    """A PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    for number, label in enumerate(losses):
        color = f"C{number}"
        left.plot(*columns(losses[label]), color=color, alpha=0.25, linewidth=1)
        left.plot(*columns(smoothed(losses[label], width)), color=color, label=label)
        right.plot(*columns(valid[label]), color=color, marker="o", label=label)
    left.set(xlabel="step", ylabel="nats a target token", title=f"training: {objective}")
    right.set(xlabel="step", ylabel="nats a target token", title="validation: log-perplexity")
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.legend()
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=100)


def columns(curve: Curve) -> tuple[list[int], list[float]]:
    """Steps, and values."""
    return [step for step, _ in curve], [value for _, value in curve]


if __name__ == "__main__":
    main()
