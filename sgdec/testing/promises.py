"""The promises of a contract as values, to run them without pytest, for example in graders and notebooks."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sgdec.testing.decoder_contract import DecoderContract
from sgdec.testing.predictor_contract import PredictorContract
from sgdec.testing.predictor_search_contract import PredictorSearchContract
from sgdec.testing.utility_contract import UtilityContract

if TYPE_CHECKING:
    from sgdec.testing.model_contract import ModelContract

_PREFIX = "test_"


@dataclass(frozen=True)
class Promise:
    """One promise, and a function that checks it."""

    text: str
    """The promise in words, such as "restoring a state restores its scores"."""
    check: Callable[[], None]
    """Raises AssertionError if the promise is broken."""


def promises(
    contract: PredictorContract | PredictorSearchContract | DecoderContract | UtilityContract | ModelContract[Any],
) -> list[Promise]:
    """All promises of a contract, in the order of its file, after those that it inherits.

    >>> import numpy as np
    >>> from sgdec.testing import Table
    >>> class Bigram(PredictorContract):
    ...     vocab_size = 4
    ...     def make(self):
    ...         return Table(np.zeros((4, 4)))
    >>> found = {promise.text: promise for promise in promises(Bigram())}
    >>> found["best remaining is never exceeded"].check()
    """
    defined = (name for cls in reversed(type(contract).__mro__) for name in vars(cls))
    names = dict.fromkeys(name for name in defined if name.startswith(_PREFIX))
    return [Promise(name.removeprefix(_PREFIX).replace("_", " "), getattr(contract, name)) for name in names]


def breach(check: Callable[[], object], within: Path | None = None) -> str | None:
    """Run a check; return its error message in one line, or None if it passes.

    ``within``: the file under test; the message names the line in it that raised, unless a failed assertion has a
    message. All exceptions except KeyboardInterrupt are caught, including SystemExit.

    >>> breach(lambda: 1 / 0)
    'ZeroDivisionError: division by zero'
    """
    try:
        check()
    except KeyboardInterrupt:
        raise
    except AssertionError as error:
        return _one_line(str(error)) or f"an assertion failed{_place(error, within)}"
    except BaseException as error:
        return f"{_one_line(f'{type(error).__name__}: {error}').removesuffix(':')}{_place(error, within)}"
    return None


def _place(error: BaseException, within: Path | None) -> str:
    """``(FILE, line N)`` of the innermost line in the file under test that led to the error; "" if there is none."""
    frames = traceback.extract_tb(error.__traceback__)
    inside = [frame for frame in frames if within and Path(frame.filename).resolve() == within.resolve()]
    return f" ({Path(inside[-1].filename).name}, line {inside[-1].lineno})" if inside else ""


def _one_line(text: str, most: int = 300) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 3] + "..."
