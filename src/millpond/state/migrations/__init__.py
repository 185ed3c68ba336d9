"""Migrations from one format of the store to the next, in order; each takes the store's directory.

A migration writes the new files beside the old files and then replaces FORMAT, which is its commit.
If the process dies before that, the store still has the old format, and the next opening starts the
migration again.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from millpond.state.migrations import to_2, to_3, to_4

#: The contents of FORMAT before a migration, and the migration.
MIGRATIONS: dict[str, Callable[[Path], None]] = {
    "millpond store 1\n": to_2.migrate,
    "millpond store 2\n": to_3.migrate,
    "millpond store 3\n": to_4.migrate,
}
