"""A call made for a request, in a thread of its own, so that the request can end without it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from millpond.work import wait_for

Given = TypeVar("Given")


class RequestCall(Generic[Given]):
    """A call that has begun."""

    def __init__(self, call: Callable[[], Given]) -> None:
        self._call = call
        self._changed = threading.Condition()
        self._given: list[Given] = []
        self._error: BaseException | None = None
        self._is_over = False
        threading.Thread(target=self._run, name="asked", daemon=True).start()

    def _run(self) -> None:
        try:
            self._given.append(self._call())
        except BaseException as error:
            self._error = error
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def wait(self) -> Given:
        """Return what the call gives, or raise what it raises.

        Raises:
            MillpondError: POND-405, the request this thread works for is to end; the call goes on.
        """
        with self._changed:
            wait_for(self._changed, lambda: self._is_over)
        if self._error is not None:
            raise self._error
        return self._given[0]
