"""One plugin of a run with its options, and its construction."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sgdec.context import Context
from sgdec.errors import SgdecError
from sgdec.plugins.host import no_exit
from sgdec.search.blame import PredictorFault, packages_of, said


@dataclass(frozen=True)
class Part:
    """One plugin of a run: its name, class and checked options."""

    name: str
    cls: type[Any]
    options: Mapping[str, Any]
    made: Any = None
    """The object itself, if the caller gave one in place of a name or class."""


def construct(part: Part, context: Context, **extra: Any) -> Any:
    """The object of a part. ``extra``: arguments that are not options.

    Unexpected errors of the constructor become a `PredictorFault`, which names the part.
    """
    if part.made is not None:
        return part.made
    if "context" in inspect.signature(part.cls.__init__).parameters:
        extra["context"] = context
    try:
        with no_exit(part.name):
            return part.cls(**part.options, **extra)
    except (SgdecError, OSError, ImportError):
        raise  # these messages are clear to users as they are
    except Exception as error:
        raise PredictorFault(f"{part.name!r}: {said(error, *packages_of(part.cls))}") from error
