"""Every code block of the documentation runs.

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
