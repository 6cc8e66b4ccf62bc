"""The version of a build, which hatchling asks for (pyproject.toml): the tag's, or that of a development version.

    0.1.0                   a clean tree at the tag v0.1.0
    0.1.0.dev0+gCOMMIT      any other commit; followed by .dirty if the tree has changes
    0.1.0.dev0              a copy of the files without git

The local part (after +) makes the wheels of commits differ, and no index takes it. A source distribution has its
version in PKG-INFO, and this file is not asked.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

NEXT = "0.1.0"
"""The release that the current changes will become, as CHANGELOG.md says."""
TAG = re.compile(r"v(\d+\.\d+\.\d+((a|b|rc)\d+)?)")
"""Tags of releases; others are no versions."""


def version(folder: Path) -> str:
    """The version of the tree in a folder; at several tags of releases that of the first that git lists."""
    if not (folder / ".git").exists():  # a folder in the repository of another project is no checkout of this one
        return f"{NEXT}.dev0"
    commit = _git(folder, "rev-parse", "--short=12", "HEAD")
    if not commit:
        return f"{NEXT}.dev0"
    changed = _git(folder, "status", "--porcelain")
    tags = [found[1] for tag in _git(folder, "tag", "--points-at", "HEAD").split() if (found := TAG.fullmatch(tag))]
    if tags and not changed:
        return tags[0]
    return f"{NEXT}.dev0+g{commit}{'.dirty' if changed else ''}"


def _git(folder: Path, *args: str) -> str:
    """What git prints; "" where git is missing, refuses the folder or fails."""
    try:
        command = ["git", "--no-optional-locks", *args]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, encoding="utf-8")
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
