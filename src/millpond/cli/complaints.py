"""How the command line prints an error."""

from __future__ import annotations

import sys

from millpond.errors import MillpondError


def complain(error: MillpondError, source: str | None = None) -> None:
    """Prints an error on stderr, with the place in its source if it is known."""
    if source is not None and error.line is not None:
        print(f"{source}:{error.line}:{error.column}:", file=sys.stderr)
    print(error.render(), file=sys.stderr)
