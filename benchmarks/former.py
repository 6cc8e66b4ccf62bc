"""Old names of moved modules, so that the ratchet can run today's measurements on older trees."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

MOVED = {
    "sgdec.checkpoints.loading": "sgdec.training.loading",
    "sgdec.decoder": "sgdec.protocol",
    "sgdec.estimation.kneser_ney": "sgdec.training.kneser_ney",
    "sgdec.plugins.assembly": "sgdec.assembly",
    "sgdec.plugins.host": "sgdec.plugins",
    "sgdec.search.constellation": "sgdec.constellation",
    "sgdec.search.node": "sgdec.node",
    "sgdec.search.outcome": "sgdec.outcome",
    "sgdec.search.scheduler": "sgdec.scheduler",
    "sgdec.search.space": "sgdec.search",
}
"""The old name of each module that benchmarks import."""


def know_by_new_names() -> None:
    """Make the modules of an older tree available under their present names."""
    (package,) = importlib.import_module("sgdec").__path__
    for new, old in MOVED.items():
        if not Path(package, *new.split(".")[1:]).with_suffix(".py").exists():
            sys.modules[new] = importlib.import_module(old)
