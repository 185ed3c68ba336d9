"""Recovers the inbox when a store is opened: finishes what was acknowledged, finds what was lost.

A push that was acknowledged has a row in SQLite. If the process died before its file was renamed,
the file is renamed now. A file without a row was never acknowledged, or belongs to a push that has
long been in an epoch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from millpond.errors import MillpondError
from millpond.state.arrow_file import corrupt_file_error
from millpond.state.database.database import Database
from millpond.state.file_share import fetch
from millpond.state.inbox.push_file import (
    hidden_path,
    numbers_in,
    shared_name,
    torn_path,
    visible_path,
)
from millpond.state.journal.snapshot import checksum_of


@dataclass(frozen=True)
class RecoveredInbox:
    """What a crash, or damage, left in the inbox.

    Attributes:
        lost: The numbers of acknowledged pushes whose file is missing or torn.
        orphans: The files to set aside, relative to the store.
        problems: STORE-602 for each push of `lost`.
    """

    lost: set[int] = field(default_factory=set)
    orphans: list[str] = field(default_factory=list)
    problems: list[MillpondError] = field(default_factory=list)


def recover_inbox(database: Database, directory: Path) -> RecoveredInbox:
    """Rename the files of acknowledged pushes; list lost pushes and files that nobody needs."""
    known: dict[int, tuple[int, str]] = {
        number: (done, checksum)
        for number, done, checksum in database.read(
            "SELECT number, done, checksum FROM inbox WHERE collected = 0 ORDER BY number"
        )
    }
    found = RecoveredInbox()
    visible = _rename_acknowledged(directory, known, found)
    for number, (done, checksum) in known.items():
        if not done:
            check_file(directory, number, number in visible, checksum, found)
    return found


def _rename_acknowledged(
    directory: Path, known: dict[int, tuple[int, str]], found: RecoveredInbox
) -> set[int]:
    """Make the files of known pushes visible; return the numbers of all visible files."""
    hidden, visible = numbers_in(directory)
    for number in sorted(hidden):
        if number in known and number not in visible:
            hidden_path(directory, number).rename(visible_path(directory, number))
            visible.add(number)
        else:
            found.orphans.append(f"inbox/{hidden_path(directory, number).name}")
    for number in sorted(visible - known.keys()):
        found.orphans.append(f"inbox/{visible_path(directory, number).name}")
    return visible


def check_file(
    directory: Path, number: int, is_visible: bool, checksum: str, found: RecoveredInbox
) -> None:
    """Note a push as lost if its file is missing, or has other bytes than were written."""
    file, name = visible_path(directory, number), shared_name(number, checksum)
    if not is_visible or checksum_of(file) != checksum:
        # Another driver had it, or its push had that number, or the file was torn.
        is_visible = fetch(file, name) or is_visible
    if not is_visible:
        found.lost.add(number)
        found.problems.append(corrupt_file_error(file, "There is no such file.", name))
    elif checksum_of(file) != checksum:
        # Renamed, because the streaming query can read neither it nor the files beside it.
        found.lost.add(number)
        file.rename(torn_path(directory, number))
        found.problems.append(corrupt_file_error(file, "Its bytes are not those written.", name))
