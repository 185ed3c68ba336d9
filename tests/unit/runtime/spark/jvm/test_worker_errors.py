"""Millpond's own errors are found in what Spark makes of them."""

from __future__ import annotations

import traceback

import pytest

from millpond.errors import MillpondError
from millpond.runtime.spark.jvm.worker_errors import find_own_error, raising_own_errors

FULL = MillpondError(
    "STORE-603",
    'the file "/pond/a.arrow" cannot be written',
    detail="It has 111 bytes; 12 are free on the disk.",
    hint="Free disk space; then it resumes where it was.",
)


def as_stack(error: MillpondError) -> str:
    """The text of a worker whose task raised an error."""
    try:
        raise error
    except MillpondError:
        return traceback.format_exc()


def wrap(error: MillpondError) -> RuntimeError:
    """The error as a streaming query gives it: a worker's stack within the driver's."""
    stack = as_stack(error)
    return RuntimeError(
        "An exception was raised by the Python Proxy. Return Message: Traceback (most recent call "
        "last):\n  File …\nPythonException: An exception was thrown from the Python worker:\n"
        f"{stack}"
        "\n\n=== Streaming Query ===\nIdentifier: millpond inbox\nHint: none of ours"
    )


@pytest.mark.parametrize(
    "error",
    [
        FULL,
        MillpondError("STORE-603", "the disk is full"),
        MillpondError("STORE-603", "the disk is full", hint="Free some."),
        MillpondError("STORE-603", "the disk is full", detail="No byte: is free."),
    ],
)
def test_an_error_of_a_worker_is_found(error: MillpondError) -> None:
    found = find_own_error(wrap(error))
    assert found is not None
    assert str(found) == str(error)
    with pytest.raises(MillpondError) as raised, raising_own_errors():
        raise wrap(error)
    assert str(raised.value) == str(error)


def test_the_last_of_several_is_the_cause() -> None:
    outer = MillpondError("DATA-502", "the source cannot be read")
    both = RuntimeError(f"{as_stack(outer)}\n\nThe cause:\n{as_stack(FULL)}")
    assert str(find_own_error(both)) == str(FULL)


def test_other_errors_stay_what_they_are() -> None:
    assert find_own_error(FULL) is FULL
    assert find_own_error(RuntimeError("millpond.errors.MillpondError: NO-1: nothing")) is None
    assert find_own_error(ValueError("STORE-603: said by a value")) is None
    with pytest.raises(ValueError, match="as it was"), raising_own_errors():
        raise ValueError("as it was")
