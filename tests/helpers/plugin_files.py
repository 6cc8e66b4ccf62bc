"""A plugin file of one predictor, written and decoded with, for tests of what its author gets wrong."""

from __future__ import annotations

from pathlib import Path

from sgdec.cli.main import main

HEAD = """
import sgdec
from sgdec import Scores

class Mine(sgdec.Predictor):
    def predict_next(self, candidates=None):
        return Scores.dense(__import__("numpy").zeros(5))
"""
TAIL = """
@sgdec.hookimpl
def sgdec_predictors():
    return {"mine": Mine}
"""


def write_plugin(folder: Path, body: str, *, head: str = HEAD) -> Path:
    path = folder / "mine.py"
    path.write_text(f"{head}{body}{TAIL}")
    return path


def decode(folder: Path, *more: str, predictors: str = "mine", lines: str = "3\n4\n3 4\n") -> int:
    (folder / "in").write_text(lines)
    words = ["decode", "--plugin-file", str(folder / "mine.py"), "--predictors", predictors, "--vocab-size", "5"]
    return main([*words, "--input-format", "ids", "--max-length", "2", *more, str(folder / "in")])
