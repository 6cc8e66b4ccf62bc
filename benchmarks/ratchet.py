"""Has anything become slower? Measures the figures of `figures.py` alternately in this tree and at an earlier commit.

    python benchmarks/ratchet.py [--base COMMIT] [--rounds 5] [--only "beam / vanilla" ...] [--tiny]

Each round measures all figures of each side in a separate process; the sides alternate, and also the side that
begins. The earlier commit is checked out into a temporary worktree, which is removed afterwards. Both sides use this
tree's measuring code with their own library, so a figure can be newer than the commit; the table says if it does not
run there. The table has medians over the rounds with their range: of each side, and of the ratio of the two sides in
each round.

Ratios are compared as logarithms, in which twice as slow and twice as fast are equally far from no change. A figure
fell if the median ratio is worse than 1 by more than the range of the ratios, and by more than `LEAST`. A figure that
is worse in each round, but by less, is marked "worse each time": measure it again, with more rounds. The exit status
is 1 if a figure fell or no longer runs, and 2 for a wrong call. Run it on an idle machine: on a busy machine the
ranges are wider.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from figures import FIGURES, Figure

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
SOURCE_ROOTS = (".", "predictors", "decoders")
LEAST = 0.01
"""A smaller change does not count, however steady a figure is."""
LIBRARIES = ("numpy", "torch", "pynini")


@dataclass
class Side:
    """A tree with its measured values."""

    name: str
    root: Path
    values: dict[str, list[float]] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)

    def measure(self, names: Sequence[str], tiny: bool) -> None:
        """One round, in a separate process."""
        paths = os.pathsep.join(str(self.root / root) for root in SOURCE_ROOTS)
        command = [sys.executable, str(HERE / "figures.py"), *(["--tiny"] if tiny else []), "--only", *names]
        environment = {**os.environ, "PYTHONPATH": paths, "PYTHONHASHSEED": "0"}
        process = subprocess.run(command, env=environment, cwd=self.root, stdout=subprocess.PIPE, text=True)
        found = [json.loads(line) for line in process.stdout.splitlines() if line.startswith("{")]
        for row in found:
            if "value" in row:
                self.values.setdefault(row["name"], []).append(row["value"])
            else:
                self.errors[row["name"]] = row["error"]
        for name in set(names) - {row["name"] for row in found}:
            self.errors[name] = f"the process ended before it, with status {process.returncode}"

    def runs(self, name: str) -> bool:
        return name in self.values and name not in self.errors


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--base", metavar="COMMIT", help="with which to compare; without it, figures are shown")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=FIGURES, default=list(FIGURES), metavar="FIGURE")
    parser.add_argument("--tiny", action="store_true", help="sizes that show that figures run, and nothing else")
    given = parser.parse_args()
    if given.rounds < (1 if given.base is None else 3):
        parser.error(f"--rounds {given.rounds}: a range needs 3 rounds or more")
    here = Side("this tree", ROOT)
    if given.base is None:
        measure([here], given.only, given.rounds, given.tiny)
        print(f"{machine()}\n{table(here, None, given.only)}")
        return 1 if here.errors else 0
    commit = git("rev-parse", "--verify", "--quiet", f"{given.base}^{{commit}}")
    if not commit:
        parser.error(f"{given.base} is not a commit of the repository at {ROOT}")
    with worktree(commit) as folder:
        base = Side(commit[:10], folder)
        measure([here, base], given.only, given.rounds, given.tiny)
    print(f"{machine()}\n{table(here, base, given.only)}")
    fell = [name for name in given.only if verdict(FIGURES[name], here, base) in WORSE]
    print(f"fell: {', '.join(fell)}" if fell else "nothing fell")
    return 1 if fell else 0


def measure(sides: Sequence[Side], names: Sequence[str], rounds: int, tiny: bool) -> None:
    """Run all rounds; the sides take turns in beginning."""
    for number in range(rounds):
        for side in sides if number % 2 == 0 else reversed(sides):
            print(f"round {number + 1} of {rounds}: {side.name}", file=sys.stderr, flush=True)
            side.measure(names, tiny)


FELL, GONE, LOOK = "FELL", "runs no more", "worse each time"
WORSE = (FELL, GONE)


def verdict(figure: Figure, here: Side, base: Side) -> str:
    """The verdict on a figure, in a word or two."""
    if not here.runs(figure.name):
        return GONE if base.runs(figure.name) else "does not run"
    if not base.runs(figure.name):
        return "does not run there"
    return compare(figure, ratios(here, base, figure.name))


def ratios(here: Side, base: Side, name: str) -> list[float]:
    """The ratio of the two sides in each round."""
    return [ours / theirs for ours, theirs in zip(here.values[name], base.values[name], strict=True)]


def compare(figure: Figure, ratios: Sequence[float]) -> str:
    """Whether a figure fell or became better by more than its spread.

    >>> speed, seconds = (Figure("", "", better, lambda sizes: 0.0) for better in ("higher", "lower"))
    >>> compare(speed, [0.9, 0.92, 0.88]), compare(seconds, [0.9, 0.92, 0.88]), compare(seconds, [1.3, 1.1, 0.9])
    ('FELL', 'better', 'same')
    """
    changes = [math.log(ratio) * (1 if figure.better == "higher" else -1) for ratio in ratios]
    change = statistics.median(changes)
    if abs(change) > max(max(changes) - min(changes), LEAST):
        return "better" if change > 0 else FELL
    return LOOK if max(changes) < 0 and change < -LEAST else "same"


def table(here: Side, base: Side | None, names: Sequence[str]) -> str:
    """The table, one line per figure."""
    rows = [["figure", here.name, *([base.name, "change", ""] if base else [])]]
    for name in names:
        row = [name, shown(here.values.get(name, []), short)]
        if base is not None:
            both = here.runs(name) and base.runs(name)
            changes = [ratio - 1 for ratio in ratios(here, base, name)] if both else []
            row += [shown(base.values.get(name, []), short), shown(changes, "{:+.1%}".format)]
            row += [verdict(FIGURES[name], here, base)]
        rows.append(row)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    notes = [f"{name}: {FIGURES[name].unit}, {FIGURES[name].better} is better" for name in names]
    errors = [f"{side.name}, {name}: {why}" for side in (here, base) if side for name, why in side.errors.items()]
    return "\n".join([*lines, "", *notes, *(["", *errors] if errors else [])])


def shown(values: Sequence[float], form: Callable[[float], str]) -> str:
    """The median, and the range."""
    if not values:
        return "-"
    return f"{form(statistics.median(values))} ({form(min(values))} to {form(max(values))})"


def short(value: float) -> str:
    """
    >>> short(0.81234), short(60.8145), short(6854.0)
    ('0.812', '60.8', '6,854')
    """
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}" if abs(value) < 1000 else f"{value:,.0f}"


def machine() -> str:
    """The processor and versions of the measurement."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    versions = " ".join(f"{name} {_version(name)}" for name in LIBRARIES)
    return f"{processor()}, {cores} cores, 1 thread, CPU time; Python {platform.python_version()}, {versions}"


def processor() -> str:
    """The name of the processor, from the system."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    facts: Mapping[str, str] = {name.strip(): value.strip() for name, _, value in (x.partition(":") for x in lines)}
    name = facts.get("model name", platform.machine())
    return f"{name}, family {facts['cpu family']}, model {facts['model']}" if "cpu family" in facts else name


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def git(*arguments: str) -> str:
    """The output of a git command; empty if it fails."""
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


@contextmanager
def worktree(commit: str) -> Iterator[Path]:
    """The files of a commit, in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="ratchet-") as name:
        folder = Path(name, "base")
        subprocess.run(
            ["git", "-C", str(ROOT), "worktree", "add", "--quiet", "--detach", str(folder), commit], check=True
        )
        try:
            yield folder
        finally:
            git("worktree", "remove", "--force", str(folder))


if __name__ == "__main__":
    sys.exit(main())
