"""Finds the records of a backup at which every file that is referred to is there.

Between two backups segments are written, merged and removed, so some records refer to files that no
backup has. The journal's records are folded one by one; triggers of the folding connection keep
the set of files that are referred to and missing, with the number of segments that are in each.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from millpond.state.backup.kept import FILES
from millpond.state.journal.fold import JournalState, apply_record, fold_journal

_PUSH = "printf('inbox/%012d.arrow', {}number)"

_WATCH = f"""
CREATE TEMP TABLE missing (path TEXT PRIMARY KEY, segments INTEGER) WITHOUT ROWID;
INSERT INTO missing SELECT path, count(*) FROM segment WHERE path NOT IN have GROUP BY path;
INSERT INTO missing SELECT path, 0 FROM relation_delta WHERE path NOT IN have;
INSERT INTO missing SELECT {_PUSH.format("")}, 0 FROM inbox
  WHERE done = 0 AND {_PUSH.format("")} NOT IN have;
CREATE TEMP TRIGGER segment_added AFTER INSERT ON segment WHEN NEW.path NOT IN have
  BEGIN
    INSERT INTO missing VALUES (NEW.path, 1) ON CONFLICT DO UPDATE SET segments = segments + 1;
  END;
CREATE TEMP TRIGGER segment_dropped AFTER DELETE ON segment
  BEGIN
    UPDATE missing SET segments = segments - 1 WHERE path = OLD.path;
    DELETE FROM missing WHERE path = OLD.path AND segments <= 0;
  END;
CREATE TEMP TRIGGER delta_added AFTER INSERT ON relation_delta WHEN NEW.path NOT IN have
  BEGIN INSERT OR IGNORE INTO missing VALUES (NEW.path, 0); END;
CREATE TEMP TRIGGER delta_dropped AFTER DELETE ON relation_delta
  BEGIN DELETE FROM missing WHERE path = OLD.path; END;
CREATE TEMP TRIGGER push_added AFTER INSERT ON inbox WHEN {_PUSH.format("NEW.")} NOT IN have
  BEGIN INSERT OR IGNORE INTO missing VALUES ({_PUSH.format("NEW.")}, 0); END;
CREATE TEMP TRIGGER push_done AFTER UPDATE ON inbox WHEN NEW.done = 1
  BEGIN DELETE FROM missing WHERE path = {_PUSH.format("NEW.")}; END;
CREATE TEMP TRIGGER push_dropped AFTER DELETE ON inbox
  BEGIN DELETE FROM missing WHERE path = {_PUSH.format("OLD.")}; END;
"""

#: The last epoch, when it was committed, and when the last push was accepted.
_WHERE = """
SELECT coalesce(max(epoch), 0),
  coalesce((SELECT committed_at FROM epoch ORDER BY epoch DESC LIMIT 1), 0),
  coalesce((SELECT accepted_at FROM inbox ORDER BY number DESC LIMIT 1), 0)
FROM epoch
"""


@dataclass(frozen=True)
class Point:
    """The store after one record.

    Attributes:
        record: The record's number.
        epoch: The last epoch.
        committed_at: When that epoch was committed, in microseconds since 1970.
        at: When the last epoch was committed or the last push was accepted, whichever is later.
        is_whole: Whether the backup has every file.
    """

    record: int
    epoch: int
    committed_at: int
    at: int
    is_whole: bool


def find_points(backup: Path, state: JournalState, scratch: Path) -> Iterator[Point]:
    """Yield the store's points in order: after the snapshot of `state` and after each record.

    Args:
        backup: The directory of backups.
        state: What of its journal to fold.
        scratch: Where to make a database.
    """
    number, state.number = state.number, state.snapshot.number if state.snapshot else 0
    fold_journal(state, scratch)
    state.number = number
    with closing(sqlite3.connect(scratch, isolation_level=None)) as database:
        database.execute("PRAGMA synchronous = OFF")
        database.execute("PRAGMA journal_mode = OFF")
        database.execute("CREATE TEMP TABLE have (path TEXT PRIMARY KEY) WITHOUT ROWID")
        for kind in FILES:
            names = ((f"{kind}/{entry.name}",) for entry in os.scandir(backup / kind))
            database.executemany("INSERT INTO have VALUES (?)", names)
        database.executescript(_WATCH)
        latest = 0
        first = state.snapshot.number if state.snapshot else 0
        for record, body in chain([(first, memoryview(b"[]"))], state.records()):
            database.execute("BEGIN")
            apply_record(database, body)
            database.execute("COMMIT")
            epoch, committed_at, accepted_at = database.execute(_WHERE).fetchone()
            latest = max(latest, committed_at, accepted_at)
            missing = database.execute("SELECT 1 FROM missing LIMIT 1").fetchone()
            yield Point(record, epoch, committed_at, latest, missing is None)
