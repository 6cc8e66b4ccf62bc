"""A plugin cannot end a run as if all were well: what it does instead of an exception is a failed run of one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from sgdec.cli.main import INTERRUPTED, main

PLUGIN = """
import asyncio
import sys
import sgdec
{at_import}
class Leaving(sgdec.Predictor):
    def __init__(self):
        {in_constructor}
        super().__init__()
    def predict_next(self, candidates=None):
        return sgdec.Scores.sparse([2], [0.0])
class Wrapping(sgdec.BatchPredictor):
    def __init__(self, inner):
        pass
    @classmethod
    def inner_context(cls, context):
        {in_context}
    @classmethod
    def read_vocabularies(cls, inner):
        {in_vocabularies}
        return inner
class Search(sgdec.Decoder):
    def __init__(self):
        {in_decoder}
    def decode(self, space):
        return sgdec.Result([])
@sgdec.hookimpl
def sgdec_predictors():
    {in_hook}
    return {{"leaving": Leaving, "wrapping": Wrapping}}
@sgdec.hookimpl
def sgdec_decoders():
    return {{"search": Search}}
"""
PLACES = ("at_import", "in_hook", "in_constructor", "in_context", "in_vocabularies", "in_decoder")
EXITS = {
    "sys.exit()": "sys.exit(",
    "sys.exit(0)": "sys.exit(0)",
    "sys.exit('bye\\nbye')": "sys.exit(bye bye)",
    "raise asyncio.CancelledError": "CancelledError",
    "raise BaseException('no')": "BaseException: no",
    "raise GeneratorExit": "GeneratorExit",
}


def run(folder: Path, place: str, statement: str) -> int:
    (folder / "plugin.py").write_text(PLUGIN.format(**{**dict.fromkeys(PLACES, "pass"), place: statement}))
    (folder / "in.ids").write_text("3\n")
    predictors = "wrapping:leaving" if place in ("in_context", "in_vocabularies") else "leaving"
    decoder = "search" if place == "in_decoder" else "greedy"
    return main(
        ["decode", "--plugin-file", str(folder / "plugin.py"), "--predictors", predictors, "--decoder", decoder,
         "--vocab-size", "7", "--input-format", "ids", str(folder / "in.ids")]
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("statement", EXITS)
@pytest.mark.parametrize("place", PLACES)
def test_leaving_is_a_failed_run_that_names_the_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], place: str, statement: str
) -> None:
    assert run(tmp_path, place, statement) == 1
    out, error = capsys.readouterr()
    assert out == "" and error.startswith("Error: ") and error.count("\n") == 1
    assert EXITS[statement] in error and "plugin.py, line " in error


@pytest.mark.parametrize("place", PLACES)
def test_an_interrupt_stays_one(tmp_path: Path, capsys: pytest.CaptureFixture[str], place: str) -> None:
    assert run(tmp_path, place, "raise KeyboardInterrupt") == INTERRUPTED
    assert "".join(capsys.readouterr()).strip() == ""
