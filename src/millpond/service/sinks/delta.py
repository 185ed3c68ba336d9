"""Delta tables that changes are appended to, each change once.

A delivery is one version of the table. The commit has the rows, and says with two applications'
versions ("txn" actions of Delta's protocol) which delivery it is, and up to which cursor. The
client does not compare these with what the table has: it would commit one delivery twice. So its
retries are off, and a commit counts only on top of the version in which the sink has read how far
the table is.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import pyarrow as pa
import xxhash

from millpond.catalog.sink_def import SinkDef
from millpond.runtime.delta.options import table_path
from millpond.runtime.delta.packages import import_deltalake
from millpond.runtime.delta.table_log import first_line, sync_version
from millpond.service.changes.feeds.feed_event import FeedEvent
from millpond.service.sinks.cursor_sender import CursorSender, Delivered
from millpond.service.sinks.sender import Delivery, DeliveryError

#: The columns behind those of the query: the change's sign, instant and cursor, and whether it is
#: exact, and if not, why.
MORE_COLUMNS = pa.schema(
    [
        ("__change", pa.string()),
        ("__timestamp", pa.timestamp("us", "UTC")),
        ("__cursor", pa.string()),
        ("__exact", pa.bool_()),
        ("__loss", pa.string()),
    ]
)
#: How often a commit is tried again because somebody else has appended meanwhile.
_TRIES = 30
_WAIT = 0.05


class DeltaSender(CursorSender):
    """The sender of sinks of the format 'delta'."""

    receivers, receiver = "Delta tables", "table"

    def __init__(self, sink: SinkDef, options: Mapping[str, Any]) -> None:
        """Prepare; the table is not looked at yet.

        Args:
            sink: The sink.
            options: Its options, given or not.
        """
        super().__init__(is_confined=sink.hosts is not None)
        self._path = table_path(str(options["path"]), f'the sink "{sink.name}"')
        #: Whether the table has to have changes of this sink.
        self._has_delivered = sink.position.changes > 0
        #: What the table says that it has.
        self._held = Delivered()
        self._client: Any = None

    # -- inside --------------------------------------------------------------------------------

    def _load_client(self) -> None:
        self._client = import_deltalake()

    def _mark(self, cursor: str) -> str:
        # The table has no place for the cursor, but for a number.
        incarnation, _, _ = cursor.partition(".")
        return str(_mark_incarnation(incarnation) | xxhash.xxh3_64_intdigest(cursor.encode()) >> 25)

    def _is_of(self, incarnation: str, last: Delivered) -> bool:
        return int(last.cursor) >> 39 == _mark_incarnation(incarnation) >> 39

    def _take_over(self, identity: str) -> Delivered:
        """Open the table, if there is one, and read how far it is."""
        self._stop_if_interrupted()
        self._connection = _Table(self._open())
        self._held = self._read_held(identity)
        if self._held.number:
            os.sync()  # whoever committed it may have been killed before it was synced
        return self._held

    def _open(self) -> Any:
        """The table; None if there is none yet."""
        if self._client.DeltaTable.is_deltatable(str(self._path)):
            return self._client.DeltaTable(str(self._path))
        found = {p.name for p in self._path.iterdir()} if self._path.is_dir() else set()
        if found - {"_delta_log"} or (self._path.exists() and not self._path.is_dir()):
            raise DeliveryError(f'"{self._path}" is there, and is no Delta table', is_final=True)
        return None

    def _read_held(self, identity: str) -> Delivered:
        """How far the table says it is, in the version that is open."""
        table = self._connection.table
        number = None if table is None else table.transaction_version(_number_of(identity))
        if number is None:
            return Delivered()
        return Delivered(number, str(table.transaction_version(_cursor_of(identity))))

    def _say_cursor_gone(self, identity: str, delivery: Delivery) -> str | None:
        if not self._has_delivered:
            return None  # what was delivered so far had no changes
        return (
            f'the table "{self._path}" does not say any more which changes of {identity} it has; '
            "DROP and CREATE the sink, with another table"
        )

    def _commit(self, identity: str, delivery: Delivery, number: int) -> None:
        if not delivery.changes:
            return  # a table has no place for what else happened
        rows = rows_of(delivery.changes)
        if self._connection.table is None:
            self._create(rows.schema)
        settled = Delivered(number, self._mark(delivery.cursor))
        properties = self._client.CommitProperties(
            app_transactions=[
                self._client.Transaction(_number_of(identity), number),
                self._client.Transaction(_cursor_of(identity), int(settled.cursor)),
            ],
            max_commit_retries=0,
        )
        for _ in range(_TRIES):
            self._stop_if_interrupted()
            held = self._read_held(identity)
            if held != self._held:
                if held == settled:
                    os.sync()
                    break  # it was committed after all
                raise DeliveryError("another Millpond has taken this sink over", is_final=True)
            table = self._connection.table
            self._check_columns(table, rows)
            try:
                self._client.write_deltalake(
                    table, rows, mode="append", commit_properties=properties
                )
            except self._client.exceptions.CommitFailedError as error:
                was = table.version()
                time.sleep(_WAIT * random.random())
                self._connection.table = table = self._open()
                if table is None or table.version() == was:
                    raise DeliveryError(first_line(error)) from None  # nobody was quicker
                continue
            sync_version(self._path, table.version())
            break
        else:
            raise DeliveryError(f"others appended to the table before each of {_TRIES} attempts")
        self._held, self._has_delivered = settled, True

    def _check_columns(self, table: Any, rows: pa.Table) -> None:
        """Refuse rows with columns that the table does not have.

        Raises:
            DeliveryError: final.
        """
        known = {field.name for field in table.schema().fields}
        if missing := [name for name in rows.column_names if name not in known]:
            raise DeliveryError(
                f'the table "{self._path}" cannot take the rows: it has no column "{missing[0]}"',
                is_final=True,
            )

    def _create(self, schema: pa.Schema) -> None:
        """Make the table; if somebody else is quicker, theirs is taken."""
        try:
            made = self._client.Schema.from_arrow(schema)
        except Exception as error:
            raise DeliveryError(first_line(error), is_final=True) from None
        try:
            self._path.mkdir(parents=True, exist_ok=True)
            self._client.DeltaTable.create(str(self._path), made, mode="error")
        except (self._client.exceptions.DeltaError, OSError) as error:
            if (table := self._open()) is None:
                raise DeliveryError(first_line(error)) from None
        else:
            table = self._open()
            sync_version(self._path, 0)
        self._connection.table = table

    def _explain(self, error: BaseException) -> DeliveryError | None:
        """Return what the client said; final if the table cannot take the rows."""
        if self._client is None:
            return None
        errors = self._client.exceptions
        if isinstance(error, errors.SchemaMismatchError | errors.DeltaProtocolError):
            return DeliveryError(
                f'the table "{self._path}" cannot take the rows: {first_line(error)}', is_final=True
            )
        if isinstance(error, errors.DeltaError | OSError | pa.ArrowException):
            return DeliveryError(first_line(error))
        return None

    def _disconnect(self, connection: Any) -> None:
        self._held = Delivered()


class _Table:
    """The table that is open; None before there is one."""

    def __init__(self, table: Any) -> None:
        self.table = table


def rows_of(changes: Sequence[FeedEvent]) -> pa.Table:
    """The rows that changes of one query are in a table: its columns, and `MORE_COLUMNS`."""
    tables = []
    for _, group in groupby(changes, lambda event: id(event.changes)):
        events = list(group)
        page = events[0].changes
        assert page is not None
        found = page.table.take([event.index for event in events])
        count = found.num_rows
        cursors = [page.cursor_at(number) for number in found["cursor"].to_pylist()]
        loss = None if page.exact else "; ".join(map(str, page.loss))
        more = [
            found["change"],
            found["timestamp"].cast(pa.timestamp("us")).cast(MORE_COLUMNS.field(1).type),
            pa.array(cursors, pa.string()),
            pa.array([page.exact] * count, pa.bool_()),
            pa.array([loss] * count, pa.string()),
        ]
        columns = [found[name] for name in page.columns]
        names = [*page.columns, *MORE_COLUMNS.names]
        tables.append(pa.Table.from_arrays([*columns, *more], names=names))
    return pa.concat_tables(tables, promote_options="permissive")


def _mark_incarnation(incarnation: str) -> int:
    """The first 24 of the 63 bits that stand for a cursor."""
    return xxhash.xxh3_64_intdigest(incarnation.encode()) >> 40 << 39


def _number_of(identity: str) -> str:
    """The application whose version is the number of the last delivery."""
    return f"millpond/{identity}"


def _cursor_of(identity: str) -> str:
    """The application whose version says what the cursor of the last delivery is."""
    return f"millpond/{identity}/cursor"
