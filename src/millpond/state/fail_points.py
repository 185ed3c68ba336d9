"""Named instants at which a test can have the process killed, as by `kill -9`.

A store is right if, wherever the process dies, reopening the store shows the state before a commit
or the state after it. The places where a death could matter have names; `reach` marks them in the
code. With `MILLPOND_FAIL_POINT="name:n"` in the environment the process kills itself the n-th time
it reaches the place. Without the variable, reaching a fail point costs one comparison.
"""

from __future__ import annotations

import os
import signal

#: Every fail point, and what is done and what is not done yet when the process reaches it.
FAIL_POINTS: dict[str, str] = {
    "file.before_write": "nothing of the file exists",
    "file.before_sync": "the temporary file is written, not synced",
    "file.before_rename": "the temporary file is durable under its temporary name",
    "file.after_rename": "the file has its name; nothing refers to it",
    "epoch.before_write": "the epoch's files are durable; its transaction has not begun",
    "epoch.before_commit": "the epoch's rows are in an open transaction",
    "journal.before_write": "a transaction is in the database, uncommitted; it has no record",
    "journal.before_sync": "the transaction's record is written, not synced",
    "journal.after_sync": "the transaction's record is durable; the database has not committed it",
    "journal.before_snapshot": "the journal is long enough for a snapshot, which is not begun",
    "journal.after_snapshot": "a snapshot is durable; what it covers is still there",
    "epoch.after_commit": "the epoch is durable; no reader sees it",
    "epoch.after_publish": "the epoch is durable and seen by new readers",
    "migration.before_commit": "everything of the new format is durable; FORMAT is the old one",
    "migration.after_commit": "FORMAT is the new one; the database is still the old one",
    "sink.before_send": "a delivery is settled; it is not sent",
    "sink.after_send": "a delivery has arrived; its sink's position is before it",
    "epoch.before_collect": "files no version refers to are about to be removed",
    "epoch.after_collect": "files no version refers to have been removed",
    "backup.before_files": "a backup has the records it needs in memory; no new file is copied",
    "backup.after_files": "a backup's files are durable; its journal is not written",
    "backup.before_kept": "everything of a backup is durable; it is not listed",
    "backup.after_kept": "a backup is listed",
    "inbox.before_file": "pushed rows are in memory only",
    "inbox.after_file": "pushed rows are durable under a temporary name; no row of the inbox",
    "inbox.before_commit": "the inbox's rows are in an open transaction",
    "inbox.after_commit": "pushed rows are acknowledged; the files have temporary names",
    "inbox.after_rename": "pushed rows are acknowledged and visible",
    "inbox.before_collect": "files of finished numbers are about to be removed",
    "inbox.after_collect": "files of finished numbers are removed, their rows are not",
}


_target: tuple[str, int] | None = None
_hits = 0


def arm(setting: str) -> None:
    """Make the process die at `name:hit`; at the first hit if no hit is given.

    Raises:
        ValueError: there is no such fail point.
    """
    global _target, _hits
    name, _, hit = setting.partition(":")
    if name not in FAIL_POINTS:
        message = f"no fail point is called {name!r}"
        raise ValueError(message)
    _target, _hits = (name, int(hit or 1)), 0


def reach(name: str) -> None:
    """Kill the process if this is the armed fail point and the armed hit."""
    global _hits
    if _target is None or _target[0] != name:
        return
    _hits += 1
    if _hits == _target[1]:
        os.kill(os.getpid(), signal.SIGKILL)


if os.environ.get("MILLPOND_FAIL_POINT"):
    arm(os.environ["MILLPOND_FAIL_POINT"])
