"""Format 4: matches may be kept with like elements side by side.

Nothing of format 3 has to be written anew: its matches are read as they are. FORMAT says 4 so that
an earlier Millpond, which would read such matches as other rows and say nothing, refuses the store.
"""

from __future__ import annotations

from pathlib import Path

from millpond.state.migrations.write_format import write_format


def migrate(store: Path) -> None:
    """Turn a store of format 3 into a store of format 4.

    Raises:
        OSError: FORMAT cannot be written.
    """
    write_format(store, "millpond store 4\n")
