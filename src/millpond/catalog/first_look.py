"""What is said of a source that cannot be read: at the first look, and later."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from millpond.errors import MillpondError

#: The hint where nothing has to be done but to wait.
GOES_ON = "Once the source can be read again, reading goes on where it was."
NOTHING_CREATED = "Check the source and its options. Nothing was created."


@contextmanager
def looking_first() -> Iterator[None]:
    """Say that nothing was created, instead of that what is created goes on, of errors inside."""
    try:
        yield
    except MillpondError as error:
        if error.hint == GOES_ON:
            error.hint = NOTHING_CREATED
        raise
