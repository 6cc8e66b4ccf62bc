"""Distributions of third parties, as pip leaves them: a ``dist-info`` folder and modules in a folder."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path


class Site:
    """A folder on ``sys.path`` to install distributions into."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def install(self, distribution: str, points: dict[str, str], modules: dict[str, str], requires: str = "") -> None:
        info = self.folder / f"{distribution.replace('-', '_')}-1.0.dist-info"
        info.mkdir()
        metadata = f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n{requires}"
        (info / "METADATA").write_text(metadata)
        lines = [f"{name} = {value}" for name, value in points.items()]
        (info / "entry_points.txt").write_text("\n".join(["[sgdec]", *lines, ""]))
        for name, text in modules.items():
            (self.folder / f"{name}.py").write_text(text)

    def install_tree(self, tree: Path) -> None:
        """Install a source tree that has a ``pyproject.toml``: its modules, and the files beside them."""
        project = tomllib.loads((tree / "pyproject.toml").read_text())["project"]
        self.install(project["name"], project["entry-points"]["sgdec"], {})
        shutil.copytree(tree, self.folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
