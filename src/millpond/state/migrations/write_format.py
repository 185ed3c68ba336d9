"""FORMAT, the file that says of which format a store is; replacing it commits a migration."""

from __future__ import annotations

from pathlib import Path

from millpond.model.owner_only import write_owner_only
from millpond.state.arrow_file import sync_directory, sync_file


def write_format(store: Path, text: str) -> None:
    """Replace a store's FORMAT, durably; whoever dies here leaves the old one or the new one."""
    temporary = store / ".FORMAT.tmp"
    write_owner_only(temporary, text.encode())
    sync_file(temporary)
    temporary.rename(store / "FORMAT")
    sync_directory(store)
