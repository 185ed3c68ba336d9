"""Properties that are computed when they are first asked for, and kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, overload

T_co = TypeVar("T_co", covariant=True)


class kept_property(Generic[T_co]):
    """A property that is computed when it is first asked for; frozen dataclasses have it, too.

    It takes no lock: of threads that ask at once each may compute it, and all get what was kept
    first. The cached property of the standard library has, before Python 3.12, a lock for all
    instances of a class, held while one computes. Two such properties that ask each other of other
    instances, as nodes of a plan ask their inputs, then stop two threads for ever; and readers of
    different files wait for each other.
    """

    def __init__(self, compute: Callable[[Any], T_co]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...

    @overload
    def __get__(self, instance: object, owner: type) -> T_co: ...

    def __get__(self, instance: object, owner: type) -> Self | T_co:
        if instance is None:
            return self
        kept: dict[str, T_co] = instance.__dict__
        return kept.setdefault(self._name, self._compute(instance))
