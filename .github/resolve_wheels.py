"""Does all that sgdec asks for come as wheels, on each system and Python that it supports? Needs network and uv.

    pip install uv
    python .github/resolve_wheels.py [PYPROJECT]

uv resolves ``sgdec[all]`` for each of them from here, with wheels alone. Prints a table, then uv's reason for each
that does not resolve; the exit status is 1 if there is one. Nothing is installed. The floors are those of the README.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SYSTEMS = {
    "Linux x86-64": "x86_64-manylinux_2_31",
    "Linux arm64": "aarch64-manylinux_2_31",
    "macOS arm64": "aarch64-apple-darwin",
    "Windows x86-64": "x86_64-pc-windows-msvc",
}
"""uv's name of each system. 2.31 is the oldest glibc."""
OLDEST_MACOS = "14.0"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")


def reason(pyproject: Path, system: str, python: str) -> str:
    """Why the extra ``all`` of a project has no wheels there; "" if it has."""
    command = ["uv", "pip", "compile", "--quiet", "--no-header", "--extra", "all", "--only-binary", ":all:"]
    command += ["--python-platform", SYSTEMS[system], "--python-version", python, str(pyproject)]
    environment = {**os.environ, "MACOSX_DEPLOYMENT_TARGET": OLDEST_MACOS}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    return "" if done.returncode == 0 else done.stderr.strip() or f"uv ended with status {done.returncode}"


def main(pyproject: Path) -> int:
    reasons: dict[tuple[str, str], str] = {}
    print(f"{'':16}" + "".join(f"{python:>6}" for python in PYTHONS))
    for system in SYSTEMS:
        row = {python: reason(pyproject, system, python) for python in PYTHONS}
        print(f"{system:16}" + "".join(f"{'no' if why else 'yes':>6}" for why in row.values()), flush=True)
        reasons |= {(system, python): why for python, why in row.items() if why}
    for (system, python), why in reasons.items():
        print(f"\n{system}, Python {python}:\n{why}")
    return 1 if reasons else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "pyproject.toml")))
