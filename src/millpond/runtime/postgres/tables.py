"""What is asked of, and set up in, a database whose tables are followed.

A database has one replication slot and one publication of a store, both of one name. The slot keeps
the server's log from the last transaction that is stored here; whoever drops the last relation of a
database drops the slot.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

from millpond.catalog.first_look import GOES_ON
from millpond.errors import MillpondError
from millpond.runtime.postgres.connect import connect, describe_error, import_psycopg2
from millpond.runtime.postgres.source_options import TableSource

#: How many rows are read of a table at a time.
_FETCHED = 20_000


@dataclass(frozen=True)
class TableForm:
    """What of a table is another thing once its values were rewritten without a word in the log.

    `ALTER TABLE … ALTER COLUMN … TYPE … USING` and a column that goes and comes again change the
    values of all rows, and replication tells of none of them.

    Attributes:
        file: The number of the file that has the rows; TRUNCATE and VACUUM FULL change it, too.
        columns: By column its number, its type and the type's modifier.
        has_heirs: Whether tables inherit from it: their rows are its own to whoever reads it, and
            replication does not tell of them.
    """

    file: int
    columns: Mapping[str, tuple[int, int, int]]
    has_heirs: bool = False

    def write(self, columns: Iterable[str]) -> str:
        """As text, of some columns."""
        return json.dumps({"file": self.file, **{name: self.columns[name] for name in columns}})

    def find_difference(self, written: str) -> str | None:
        """Say what of a form that was written down is another thing now; None for nothing."""
        if self.has_heirs:
            return "Another table inherits from it."
        before = json.loads(written)
        file = before.pop("file")
        for name, (number, *kind) in before.items():
            now = self.columns.get(name)
            if now is None:
                return f'The table has no column "{name}" any more.'
            if now[0] != number:
                return f'The column "{name}" is not the one it was: it was dropped, or renamed.'
            if list(now[1:]) != kind and self.file != file:
                return f'The column "{name}" has another type, and its values were rewritten.'
        return None


@dataclass(frozen=True)
class FollowedTable:
    """A table as it is now.

    Attributes:
        oid: Its number.
        columns: Its columns, in order.
        keys: The columns by which changes name the old row; none without a replica identity.
        identity: 'd', 'n', 'f' or 'i'.
        form: Its columns' numbers and types.
    """

    oid: int
    columns: tuple[str, ...]
    keys: frozenset[str]
    identity: str
    form: TableForm


@dataclass(frozen=True)
class SlotState:
    """How a slot is.

    Attributes:
        is_there: Whether the server has it.
        is_lost: Whether the server has thrown away what it needs.
        confirmed: The position up to which its reader has everything.
        retained: How many bytes of the server's log it keeps.
    """

    is_there: bool
    is_lost: bool = False
    confirmed: int = 0
    retained: int = 0


def source_error(relation: str, detail: str, hint: str | None = None) -> MillpondError:
    """The error of a table that cannot be followed."""
    return MillpondError(
        "DATA-502",
        f'the source of "{relation}" cannot be read',
        detail=detail[:600],
        hint=hint or GOES_ON,
    )


@contextmanager
def open_database(source: TableSource, relation: str) -> Iterator[Any]:
    """A connection each of whose statements is a transaction.

    Raises:
        MillpondError: DATA-502, the database says an error; it shows no secret.
    """
    psycopg2 = import_psycopg2()
    try:
        with closing(connect(source.server, source.allows)) as connection:
            connection.autocommit = True
            yield connection
    except psycopg2.Error as error:
        raise source_error(relation, describe_error(error)) from None


def ask(connection: Any, sql: str, *values: Any) -> list[tuple[Any, ...]]:
    """Execute a statement; its rows, if it gives any."""
    with connection.cursor() as cursor:
        cursor.execute(sql, values or None)
        return list(cursor.fetchall()) if cursor.description else []


def describe_table(connection: Any, relation: str, table: str) -> FollowedTable:
    """What a table is now.

    Raises:
        MillpondError: DATA-502, it is not there, is no table, or the server keeps too short a log.
    """
    ((level,),) = ask(connection, "SELECT current_setting('wal_level')")
    if level != "logical":
        raise source_error(
            relation,
            f"The server's wal_level is {level}.",
            "Set wal_level = logical in postgresql.conf, and restart the server.",
        )
    found = ask(
        connection,
        "SELECT c.oid::bigint, c.relkind::text, c.relreplident::text FROM pg_class c"
        " WHERE c.oid = to_regclass(%s)",
        quote(table),
    )
    if not found or found[0][1] != "r":
        raise source_error(
            relation,
            f'There is no table "{table}".' if not found else f'"{table}" is not a plain table.',
            "Name a table with its schema, as 'public.planes'; of a partitioned one, its parts.",
        )
    oid, _, identity = found[0]
    form = read_form(connection, oid)
    if form.has_heirs:
        raise source_error(
            relation,
            f'Other tables inherit from "{table}", and replication does not tell of their rows.',
            "Name each of the tables that have the rows: of each a relation can be made.",
        )
    which = {"d": "indisprimary", "i": "indisreplident"}.get(identity)
    names = tuple(form.columns)
    keys: frozenset[str] = frozenset(names if identity == "f" else ())
    if which is not None:
        rows = ask(
            connection,
            "SELECT a.attname FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid"
            f" AND a.attnum = ANY (i.indkey) WHERE i.indrelid = %s AND i.{which}",
            oid,
        )
        keys = frozenset(name for (name,) in rows)
    return FollowedTable(oid, names, keys, identity, form)


def read_form(connection: Any, oid: int) -> TableForm:
    """A table's columns, in order; of a table that is gone there are none."""
    rows = ask(
        connection,
        "SELECT c.relfilenode::bigint, EXISTS (SELECT FROM pg_inherits WHERE inhparent = c.oid),"
        " attname, attnum, atttypid::bigint, atttypmod FROM pg_attribute"
        " JOIN pg_class c ON c.oid = attrelid WHERE attrelid = %s AND attnum > 0"
        " AND NOT attisdropped AND attgenerated = '' ORDER BY attnum",
        oid,
    )
    if not rows:
        return TableForm(0, {})
    file, has_heirs = rows[0][:2]
    return TableForm(file, {name: tuple(kind) for _, _, name, *kind in rows}, has_heirs)


def publish(connection: Any, slot: str, table: str) -> None:
    """Have the publication tell of a table; make the publication if there is none."""
    name = quote(slot)
    if not ask(connection, "SELECT 1 FROM pg_publication WHERE pubname = %s", slot):
        ask(connection, f"CREATE PUBLICATION {name}")
    if not ask(
        connection,
        "SELECT 1 FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid"
        " WHERE p.pubname = %s AND r.prrelid = to_regclass(%s)",
        slot,
        quote(table),
    ):
        ask(connection, f"ALTER PUBLICATION {name} ADD TABLE {quote(table)}")


def published_oids(connection: Any, slot: str) -> set[int]:
    """The tables that the publication tells of, of all that happens to them."""
    rows = ask(
        connection,
        "SELECT r.prrelid::bigint FROM pg_publication_rel r JOIN pg_publication p"
        " ON p.oid = r.prpubid WHERE p.pubname = %s"
        " AND p.pubinsert AND p.pubupdate AND p.pubdelete AND p.pubtruncate",
        slot,
    )
    return {oid for (oid,) in rows}


def unpublish(connection: Any, slot: str, oid: int) -> None:
    """Have the publication not tell of a table any more, if it does and the table is there."""
    rows = ask(
        connection,
        "SELECT format('%%I.%%I', n.nspname, c.relname) FROM pg_class c JOIN pg_namespace n"
        " ON n.oid = c.relnamespace WHERE c.oid = %s",
        oid,
    )
    if rows and oid in published_oids(connection, slot):
        ask(connection, f"ALTER PUBLICATION {quote(slot)} DROP TABLE {rows[0][0]}")


def drop_slot(connection: Any, slot: str) -> None:
    """Drop a slot and its publication, as far as they are there."""
    ask(
        connection,
        "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots"
        " WHERE slot_name = %s AND active",
        slot,
    )
    if find_slot(connection, slot).is_there:
        ask(connection, "SELECT pg_drop_replication_slot(%s)", slot)
    ask(connection, f"DROP PUBLICATION IF EXISTS {quote(slot)}")


def find_slot(connection: Any, slot: str) -> SlotState:
    """How a slot is now."""
    rows = ask(
        connection,
        "SELECT coalesce(wal_status, '') = 'lost', confirmed_flush_lsn - '0/0'::pg_lsn,"
        " CASE WHEN pg_is_in_recovery() THEN 0 ELSE pg_current_wal_lsn() - restart_lsn END"
        " FROM pg_replication_slots WHERE slot_name = %s AND database = current_database()",
        slot,
    )
    if not rows:
        return SlotState(False)
    lost, confirmed, retained = rows[0]
    return SlotState(True, bool(lost), int(confirmed or 0), int(retained or 0))


def write_mark(connection: Any) -> int:
    """Write a message into the server's log that readers are told; where its record ends."""
    ((found,),) = ask(
        connection, "SELECT pg_logical_emit_message(false, 'millpond', '') - '0/0'::pg_lsn"
    )
    return int(found)


@contextmanager
def snapshot_of_slot(
    source: TableSource, relation: str, slot: str, is_temporary: bool
) -> Iterator[tuple[int, str]]:
    """Make a slot, and export the snapshot in which it begins.

    Gives the position from which on the slot tells of changes, and the name of the snapshot, which
    is good inside. A temporary slot is gone afterwards.

    Raises:
        MillpondError: DATA-502.
    """
    psycopg2 = import_psycopg2()
    factory = psycopg2.extras.LogicalReplicationConnection
    try:
        with closing(connect(source.server, source.allows, factory)) as connection:
            kind = " TEMPORARY" if is_temporary else ""
            with connection.cursor() as cursor:
                cursor.execute(
                    f"CREATE_REPLICATION_SLOT {quote(slot)}{kind} LOGICAL pgoutput EXPORT_SNAPSHOT"
                )
                _, point, snapshot, _ = cursor.fetchone()
                yield parse_position(point), snapshot
                if is_temporary:
                    cursor.execute(f"DROP_REPLICATION_SLOT {quote(slot)}")
    except psycopg2.Error as error:
        raise source_error(relation, describe_error(error)) from None


def read_rows(
    source: TableSource, relation: str, snapshot: str, columns: Sequence[str]
) -> Iterator[list[tuple[str | None, ...]]]:
    """Read a table's rows as of a snapshot, as texts, some thousand at a time.

    The texts are those that replication tells (of each type's output function): a cast to text
    takes blanks from a `char(5)`, and writes `true` for `t`. Policies that hide rows are an error,
    because replication tells of these rows, too.

    Raises:
        MillpondError: DATA-502.
    """
    psycopg2 = import_psycopg2()
    values = ", ".join(
        f"CASE WHEN {name} IS DISTINCT FROM NULL THEN format('%s', {name}) END"
        for name in map(quote_name, columns)
    )
    try:
        with closing(connect(source.server, source.allows)) as connection:
            connection.set_session(isolation_level="REPEATABLE READ", readonly=True)
            with connection.cursor() as cursor:
                cursor.execute("SET TRANSACTION SNAPSHOT %s", (snapshot,))
                cursor.execute("SET row_security = off")
            with connection.cursor("millpond") as cursor:
                cursor.itersize = _FETCHED
                cursor.execute(f"SELECT {values} FROM ONLY {quote(source.table)}")
                while rows := cursor.fetchmany(_FETCHED):
                    yield rows
    except psycopg2.Error as error:
        raise source_error(relation, describe_error(error)) from None


def parse_position(text: str) -> int:
    """A position in a server's log as a number.

    >>> parse_position("16/B374D848")
    97500059720
    """
    high, low = text.split("/")
    return (int(high, 16) << 32) + int(low, 16)


def quote(name: str) -> str:
    """A table's name, perhaps with its schema, as SQL has it."""
    return ".".join(map(quote_name, name.split(".", 1)))


def quote_name(name: str) -> str:
    """A name as SQL has it."""
    return '"' + name.replace('"', '""') + '"'


def match_columns(names: Sequence[str], wanted: Sequence[str]) -> Mapping[str, str]:
    """For each wanted column the table's: the same name, or else the only one in any case.

    Raises:
        ValueError: with the first that is not there.
    """
    found = {}
    for name in wanted:
        same = [n for n in names if n == name] or [n for n in names if n.lower() == name.lower()]
        if len(same) != 1:
            raise ValueError(name)
        found[name] = same[0]
    return found
