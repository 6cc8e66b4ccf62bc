"""`sgdec` and `python` of this tree, for the scripts and pages of the repository."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.forked_commands import forked_commands
from tests.helpers.places import ROOT

PATHS = os.pathsep.join([str(ROOT), str(ROOT / "predictors"), str(ROOT / "decoders")])


@pytest.fixture(scope="session")
def programs() -> Iterator[Path]:
    """The folder of `sgdec` and `python`. All files share the process that forks: it takes seconds to start."""
    with forked_commands(PATHS) as folder:
        yield folder


@pytest.fixture(scope="session")
def commands(programs: Path) -> dict[str, str]:
    """An environment in which `sgdec` and `python` are this tree's, and start fast."""
    return {**os.environ, "PYTHONPATH": PATHS, "PATH": os.pathsep.join([str(programs), os.environ["PATH"]])}
