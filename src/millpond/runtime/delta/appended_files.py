"""The files that are appended to a table, as one sequence with places in it.

A place is a version and a number: the file that is read next. A stream begins with the files that a
version has (its snapshot) or with those that a version appends; later versions follow in order.
"""

from __future__ import annotations

from typing import Any

from millpond.errors import MillpondError
from millpond.runtime.delta.options import DeltaOptions
from millpond.runtime.delta.table_log import AppendedFile, TableLog

#: A place as a checkpoint keeps it: `version`, `file`, and `mark`, which tells the version before
#: it from another table's.
Place = dict[str, Any]


def find_beginning(log: TableLog, options: DeltaOptions) -> dict[str, Any]:
    """Where a stream begins: its first place, and whether that is in a snapshot.

    Raises:
        MillpondError: DATA-502, as `TableLog.look` and `TableLog.read`, and for a version that is
            not even the next.
    """
    newest = log.look()
    if options.start == "earliest":
        return {"place": _place(newest, 0, None), "snapshot": True}
    if options.start == "latest":
        return {"place": _place(newest + 1, 0, log.mark(newest)), "snapshot": False}
    version = int(options.start)
    if version > newest + 1:
        raise MillpondError(
            "DATA-502",
            f'the source of "{options.stream}" cannot be read',
            detail=f"It starts at version {version}, and the table has come to version {newest}.",
            hint="start 'latest' begins with what is appended next.",
        )
    if version <= newest:
        log.read(version)
    return {"place": _place(version, 0, None), "snapshot": False}


class AppendedFiles:
    """Finds how far a table goes, and the files between two places."""

    def __init__(self, log: TableLog, beginning: dict[str, Any]) -> None:
        self._log = log
        self._first: Place = beginning["place"]
        self._in_snapshot = bool(beginning["snapshot"])
        #: The last version that was read: its number, files and mark.
        self._kept: tuple[int, tuple[AppendedFile, ...], str | None] | None = None

    @property
    def first(self) -> Place:
        """The first place."""
        return self._first

    def find_end(self, start: Place, most: int, upto: int | None = None) -> Place:
        """The place behind at most `most` files after a place.

        Args:
            start: The place.
            most: How many files there may be between.
            upto: The last version that counts; None for all there are.

        Raises:
            MillpondError: DATA-502.
        """
        version, number, mark = start["version"], start["file"], start.get("mark")
        if mark is not None and self._version(version) is not None:
            self._log.check_mark(version - 1, mark)
        while most > 0 and (upto is None or version <= upto):
            found = self._version(version)
            if found is None:
                break
            files, own = found
            take = min(most, len(files) - number)
            most -= take
            number += take
            if number < len(files):
                break
            version, number, mark = version + 1, 0, own
        return _place(version, number, mark)

    def list_files(self, start: Place, end: Place) -> list[AppendedFile]:
        """The files between two places, in order.

        Raises:
            MillpondError: DATA-502, a version or a file of it is gone.
        """
        files: list[AppendedFile] = []
        number = start["file"]
        for version in range(start["version"], end["version"] + 1):
            stop = end["file"] if version == end["version"] else None
            if stop != 0:
                found = self._version(version)
                files += found[0][number:stop] if found is not None else ()
            number = 0
        self._log.check_files(files)
        return files

    def _version(self, version: int) -> tuple[tuple[AppendedFile, ...], str | None] | None:
        """The files of a version, and its mark; None if the table does not have it yet."""
        if self._kept is not None and self._kept[0] == version:
            return self._kept[1:]
        if self._in_snapshot and version == self._first["version"]:
            found = self._log.snapshot(version), self._log.mark(version)
        else:
            commit = self._log.read(version)
            if commit is None:
                return None
            found = commit.files, commit.mark
        self._kept = version, *found
        return found


def _place(version: int, number: int, mark: str | None) -> Place:
    return {"version": version, "file": number, "mark": mark}
