"""Recursion that does not depend on who asks.

Reading and printing recurse with the nesting of a text. How much stack is left when they start
depends on the caller, and a statement that was accepted once must not fail when it is read again
from deeper down. So what runs out of stack is done again on a thread of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")


def with_room(work: Callable[[], _T]) -> _T:
    """The result of `work`, on a whole stack if what is left of this one is too little.

    Raises:
        RecursionError: a whole stack is too little as well.
    """
    try:
        return work()
    except RecursionError:
        pass
    results: list[_T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:  # handed to the caller below
            errors.append(error)

    thread = threading.Thread(target=run, name="millpond-cql")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
