"""From one format of the store to the next, in order; each is a function of the directory.

A migration makes what is new beside what is old and then puts a new FORMAT in the old one's place,
which is its commit: a process that dies before leaves a store of the old format, and the next
opening begins again.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from millpond.state.migrations import to_2

#: What FORMAT says before, and what makes the next format of it.
MIGRATIONS: dict[str, Callable[[Path], None]] = {"millpond store 1\n": to_2.migrate}
