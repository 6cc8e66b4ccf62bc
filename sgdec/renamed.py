"""Old names of the public API. Each works as long as the protocol has the same version (`sgdec.protocol.API`)."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from numbers import Real
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar


def former_names(module: str, names: Mapping[str, str], silent: Collection[str] = ()) -> Callable[[str], Any]:
    """A ``__getattr__`` for a module whose ``names`` have moved to ``MODULE`` or ``MODULE:NAME``.

    ``silent``: those of which the old home stays as good as the new one.
    """

    def find(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        home, _, new = names[name].rpartition(":")
        home, new = (home, new) if home else (new, name)
        if name not in silent:
            _warn(f"{module}.{name}", f"{home}.{new}")
        return getattr(import_module(home), new)

    return find


def former_modules(package: str, homes: Mapping[str, str]) -> None:
    """Make the modules ``package.NAME`` importable that are called ``homes[NAME]`` now.

    ``package`` calls this while it is imported, and has no files of these names. The new modules are imported when a
    name in them is used.
    """
    for name, home in homes.items():
        module = ModuleType(f"{package}.{name}", f"The former module of `{home}`.")
        vars(module)["__getattr__"] = former_module(module.__name__, home)
        sys.modules[module.__name__] = module
        setattr(sys.modules[package], name, module)


def former_module(module: str, home: str) -> Callable[[str], Any]:
    """A ``__getattr__`` for a module all of whose names have moved to the module ``home``."""

    def find(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        found = getattr(import_module(home), name)
        _warn(module, home)
        return found

    return find


def _warn(former: str, now: str) -> None:
    warnings.warn(
        f"{former} is called {now} now; the next version of the protocol removes the old name.",
        DeprecationWarning,
        stacklevel=3,
    )


class _NeverPositive:
    """The trait of this name in an instance: reads and sets ``max_score``."""

    def __get__(self, predictor: Any, cls: type[Any]) -> bool:
        highest = (cls if predictor is None else predictor).max_score
        return isinstance(highest, Real) and float(highest) <= 0

    def __set__(self, predictor: Any, value: bool) -> None:
        if value == 1 and predictor.never_positive:
            return  # its max_score says so already
        predictor._never_positive = value
        if not value or vars(predictor).get("max_score", math.inf) == math.inf:  # else the two may contradict
            predictor.max_score = 0.0 if value else math.inf


class FormerTraits:
    """The base of `sgdec.protocol.Traits`: the trait ``never_positive``, which is called ``max_score`` now.

    True is read as a highest score of 0, False as an unknown one, whether it is set in a class or in an instance.
    What was set is remembered as ``_never_positive``, for the checks and the warning of `sgdec.plugins.surface`.
    """

    if TYPE_CHECKING:
        never_positive: ClassVar[bool]
    else:
        never_positive = _NeverPositive()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "never_positive" not in vars(cls):
            return
        said, highest = (vars(cls).get(name) for name in ("never_positive", "max_score"))
        found: dict[str, object] = {}
        if isinstance(said, property):
            get = said.__get__
            found["max_score"] = property(lambda predictor: 0.0 if get(predictor) else math.inf)
            found["_never_positive"] = False
        else:
            del cls.never_positive  # so that instances can set it
            if highest is None:
                found["max_score"] = 0.0 if said else math.inf
            if highest is None or said not in (0, 1) or (said and isinstance(highest, Real) and float(highest) > 0):
                found["_never_positive"] = said
        for name, value in found.items():
            setattr(cls, name, value)
