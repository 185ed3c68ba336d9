"""The log of a Delta table: which files each version appended, read one commit after the other.

A commit is a file of JSON, one action a line (Delta's protocol, "Actions"). A stream has what was
appended; a commit that took rows away or changed some cannot be said of a stream, and stops it. A
commit that only lays rows out anew (OPTIMIZE) appends nothing.

INV-DELTA-1: the files of a commit, and their order, are the same whenever they are read.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import xxhash

from millpond.catalog.first_look import GOES_ON
from millpond.errors import MillpondError
from millpond.runtime.delta.packages import import_deltalake
from millpond.state.arrow_file import sync_directory, sync_file

#: The features of tables whose files can be read as they are. The client names `variantType` for
#: every table that gets a property or a constraint; a column of that type is another matter.
_READABLE = frozenset(
    (
        *("timestampNtz", "v2Checkpoint", "vacuumProtocolCheck", "variantType"),
        *("typeWidening", "typeWidening-preview"),
    )
)
#: The last version of readers: from it on a table names the features that it needs.
_NEWEST_READER = 3
_AGAIN = (
    "DROP the stream (CASCADE drops what reads it, too) and CREATE it again: start 'earliest' "
    "begins with what the table has now, start 'latest' with what is appended next."
)


@dataclass(frozen=True)
class AppendedFile:
    """A file that a version appended.

    Attributes:
        version: The version, of which it is the file `number`.
        path: Where it is, absolute.
        values: The values of the columns that the table is partitioned by, as texts.
    """

    version: int
    number: int
    path: str
    values: dict[str, str | None]


@dataclass(frozen=True)
class AppendedVersion:
    """What a version appended; `mark` tells it from another table's version of that number."""

    files: tuple[AppendedFile, ...]
    mark: str


class TableLog:
    """The log of one table, for one stream."""

    def __init__(self, path: Path, stream: str, columns: list[str]) -> None:
        """Name the table.

        Args:
            path: Its directory.
            stream: The stream's name, for errors.
            columns: The columns that the stream needs.
        """
        self._path = path
        self._stream = stream
        self._columns = columns
        self._folder = path / "_delta_log"

    def look(self) -> int:
        """Look at the table as it is now; return its version.

        Raises:
            MillpondError: DATA-502, there is no table, it lacks a column, or it needs what is not
                there yet: mapped columns, or deletion vectors.
        """
        table = self._open(None)
        self._check_columns(json.loads(table.schema().to_json()), table.version())
        self._check_settings(table.metadata().configuration, table.version())
        protocol = table.protocol()
        self._check_protocol(
            protocol.min_reader_version, protocol.reader_features or (), table.version()
        )
        found: int = table.version()
        return found

    def snapshot(self, version: int) -> tuple[AppendedFile, ...]:
        """The files that a version of the table has, the oldest first."""
        table = self._open(version)
        if (vectors := pa.table(table.deletion_vectors())).num_rows:
            raise self._unreadable(version, f"it has {vectors.num_rows} deletion vectors")
        rows = pa.table(table.get_add_actions()).to_pylist()
        rows.sort(key=lambda row: (row["modification_time"], row["path"]))
        return tuple(
            AppendedFile(version, n, self._place(row["path"]), _texts(row.get("partition") or {}))
            for n, row in enumerate(rows)
        )

    def read(self, version: int) -> AppendedVersion | None:
        """What a version appended; None if the table does not have it yet.

        Raises:
            MillpondError: DATA-502, the version is gone from the log, or is none that appends.
        """
        data = self._read_bytes(version)
        if data is None:
            self._check_gap(version)
            return None
        actions = [json.loads(line) for line in data.splitlines() if line.strip()]
        added, removed = [], 0
        for action in actions:
            if (meta := action.get("metaData")) is not None:
                self._check_columns(json.loads(meta["schemaString"]), version)
                self._check_settings(meta.get("configuration") or {}, version)
            if (protocol := action.get("protocol")) is not None:
                features = protocol.get("readerFeatures") or ()
                self._check_protocol(protocol["minReaderVersion"], features, version)
            if (add := action.get("add")) is not None and add.get("dataChange", True):
                if add.get("deletionVector"):
                    raise self._unreadable(version, "it has deletion vectors")
                added.append(add)
            if (gone := action.get("remove")) is not None and gone.get("dataChange", True):
                removed += 1
        if removed:
            raise self._unreadable(
                version, f"it {_name_operation(actions)} rows of {removed} files that were there"
            )
        files = tuple(
            AppendedFile(version, n, self._place(add["path"]), add.get("partitionValues") or {})
            for n, add in enumerate(added)
        )
        return AppendedVersion(files, xxhash.xxh3_64_hexdigest(data))

    def mark(self, version: int) -> str | None:
        """What tells a version from another table's; None if its commit is not kept any more."""
        data = self._read_bytes(version)
        return None if data is None else xxhash.xxh3_64_hexdigest(data)

    def check_mark(self, version: int, mark: str | None) -> None:
        """Check that the table is the one whose version was read.

        Raises:
            MillpondError: DATA-502, it is another table.
        """
        found = self.mark(version)
        if mark is not None and found is not None and found != mark:
            raise self._error(
                f"Version {version} of the table is not the one that was read before: the table "
                "was made anew, or restored from a copy.",
                _AGAIN,
            )

    def check_files(self, files: list[AppendedFile]) -> None:
        """Check that files are there.

        Raises:
            MillpondError: DATA-502, one was removed (VACUUM does, once it is not the table's).
        """
        for file in files:
            if not Path(file.path).is_file():
                raise self._error(
                    f'The file "{file.path}", which version {file.version} has, is gone: it was '
                    "removed before it was read, as VACUUM removes what later versions dropped.",
                    _AGAIN,
                )

    # -- inside --------------------------------------------------------------------------------

    def _open(self, version: int | None) -> Any:
        deltalake = import_deltalake()
        try:
            return deltalake.DeltaTable(str(self._path), version=version)
        except deltalake.exceptions.DeltaError as error:
            which = "" if version is None else f" at version {version}"
            raise self._error(
                f'There is no Delta table "{self._path}"{which}: {first_line(error)}',
                "Check the path; a relative one starts where the program was started.",
            ) from None

    def _place(self, path: str) -> str:
        """Where a file is: actions have its path below the table, escaped as in an address."""
        name = unquote(path)
        return str(self._path / name.removeprefix("file://"))

    def _read_bytes(self, version: int) -> bytes | None:
        try:
            return (self._folder / f"{version:020}.json").read_bytes()
        except FileNotFoundError:
            return None

    def _has(self, version: int) -> bool:
        return (self._folder / f"{version:020}.json").exists()

    def _check_gap(self, version: int) -> None:
        """Raise DATA-502 if the log goes on behind a version that is not in it, or is shorter."""
        if not self._folder.is_dir():
            raise self._error(
                f'There is no Delta table "{self._path}" any more.',
                GOES_ON,
            )
        if self._has(version - 1) and not self._has(version + 1):
            return  # the usual case, without a look at the whole folder
        found = [int(p.name[:20]) for p in self._folder.iterdir() if p.name[:20].isdigit()]
        newest = max(found, default=-1)
        if newest >= version and not self._has(version):
            raise self._error(
                f"Version {version} is gone from the table's log, which has come to version "
                f"{newest}: it was removed before it was read.",
                _AGAIN,
            )
        if newest < version - 1:
            raise self._error(
                f"Version {version - 1} was read, and the table's log ends at {newest}: the table "
                "was made anew, or restored from a copy.",
                _AGAIN,
            )

    def _check_columns(self, schema: dict[str, Any], version: int) -> None:
        names = [field["name"] for field in schema["fields"]]
        types = {field["name"].lower(): field.get("type") for field in schema["fields"]}
        for column in self._columns:
            if types.get(column.lower()) == "variant":
                raise self._unreadable(version, f'its column "{column}" is a variant')
            if column.lower() not in types:
                raise self._error(
                    f'Version {version} of the table has no column "{column}"; it has '
                    f"{', '.join(names)}.",
                    "Declare columns by the names the table has.",
                )

    def _check_settings(self, settings: dict[str, str], version: int) -> None:
        if settings.get("delta.columnMapping.mode", "none").lower() != "none":
            raise self._unreadable(version, "its columns are mapped (delta.columnMapping.mode)")

    def _check_protocol(self, reader: int, features: Any, version: int) -> None:
        if unknown := sorted(set(features) - _READABLE):
            # Mapped columns and deletion vectors are refused where a version uses them.
            unknown = [n for n in unknown if n not in ("columnMapping", "deletionVectors")]
        if unknown or reader > _NEWEST_READER:
            needs = ", ".join(unknown) or f"a reader of version {reader}"
            raise self._unreadable(version, f"the table needs {needs}")

    def _unreadable(self, version: int, why: str) -> MillpondError:
        return self._error(
            f"Version {version} of the table cannot be read as rows that were appended: {why}.",
            _AGAIN,
        )

    def _error(self, detail: str, hint: str) -> MillpondError:
        return MillpondError(
            "DATA-502", f'the source of "{self._stream}" cannot be read', detail=detail, hint=hint
        )


def first_line(error: BaseException) -> str:
    """What the client says, without the stack of another language that follows."""
    said = str(error).strip().split("\n", 1)[0].rstrip(".:")
    return f"{said or type(error).__name__}."


def _texts(values: dict[str, Any]) -> dict[str, str | None]:
    return {name: None if value is None else str(value) for name, value in values.items()}


def _name_operation(actions: list[dict[str, Any]]) -> str:
    """The name of what made a commit, as the commit says it, as in "a DELETE removed"."""
    for action in actions:
        if (info := action.get("commitInfo")) is not None and info.get("operation"):
            return f"({info['operation']}) removes or changes"
    return "removes or changes"


def sync_version(path: Path, version: int) -> None:
    """Have a version that was just committed survive a loss of power: its files, and its commit.

    Raises:
        OSError: the disk says that it does not.
    """
    commit = path / "_delta_log" / f"{version:020}.json"
    folders = {commit.parent, path}
    for line in commit.read_bytes().splitlines():
        if (add := json.loads(line).get("add")) is not None:
            file = path / unquote(add["path"])
            sync_file(file)
            folders.add(file.parent)
    sync_file(commit)
    for folder in folders:
        sync_directory(folder)
