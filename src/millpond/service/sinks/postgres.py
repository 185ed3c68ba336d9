"""Tables of PostgreSQL that are kept equal to the answer of a query.

A delivery is one transaction of the database: it moves the sink's row in the table of cursors, by
compare-and-set, and makes the table what the answer is at the delivery's cursor. So whoever reads
the table sees the answer as it was at some instant, and never half of a change.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from millpond.catalog.sink_def import SinkDef
from millpond.runtime.postgres.connect import (
    connect,
    describe_error,
    import_psycopg2,
    read_server,
)
from millpond.service.sinks.cursor_sender import CursorSender, Delivered
from millpond.service.sinks.keyed_rows import (
    KeyedChanges,
    Row,
    duplicate_key,
    fold_answer,
    fold_changes,
)
from millpond.service.sinks.sender import Delivery, DeliveryError

#: How many rows, or keys, one statement has at most; and how long its texts are, but for one row:
#: a server takes no statement of 1 GB, and each is held several times on its way.
_PAGE, _PAGE_BYTES = 1_000, 8_000_000


class PostgresSender(CursorSender):
    """The sender of sinks of the format 'postgres'."""

    receivers, receiver = "PostgreSQL", "table"

    def __init__(self, sink: SinkDef, options: Mapping[str, Any]) -> None:
        """Prepare; nothing is connected to yet.

        Args:
            sink: The sink.
            options: Its options, given or not.
        """
        super().__init__(is_confined=sink.hosts is not None)
        self._options = options
        self._key = sink.key

    def interrupt(self) -> None:
        """Have `send` fail soon, and cancel what the database is doing for it."""
        super().interrupt()
        connection = self._connection
        if connection is not None and not connection.closed:
            try:
                connection.cancel()
            except Exception:  # it ends by its timeout instead
                return

    # -- inside --------------------------------------------------------------------------------

    def _load_client(self) -> None:
        import_psycopg2()

    def _take_over(self, identity: str) -> Delivered:
        """Connect, and read the cursor of the last delivery."""
        self._stop_if_interrupted()
        server = read_server(self._options, "the sink")
        self._connection = connection = connect(server)
        with connection, connection.cursor() as cursor:
            cursor.execute("SELECT to_regclass(%s)", (self._quote(self._options["table"]),))
            if cursor.fetchone()[0] is None:
                raise DeliveryError(f'there is no table "{self._options["table"]}" in {server}')
            # Two that make the table at once get in each other's way; the next attempt finds it.
            cursor.execute("SELECT to_regclass(%s)", (self._cursors,))
            if cursor.fetchone()[0] is None:
                cursor.execute(
                    f"CREATE TABLE IF NOT EXISTS {self._cursors} (sink text PRIMARY KEY,"
                    " delivery bigint NOT NULL, cursor text NOT NULL,"
                    " committed_at timestamptz NOT NULL)"
                )
            cursor.execute(
                f"INSERT INTO {self._cursors} VALUES (%s, 0, '', now()) ON CONFLICT DO NOTHING",
                (identity,),
            )
            cursor.execute(
                f"SELECT delivery, cursor FROM {self._cursors} WHERE sink = %s", (identity,)
            )
            return Delivered(*cursor.fetchone())

    def _say_cursor_gone(self, identity: str, delivery: Delivery) -> str | None:
        if delivery.answer is not None and not self._has_rows():
            return None  # the whole answer goes into an empty table
        return (
            f"the cursor of {identity} is gone from {self._options['cursor_table']}, so nobody "
            "knows what the table has; empty the table, then DROP and CREATE the sink"
        )

    def _has_rows(self) -> bool:
        with self._connection, self._connection.cursor() as cursor:
            cursor.execute(f"SELECT EXISTS (SELECT FROM {self._table})")
            return bool(cursor.fetchone()[0])

    def _commit(self, identity: str, delivery: Delivery, number: int) -> None:
        last = self._last
        with self._connection, self._connection.cursor() as cursor:
            # The row stays locked until the end, so of two processes one waits, and moves nothing.
            cursor.execute(
                f"UPDATE {self._cursors} SET delivery = %s, cursor = %s, committed_at = now()"
                " WHERE sink = %s AND delivery = %s AND cursor = %s",
                (number, delivery.cursor, identity, last.number, last.cursor),
            )
            if cursor.rowcount != 1:
                raise DeliveryError("another Millpond has taken this sink over", is_final=True)
            if delivery.answer is not None:
                self._clear(cursor, is_first=not last.number)
                changes = fold_answer(delivery.answer, self._key)
            else:
                changes = fold_changes(delivery.changes, self._key)
                self._check_held(cursor, changes)
            self._write(cursor, changes)

    def _clear(self, cursor: Any, is_first: bool) -> None:
        """Empty the table before a whole answer; of rows of others nothing is deleted."""
        if is_first:
            cursor.execute(f"SELECT EXISTS (SELECT FROM {self._table})")
            if cursor.fetchone()[0]:
                raise DeliveryError(
                    f'the table "{self._options["table"]}" has rows that this sink has not '
                    "written; empty it first",
                    is_final=True,
                )
        cursor.execute(f"DELETE FROM {self._table}")

    def _check_held(self, cursor: Any, changes: KeyedChanges) -> None:
        """Hold the table to what it has to have before the changes.

        Raises:
            DeliveryError: final, a key is there twice, or the table was changed by somebody else.
        """
        for page in _pages(changes.fresh.values()):
            cursor.execute(f"SELECT {self._key_sql} FROM {self._table} WHERE {self._is_in}", page)
            if (found := cursor.fetchone()) is not None:
                raise duplicate_key(self._key, found)
        for page in _pages(changes.held.values()):
            cursor.execute(f"SELECT count(*) FROM {self._table} WHERE {self._is_in}", page)
            if cursor.fetchone()[0] != len(page[0]):
                raise DeliveryError(
                    f'the table "{self._options["table"]}" lacks rows that this sink has written: '
                    "somebody else has changed it, or a type of its key (real, char) or a trigger "
                    "has not kept the values; empty it, then DROP and CREATE the sink",
                    is_final=True,
                )

    def _write(self, cursor: Any, changes: KeyedChanges) -> None:
        """Delete the rows that went, insert or update those that came."""
        for page in _pages(changes.gone.values()):
            cursor.execute(f"DELETE FROM {self._table} WHERE {self._is_in}", page)
        if not changes.put:
            return
        extras = import_psycopg2().extras
        names = [self._quote_name(name) for name in changes.columns]
        keys = {self._quote_name(name) for name in self._key}
        others = [f"{name} = excluded.{name}" for name in names if name not in keys]
        then = f"UPDATE SET {', '.join(others)}" if others else "NOTHING"
        put = (
            f"INSERT INTO {self._table} ({', '.join(names)}) VALUES %s"
            f" ON CONFLICT ({self._key_sql}) DO {then}"
        )
        for rows in _pages_of_rows(changes.put.values()):
            extras.execute_values(cursor, put, rows, page_size=_PAGE)

    @property
    def _table(self) -> str:
        return self._quote(self._options["table"])

    @property
    def _cursors(self) -> str:
        return self._quote(self._options["cursor_table"])

    @property
    def _key_sql(self) -> str:
        return ", ".join(map(self._quote_name, self._key))

    @property
    def _is_in(self) -> str:
        return f"({self._key_sql}) IN %s"

    def _quote(self, name: str) -> str:
        return ".".join(map(self._quote_name, name.split(".", 1)))

    @staticmethod
    def _quote_name(name: str) -> str:
        return '"' + name.replace('"', '""').replace("%", "%%") + '"'

    def _explain(self, error: BaseException) -> DeliveryError | None:
        """Return what the database said; final where another attempt cannot go otherwise."""
        if isinstance(error, ValueError):  # of the client: PostgreSQL has no texts with a NUL
            return DeliveryError(f"a value cannot be written: {error}", is_final=True)
        if not isinstance(error, import_psycopg2().Error):
            return None
        if self._is_interrupted.is_set():
            return DeliveryError("the pond is being closed")
        code = error.pgcode or ""
        # Data (22), integrity (23), names and types (42), but for rights and tables to come.
        final = code[:2] in ("22", "23") or (code[:2] == "42" and code not in ("42501", "42P01"))
        return DeliveryError(describe_error(error), is_final=final)

    def _disconnect(self, connection: Any) -> None:
        connection.close()


def _pages(values: Iterable[Row]) -> Iterator[tuple[tuple[Any, ...]]]:
    """The keys in pages, as the values of one `IN`."""
    adapted = (tuple(map(_adapt, row)) for row in values)
    every = [row if len(row) > 1 else row[0] for row in adapted]
    for start in range(0, len(every), _PAGE):
        yield (tuple(every[start : start + _PAGE]),)


def _pages_of_rows(rows: Iterable[Row]) -> Iterator[list[list[Any]]]:
    """Rows as the client takes them, as many at a time as one statement has."""
    page: list[list[Any]] = []
    length = 0
    for row in rows:
        adapted = [_adapt(value) for value in row]
        added = sum(len(value) for value in adapted if isinstance(value, str | bytes | list))
        if page and (len(page) == _PAGE or length + added > _PAGE_BYTES):
            yield page
            page, length = [], 0
        page.append(adapted)
        length += added
    if page:
        yield page


def _adapt(value: Any) -> Any:
    """A value as the client takes it; structs become JSON."""
    if isinstance(value, dict):
        return json.dumps(value, default=str)
    if isinstance(value, list) and any(isinstance(item, dict) for item in value):
        return json.dumps(value, default=str)
    return value
