"""The promise of ``sgdec course export``: the student's folder works alone, and holds nothing that is the lecturer's."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from grader.assignment import COURSE, assignments
from lecturer import export
from lecturer.notebooks import notebook

from sgdec.cli.main import main as sgdec
from tests.helpers.places import ROOT

SOLUTIONS = ROOT / "tests" / "course_solutions"
LINK = re.compile(r"\]\((?![a-z]+:|#)([^)#\s]+)")


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported") / "new"
    assert sgdec(["course", "export", str(folder)]) == 0
    return folder


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_students_get_each_part_of_each_assignment_and_lecturers_more(exported: Path) -> None:
    student, lecturer = files(exported / "student"), files(exported / "lecturer")
    for name in assignments():
        assert {f"{name}.ipynb", f"{name}/handout.md", f"{name}/starter.py", f"{name}/checks.py"} <= student
        assert {f"solutions/my_{name}.py", f"solutions/wrong_{name}s.py"} <= lecturer or name not in ("bag", "beam")
    assert {"README.md", "grade.py", "grader/inside/main.py", "lattices/1.txt"} <= student
    assert student < lecturer and "TEACHING.md" in lecturer - student


def test_nothing_of_the_lecturer_is_in_the_student_folder(exported: Path) -> None:
    found = files(exported / "student")
    assert not [name for name in found if re.search(r"(^|/)(hidden|lecturer|tests|solutions|my_|wrong_)", name)]
    texts = "\n".join((exported / "student" / name).read_text(errors="replace") for name in found)
    assert "course_solutions" not in texts and "examples/course" not in texts
    for name in assignments():
        solution = (SOLUTIONS / f"my_{name}.py").read_text()
        body = max(re.findall(r"^    def \w+\(.*?(?=^    def |^@|\Z)", solution, re.MULTILINE | re.DOTALL), key=len)
        assert body not in texts


def test_hidden_files_are_only_for_lecturers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    course = tmp_path / "course"
    shutil.copytree(COURSE, course)
    for name in ("hidden.py", "hidden_answers.json"):
        (course / "bag" / name).write_text("")
    monkeypatch.setattr(export, "COURSE", course)
    shown, whole = (set(export.shared_files(hidden=hidden)) for hidden in (False, True))
    assert whole - shown >= {course / "bag" / "hidden.py", course / "bag" / "hidden_answers.json"}
    assert not any(path.name.startswith("hidden") for path in shown)


@pytest.mark.parametrize("part", ["student", "lecturer"])
def test_every_link_leads_to_a_file_of_the_folder(exported: Path, part: str) -> None:
    for name in files(exported / part):
        path = exported / part / name
        if path.suffix in (".md", ".ipynb"):
            for link in LINK.findall(path.read_text()):
                assert (path.parent / link).exists(), f"{name}: {link}"
                assert (path.parent / link).resolve().is_relative_to(exported / part)


def test_a_link_that_leads_out_becomes_a_name(tmp_path: Path) -> None:
    page = COURSE / "bag" / "handout.md"
    text = "See [this](../../../docs/a.md#b), [that](../beam/handout.md) and [the rules](../students.md): examples/course/x"
    (source := tmp_path / "page.md").write_text(text)
    found = [export._link(link, page, tmp_path / "bag" / "handout.md", tmp_path) for link in export.LINK.finditer(text)]
    assert found == ["this (`docs/a.md` in the repository of sgdec)", "[that](../beam/handout.md)", "[the rules](../README.md)"]
    assert export.rewritten(source, tmp_path / "page.md", tmp_path).endswith(": x")


def test_a_folder_that_is_not_empty_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").write_text("")
    assert sgdec(["course", "export", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"Error: {tmp_path}: not an empty folder. Remove it, or name another one.\n"
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.slow
def test_the_student_folder_works_alone(exported: Path, tmp_path: Path) -> None:
    alone = shutil.copytree(exported / "student", tmp_path / "elsewhere")
    for file, status, points in (("starter", 1, "0 of 20"), ("solution", 0, "20 of 20")):
        source = COURSE / "bag" / "starter.py" if file == "starter" else SOLUTIONS / "my_bag.py"
        shutil.copy(source, alone / "my_bag.py")
        done = subprocess.run(
            [sys.executable, "grade.py", "bag", "my_bag.py"], cwd=alone, capture_output=True, text=True
        )
        assert (done.returncode, done.stdout.splitlines()[-1]) == (status, f"bag: {points} points"), done.stderr


@pytest.mark.parametrize("name", assignments())
def test_notebooks_are_valid_and_say_what_the_handout_says(exported: Path, name: str) -> None:
    nbformat = pytest.importorskip("nbformat")
    content = nbformat.read(exported / "student" / f"{name}.ipynb", as_version=4)
    nbformat.validate(content)
    handout = (exported / "student" / name / "handout.md").read_text()
    cells = [(cell.cell_type, cell.source) for cell in content.cells]
    starter = (exported / "student" / name / "starter.py").read_text().strip()
    assert ("code", f"%%writefile my_{name}.py\n{starter}") in cells
    words = "".join(text for kind, text in cells if kind == "markdown")
    assert re.sub(r"\s", "", re.sub(r"^ *```sh\n.*?```\n", "", handout, flags=re.M | re.S)) == re.sub(r"\s", "", words)
    commands = [line for kind, text in cells if kind == "code" and text.startswith("%%bash") for line in text.split("\n")]
    for block in re.findall(r"^ *```sh\n(.*?)```\n", handout, re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            assert line.startswith(f"   cp {name}/starter.py") or any(line.endswith(command) for command in commands)


def test_the_number_of_a_cell_is_its_id() -> None:
    text = "# T\n\nwords\n\n## S\n\n1. Copy:\n\n   ```sh\n   cp bag/starter.py my_bag.py\n   ls\n   ```\n\n   More.\n\n## E\n\nend\n"
    cells = json.loads(notebook("bag", text, "code\n"))["cells"]
    assert [(cell["id"], cell["source"]) for cell in cells if cell["source"][0] != "#" or cell["id"] == "bag-1"] == [
        ("bag-1", "# T\n\nwords"), ("bag-4", "%%writefile my_bag.py\ncode"), ("bag-5", "%%bash\nls"), ("bag-6", "   More."),
    ]  # fmt: skip


def executed(folder: Path, name: str, cells: list[Any]) -> list[Any]:
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    content = nbformat.v4.new_notebook(cells=cells)
    nbclient.NotebookClient(content, timeout=300, resources={"metadata": {"path": str(folder)}}).execute()
    return list(content.cells)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # zmq's and jupyter's own
@pytest.mark.parametrize("solved", [False, True], ids=["starter", "solution"])
def test_a_notebook_runs(exported: Path, tmp_path: Path, solved: bool) -> None:
    """With the starter every cell runs to the end of the notebook; with the solution without an error, too."""
    nbformat = pytest.importorskip("nbformat")
    alone = shutil.copytree(exported / "student", tmp_path / "alone")
    cells = nbformat.read(alone / "lattice.ipynb", as_version=4).cells
    if solved:
        for cell in cells:
            if cell.source.startswith("%%writefile"):
                cell.source = f"{cell.source.splitlines()[0]}\n{(SOLUTIONS / 'my_lattice.py').read_text()}"
    done = [cell for cell in executed(alone, "lattice", cells) if cell.cell_type == "code"]
    outputs = [output for cell in done for output in cell.outputs]
    printed = "".join(output.get("text", "") for output in outputs)
    assert f"lattice: {20 if solved else 0} of 20 points" in printed
    assert bool([output for output in outputs if output.output_type == "error"]) is not solved
    assert all(cell.execution_count for cell in done)
    assert os.path.exists(alone / "my_lattice.py")
