"""The promise of the installation by `make`: it uses the Python that is named, installs what is asked for, and once,
and is never silent for long."""

from __future__ import annotations

import ast
import os
import runpy
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.helpers.places import ROOT

SCRIPT = ROOT / "install.py"
DEMO = ".[nmt,constraints]"
EVERYTHING = [".[all,test,docs]", "g2p-en==2.1.0", "kenlm"]
"""The last word of each call of pip."""


class Installer(SimpleNamespace):
    """The names of ``install.py``, in a folder of its own; what pip would install is listed."""

    main: Callable[[str], int]
    run: Callable[..., int]
    is_of_this_python: Callable[[], bool]
    asked: list[str]
    made: list[str]


@pytest.fixture
def installer(tmp_path: Path) -> Installer:
    for name in ("install.py", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    names = runpy.run_path(str(tmp_path / "install.py"))
    own, asked, made = names["main"].__globals__, [], []

    def run(*command: str, **options: object) -> int:
        assert command[1:4] == ("-m", "venv", "--clear")
        made.append(command[0])
        make_environment(tmp_path)
        return 0

    def pip(*words: str, **options: object) -> int:
        asked.append(words[-1])
        return 0

    own |= {"run": run, "pip": pip, "PERIOD": 0.03}
    return Installer(**names | {"asked": asked, "made": made, "own": own})


def make_environment(folder: Path) -> None:
    venv.create(folder / ".venv", symlinks=True)
    version = "python{}.{}".format(*sys.version_info)
    (folder / ".venv" / "lib" / version / "site-packages" / "pip").mkdir()


def test_an_older_python_is_refused_in_one_line_and_nothing_is_made(
    installer: Installer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 10, 13, "final", 0))
    assert installer.main("demo") == 1
    assert capsys.readouterr().err == (
        f"sgdec needs Python 3.11 or newer, but {sys.executable} is Python 3.10. "
        "Name one: make demo PYTHON=python3.11\n"
    )
    assert not (tmp_path / ".venv").exists() and not installer.asked


def test_an_older_python_can_read_the_script() -> None:
    tree = ast.parse(SCRIPT.read_text("utf-8"), feature_version=(3, 6))
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module == "__future__"]


def test_an_environment_of_another_python_is_made_again_and_that_of_this_one_is_kept(
    installer: Installer, tmp_path: Path
) -> None:
    assert not installer.is_of_this_python()
    make_environment(tmp_path)
    assert installer.is_of_this_python()
    python = tmp_path / ".venv" / "bin" / "python"
    kept = os.readlink(python)
    python.unlink()
    python.symlink_to(shutil.which("sh") or "/bin/sh")
    assert not installer.is_of_this_python()
    python.unlink()
    python.symlink_to(kept)
    (packages,) = (tmp_path / ".venv" / "lib").iterdir()
    packages.rename(packages.with_name("python3.1"))  # as after an upgrade of the system's Python
    assert not installer.is_of_this_python()
    assert installer.main("demo") == 0 and installer.made == [sys.executable]
    assert installer.is_of_this_python()


def test_what_is_there_is_not_installed_again(installer: Installer, tmp_path: Path) -> None:
    for part, expected in (("demo", [DEMO]), ("demo", []), ("all", EVERYTHING), ("all", []), ("demo", [])):
        assert installer.main(part) == 0
        assert installer.asked == expected
        installer.asked.clear()
    with (tmp_path / "constraints.txt").open("a") as file:
        file.write("# other versions\n")
    assert installer.main("demo") == installer.main("all") == 0
    assert installer.asked == [DEMO, *EVERYTHING]
    assert len(installer.made) == 1


def test_what_failed_is_installed_again(installer: Installer) -> None:
    working = installer.own["pip"]
    installer.own["pip"] = lambda *words: 3
    assert installer.main("demo") == installer.main("all") == 3
    installer.own["pip"] = working
    assert installer.main("demo") == 0 and installer.asked == [DEMO]


def test_a_silent_command_is_reported_and_the_output_of_a_failed_one_is_shown(
    installer: Installer, capsys: pytest.CaptureFixture[str]
) -> None:
    code = "import time; print('  Downloading big.whl (1.5 GB)'); print('Downloading small.whl (9 kB)', flush=True)"
    assert installer.run(sys.executable, "-c", f"{code}; time.sleep(0.1)") == 0
    lines = capsys.readouterr().out.splitlines()
    assert "  Downloading big.whl (1.5 GB)" in lines and "small.whl" not in "".join(lines)
    assert sum(line.endswith(" MB installed") for line in lines) >= 2
    assert installer.run(sys.executable, "-c", f"{code}; raise SystemExit(4)") == 4
    assert "small.whl" in capsys.readouterr().out
    assert installer.run(sys.executable, "-c", f"{code}; raise SystemExit(4)", quiet=True) == 4
    assert "small.whl" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("files", "words", "python"),
    [
        ((), (), "python3"),
        (("bin/python",), (), "python3"),
        (("bin/python", ".installed"), (), ".venv/bin/python"),
        ((".installed",), (), "python3"),
        (("bin/python", ".installed"), ("PYTHON=python3.13",), "python3.13"),
    ],
)
def test_make_uses_the_python_that_is_named_or_else_that_of_the_environment(
    files: tuple[str, ...], words: tuple[str, ...], python: str, tmp_path: Path
) -> None:
    for path in (tmp_path / ".venv" / name for name in files):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(0o755)
    outer = ("PYTHON", "MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES")  # of the make that runs the tests
    clean = {name: value for name, value in os.environ.items() if name not in outer}
    for goal, part in (("demo", "demo"), ("test", "all"), ("install", "all")):
        make = ["make", "-n", "-f", ROOT / "Makefile", goal, *words]
        done = subprocess.run(make, cwd=tmp_path, capture_output=True, text=True, env=clean)
        assert done.stdout.startswith(f"{python} install.py {part}\n"), done.stderr
