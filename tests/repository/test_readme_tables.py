"""The promise: the README's tables name what is registered, with the options it has and the bounds it declares."""

from __future__ import annotations

import math
from inspect import getsource

import pytest

from sgdec.protocol import BatchPredictor, Predictor
from tests.helpers.readme_tables import COLUMNS, HOST, README, classes, rows, written

TEXT = README.read_text()


@pytest.mark.parametrize("kind", ["predictor", "decoder", "model"])
def test_a_table_names_everything_that_is_registered_and_nothing_else(kind: str) -> None:
    named = [name for row in rows(TEXT, kind) for name in row.names]
    bundled = [entry.name for entry in HOST.names(kind) if entry.distribution == "sgdec"]
    assert sorted(named) == sorted(bundled)


def test_options_are_those_of_the_constructors() -> None:
    assert written(TEXT) == TEXT, "write them with `python -m tests.helpers.readme_tables`"


@pytest.mark.parametrize("kind", ["predictor", "decoder"])
def test_every_row_says_all_that_the_head_of_its_table_asks_for(kind: str) -> None:
    for row in rows(TEXT, kind):
        assert len(row.cells) == COLUMNS, row.names
        assert all(cell for place, cell in enumerate(row.cells) if place != 2), row.names


def test_a_bound_that_is_promised_is_declared() -> None:
    for row in rows(TEXT, "predictor"):
        bounds = row.cells[3]
        for cls in classes("predictor", row):
            assert issubclass(cls, Predictor | BatchPredictor)
            if bounds.startswith(("upper", "exact")):
                known = cls.max_score < math.inf or "self.max_score = " in getsource(cls)
                assert known or hasattr(cls, "best_remaining"), row.names
            if bounds.startswith("exact"):
                assert hasattr(cls, "worst_remaining"), row.names
