"""What Spark's errors say is wrong, without the stacks of two languages."""

from __future__ import annotations

import re

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.captured import CapturedException

from millpond.errors import MillpondError

_STATE = re.compile(r"SQLSTATE: \w{5}")
#: What Spark writes before the reason why a streaming query failed.
_FAILED = re.compile(r"^\[STREAM_FAILED\] .*? terminated with exception: ")
#: Beginnings of what is said of a failure whose cause says all.
_EMPTY = ("Job aborted", "[TASK_", "Error while instantiating")


def find_reason(error: Exception) -> str:
    """Extract an error and its cause from Spark's text."""
    if isinstance(error, MillpondError):
        return error.detail or error.primary
    text = error.getMessage() if isinstance(error, PySparkException) else None
    origin = error.java_exception if isinstance(error, Py4JJavaError) else None
    if isinstance(error, CapturedException) and not text:
        origin = error._origin
    if origin is None:
        return _find_reason_line(text or str(error)) or type(error).__name__
    first = root = origin
    while root.getCause() is not None:
        root = root.getCause()
    reasons = [_find_reason_line(str(e.getMessage())) for e in (first, root)]
    # The cause says in full why a task failed; "job aborted …" only adds numbers.
    if reasons[0].startswith(_EMPTY) or reasons[1] in reasons[0]:
        reasons = reasons[1:] if reasons[1] not in reasons[0] else reasons[:1]
    return " ".join(reasons)


def _find_reason_line(message: str) -> str:
    """Find the line of a message that says what is wrong."""
    lines = [_STATE.sub("", line).strip() for line in _FAILED.sub("", message).split("\n")]
    lines = [line for line in lines if line and not line.startswith(("at ", "Driver stacktrace"))]
    traceback = any("Traceback (most recent call last)" in line for line in lines)
    return lines[-1 if traceback else 0] if lines else ""
