"""Values that all tests of a contract share. pytest makes one instance of a class for each of its tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")
_PREFIX = "_shared_"


class Shared(Generic[T]):
    """A property that is computed once for a class; a subclass computes its own.

    An instance that has attributes of its own, for example from a parametrised fixture, may differ from other
    instances of its class. It shares a value with those whose attributes are the same strings or numbers; with
    attributes of other types, it computes its own value. If the computation fails, the next access tries again.
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self.compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type[Any], name: str) -> None:
        self.name = f"{_PREFIX}{name}"

    def __get__(self, instance: Any, owner: type[Any]) -> T:
        own = {name: value for name, value in vars(instance).items() if not name.startswith(_PREFIX)}
        alike = all(isinstance(value, str | int | float | None) for value in own.values())
        home = owner if alike else instance
        if self.name not in vars(home):
            setattr(home, self.name, {})
        values: dict[str, T] = vars(home)[self.name]
        key = repr(sorted(own.items())) if alike else ""
        if key not in values:
            values[key] = self.compute(instance)
        return values[key]
