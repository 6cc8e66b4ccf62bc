"""Predictors with planted bugs, each with the promise of the conformance kit that has to find it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pytest

from sgdec.protocol import BatchPredictor, Predictor
from sgdec.testing import BatchTable, PredictorContract, Table

V = 6
Make: TypeAlias = Callable[[], Predictor | BatchPredictor]


class Planted:
    """The planted bugs of one file."""

    def __init__(self, table: npt.NDArray[np.float64]) -> None:
        """``table``: for the bugs in a `Table` or a `BatchTable`."""
        self.table = table
        self.bugs: dict[str, tuple[Make, str]] = {}
        """By class: how to make one, and the test that must fail."""

    def breaks(self, test: str) -> Callable[[type[Any]], type[Any]]:
        """Marks a class with one planted bug, and names the test that must catch it."""

        def mark(cls: type[Any]) -> type[Any]:
            options = (self.table,) if issubclass(cls, Table | BatchTable) else ()
            self.bugs[cls.__name__] = (lambda: cls(*options)), test
            return cls

        return mark

    @property
    def broken(self) -> set[str]:
        """The tests that a planted bug breaks."""
        return {test for _, test in self.bugs.values()}

    def require_right(self, make: Make) -> None:
        subject = contract(make)
        for test in promises(type(subject)):
            getattr(subject, test)()

    def require_caught(self, name: str) -> str:
        """The message of the failure."""
        make, test = self.bugs[name]
        with pytest.raises(AssertionError) as caught:
            getattr(contract(make), test)()
        assert "must" in str(caught.value), f"the failure should say which promise is broken: {caught.value}"
        return str(caught.value)


def contract(make: Make) -> PredictorContract:
    class Contract(PredictorContract):
        vocab_size = V

        def make(self) -> Predictor | BatchPredictor:
            return make()

    return Contract()


def promises(cls: type[PredictorContract | Any]) -> Iterator[str]:
    yield from (name for name in dir(cls) if name.startswith("test_"))
