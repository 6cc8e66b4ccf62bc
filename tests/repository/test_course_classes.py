"""The promise of ``sgdec course grade``: marks are those of graders that ended well, and of no others.

In most tests the submissions are programs that a grader runs which does nothing else.
"""

from __future__ import annotations

import csv
import json
import os
import time
from pathlib import Path

import pytest
from grader.boundary import NoBoundary, open_boundary
from lecturer import classes

from sgdec.cli.main import main as sgdec
from tests.helpers.places import ROOT

pytestmark = pytest.mark.background

SOLUTIONS = ROOT / "tests" / "course_solutions"
OBEDIENT = """
import json, sys, time
from pathlib import Path
checks = [(text, 10) for text in ("first", "second")]

def ends(*points, lost=None, failure="why", values={}, unprotected=""):
    found = [
        {"promise": text, "points": earned, "possible": possible, "failure": None if earned == possible else failure}
        for (text, possible), earned in zip(checks, points)
    ]
    record = {"points": sum(points), "lost": lost, "values": values, "unprotected": unprotected, "checks": found}
    Path(sys.argv[sys.argv.index("--record") + 1]).write_text(json.dumps(record))
    print("a report")
    sys.exit(sum(points) < 20)

exec(Path(sys.argv[2]).read_text())
"""
CHECKS = """
from grader.assignment import Assignment
ASSIGNMENT = Assignment("decoder", "mydecoder")
for text in ("first", "second"):
    ASSIGNMENT.check(text, points=10)(print)
"""
CLASS = {
    "ada.py": "ends(10, 10, values={'score': 0.5})",
    "bob.py": "ends(10, 2.5, values={'score': 0.75})",
    "cy/hw1.py": "ends(10, 0)",
    "cy/._hw1.py": "",
    "dan/a.py": "",
    "dan/b.py": "",
    "died.py": "import os; os.kill(os.getpid(), 9)",
    "error.py": "raise MemoryError",
    "hangs.py": "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); time.sleep(1000)",
    "=1+1.py": "ends(0, 0, lost='=HYPERLINK(\\\\ud800)\\n')",
    "fewer.py": "ends(10)",
    "half.py": "Path(sys.argv[sys.argv.index('--record') + 1]).write_text('{')",
    "late.py": "try:\n    ends(10, 10)\nfinally:\n    sys.exit(2)",
    "hole.py": "ends(10, 10, unprotected='the boundary does not hold')",
    "notes.txt": "",
    "__MACOSX/._ada.py": "",
    "__init__.py": "ends(0, 10)",
    f"{'n' * 220}.py": "ends(10, 10)",
}


@pytest.fixture
def course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a class; the grader obeys, and there is one assignment, `pair`."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "course" / "pair").mkdir(parents=True)
    (tmp_path / "course" / "pair" / "checks.py").write_text(CHECKS)
    (tmp_path / "grade.py").write_text(OBEDIENT)
    monkeypatch.setattr("grader.assignment.COURSE", tmp_path / "course")
    monkeypatch.setattr(classes, "GRADER", tmp_path / "grade.py")
    monkeypatch.setattr(classes, "open_boundary", lambda kind: (NoBoundary(), ""))
    monkeypatch.setattr(classes, "EXTRA", 0.5)
    monkeypatch.setattr(classes, "GRACE", 0.2)
    return tmp_path


def write_class(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / "class" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "class" / name).write_text(text)


def grade(*more: str) -> int:
    return sgdec(["course", "grade", "pair", "class", "--seed", "7", "--csv", "marks.csv", "--total", "2", *more])


def rows() -> dict[str, dict[str, str]]:
    with open("marks.csv", encoding="utf-8", newline="") as file:
        return {row["name"]: row for row in csv.DictReader(file)}


@pytest.mark.slow
def test_only_graders_that_end_well_give_marks(course: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_class(course, CLASS)
    (course / "class" / "link.py").symlink_to(course / "class" / "ada.py")
    (course / "class" / "copies").symlink_to(course / "class" / "cy")
    assert grade("--records", "records", "--jobs", "4") == 1
    found = rows()
    graded = {name: row["points"] for name, row in found.items() if row["status"] == "graded"}
    assert graded == {"ada": "20", "bob": "12.5", "cy": "10", "'=1+1": "0", "__init__": "10"}
    others = [row for name, row in found.items() if name not in graded]
    assert all(row["points"] == row["first"] == row["score"] == "" for row in others)
    assert found["bob"] == {
        "name": "bob", "points": "12.5", "possible": "20", "status": "graded", "reason": "", "first": "10",
        "second": "2.5", "score": "0.75",
    }  # fmt: skip
    assert {name: row["reason"] for name, row in found.items() if row["reason"]} == {
        "dan": "expected one .py file, found 2",
        "died": "the grader ended with status -9.",
        "error": "the grader ended with status 1. MemoryError",
        "hangs": "the grader had not ended after 2.5 seconds",
        "'=1+1": "'=HYPERLINK(\\ud800)\\n",
        "fewer": "the grader ended with status 1 and another record",
        "half": "the grader ended with status 0.",
        "late": "the grader ended with status 2 and another record",
        "hole": "the boundary does not hold",
        "link": "link.py is not a regular file",
        "copies": "copies is a link to another folder",
        "n" * 100 + "...": "its name has more than 200 bytes",
    }
    assert found["hole"]["status"] == "UNPROTECTED"
    assert all(line.startswith('"') for line in Path("marks.csv").read_text().splitlines())  # as is ';' in a cell
    output = capsys.readouterr()
    table = [line.split() for line in output.out.splitlines()]
    assert ["bob", "graded", "12.5", "of", "20", "0"] in table
    assert output.out.splitlines()[-2:] == ["10 of 16 not graded", "1 of 16 UNPROTECTED: no marks"]
    failed = table.index(["promises", "that", "failed", "most", "of", "5", "tested"])
    assert table[failed + 1 : failed + 3] == [["second", "2"], ["first", "1"]]
    board = table.index(["score"])
    assert table[board + 1 : board + 3] == [["bob", "0.7500"], ["ada", "0.5000"]]
    others = {name.lstrip("'") for name in found} - {"ada", "bob"}
    assert dict(table[board + 3 : -2]) == dict.fromkeys(others, "-")
    assert "16 of 16: " in output.err and "bob, 12.5 points" in output.err
    assert (course / "records" / "bob.txt").read_text() == "a report\n"
    assert json.loads((course / "records" / "bob.json").read_text())["points"] == 12.5
    assert not (course / "records" / "died.txt").exists()


def test_without_a_boundary_nobody_has_marks(
    course: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also if the grader said nothing. The warning comes first."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(classes, "open_boundary", open_boundary)
    write_class(course, {"ada.py": CLASS["ada.py"]})
    assert grade("--boundary", "none") == 1
    assert [(row["status"], row["points"], row["first"]) for row in rows().values()] == [("UNPROTECTED", "", "")]
    said = capsys.readouterr()
    assert said.out.splitlines()[-1] == "1 of 1 UNPROTECTED: no marks"
    assert said.err.splitlines()[0].startswith("Warning: submissions run with your rights")


def test_root_grades_nothing_without_a_boundary(
    course: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(classes, "open_boundary", open_boundary)
    write_class(course, {"ada.py": "Path('ran').touch()"})
    assert grade("--boundary", "none") == 2
    said = capsys.readouterr().err
    assert said.startswith("Error: --boundary none: submissions would run as root") and said.count("\n") == 1
    assert not Path("marks.csv").exists() and not Path("ran").exists()


def test_a_machine_without_a_boundary_is_refused_before_anything_runs(
    course: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(classes, "open_boundary", lambda kind: (NoBoundary(), "no bwrap"))
    write_class(course, {"ada.py": CLASS["ada.py"]})
    assert grade() == 2
    expected = "Error: no boundary works here, so there are no marks: no bwrap. See --boundary none.\n"
    assert capsys.readouterr().err == expected and not Path("marks.csv").exists()


@pytest.mark.parametrize(
    ("files", "more", "message"),
    [
        ({}, (), "class: no such folder."),
        ({"notes.txt": ""}, (), "class: no submissions. Expected files NAME.py, or folders NAME with one .py file."),
        ({"a.py": "", "a/b.py": ""}, (), "class: two submissions are named 'a'. Rename one of them."),
        ({"a.py": ""}, ("--records", "."), "--records .: not an empty folder. Remove it, or name another one."),
    ],
)  # fmt: skip
def test_a_wrong_call_is_one_line(
    course: Path, files: dict[str, str], more: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write_class(course, files)
    assert grade(*more) == 2
    assert capsys.readouterr().err.startswith(f"Error: {message}") and not Path("marks.csv").exists()


INTERRUPTED = """import signal
signal.signal(signal.SIGINT, lambda *of: (Path('ended').touch(), sys.exit(1)))
"""


@pytest.mark.slow
@pytest.mark.parametrize("ignored", [False, True])
def test_an_interrupted_class_leaves_no_grader(course: Path, ignored: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even one that ignores interrupts, as all that a shell starts in the background."""
    monkeypatch.setattr(classes, "GRACE", 1.0 if ignored else 20.0)
    handled = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n" if ignored else INTERRUPTED
    write_class(course, {"a.py": "ends(10, 10)", "b.py": f"{handled}Path('begun').touch(); time.sleep(1000)"})
    graded = classes.Grading("pair", 7, 1000.0).grade(classes.find_submissions(course / "class"))
    assert next(graded).name == "a"
    while not Path("begun").exists():
        time.sleep(0.01)
    begun = time.monotonic()
    graded.close()
    assert time.monotonic() - begun < 30
    assert Path("ended").exists() is not ignored


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root changes the root folder")
def test_a_grader_that_is_killed_leaves_no_submission(course: Path) -> None:
    stays = "(Path('child').write_text(str(os.getpid())), os.chroot(os.environ['TMPDIR']), time.sleep(99))"
    write_class(course, {"a.py": f"import os\nos.fork() or {stays}\n{CLASS['hangs.py']}"})
    assert grade() == 1
    child = Path("/proc", Path("child").read_text(), "stat")
    assert not child.exists() or child.read_text().rsplit(")", 1)[1].split()[0] == "Z"


def test_a_file_for_a_class_is_told_to_be_one(course: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("class").touch()
    assert grade() == 2
    assert capsys.readouterr().err == "Error: class: a file. Expected the folder of all submissions.\n"


def test_outside_of_a_clone_one_line_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sgdec.cli.course.COURSE", tmp_path)
    assert sgdec(["course", "export", str(tmp_path / "new")]) == 2
    error = "Error: the course is not in the installed package. Run sgdec from a clone: pip install -e CLONE.\n"
    assert capsys.readouterr().err == error


@pytest.mark.slow
def test_a_class_is_graded_behind_a_boundary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened, unprotected = open_boundary("auto")
    opened.close()
    if unprotected:
        pytest.skip(f"there is no boundary here: {unprotected}")
    monkeypatch.chdir(tmp_path)
    write_class(tmp_path, {"wrong.py": (SOLUTIONS / "my_bag.py").read_text().replace("count / balls", "1 / balls")})
    call = ["course", "grade", "bag", "class", "--seed", "4711", "--csv", "marks.csv", "--records", "records"]
    assert sgdec(call) == 0
    assert 10 < float(rows()["wrong"]["points"]) < 20
    assert "scores are those of formula (1)" in capsys.readouterr().out
    report = Path("records", "wrong.txt").read_text()
    assert report.startswith("bag: wrong.py\n") and "4711" not in report  # students may not learn the seed
    assert json.loads(Path("records", "wrong.json").read_text())["seed"] == 4711
