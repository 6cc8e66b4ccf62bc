"""Virtual environments that hold just the dependencies that a distribution declares.

Nothing is downloaded: what a distribution asks for, and what that asks for in turn, is lent by the environment that
runs the tests, as links. A dependency that nobody declares is not there.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
from collections.abc import Iterator
from importlib.metadata import Distribution
from pathlib import Path

from packaging.requirements import Requirement


class Environment:
    """A virtual environment to install into and to run in; commands run in the folder that holds it."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, symlinks=True)
        self.folder = folder
        self.python = folder / "bin" / "python"
        self.site = folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"

    def install(self, *what: str | Path, resolve: bool = False) -> None:
        """With pip: a folder, a wheel, or ``-e`` and a folder. Dependencies are left to `lend`, or pip resolves them:
        each has to be there in a version that satisfies all requirements.

        pip, the build systems and, for the resolver, the dependencies are those of the environment that runs the
        tests.
        """
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", self.python, "install"]
        flags = ["--quiet", "--no-build-isolation", "--no-index"]
        if not resolve:
            flags += ["--no-deps", "--ignore-installed"]
        installed = [path for path in sys.path if path.endswith("site-packages")]
        _run([*pip, *flags, *what], self.folder.parent, PYTHONPATH=os.pathsep.join(installed))

    def lend(self, distribution: str) -> None:
        """Links to all that a distribution needs, such as ``sgdec[fst]``, which may itself be installed here."""
        for needed in self._needs(Requirement(distribution)):
            names = {path.parts[0] for path in needed.files or () if path.parts[0] not in ("..", "__pycache__")}
            for link in (self.site / name for name in names):
                if not link.exists():
                    link.symlink_to(Path(str(needed.locate_file(link.name))))

    def _needs(self, first: Requirement) -> Iterator[Distribution]:
        """The distributions that a requirement leads to, itself included."""
        waiting, seen = [first], set()
        while waiting:
            requirement = waiting.pop()
            name = re.sub(r"[-_.]+", "-", requirement.name).lower()
            found = next(iter(Distribution.discover(name=name, path=[str(self.site), *sys.path])))
            yield found
            for extra in {"", *requirement.extras}:
                if (name, extra) not in seen:
                    seen.add((name, extra))
                    asked = map(Requirement, found.requires or ())
                    waiting += [one for one in asked if one.marker is None or one.marker.evaluate({"extra": extra})]

    def run(self, *args: str | Path) -> str:
        """What Python prints, given these arguments."""
        return self.run_whole(*args).stdout

    def run_whole(
        self, *args: str | Path, cwd: Path | None = None, status: int = 0
    ) -> subprocess.CompletedProcess[str]:
        return _run([self.python, *args], cwd or self.folder.parent, status)

    def sgdec(self, *args: str | Path) -> str:
        return self.run("-m", "sgdec.cli", *args)


def _run(
    command: list[str | Path], cwd: Path, status: int = 0, **variables: str
) -> subprocess.CompletedProcess[str]:
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "SGDEC_", "PIP_"))}
    done = subprocess.run(command, cwd=cwd, env={**clean, **variables}, capture_output=True, text=True)
    assert done.returncode == status, f"{command}:\n{done.stdout}{done.stderr}"
    return done
