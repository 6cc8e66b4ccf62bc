"""The promise of ``examples/course``: right solutions get full marks, a mistake costs the promises that it breaks.

The wrong solutions in ``tests/course_solutions`` are the right ones with one mistake each.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import pytest
from grader.assignment import COURSE, Assignment, Check, Share, assignments
from grader.boundary import Boundary, open_boundary
from grader.cli import main
from grader.grading import Graded, _check_all
from grader.inbox import delivers_to

from sgdec.cli.main import main as sgdec
from sgdec.plugins.host import Host
from sgdec.testing import breach
from tests.course_solutions import wrong_bags, wrong_beams, wrong_curses, wrong_decode_this, wrong_lattices
from tests.course_solutions.attacks import ATTACKS
from tests.course_solutions.trivial import TRIVIAL
from tests.helpers.breadth import some
from tests.helpers.course_truth import load_once
from tests.helpers.places import ROOT

pytestmark = pytest.mark.slow

SOLUTIONS = ROOT / "tests" / "course_solutions"
WRONG: dict[str, Sequence[tuple[type, set[str]]]] = {
    "bag": wrong_bags.WRONG, "beam": wrong_beams.WRONG, "lattice": wrong_lattices.WRONG, "curse": wrong_curses.WRONG,
    "decode_this": wrong_decode_this.WRONG,
}  # fmt: skip
SLOW = {wrong_curses.MODE, wrong_curses.COST, wrong_curses.FIGURES, wrong_curses.DEFAULTS}
"""Promises that are tried only on the mistakes that name them."""
CASES = [
    (name, number, cls, promises) for name, wrong in WRONG.items() for number, (cls, promises) in enumerate(wrong)
]
NAMES = ", ".join(assignments())
SEED = 1


class Done(NamedTuple):
    """What the command did."""

    returncode: int
    stdout: str
    stderr: str


Grade: TypeAlias = Callable[..., Done]


def grade_as_typed(*arguments: object) -> subprocess.CompletedProcess[str]:
    """The command, as it is typed."""
    command = [sys.executable, str(COURSE / "grade.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.fixture
def grade(boundary: Boundary, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Grade:
    """The command in this process, with the boundary and with the checks that all tests share."""
    monkeypatch.setattr(boundary, "close", lambda: None)
    monkeypatch.setattr("grader.grading.open_boundary", lambda kind: (boundary, ""))
    monkeypatch.setattr("grader.cli.load_assignment", load)

    def run(*arguments: object) -> Done:
        status = main([*map(str, arguments)])
        return Done(status, *capsys.readouterr())

    return run


@pytest.fixture(scope="module", autouse=True)
def folders_in_memory() -> Iterator[None]:
    """The lattices of the checks are thousands of folders, which most disks take milliseconds to remove."""
    memory = Path("/dev/shm")
    with pytest.MonkeyPatch.context() as patch:
        if memory.is_dir():
            patch.setattr(tempfile, "tempdir", str(memory))
        yield


load = cache(load_once)


def hidden(name: str) -> set[str]:
    return {check.promise for check in load(name).checks if check.hidden}


def broken(name: str, cls: type, *, tried: AbstractSet[str] | None = None, seed: int = SEED) -> set[str]:
    """The promises that a class breaks, wholly or in part; of all promises or of those that are ``tried``."""
    checks = [check for check in load(name).checks if tried is None or check.promise in tried]
    return {check.promise for check in checks if share_of(check, cls, seed) < 1.0}


def share_of(check: Check, cls: type, seed: int) -> float:
    """The share of the points."""
    shares: list[Share | None] = []
    if breach(lambda: shares.append(check.test(cls, np.random.default_rng(seed)))):
        return 0.0
    return 1.0 if shares[0] is None else shares[0].share


@pytest.fixture(scope="module")
def boundary() -> Iterator[Boundary]:
    """One for many submissions, because it takes seconds to make and to probe."""
    opened, _ = open_boundary("auto")
    yield opened
    opened.close()


def invented(asked: Assignment) -> str:
    """A submission that claims a hypothesis without searching."""
    claim = next(attack for attack in ATTACKS if attack.name == "claims a perfect score").text
    options = "size=4, alpha=0.0"
    assert options in claim
    return claim.replace(options, "**options").replace("self.size = size", "pass").replace("mybeam", asked.plugin)


def failures(boundary: Boundary, asked: Assignment, path: Path, seconds: float) -> list[str | None]:
    """For each check its failure."""
    found = Graded(boundary.name, "")
    with delivers_to(boundary.view):
        _check_all(found, asked, boundary, path, SEED, seconds, time.monotonic() + 120.0)
    return [outcome.failure for outcome in found.outcomes]


def submit(folder: Path, name: str, **edits: str) -> Path:
    """The right solution of an assignment with other words in some places: ``old`` and ``new``."""
    text = (SOLUTIONS / f"my_{name}.py").read_text()
    assert edits["old"] in text
    path = folder / f"my_{name}.py"
    path.write_text(text.replace(edits["old"], edits["new"], 1))
    return path


@pytest.mark.parametrize(
    "name", [name if name == "bag" else pytest.param(name, marks=pytest.mark.exhaustive) for name in assignments()]
)
def test_a_right_solution_gets_full_marks_as_one_types_it(name: str) -> None:
    """With its own checks and its own boundary, in a new process."""
    done = grade_as_typed(name, SOLUTIONS / f"my_{name}.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == f"{name}: {load(name).points} of {load(name).points} points"
    assert "--debug" not in done.stdout


@pytest.mark.parametrize("name", assignments())
def test_a_right_solution_gets_full_marks(name: str, grade: Grade, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a third of the checks, because the others differ in what they judge here and not in what they ask there."""
    asked = replace(load(name), checks=some(load(name).checks, first=1))
    monkeypatch.setattr("grader.cli.load_assignment", lambda name: asked)
    done = grade(name, SOLUTIONS / f"my_{name}.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == f"{name}: {asked.points} of {asked.points} points"
    assert "--debug" not in done.stdout


@pytest.mark.parametrize("name", assignments())
def test_a_right_solution_is_right_with_another_seed(name: str, seed: int = 2026) -> None:
    asked = load(name)
    cls = Host([SOLUTIONS / f"my_{name}.py"], autoload=False).load(asked.kind, asked.plugin)
    assert broken(name, cls, seed=seed) == set()


@pytest.mark.parametrize("name", assignments())
def test_a_starter_gets_nothing_and_is_told_what_is_missing(name: str, grade: Grade) -> None:
    done = grade(name, COURSE / name / "starter.py")
    assert done.returncode == 1
    assert "NotImplementedError" in done.stdout
    assert "--debug TEXT shows the traceback" in done.stdout
    assert done.stdout.splitlines()[-1] == f"{name}: 0 of {load(name).points} points"


@pytest.mark.parametrize("name", ["beam", "curse", "decode_this"])
def test_a_hypothesis_that_nobody_searched_for_gets_nothing(name: str, tmp_path: Path) -> None:
    asked = load(name)
    (tmp_path / "invented.py").write_text(invented(asked))
    cls = Host([tmp_path / "invented.py"], autoload=False).load(asked.kind, asked.plugin)
    assert {check.promise for check in asked.checks} - broken(name, cls) == set()


@pytest.mark.parametrize(("name", "cls"), [(name, cls) for name, trivial in TRIVIAL.items() for cls in trivial])
def test_a_submission_that_does_nothing_gets_nothing(name: str, cls: type) -> None:
    assert {check.promise for check in load(name).checks} - broken(name, cls) == set()


@pytest.mark.parametrize(("name", "number", "cls", "promises"), CASES, ids=[cls.__name__ for _, _, cls, _ in CASES])
def test_a_mistake_costs_the_promises_that_it_breaks(name: str, number: int, cls: type, promises: set[str]) -> None:
    """Hidden promises are named only by the mistakes that were made for them.

    Of the promises that it must not break a third is tried, with each mistake another one; all in `make exhaustive`.
    """
    others = [check.promise for check in load(name).checks if check.promise not in SLOW | promises]
    found = broken(name, cls, tried=promises | set(some(others, first=number)))
    assert found - hidden(name) == promises - hidden(name)
    assert promises <= found


@pytest.mark.parametrize("name", assignments())
def test_every_promise_is_broken_by_some_mistake(name: str) -> None:
    assert {check.promise for check in load(name).checks} == set().union(*(p for _, p in WRONG[name]))


@pytest.mark.parametrize("name", assignments())
def test_the_handout_lists_what_is_graded(name: str) -> None:
    rows = re.findall(r"^\| (.*?) +\| (\d+) \|$", (COURSE / name / "handout.md").read_text(), re.MULTILINE)
    visible = [(check.promise, check.points) for check in load(name).checks if not check.hidden]
    assert [(promise.replace("`", ""), int(points)) for promise, points in rows] == visible
    assert sum(points for _, points in visible) == 20


def test_the_same_file_and_seed_give_the_same_report(tmp_path: Path, grade: Grade) -> None:
    path = submit(tmp_path, "bag", old="left[token] -= 1", new="left[token] -= 2")
    first, second = grade("bag", path), grade("bag", path)
    assert first.returncode == 1
    assert first.stdout == second.stdout


BEFORE = "        if self._subsets or not self._bag:\n"
"""A line of ``my_bag.predict_next``."""
ONCE = "if self._subsets and not self._bag:"
"""True in one check only, that of `SUBSETS`."""
SUBSETS = "with subsets the scores are those of formula (2)"


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        ("while True:\n                pass", "no end after 3 seconds (in predict_next)"),
        ("import time\n            time.sleep(1000)", "no end after 3 seconds (in predict_next)"),
        ("import os\n            os._exit(0)", "the process died (exit status 0)"),
        ("import ctypes\n            ctypes.string_at(0)", "the process died (SIGSEGV)"),
        ("raise SystemExit", "SystemExit (my_bag.py, line "),
        ("[][0]", "IndexError: list index out of range (my_bag.py, line "),
        ("self.predict_next()", "RecursionError: maximum recursion depth exceeded"),
        ("[0] * 10**10", "MemoryError"),
        ("input()", "EOFError"),
    ],
)
def test_a_crash_or_an_endless_loop_costs_one_check_and_says_where(
    tmp_path: Path, boundary: Boundary, mistake: str, message: str
) -> None:
    path = submit(tmp_path, "bag", old=BEFORE, new=f"        {ONCE}\n            {mistake}\n{BEFORE}")
    checks = load("bag").checks
    (number,) = (number for number, check in enumerate(checks) if check.promise == SUBSETS)
    asked = replace(load("bag"), checks=checks[number - 1 : number + 2])
    before, lost, after = failures(boundary, asked, path, seconds=3.0 if "after 3" in message else 30.0)
    assert before is None and after is None
    assert lost is not None and message in lost


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import antigravity_\n", "No module named 'antigravity_'"),
        ("def f(:\n", "SyntaxError: invalid syntax (my_beam.py, line 1)"),
        ("x = 1\n", "no plugin in it"),
        ("raise SystemExit(0)\n", "it called sys.exit(0) ("),
        ("import time\nwhile True: time.sleep(1)\n", "no end after 3 seconds (in <module>)"),
        ("from sgdec_decoders.beam import BeamDecoder\n", "No module named 'sgdec_decoders'"),
        ("import sgdec.testing.toys as t\n", "No module named 'sgdec.testing'"),
        ("from sgdec import testing\n", "cannot import name 'testing'"),
    ],
)
def test_a_file_that_cannot_be_loaded_loses_every_check_for_one_reason(
    tmp_path: Path, boundary: Boundary, text: str, message: str
) -> None:
    path = tmp_path / "my_beam.py"
    path.write_text(text)
    found = failures(boundary, load("beam"), path, seconds=3.0 if "after 3" in message else 30.0)
    assert len(found) == len(load("beam").checks)
    (reason,) = set(found)
    assert reason is not None and message in reason and "\n" not in reason


def test_a_file_that_cannot_be_loaded_gets_nothing_and_one_line(tmp_path: Path, grade: Grade) -> None:
    path = tmp_path / "my_beam.py"
    path.write_text("x = 1\n")
    done = grade("beam", path)
    assert done.returncode == 1
    title, reason, total = done.stdout.splitlines()
    assert title.startswith("beam: ") and total == f"beam: 0 of {load('beam').points} points"
    assert "no plugin in it" in reason
    assert done.stderr == ""


def test_a_file_with_another_plugin_is_told_the_name(boundary: Boundary) -> None:
    (reason,) = set(failures(boundary, load("beam"), SOLUTIONS / "my_bag.py", seconds=10.0))
    assert reason is not None and "no decoder named 'mybeam'" in reason


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bean", "x.py"], f"no assignment named 'bean'. Did you mean 'beam'? Available: {NAMES}."),
        (["beam", "x.py"], "x.py: no such file."),
        (["beam", str(COURSE)], f"{COURSE}: a folder. Expected one file, such as {COURSE}/my_beam.py."),
        (["beam", str(SOLUTIONS / "my_beam.py"), "--debug", "nonsense"], "no promise contains that"),
        (["beam"], "Missing argument 'FILE'."),
    ],
)
def test_a_wrong_call_is_one_line(arguments: list[str], message: str, grade: Grade) -> None:
    done = grade(*arguments)
    assert done.returncode == 2
    assert message in done.stderr and len(done.stderr.splitlines()) == 1


def test_debugging_shows_what_a_submission_prints_and_its_traceback(tmp_path: Path, grade: Grade) -> None:
    path = submit(tmp_path, "bag", old=BEFORE, new=f"        print('here')\n        [][0]\n{BEFORE}")
    done = grade("bag", path, "--debug", "formula (1)")
    assert done.returncode == 1
    assert done.stdout.splitlines()[:2] == ["scores are those of formula (1)", "here"]
    assert "IndexError" in done.stderr and "Traceback" in done.stderr
    assert "grader/cli.py" not in done.stderr and "click" not in done.stderr


def test_an_error_in_every_check_is_told_in_the_words_of_the_submission(tmp_path: Path, boundary: Boundary) -> None:
    path = submit(tmp_path, "bag", old=BEFORE, new=f"        [][0]\n{BEFORE}")
    found = set(failures(boundary, load("bag"), path, seconds=30.0))
    assert found == {None, "IndexError: list index out of range (my_bag.py, line 39)"}


def test_the_lattice_of_the_course_decodes_with_solutions_of_three_assignments(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Together: of the lattice's sentences the best one with the source's words."""
    source = tmp_path / "ids.txt"
    source.write_text("5 3 4\n")
    files = [f"--plugin-file={SOLUTIONS / f'my_{name}.py'}" for name in ("bag", "beam", "lattice")]
    shared = ["--predictors", "mylattice,mybag", "--mylattice.path", str(COURSE / "lattices" / "1.txt")]
    ids = ["--input-format", "ids", "--output-format", "ids", str(source)]
    for decoder in ("mybeam", "astar", "dfs"):
        assert sgdec(["decode", *files, *shared, "--decoder", decoder, *ids]) == 0
        assert capsys.readouterr().out == "4 3 5\n"
