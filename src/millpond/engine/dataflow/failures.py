"""Failures of operators as errors that can be shown."""

from __future__ import annotations

import pyarrow as pa

from millpond.errors import MillpondError


def to_millpond_error(error: BaseException) -> MillpondError:
    """Turn any exception into an error that can be shown to the owner of a query."""
    if isinstance(error, MillpondError):
        return error
    message = str(error).split("\n", 1)[0][:300]
    if isinstance(error, pa.ArrowException):
        return MillpondError("POND-404", "the query could not be evaluated", detail=message)
    what = f"{type(error).__name__}: {message}" if message else type(error).__name__
    return MillpondError("INTERNAL-901", "the changes could not be computed", detail=what)
