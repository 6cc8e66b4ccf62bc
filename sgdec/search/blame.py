"""Attribution of exceptions to plugins: which plugin raised, and in which file and line.

The attribution stays correct if the exception has been caught and raised again since.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from types import FrameType

from sgdec.errors import SgdecError, one_line
from sgdec.search.memory import is_out_of_memory, ran_out

CORE = "sgdec"
"""The package of the core: its stack frames do not point to a plugin."""


class PredictorFault(RuntimeError):
    """A defect of a predictor. The message names it, the file and the line; the cause is the original exception."""


class WrongAnswer(SgdecError):
    """A malformed answer of a predictor. The message lacks the predictor's name; `blamed` adds it."""


def blamed(name: str, predictor: object, error: Exception) -> Exception:
    """The exception to raise for ``error`` of a predictor: an SgdecError as it is, others as a `PredictorFault`.

    The error of an allocator that is out of memory becomes an SgdecError with a remedy.
    """
    if isinstance(error, WrongAnswer):
        return SgdecError(f"predictor {name!r}: {error}")
    if isinstance(error, (SgdecError, PredictorFault)):
        return error
    if is_out_of_memory(error):
        return SgdecError(f"predictor {name!r}: {ran_out(error)}")
    fault = PredictorFault(f"predictor {name!r}: {said(error, *packages(predictor))}")
    fault.__cause__ = error
    return fault


def told(error: Exception, decoder: str | None = None) -> str:
    """The reason why a sentence failed, in one line. A defect outside the predictors is attributed to ``decoder``."""
    if isinstance(error, (SgdecError, PredictorFault)):
        text = str(error)
    else:
        text = f"decoder {decoder!r}: {said(error)}" if decoder is not None else said(error)
    return one_line(text) or type(error).__name__


def said(error: Exception, *packages: str) -> str:
    """The type and message of an exception on one line, followed by its `place`."""
    kind = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return f"{' '.join(kind.split())}{place(error, *packages)}"


def place(error: Exception, *packages: str) -> str:
    """``(FILE, line N)`` of the innermost frame in these packages, else of the innermost frame outside the core.

    If there is neither, the innermost frame counts; without any frame the text is empty.
    """
    frames = list(traceback.walk_tb(error.__traceback__))
    ours = [at for at in frames if _package(at[0]) in packages] if packages else []
    strange = [at for at in frames if _package(at[0]) != CORE]
    for frame, line in reversed(ours or strange or frames):
        return f" ({frame.f_code.co_filename}, line {line})"
    return ""


def packages(plugin: object) -> set[str]:
    """The packages that implement a plugin: its own, and those of the predictors that it lifts or wraps."""
    return set().union(*(packages_of(type(part)) for part in _parts(plugin)))


def packages_of(cls: type[object]) -> set[str]:
    """The top-level package of a plugin's class, as a set; empty if it is the core."""
    return {cls.__module__.partition(".")[0]} - {CORE}


def _parts(plugin: object) -> Iterator[object]:
    while plugin is not None:
        yield plugin
        plugin = vars(plugin).get("predictor", vars(plugin).get("inner")) if hasattr(plugin, "__dict__") else None


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]
