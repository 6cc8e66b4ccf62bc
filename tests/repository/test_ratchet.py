"""The promise of the ratchet: what became slower is named, what did not is not, and nothing is left behind."""

from __future__ import annotations

import math
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.optional import optional
from tests.helpers.places import ROOT

pytestmark = pytest.mark.slow

sys.path.append(str(ROOT / "benchmarks"))

from figures import FIGURES  # noqa: E402
from ratchet import Side, table, verdict  # noqa: E402

SLOWER = "        sum(range(100_000))\n"
"""About seven times as slow as the few expansions that follow it, so machine load cannot hide the slowdown."""


def test_every_figure_runs() -> None:
    optional("pynini")  # benchmarks/symbolic.py writes lattices with it
    here = Side("this tree", ROOT)
    here.measure(list(FIGURES), tiny=True)
    assert not here.errors
    for name in FIGURES:
        (value,) = here.values[name]
        assert math.isfinite(value) and value > 0, name


@pytest.mark.parametrize(
    ("here", "there", "expected"),
    [
        ([100.0, 101.0, 99.0], [100.0, 99.0, 101.0], "same"),
        ([90.0, 91.0, 89.0], [100.0, 101.0, 99.0], "FELL"),
        ([110.0, 111.0, 109.0], [100.0, 101.0, 99.0], "better"),
        ([90.0, 120.0, 80.0], [100.0, 101.0, 99.0], "same"),  # fell by less than its spread
        ([5.0, 2.0, 1.0], [100.0, 100.0, 100.0], "FELL"),  # a busy machine does not hide a factor of 50
        ([90.0, 98.0, 80.0], [100.0, 100.0, 100.0], "worse each time"),
        ([45.0, 90.0, 180.0], [50.0, 100.0, 200.0], "FELL"),  # the machine changed its speed under both
        ([99.5, 99.5, 99.5], [100.0, 100.0, 100.0], "same"),  # as steady as it is, this is little
        ([], [100.0, 101.0, 99.0], "runs no more"),
        ([100.0, 101.0, 99.0], [], "does not run there"),
        ([], [], "does not run"),
    ],
)
def test_a_figure_fell_if_its_ratio_is_worse_by_more_than_its_spread(
    here: list[float], there: list[float], expected: str
) -> None:
    name = "fst,ngram"  # of which more is better
    ours, theirs = (Side("a side", Path(), {name: values} if values else {}) for values in (here, there))
    assert verdict(FIGURES[name], ours, theirs) == expected
    assert expected in table(ours, theirs, [name])


@pytest.mark.exhaustive
def test_a_planted_slowdown_is_found_and_nothing_else(tmp_path: Path) -> None:
    for folder in ("sgdec", "predictors", "decoders", "benchmarks"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    identity = ["-c", "user.name=nobody", "-c", "user.email=nobody@example.org"]
    for words in (["init", "--quiet"], ["add", "."], [*identity, "commit", "--quiet", "--message", "Before"]):
        run("git", *words).check_returncode()
    performing = tmp_path / "sgdec/search/constellation.py"
    first_line = "        nodes, each, shared = request.nodes, request.each, request.shared\n"
    assert first_line in performing.read_text()
    performing.write_text(performing.read_text().replace(first_line, SLOWER + first_line))

    figures = ["--only", "free predictor", "astar, memory"]
    found = run(sys.executable, "benchmarks/ratchet.py", "--base", "HEAD", "--rounds", "3", "--tiny", *figures)
    assert (found.returncode, found.stdout.splitlines()[-1]) == (1, "fell: free predictor"), found
    assert len(run("git", "worktree", "list").stdout.splitlines()) == 1

    unknown = run(sys.executable, "benchmarks/ratchet.py", "--base", "earlier")
    assert unknown.returncode == 2 and "earlier is not a commit of the repository" in unknown.stderr
    few = run(sys.executable, "benchmarks/ratchet.py", "--base", "HEAD", "--rounds", "2")
    assert few.returncode == 2 and "3 rounds or more" in few.stderr
