"""Wheels and source distributions of sgdec, built with its own build system, offline; and what is in a wheel."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any


def build(kind: str, folder: Path, target: Path) -> Path:
    """A ``wheel`` or ``sdist`` of the project in a folder."""
    code = f"import sys; from hatchling.build import build_{kind} as build; print(build(sys.argv[1]))"
    done = subprocess.run([sys.executable, "-c", code, target], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return target / done.stdout.strip()


def unpack(sdist: Path, target: Path) -> Path:
    """The folder of a source distribution, unpacked into another one."""
    with tarfile.open(sdist) as archive:
        safely: Any = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # older releases of Python 3.11
        archive.extractall(target, **safely)
    (folder,) = target.iterdir()
    return folder


def contents(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def metadata(wheel: Path, name: str) -> str:
    (path,) = (path for path in contents(wheel) if path.endswith(f".dist-info/{name}"))
    with zipfile.ZipFile(wheel) as archive:
        return archive.read(path).decode()
