"""Errors of Millpond that were raised in a Python worker, or in a callback of the JVM.

Spark gives them back as text: the stack of the worker within the stack of the driver, perhaps
within what Py4J says of both. Whoever reads the status or the log wants the error itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from millpond.errors import CODES, MillpondError

#: How Python ends the stack of an error, and the lines of the error that may follow.
_OWN = re.compile(
    r"^\s*millpond\.errors\.MillpondError: (?P<code>[A-Z]+-\d{3}): (?P<primary>.*)"
    r"(?:\n(?!\s*(?:Detail|Hint): ).+)*?"
    r"(?:\n\s*Detail: (?P<detail>.*))?"
    r"(?:\n\s*Hint: (?P<hint>.*))?",
    re.M,
)


def find_own_error(error: BaseException) -> MillpondError | None:
    """Find the error of Millpond that Spark's error reports; None if it reports none."""
    if isinstance(error, MillpondError):
        return error
    found = list(_OWN.finditer(str(error)))
    if not found or found[-1]["code"] not in CODES:
        return None
    own = found[-1]
    return MillpondError(own["code"], own["primary"], detail=own["detail"], hint=own["hint"])


@contextmanager
def raising_own_errors() -> Iterator[None]:
    """Raise the error of Millpond itself where a Spark job in the block failed because of it."""
    try:
        yield
    except Exception as error:
        own = find_own_error(error)
        if own is None or own is error:
            raise
        raise own from error
