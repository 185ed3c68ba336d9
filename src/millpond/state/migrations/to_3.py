"""Format 3: several change logs, and the states of several queries, may lie in one file.

Nothing of format 2 has to be written anew: each of its files has one log or one state. FORMAT says
3 so that an earlier Millpond, which takes a file for one log's alone, refuses the store.
"""

from __future__ import annotations

from pathlib import Path

from millpond.state.migrations.write_format import write_format


def migrate(store: Path) -> None:
    """Turn a store of format 2 into a store of format 3.

    Raises:
        OSError: FORMAT cannot be written.
    """
    write_format(store, "millpond store 3\n")
