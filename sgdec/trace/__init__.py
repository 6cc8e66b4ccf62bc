"""The record of a search: its expansions, the fate of every child, its bounds, and why it stopped.

Results of ``run.decode(..., trace=True)`` have a `SentenceTrace`; `read_trace` reads the file that ``sgdec decode
--trace FILE`` writes. docs/howto/traces.md describes both.

>>> import sgdec
>>> from sgdec.testing import Table
>>> model = Table([[-9.0, -9.0, -0.5, -1.0]] * 4)
>>> run = sgdec.load({"model": model}, decoder="beam", vocab_size=4, max_length=2, beam={"size": 1})
>>> (found,) = run.decode([[3]], trace=True)
>>> for expansion in found.trace.expansions:
...     for child in expansion.children[:2]:
...         print(found.trace.path(expansion.number), child.token, child.total, child.fate)
() 2 -0.5 listed
() 3 -1.0 beam
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sgdec.trace.reading import Trace, read_trace
    from sgdec.trace.records import (
        Alone,
        Batch,
        Bound,
        Child,
        Ended,
        Expansion,
        Fate,
        Header,
        SentenceTrace,
        Tracing,
    )
    from sgdec.trace.writing import TraceWriter, writing_trace

__all__ = [
    "Alone",
    "Batch",
    "Bound",
    "Child",
    "Ended",
    "Expansion",
    "Fate",
    "Header",
    "SentenceTrace",
    "Trace",
    "TraceWriter",
    "Tracing",
    "read_trace",
    "writing_trace",
]
_FILES = {"Trace": "reading", "TraceWriter": "writing", "read_trace": "reading", "writing_trace": "writing"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'sgdec.trace' has no attribute {name!r}")
    value = getattr(import_module(f"sgdec.trace.{_FILES.get(name, 'records')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
