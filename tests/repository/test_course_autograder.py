"""The promise of ``sgdec course zip``: Gradescope's scripts grade one file, and a grader that dies gives no score."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from grader.assignment import load_assignment
from grader.boundary import open_boundary

import sgdec
from sgdec.cli.main import main
from tests.course_solutions.attacks import ATTACKS
from tests.helpers.places import ROOT

SOLUTION = (ROOT / "tests" / "course_solutions" / "my_beam.py").read_text()
DIES = "        assert self.alpha < 0.8 or __import__('os')._exit(0)\n        finished.sort"
CRASHING = SOLUTION.replace("        finished.sort", DIES)
HOSTILE = next(attack.body for attack in ATTACKS if attack.name == "writes a report to all descriptors")


def made(folder: Path, *more: str) -> Path:
    output = folder / "autograder.zip"
    assert main(["course", "zip", "beam", "--output", str(output), *more]) == 0
    return output


def unpacked(autograder: Path, root: Path, **submitted: str) -> Path:
    """A folder like Gradescope's ``/autograder``. Archives of Gradescope keep the modes of files."""
    with ZipFile(autograder) as archive:
        for entry in archive.infolist():
            path = Path(archive.extract(entry, root / "source"))
            path.chmod(entry.external_attr >> 16)
    (root / "submission").mkdir()
    for name, text in submitted.items():
        (root / "submission" / f"{name}.py").write_text(text)
    return root


def run(root: Path, script: str, python: str = sys.executable) -> None:
    made = {"AUTOGRADER_ROOT": str(root), "AUTOGRADER_PYTHON": python, "AUTOGRADER_BOUNDARY": "auto"}
    done = subprocess.run([root / "source" / script], env={**os.environ, **made}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "(seed " not in done.stdout  # a lecturer can show it to students


def results(root: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((root / "results" / "results.json").read_text())
    return found


def test_the_file_has_one_assignment_with_scripts_that_can_be_run(tmp_path: Path) -> None:
    with ZipFile(made(tmp_path)) as archive:
        modes = {entry.filename: entry.external_attr >> 16 for entry in archive.infolist()}
        assert modes["setup.sh"] == modes["run_autograder"] == 0o755
        assert {"course/grade.py", "course/beam/checks.py", "course/grader/inside/main.py"} <= modes.keys()
        assert not [name for name in modes if name.startswith(("course/bag", "course/lecturer", "wheels"))]
        assert archive.read("requirements.txt").decode() == f"sgdec=={sgdec.__version__}\n"
        assert "assignment=beam\n" in archive.read("run_autograder").decode()


def test_a_version_between_releases_is_in_no_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sgdec, "__version__", "0.3.0")
    made(tmp_path)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sgdec, "__version__", "0.3.0.dev0+gabc")
    made(tmp_path)
    expected = "Warning: No index has sgdec 0.3.0.dev0+gabc, so setup.sh will fail. Give --wheels.\n"
    assert capsys.readouterr().err == expected


def test_seeds_are_secret_unless_given(tmp_path: Path) -> None:
    def content(*more: str) -> bytes:
        return made(tmp_path, *more).read_bytes()

    assert content("--seed", "7") == content("--seed", "7") != content("--seed", "8")
    assert content() != content()


def test_wheels_are_installed_without_network(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / "click-8-py3-none-any.whl").write_bytes(b"x")
    call = ["course", "zip", "beam", f"--output={tmp_path / 'autograder.zip'}", f"--wheels={tmp_path / 'wheels'}"]
    assert main(call) == 2
    assert "no wheel of sgdec. Make it with pip wheel" in capsys.readouterr().err
    (tmp_path / "wheels" / "sgdec-1-py3-none-any.whl").write_bytes(b"x")
    assert main(call) == 0
    with ZipFile(tmp_path / "autograder.zip") as archive:
        assert {"wheels/sgdec-1-py3-none-any.whl", "wheels/click-8-py3-none-any.whl"} <= set(archive.namelist())
        assert "requirements.txt" not in archive.namelist()


@pytest.mark.parametrize("submitted", [{}, {"a": "", "b": ""}])
def test_anything_but_one_file_is_said_to_the_student(tmp_path: Path, submitted: dict[str, str]) -> None:
    root = unpacked(made(tmp_path), tmp_path / "root", **submitted)
    run(root, "run_autograder", "false")
    found = results(root)
    assert found["score"] == 0
    assert found["output"].startswith(f"Expected exactly one file that ends in .py; found {len(submitted)}.")


@pytest.mark.parametrize("end", ["exit 0", "exit 3", "kill -9 $$"])
def test_a_grader_that_dies_gives_no_score(tmp_path: Path, end: str) -> None:
    (tmp_path / "dies").write_text(f"#!/bin/sh\n{end}\n")
    (tmp_path / "dies").chmod(0o755)
    root = unpacked(made(tmp_path), tmp_path / "root", my_beam=SOLUTION)
    run(root, "run_autograder", str(tmp_path / "dies"))
    assert results(root) == {
        "output": "not graded: the grader did not reach its end. Please tell your lecturer.", "visibility": "visible",
    }  # fmt: skip


@pytest.mark.slow
def test_right_crashing_and_hostile_submissions_get_their_points(tmp_path: Path) -> None:
    opened, unprotected = open_boundary("auto")
    opened.close()
    if unprotected:
        pytest.skip(f"there is no boundary here: {unprotected}")
    autograder = made(tmp_path)
    submitted = {"right": SOLUTION, "crashing": CRASHING, "hostile": HOSTILE}
    roots = {name: unpacked(autograder, tmp_path / name, my_beam=text) for name, text in submitted.items()}

    def grade(root: Path) -> dict[str, Any]:
        run(root, "setup.sh")
        run(root, "run_autograder")
        return results(root)

    with ThreadPoolExecutor() as pool:
        found = dict(zip(roots, pool.map(grade, roots.values()), strict=True))
    assert {(root / "source").stat().st_mode & 0o777 for root in roots.values()} == {0o700}
    scores = {name: each["score"] for name, each in found.items()}
    points = load_assignment("beam").points
    assert scores["right"] == points and 0 < scores["crashing"] < points and scores["hostile"] == 0
    assert found["hostile"]["output"].startswith("something else wrote in the place of an answer")
    (died,) = (test for test in found["crashing"]["tests"] if test["score"] < test["max_score"])
    assert died["output"] == "the process died (exit status 0)"
    for each in found.values():
        assert sum(test["score"] for test in each["tests"]) == each["score"]
        assert sum(test["max_score"] for test in each["tests"]) == points
        assert each["execution_time"] > 0 and each["leaderboard"] == [] and each["visibility"] == "visible"
        assert {"number", "name", "score", "max_score", "status", "output", "visibility"} == set(each["tests"][0])
