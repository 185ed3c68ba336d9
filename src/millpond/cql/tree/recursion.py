"""Recursion whose depth does not depend on the caller's stack.

Reading and printing recurse with the nesting of a text. The stack left when they start depends on
the caller, but a statement that was accepted once must not fail when a caller deeper in the stack
reads it again. So work that runs out of stack is repeated on a new thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import copy_context
from typing import TypeVar

from millpond.work import check_work

_T = TypeVar("_T")


def with_room(work: Callable[[], _T]) -> _T:
    """Return the result of `work`; repeat it on a new thread if this stack is too small.

    The new thread works for the same request as this one.

    Raises:
        MillpondError: POND-405, the request is to end.
        RecursionError: the new thread's stack is too small as well.
    """
    check_work()
    try:
        return work()
    except RecursionError:
        pass
    results: list[_T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:  # raised again in the caller's thread below
            errors.append(error)

    thread = threading.Thread(target=copy_context().run, args=(run,), name="millpond-cql")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
