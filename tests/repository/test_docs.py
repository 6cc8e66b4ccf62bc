"""Every code block of the documentation runs, and the files that the architecture names are there.

Python blocks run as they stand; shell blocks run line by line, in a folder that holds nothing but a copy of
``examples`` and, as if the course had been taken, its solutions. Blocks in other languages (text, bibtex, toml) are
not code of ours.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from tests.helpers.places import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "examples").rglob("*.md"))]
BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
NOT_CODE = {"text", "bibtex", "toml"}


def blocks() -> list[tuple[str, str, str]]:
    found = []
    for page in PAGES:
        for number, (_, language, code) in enumerate(BLOCK.findall(page.read_text()), start=1):
            if language not in NOT_CODE:
                found.append((f"{page.relative_to(ROOT)}:{number}", language, dedent(code)))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("where", "language", "code"), [pytest.param(*block, id=block[0]) for block in blocks()])
def test_code_blocks_run(where: str, language: str, code: str, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    for solution in (ROOT / "tests" / "course_solutions").glob("my_*.py"):
        shutil.copy(solution, tmp_path)
    paths = [str(ROOT / part) for part in ("", "predictors", "decoders")]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "OMP_NUM_THREADS": "1",
    }
    command = {"python": [sys.executable, "-c", code], "sh": ["bash", "-euo", "pipefail", "-c", code]}
    assert language in command, f"{where}: a code block in {language!r} cannot be run; use python, sh or text"
    done = subprocess.run(command[language], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_files_that_the_architecture_names_are_there() -> None:
    """Most are named within their room, ``gru.py`` or ``data/text.py``: some file's path has to end so."""
    text = (ROOT / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([\w/]+\.py)`", text))
    rooms = ("sgdec", "predictors", "decoders", "tests")
    there = ["/" + path.relative_to(ROOT).as_posix() for room in rooms for path in (ROOT / room).rglob("*.py")]
    assert len(named) > 50
    assert sorted(name for name in named if not any(path.endswith("/" + name) for path in there)) == []
