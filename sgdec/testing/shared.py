"""Values that all tests of a contract share. pytest makes one instance of a class for each of its tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")
_PREFIX = "_shared_"


class Shared(Generic[T]):
    """A property that is computed once for a class; a subclass computes its own.

    An instance that has attributes of its own, for example from a fixture, may differ from other instances of its
    class. So it computes its own value. If the computation fails, the next access tries again.
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self.compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type[Any], name: str) -> None:
        self.name = f"{_PREFIX}{name}"

    def __get__(self, instance: Any, owner: type[Any]) -> T:
        differs = any(not name.startswith(_PREFIX) for name in vars(instance))
        home = instance if differs else owner
        if self.name not in vars(home):
            setattr(home, self.name, self.compute(instance))
        value: T = vars(home)[self.name]
        return value
