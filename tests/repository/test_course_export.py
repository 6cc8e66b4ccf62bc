"""The promise of ``sgdec course export``: the student's folder works alone, and has nothing of the lecturer's."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
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
        assert f"solutions/my_{name}.py" in lecturer
    assert {"README.md", "grade.py", "grader/inside/main.py", "lattices/1.txt"} <= student
    assert student < lecturer and {"TEACHING.md", "COURSE.md", "solutions/wrong_bags.py"} <= lecturer - student


def test_nothing_of_the_lecturer_is_in_the_student_folder(exported: Path) -> None:
    found = files(exported / "student")
    assert not [name for name in found if re.search(r"(^|/)(hidden|lecturer|tests|solutions|my_|wrong_)", name)]
    texts = "\n".join((exported / "student" / name).read_text(errors="replace") for name in found)
    assert "course_solutions" not in texts and "examples/course" not in texts
    for name in assignments():
        solution = (SOLUTIONS / f"my_{name}.py").read_text()
        body = max(re.findall(r"^    def \w+\(.*?(?=^    def |^@|\Z)", solution, re.MULTILINE | re.DOTALL), key=len)
        assert body not in texts


def test_typical_mistakes_are_made_in_the_solution_beside_them(exported: Path) -> None:
    folder = exported / "lecturer" / "solutions"
    for path in folder.glob("wrong_*.py"):
        (name,) = re.findall(r"^from (my_\w+) import", path.read_text(), re.MULTILINE)
        assert (folder / f"{name}.py").exists()


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
    page, target = COURSE / "bag" / "handout.md", tmp_path / "bag" / "handout.md"
    text = "See [this](../../../docs/a.md#b), [that](../beam/handout.md) and [the rules](../students.md)."
    student = export.Distribution(tmp_path, hidden=False)
    assert [student.link(link, page, target) for link in export.LINK.finditer(text)] == [
        "this (`docs/a.md` in the repository of sgdec)", "[that](../beam/handout.md)", "[the rules](../README.md)",
    ]  # fmt: skip


def test_a_folder_that_is_not_empty_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").write_text("")
    assert sgdec(["course", "export", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"Error: {tmp_path}: not an empty folder. Remove it, or name another one.\n"
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


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
    assert "".join(re.sub(r"^ *```sh\n.*?```\n", "", handout, flags=re.M | re.S).split()) == "".join(words.split())
    commands = "\n".join(text for kind, text in cells if kind == "code" and text.startswith("%%bash"))
    for block in re.findall(r"^ *```sh\n(.*?)```\n", handout, re.MULTILINE | re.DOTALL):
        assert all(f"cp {name}/starter.py" in line or line.strip() in commands for line in block.splitlines())


def test_a_handout_becomes_cells() -> None:
    block = "   ```sh\n   cp bag/starter.py my_bag.py\n   ls\n   ```\n"
    handout = f"# T\n\nwords\n\n## S\n\n1. Copy:\n\n{block}\n   More.\n\n## E\n\nend\n"
    content = json.loads(notebook("bag", handout, "x\n"))
    title, _, *others = [(cell["id"], cell["cell_type"], cell["source"]) for cell in content["cells"]]
    assert title == ("bag-1", "markdown", "# T\n\nwords")
    assert others == [
        ("bag-3", "markdown", "## S\n\n1. Copy:"), ("bag-4", "code", "%%writefile my_bag.py\nx"),
        ("bag-5", "code", "%%bash\nls"), ("bag-6", "markdown", "   More."), ("bag-7", "markdown", "## E\n\nend"),
    ]  # fmt: skip


@pytest.mark.slow
def test_the_assignment_on_the_page_can_be_graded_and_exported(tmp_path: Path) -> None:
    """Its blocks are typed in a clone that has the course alone; they end with the export."""
    shutil.copytree(COURSE, tmp_path / "examples" / "course", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "docs" / "howto").mkdir(parents=True)
    shutil.copy(ROOT / "docs" / "howto" / "teaching.md", tmp_path / "docs" / "howto")
    section = (COURSE / "README.md").read_text().partition("## Another assignment")[2]
    for language, block in re.findall(r"^```(python|sh)\n(.*?)^```$", section, re.MULTILINE | re.DOTALL):
        if language == "python":
            path = tmp_path / block.splitlines()[0].removeprefix("# ")
            path.parent.mkdir(exist_ok=True)
            path.write_text(block)
            continue
        course = "import sgdec.cli.course as c, sys; c.COURSE = c.Path('examples/course').resolve(); c.command()"
        programs = f'python() {{ {sys.executable} "$@"; }}; sgdec() {{ shift; python -c "{course}" "$@"; }}\n'
        done = subprocess.run(["bash", "-euc", programs + block], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    assert "mymodel: 0 of 3 points" in done.stdout and "mymodel: 3 of 3 points" in done.stdout
    found = files(tmp_path / "term" / "student")
    assert {"mymodel.ipynb", "mymodel/handout.md", "mymodel/starter.py", "mymodel/checks.py"} <= found


@pytest.mark.parametrize("part", ["handout.md", "starter.py"])
def test_an_incomplete_assignment_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], part: str
) -> None:
    for name in {"handout.md", "starter.py"} - {part}:
        (tmp_path / "mine").mkdir()
        (tmp_path / "mine" / name).touch()
    monkeypatch.setattr(export, "COURSE", tmp_path)
    monkeypatch.setattr(export, "assignments", lambda: ["mine"])
    assert sgdec(["course", "export", str(tmp_path / "new")]) == 2
    assert capsys.readouterr().err == (
        f"Error: {tmp_path}/mine/{part}: no such file. "
        "An assignment has a handout.md, a starter.py and a checks.py.\n"
    )
    assert not (tmp_path / "new").exists()


@pytest.mark.slow
def test_the_student_folder_works_alone(exported: Path, tmp_path: Path) -> None:
    alone = shutil.copytree(exported / "student", tmp_path / "alone")
    shutil.copy(SOLUTIONS / "my_bag.py", alone)
    done = subprocess.run([sys.executable, "grade.py", "bag", "my_bag.py"], cwd=alone, capture_output=True, text=True)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "bag: 20 of 20 points"), done.stderr


@pytest.fixture(scope="module")
def kernel() -> Iterator[Any]:
    """One kernel for all notebooks: to start one takes longer than the cells of most of them."""
    pytest.importorskip("ipykernel")
    manager = pytest.importorskip("jupyter_client").KernelManager()
    manager.start_kernel()
    yield manager
    manager.shutdown_kernel(now=True)
    manager.context.destroy()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the programs around notebooks
@pytest.mark.parametrize(
    "name", [name if name == "bag" else pytest.param(name, marks=pytest.mark.exhaustive) for name in assignments()]
)
def test_a_notebook_runs_to_its_end_with_the_starter_file(exported: Path, kernel: Any, name: str) -> None:
    """The cells of the others are the blocks of their handouts, as a test above says, which test_docs.py runs."""
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    alone = shutil.copytree(exported / "student", exported.parent / f"alone_{name}")
    content = nbformat.read(alone / f"{name}.ipynb", as_version=4)
    content.cells.insert(0, nbformat.v4.new_code_cell(f"%reset -f\n%cd -q {alone}"))
    client = nbclient.NotebookClient(content, km=kernel, timeout=300)
    client.execute()
    client.kc.stop_channels()
    done = [cell for cell in content.cells if cell.cell_type == "code"]
    printed = "".join(output.get("text", "") for cell in done for output in cell.outputs)
    assert all(cell.execution_count for cell in done) and f"{name}: 0 of 20 points" in printed
    assert (alone / f"my_{name}.py").read_text() == (alone / name / "starter.py").read_text()


def test_a_private_folder_stays_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It gets the hidden checks."""
    seen: list[int] = []
    partial = tmp_path / ".x.partial"
    monkeypatch.setattr(export.Distribution, "write", lambda self: seen.append(partial.stat().st_mode))
    (tmp_path / "x").mkdir(0o700)
    export.export(tmp_path / "x")
    assert {mode & 0o777 for mode in [*seen, (tmp_path / "x").stat().st_mode]} == {0o700}
