"""Every code block of the documentation runs.

Python blocks run as they stand; shell blocks run line by line. The folder is empty; a block that names ``examples``
finds a copy of it and, as if the course had been taken, its solutions. Blocks in other languages (text, bibtex, toml,
yaml) are not code of ours. Pages that lead from block to block run from top to bottom in one folder; their Python
blocks are files that begin with their names. A tutorial begins in the folder of a small demo. `sgdec` and `python`
are forked from one process (`tests.helpers.forked_commands`); a test compares them with new processes.

`make test` shortens some trainings (`SHORTER`), and runs one of some blocks that differ in names only
(`ALIKE_HANDOUTS`); `make exhaustive` runs every block as it stands.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from tests.helpers.breadth import EXHAUSTIVE
from tests.helpers.optional import optional
from tests.helpers.places import ROOT

IN_ORDER = [
    ROOT / "docs" / "tutorial" / "first-hour.md",
    ROOT / "docs" / "tutorial" / "from-a-prompt.md",
    ROOT / "docs" / "gallery.md",
    ROOT / "docs" / "howto" / "lattices-and-arpa.md",
    ROOT / "docs" / "howto" / "constraints.md",
    ROOT / "docs" / "howto" / "corpus.md",
    ROOT / "docs" / "howto" / "compare.md",
    ROOT / "docs" / "howto" / "traces.md",
    ROOT / "docs" / "howto" / "tune.md",
    ROOT / "docs" / "howto" / "diagnose.md",
    ROOT / "docs" / "howto" / "view.md",
    ROOT / "docs" / "howto" / "hugging-face.md",
    ROOT / "docs" / "howto" / "mixes.md",
    ROOT / "docs" / "howto" / "reproduce-generate.md",
    ROOT / "examples" / "course" / "README.md",
]
ALSO_ELSEWHERE = {"gallery"}
"""Pages whose commands are those of other pages."""
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "examples").rglob("*.md"))]
BLOCK = re.compile(r"^( *)```(\S*)[^\n]*\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
SHOWN = re.compile(r"savefig\(\"(.*?)\"")
"""Pictures that a page draws."""
QUOTED = re.compile(r"^(Note: .*)$|It prints `(.*?)`", re.MULTILINE)
"""Output that does not depend on the model: the notes of a run, and what the text says a command prints."""
SHOWN_WHOLE = {"examples/course/curse/handout.md:2"}
"""Blocks whose whole output is on the page, with the solution."""
SHORTER = {
    "README.md:1": [("'.*acht hundert.*'", "'.*und.*'")],
    "docs/gallery.md:2": [("greedy --range 1:40", "greedy --range 1:20"), ("dfs --range 1:40", "dfs --range 1:20")],
    "README.md:3": [("400 --test-lines 50", "100 --test-lines 10"), ("--epochs 10", "--epochs 2")],
    "docs/tutorial/from-a-prompt.md:1": [("STEPS = 120", "STEPS = 20")],
    "docs/tutorial/from-a-prompt.md:2": [("--train-lines 2000 --test-lines 50", "--train-lines 200 --test-lines 10")],
    "docs/howto/training.md:1": [("--train-lines 200 --test-lines 20", "--train-lines 80 --test-lines 10")],
    "docs/howto/tune.md:5": [("--folder tuned", "--folder tuned --seeds 1")],
    "examples/model/README.md:1": [("200 --test-lines 20", "80 --test-lines 10"), ("--epochs 3", "--epochs 2")],
}
"""Sizes and patterns of some blocks, which change neither the commands nor what they have to do."""
SHORT_DEMO = """
for part in demo/test.en demo/test.de; do head -n 20 $part > part; mv part $part; done
"""
"""The tutorial decodes all sentences of the demo with six searches, and the gallery with nine."""
NAMES = ("bag", "beam", "curse", "decode_this", "lattice")
HANDOUTS = {name: f"examples/course/{name}/handout.md:1" for name in NAMES}
ALIKE_HANDOUTS = {where for name, where in HANDOUTS.items() if name != "bag"}
"""Blocks that grade a starter: their files are also graded by tests/repository/test_course.py."""
NOT_CODE = {"text", "bibtex", "toml", "yaml"}
SGDEC = os.pathsep.join(str(ROOT / part) for part in ("", "predictors", "decoders"))
"""The PYTHONPATH of this tree, which is that of the fixture `programs`."""


def blocks(pages: list[Path]) -> list[tuple[str, str, str]]:
    found = []
    for page in pages:
        for number, (_, language, code) in enumerate(BLOCK.findall(page.read_text(encoding="utf-8")), start=1):
            if language not in NOT_CODE and not language.startswith("{"):  # a directive of the site
                found.append((f"{page.relative_to(ROOT)}:{number}", language, dedent(code)))
    return found


ALONE = blocks([page for page in PAGES if page not in IN_ORDER])


def marks(where: str) -> list[pytest.MarkDecorator]:
    return [pytest.mark.exhaustive] if where in ALIKE_HANDOUTS else []


@pytest.fixture(scope="module")
def small_demo(tmp_path_factory: pytest.TempPathFactory, programs: Path) -> Path:
    """What is in place of ``make demo``."""
    folder = tmp_path_factory.mktemp("small")
    run("in place of make demo", "sh", "sgdec demo --quick --directory demo", folder, programs)
    return folder / "demo"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "language", "code"), [pytest.param(*block, id=block[0], marks=marks(block[0])) for block in ALONE]
)
def test_code_blocks_run(
    where: str, language: str, code: str, tmp_path: Path, programs: Path, request: pytest.FixtureRequest
) -> None:
    if "import pynini" in code:
        optional("pynini")
    if "demo/model" in code:
        shutil.copytree(request.getfixturevalue("small_demo"), tmp_path / "demo", symlinks=True)
        run("shorter", "sh", SHORT_DEMO, tmp_path, programs)
    if "examples" in code:
        copy_examples(tmp_path)
        for solution in (ROOT / "tests" / "course_solutions").glob("my_*.py"):
            shutil.copy(solution, tmp_path)
    printed = run(where, language, shortened(where, code), tmp_path, programs)
    if where in SHOWN_WHOLE:
        page = (ROOT / where.partition(":")[0]).read_text(encoding="utf-8")
        assert printed.rstrip() in page


def test_the_handouts_grade_their_starters_alike() -> None:
    """All but the names is equal, so to run one block is to run all."""
    code = {where: code for where, _, code in ALONE}
    for name, where in HANDOUTS.items():
        assert code[where] == code[HANDOUTS["bag"]].replace("bag", name)
        assert (ROOT / "examples" / "course" / name / "starter.py").is_file()


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.exhaustive] if page.stem in ALSO_ELSEWHERE else [], id=page.stem)
        for page in IN_ORDER
    ],
)
def test_a_page_runs_from_top_to_bottom(
    page: Path, tmp_path: Path, programs: Path, request: pytest.FixtureRequest
) -> None:
    if "import pynini" in page.read_text("utf-8"):
        optional("pynini")
    if page.is_relative_to(ROOT / "examples"):
        copy_examples(tmp_path)
    if page.stem in ("first-hour", "gallery"):
        shutil.copytree(request.getfixturevalue("small_demo"), tmp_path / "demo", symlinks=True)
        run("shorter", "sh", "" if EXHAUSTIVE else SHORT_DEMO, tmp_path, programs)
    printed = ""
    for where, language, code in blocks([page]):
        if language == "python":
            named = re.match(r"# ([\w/]+\.py)\n", code)
            assert named, f"{where}: the first line of a file is a comment with its name"
            (tmp_path / named[1]).parent.mkdir(exist_ok=True)
            (tmp_path / named[1]).write_text(shortened(where, code), encoding="utf-8")
        else:
            printed += run(where, language, shortened(where, code), tmp_path, programs)
    for note, output in QUOTED.findall(page.read_text(encoding="utf-8")):
        assert (note or output) in printed, page
    for shown in SHOWN.findall(page.read_text(encoding="utf-8")):
        assert (tmp_path / shown).stat().st_size, shown


ALIKE = [
    "python show.py a 'b c' <<< input",
    "cd deeper && A=1 python ../show.py",
    "python -c 'import sys; print(sys.argv, sys.path[0], __name__)' x",
    "python -c 'import sys; print(1); sys.exit(3)'",
    "python -c 'import sys; sys.exit(\"words\")'",
    "python -c 'import os; os.kill(os.getpid(), 15)'",
    "python -c 'import atexit; atexit.register(print, 2); print(1, end=\"\")'",
    "(ulimit -n 77; python -c 'import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE))')",
    "PYTHONPATH= python -c 'import sys; print(sys.path)'",
    "python -m json.tool <<< '[1]' | cat",
    "cd deeper && python -m show",
    "cp show.py deeper && cd deeper && python -m show x",
    "sgdec decode --nothing",
    "sgdec plugins | head -n 1; sgdec --version",
]
SHOW = """import os, sys
print(__file__, __name__, sys.argv, sys.path[0], os.getcwd(), sorted(os.environ.keys() - {"_"}), sys.stdin.read())
"""


@pytest.mark.slow
@pytest.mark.parametrize("code", ALIKE)
def test_forked_programs_do_what_new_processes_do(code: str, tmp_path: Path, programs: Path) -> None:
    (tmp_path / "show.py").write_text(SHOW)
    (tmp_path / "deeper").mkdir()
    installed = tmp_path / "bin"
    installed.mkdir()
    for name, words in (("python", ""), ("sgdec", " -m sgdec")):
        (installed / name).write_text(f'#!/bin/sh\nexec {sys.executable}{words} "$@"\n')
        (installed / name).chmod(0o755)
    found = []
    for folder in (programs, installed):
        environment = {**os.environ, "PYTHONPATH": SGDEC, "PATH": f"{folder}:/usr/bin:/bin", "OMP_NUM_THREADS": "1"}
        settings: dict[str, Any] = {"cwd": tmp_path, "env": environment, "stdin": subprocess.DEVNULL}
        done = subprocess.run(["bash", "-uc", code], **settings, capture_output=True, text=True)
        said = done.stderr.replace(str(folder), "").replace("python -m sgdec", "sgdec").splitlines()
        found.append((done.returncode, done.stdout.replace(str(folder), ""), said[-1:]))
    assert found[0] == found[1]


def shortened(where: str, code: str) -> str:
    for whole, shorter in () if EXHAUSTIVE else SHORTER.get(where, ()):
        assert code.count(whole) == 1, f"{where}: {whole!r} is shortened by this test"
        code = code.replace(whole, shorter)
    return code


def copy_examples(folder: Path) -> None:
    shutil.copytree(ROOT / "examples", folder / "examples", ignore=shutil.ignore_patterns("__pycache__"))


def run(where: str, language: str, code: str, folder: Path, programs: Path) -> str:
    """Run one block in a folder, with this tree's sgdec on the path; return what it prints."""
    path = os.pathsep.join([str(programs), os.environ["PATH"]])
    environment = {**os.environ, "PYTHONPATH": SGDEC, "PATH": path, "OMP_NUM_THREADS": "1"}
    command = {"python": [str(programs / "python"), "-c", code], "sh": ["bash", "-euo", "pipefail", "-c", code]}
    assert language in command, f"{where}: a code block in {language!r} cannot be run; use python, sh or text"
    done = subprocess.run(command[language], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{where}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr
