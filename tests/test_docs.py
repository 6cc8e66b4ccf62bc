"""Every code block of the documentation runs, and its tables name exactly what is registered.

Python blocks run as they stand; shell blocks run line by line in an empty folder. Blocks in other languages (text,
bibtex, toml) are not code of ours.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sgdec.plugins import Host

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "examples").glob("*/README.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NOT_CODE = {"text", "bibtex", "toml"}


def blocks() -> list[tuple[str, str, str]]:
    found = []
    for page in PAGES:
        for number, (language, code) in enumerate(BLOCK.findall(page.read_text()), start=1):
            if language not in NOT_CODE:
                found.append((f"{page.relative_to(ROOT)}:{number}", language, code))
    return found


@pytest.mark.parametrize(("where", "language", "code"), blocks(), ids=[where for where, _, _ in blocks()])
def test_code_blocks_run(where: str, language: str, code: str, tmp_path: Path) -> None:
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


@pytest.mark.parametrize("kind", ["predictor", "decoder", "model"])
def test_the_tables_of_the_readme_name_what_is_registered(kind: str) -> None:
    section = (ROOT / "README.md").read_text().split(f"## {kind.capitalize()}s\n")[1].split("\n## ")[0]
    named = [
        name for row in re.findall(r"^\| (`.*?) \|", section, re.MULTILINE) for name in re.findall(r"`([\w-]+)`", row)
    ]
    bundled = [entry.name for entry in Host(autoload=False).names(kind) if entry.distribution == "sgdec"]
    assert sorted(named) == sorted(bundled)
