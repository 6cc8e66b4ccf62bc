"""Every code block of the documentation runs, and prints what the page shows.

Python blocks run as they stand; shell blocks run line by line. `tests.helpers.documentation` says how a page shows
output. The folder is empty; a block that names ``examples`` finds a copy of it and, as if the course had been taken,
its solutions. Blocks in other languages (text, bibtex, toml, yaml) are not code of ours. Pages that lead from block
to block run from top to bottom in one folder; their Python blocks are files that begin with their names. The README
and pages that go on from it begin in the folder of a demo. `sgdec` and `python` are forked from one process
(`tests.helpers.forked_commands`); a test compares them with new processes.

`make test` shortens some trainings (`SHORTER`, `SHORT_DEMO`), and runs one of some blocks that differ in names only
(`ALIKE_HANDOUTS`); `make exhaustive` runs every block as it stands.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.breadth import EXHAUSTIVE
from tests.helpers.documentation import (
    Example,
    Printed,
    blocks,
    command,
    compare,
    compare_form,
    examples,
    type_page,
)  # fmt: skip
from tests.helpers.optional import optional
from tests.helpers.places import ROOT

IN_ORDER = [
    ROOT / "README.md",
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
SHOWN = re.compile(r"savefig\(\"(.*?)\"")
"""Pictures that a page draws."""
SHORTER = {
    "docs/gallery.md:2": [("greedy --range 1:40", "greedy --range 1:20"), ("dfs --range 1:40", "dfs --range 1:20")],
    "README.md:4": [("400 --test-lines 50", "100 --test-lines 10"), ("--epochs 10", "--epochs 2")],
    "docs/tutorial/from-a-prompt.md:1": [("STEPS = 120", "STEPS = 20")],
    "docs/tutorial/from-a-prompt.md:2": [("--train-lines 2000 --test-lines 50", "--train-lines 200 --test-lines 10")],
    "docs/howto/training.md:1": [("--train-lines 200 --test-lines 20", "--train-lines 80 --test-lines 10")],
    "docs/howto/tune.md:1": [
        ("range(200)", "range(80)"),
        ("texts[:100]", "texts[:40]"),
        ("texts[100:]", "texts[40:]"),
    ],
    "docs/howto/tune.md:5": [("--folder tuned", "--folder tuned --seeds 1")],
    "examples/model/README.md:1": [("200 --test-lines 20", "80 --test-lines 10"), ("--epochs 3", "--epochs 2")],
}
"""Sizes and patterns of some blocks, which change neither the commands nor what they have to do."""
DEMO = f"""
from pathlib import Path
from sgdec.demo.tour import FULL, demo
demo(Path("demo"), 1, FULL{"" if EXHAUSTIVE else "._replace(test=40)"}, print)
"""
"""`make demo`, with the same model; `make test` translates the first sentences alone."""
WITH_DEMO = ("README", "first-hour", "gallery")
SHORT_DEMO = "for part in demo/test.en demo/test.de; do head -n 20 $part > part; mv part $part; done"
"""The tutorial decodes all sentences of the demo with six searches, and the gallery with nine."""
NAMES = ("bag", "beam", "curse", "decode_this", "lattice")
HANDOUTS = {name: f"examples/course/{name}/handout.md:1" for name in NAMES}
ALIKE_HANDOUTS = {where for name, where in HANDOUTS.items() if name != "bag"}
"""Blocks that grade a starter: their files are also graded by tests/repository/test_course.py."""
NO_OUTPUT = re.compile(
    r"(sgdec|python3?|pip|make|git|cd|ray|uv|fstcompile|sha256sum|torchrun|pytest|import|examples/\w+/recipe\.sh)\b"
    r"|\.venv/bin/|[A-Z]+=|\w+ = sgdec\.|logging\.|\d: python "
)
"""How text begins that no command has printed: commands that need data, models or a network."""
FORMATS = {
    "docs/howto/corpus.md": 1, "docs/howto/plugins.md": 1, "docs/reference/file-formats.md": 3,
}  # fmt: skip
"""Pages with formulas and parts of files, and how many."""
SGDEC = os.pathsep.join(str(ROOT / part) for part in ("", "predictors", "decoders"))
"""The PYTHONPATH of this tree, which is that of the fixture `programs`."""


PAGES_RUN = {page: examples(page, ROOT) for page in PAGES}
ALONE = [example for page, page_run in PAGES_RUN.items() if page not in IN_ORDER for example in page_run]


def marks(where: str) -> list[pytest.MarkDecorator]:
    return [pytest.mark.exhaustive] if where in ALIKE_HANDOUTS else []


@pytest.fixture(scope="module")
def made_demo(tmp_path_factory: pytest.TempPathFactory, programs: Path) -> tuple[Path, Printed]:
    """The folder `demo`, and what `make demo` prints."""
    folder = tmp_path_factory.mktemp("made")
    return folder / "demo", run(Example("make demo", "python", DEMO, [], [], []), folder, programs)


@pytest.mark.slow
@pytest.mark.parametrize(
    "example", [pytest.param(example, id=example.where, marks=marks(example.where)) for example in ALONE]
)
def test_code_blocks_run(example: Example, tmp_path: Path, programs: Path) -> None:
    if "import pynini" in example.code:
        optional("pynini")
    if "examples" in example.code:
        copy_examples(tmp_path)
        for solution in (ROOT / "tests" / "course_solutions").glob("my_*.py"):
            shutil.copy(solution, tmp_path)
    printed = run(shortened(example), tmp_path, programs)
    compare(example, printed)
    compare_form(example, printed.out)


def test_the_handouts_grade_their_starters_alike() -> None:
    """All but the names is equal, so to run one block is to run all."""
    code = {example.where: example.code for example in ALONE}
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
    printed = Printed()
    if page.stem in WITH_DEMO and page.parent in (ROOT, ROOT / "docs", ROOT / "docs" / "tutorial"):
        demo, printed = request.getfixturevalue("made_demo")
        shutil.copytree(demo, tmp_path / "demo", symlinks=True)
        if page.stem != "README" and not EXHAUSTIVE:
            subprocess.run(["sh", "-ec", SHORT_DEMO], cwd=tmp_path, check=True)
    page_run = [shortened(example) for example in PAGES_RUN[page]]
    for example in page_run:
        assert example.language != "python" or example.file, f"{example.where}: the first line names the file"
    type_page(page_run, tmp_path, lambda example: run(example, tmp_path, programs), printed.out)
    for shown in SHOWN.findall(page.read_text(encoding="utf-8")):
        assert (tmp_path / shown).stat().st_size, shown


def test_everything_that_a_page_shows_of_an_output_is_compared() -> None:
    """`examples` refuses an output that belongs to no block. All other text is a command, a format or recorded."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for block in blocks(page, ROOT):
            if block.language == "python":
                beside = re.findall(r"^ *print\(.*\)  # .*", block.code, re.MULTILINE)
                assert beside == [], f"{block.where}: output belongs in a block `output`"
            if block.remark and not block.language.startswith("{"):  # a directive of the site
                assert (block.language, block.remark) == ("text", "recorded"), block.where
                assert "ecorded" in text.replace("text recorded", ""), f"{block.where}: say where this was recorded"
        formats = [
            block.where
            for block in blocks(page, ROOT)
            if block.language == "text" and not block.remark and not NO_OUTPUT.match(block.code)
        ]
        assert len(formats) == FORMATS.get(str(page.relative_to(ROOT)), 0), f"{formats}: an output?"


@pytest.mark.parametrize(
    ("page", "printed"),
    [
        ("```sh\necho 1\n```\n\n```output\n2\n```\n", Printed("1\n")),
        ("```sh\necho 1\n```\n\n```output\n1\n```\n", Printed("1\n2\n")),
        ("```sh\necho 1\n```\n\n```output\nNote: a\n1\n```\n", Printed("1\n", "Note: b\n")),
        ("```sh\necho 1\n```\n\nIt prints\n`two\nwords`.\n", Printed("two 2 words\n")),
        ("```sh\nhead f\n```\n\n```output\n0.75 in 0.1 s\n```\n", Printed("0.77 in 0.2 s\n")),
    ],
)
def test_a_page_that_shows_another_output_is_found(page: str, printed: Printed, tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(page)
    (example,) = examples(tmp_path / "page.md", tmp_path)
    with pytest.raises(AssertionError, match=r"page\.md:1"):
        compare(example, printed)


def test_what_a_page_may_leave_out_and_what_varies_is_not_compared(tmp_path: Path) -> None:
    shown = "```output\nNote: a\n1 of 2\n...\n0.75 in 0.1 s, 3.5 tokens/s, m#0123456789ab\n```\n"
    (tmp_path / "page.md").write_text(f"```sh\nhead f\n```\n\n{shown}")
    (example,) = examples(tmp_path / "page.md", tmp_path)
    out = "1 of 2\nmore\nand more\n0.750 in 12 s, 99 tokens/s, m#ba9876543210\n"
    compare(example, Printed(out, "b\nNote: a\n"))


def test_an_output_without_a_block_before_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("```output\n1\n```\n")
    with pytest.raises(AssertionError, match="no block before it"):
        examples(tmp_path / "page.md", tmp_path)


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


def shortened(example: Example) -> Example:
    """A block as this run types it."""
    if EXHAUSTIVE or example.where not in SHORTER:
        return example
    assert not example.shown + example.quoted, f"{example.where}: this output would not be compared"
    code = example.code
    for whole, shorter in SHORTER[example.where]:
        assert code.count(whole) == 1, f"{example.where}: {whole!r} is shortened by this test"
        code = code.replace(whole, shorter)
    return example._replace(code=code)


def copy_examples(folder: Path) -> None:
    shutil.copytree(ROOT / "examples", folder / "examples", ignore=shutil.ignore_patterns("__pycache__"))


def run(example: Example, folder: Path, programs: Path) -> Printed:
    """Run one block in a folder, with this tree's sgdec on the path."""
    path = os.pathsep.join([str(programs), os.environ["PATH"]])
    environment = {**os.environ, "PYTHONPATH": SGDEC, "PATH": path, "OMP_NUM_THREADS": "1"}
    program, *others = command(example)
    started = [shutil.which(program, path=path) or program, *others]
    done = subprocess.run(started, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{example.where}\n{done.stdout}{done.stderr}"
    return Printed(done.stdout, done.stderr)
