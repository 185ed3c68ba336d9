"""Sinks to PostgreSQL: a table is equal to an answer, whoever dies when."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.postgres.sender_life import delivery, sender_of
from tests.postgres.server import PASSWORD
from tests.waiting import start_until_there

from millpond.errors import MillpondError
from millpond.runtime.spark.checkpoint import cut_back
from millpond.service.pond import Pond
from millpond.service.sinks.postgres import PostgresSender
from millpond.service.sinks.sender import DeliveryError
from millpond.state.backup.backup import backup_store
from millpond.state.backup.restore import restore_store
from millpond.testing.local_runtime import open_local

SCHEMA = (
    "CREATE STREAM s (at TIMESTAMP, k VARCHAR, v INTEGER) TIMESTAMP BY at;"
    "CREATE QUERY sums AS SELECT k, sum(v) AS total, max(at) AS latest"
    " FROM s [RANGE 10 MINUTES] GROUP BY k;"
)
TABLE = (
    "CREATE TABLE sums (k text PRIMARY KEY, total numeric, latest timestamp,"
    " seen timestamptz DEFAULT now())"
)


def create(pond: Pond, database: Any, key: str = "k", more: str = "") -> None:
    pond.execute(
        f"CREATE SINK out USING postgres ({database.options}, table 'sums'{more})"
        f" FROM QUERY sums KEY ({key})"
    )


def insert(pond: Pond, minute: int, *rows: tuple[str, int]) -> None:
    at = f"2026-03-01 10:{minute:02}:00"
    values = ", ".join(f"""('{at}', '{k.replace("'", "''")}', {v})""" for k, v in rows)
    pond.execute(f"INSERT INTO s VALUES {values}")


def final_answer(pond: Pond) -> list[tuple[Any, ...]]:
    """The answer at the last instant whose changes are final."""
    upto = pond.query("sums").fetch().as_of
    answer = pond._components.invoke(pond._components.registrar.find("sums"), upto, None, None)
    return sorted((k, int(total), latest) for k, total, latest in answer.rows())


def table(database: Any) -> list[tuple[Any, ...]]:
    rows = database.execute("SELECT k, total, latest FROM sums ORDER BY k")
    return [(k, int(total), latest) for k, total, latest in rows]


def state(pond: Pond) -> str:
    (sink,) = pond._components.sinks.describe()
    return str(sink["state"])


def test_a_table_is_kept_equal_to_an_answer(database, tmp_path, eventually):
    """Rows come, change and go; the sink begins with an answer that is there already."""
    database.execute(TABLE)
    with open_local(tmp_path / "store") as pond:
        pond.execute(SCHEMA)
        insert(pond, 0, ("a", 1), ("b", 2))
        insert(pond, 1, ("c", 3))
        create(pond, database)
        eventually(lambda: len(table(database)) == 2 and table(database) == final_answer(pond))
        insert(pond, 5, ("a", 10), ("d'; DROP TABLE sums; --", 7))
        insert(pond, 12, ("a", 100))
        eventually(lambda: table(database) == final_answer(pond))
        # The elements of 10:00 and 10:01 have left the window: a is what came at 10:05.
        assert [row[0] for row in table(database)] == ["a", "d'; DROP TABLE sums; --"]
    with open_local(tmp_path / "store") as pond:
        insert(pond, 40, ("e", 1))
        pond.execute("HEARTBEAT s AT TIMESTAMP '2026-03-01 10:41:00'")
        eventually(lambda: [row[0] for row in table(database)] == ["e"])
        (sink,) = pond._components.sinks.describe()
        assert (sink["state"], sink["failures"]) == ("delivers", 0)
        assert sink["to"] == f"table sums of {database.name} on 127.0.0.1"
    assert database.execute("SELECT count(*) FROM millpond_cursors") == [(1,)]


@pytest.mark.parametrize("batch", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_who_reads_the_table_sees_whole_instants(database, tmp_path, eventually, batch):
    """Two rows that always change together are never seen apart."""
    database.execute(TABLE)
    database.execute(
        "CREATE TABLE seen (n serial, total numeric);"
        "CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " INSERT INTO seen (total) SELECT sum(total) FROM sums; RETURN NULL; END $$;"
        "CREATE CONSTRAINT TRIGGER look AFTER INSERT OR UPDATE OR DELETE ON sums"
        " DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION look()"
    )
    with open_local(tmp_path / "store") as pond:
        pond.execute(SCHEMA)
        create(pond, database, more=f", batch {batch}")
        for minute in range(9):
            insert(pond, minute, ("a", minute + 1), ("b", -minute - 1))
        pond.execute("HEARTBEAT s AT TIMESTAMP '2026-03-01 10:30:00'")
        eventually(lambda: state(pond) == "delivers" and table(database) == [])
        eventually(lambda: pond._components.sinks.describe()[0]["changes"] > 20)
    seen = {total for (total,) in database.execute("SELECT DISTINCT total FROM seen")}
    assert seen <= {0, None}
    assert 0 in seen


def test_a_duplicate_key_stops_the_sink(database, tmp_path, eventually):
    database.execute("CREATE TABLE sums (k text, v integer PRIMARY KEY)")
    with open_local(tmp_path / "store") as pond:
        pond.execute(
            "CREATE STREAM s (at TIMESTAMP, k VARCHAR, v INTEGER) TIMESTAMP BY at;"
            "CREATE QUERY sums AS SELECT k, v FROM s [RANGE 10 MINUTES];"
        )
        create(pond, database, key="V")
        insert(pond, 0, ("a", 1))
        insert(pond, 1, ("b", 2))
        pond.execute("HEARTBEAT s AT TIMESTAMP '2026-03-01 10:02:00'")
        eventually(lambda: len(database.execute("SELECT * FROM sums")) == 2)
        insert(pond, 3, ("c", 1))
        pond.execute("HEARTBEAT s AT TIMESTAMP '2026-03-01 10:04:00'")
        eventually(lambda: state(pond).startswith("dead: "))
        assert "two rows of the answer have the key v = 1" in state(pond)
        assert len(database.execute("SELECT * FROM sums")) == 2


def test_a_password_is_shown_nowhere(database, tmp_path, eventually, caplog):
    """Neither one that is written out nor one that is wrong."""
    database.execute(TABLE)
    with open_local(tmp_path / "store") as pond:
        pond.execute(SCHEMA)
        with pytest.raises(MillpondError) as refused:
            pond.execute(
                "CREATE SINK out USING postgres (host 'h', database 'd', user 'u',"
                f" table 't', password '{PASSWORD}') FROM QUERY sums KEY (k)"
            )
        assert refused.value.code == "CQL-214"
        assert PASSWORD not in str(refused.value.to_json()) + str(refused.value)
        with pytest.raises(MillpondError, match='no secret "nobody"'):
            pond.execute(
                "CREATE SINK out USING postgres (host 'h', database 'd', user 'u',"
                " table 't', password secret('nobody')) FROM QUERY sums KEY (k)"
            )
        pond.execute(
            f"CREATE SINK out USING postgres ({database.options.replace('shop', 'wrong')},"
            " table 'sums') FROM QUERY sums KEY (k)"
        )
        insert(pond, 0, ("a", 1))
        eventually(lambda: "password authentication failed" in state(pond))
        assert "magpie" not in state(pond) + caplog.text
    stored = b"".join(p.read_bytes() for p in (tmp_path / "store").rglob("*") if p.is_file())
    assert PASSWORD.encode() not in stored
    assert b"magpie" not in stored


# -- the sender alone: deliveries are whole answers, {'k': n, 'v': 10 n} up to their number ----


@pytest.fixture
def senders(database) -> Iterator[Callable[[], PostgresSender]]:
    """Makes senders of one sink."""
    database.execute("CREATE TABLE rows (k integer PRIMARY KEY, v integer)")
    made: list[PostgresSender] = []

    def make() -> PostgresSender:
        made.append(sender_of(database.server.port, database.name))
        return made[-1]

    yield make
    for sender in made:
        sender.close()


def keys(database: Any) -> list[int]:
    return [k for (k,) in database.execute("SELECT k FROM rows ORDER BY k")]


def live(database: Any, how: str, place: str) -> subprocess.Popen[str]:
    """Start the process, and return when it is at the place."""
    script = Path(__file__).with_name("sender_life.py")
    command = [sys.executable, str(script), str(database.server.port), database.name]
    return start_until_there([*command, how, place])


@pytest.mark.parametrize("place", ["before", pytest.param("after", marks=pytest.mark.slow)])
def test_a_sender_that_is_killed(database, senders, place):
    with live(database, "SIGKILL", place) as life:
        assert life.wait(30) == -signal.SIGKILL
    assert keys(database) == ([0] if place == "before" else [0, 1])
    sender = senders()
    for number in (2, 3):
        sender.send(delivery(number))
    assert keys(database) == [0, 1, 2]


def test_a_zombie_commits_nothing(database, senders):
    """A process that stood still while another took over commits nothing when it goes on."""
    with live(database, "SIGSTOP", "first") as zombie:
        try:
            sender = senders()
            for number in (2, 3):
                sender.send(delivery(number))
            zombie.send_signal(signal.SIGCONT)
            assert zombie.stdout is not None
            assert zombie.stdout.readline() == "True another Millpond has taken this sink over\n"
            assert keys(database) == [0, 1, 2]
        finally:
            zombie.kill()


@pytest.mark.slow
def test_a_database_that_dies_between_deliveries(database, senders):
    sender = senders()
    sender.send(delivery(1))
    database.server.kill()
    with pytest.raises(DeliveryError) as failed:
        sender.send(delivery(2))
    assert not failed.value.is_final
    database.server.start()
    database.forget()
    sender.send(delivery(2))
    assert keys(database) == [0, 1]


def test_what_is_in_a_table_is_not_deleted(database, senders):
    database.execute("INSERT INTO rows VALUES (77, 7)")
    with pytest.raises(DeliveryError, match="rows that this sink has not written") as stopped:
        senders().send(delivery(1))
    assert stopped.value.is_final
    assert keys(database) == [77]


def test_a_cursor_that_does_not_fit_stops_the_sink(database, senders):
    sender = senders()
    for number in (1, 2, 3):
        sender.send(delivery(number))
    with pytest.raises(DeliveryError, match="older than the table") as stopped:
        senders().send(delivery(2))
    assert stopped.value.is_final
    database.execute("DELETE FROM millpond_cursors")
    with pytest.raises(DeliveryError, match=r"the cursor of 3f2a9c\.7 is gone") as stopped:
        senders().send(delivery(4))
    assert stopped.value.is_final
    assert keys(database) == [0, 1, 2]


def test_a_database_that_was_put_back_stops_the_sink(database, tmp_path, eventually):
    """A replica took over that lacked the last transactions: the sink would never make them."""
    database.execute(TABLE)
    with open_local(tmp_path / "store") as pond:
        pond.execute(SCHEMA)
        create(pond, database)
        insert(pond, 0, ("a", 1))
        insert(pond, 1, ("b", 2))
        eventually(lambda: len(table(database)) == 1)
        database.execute("CREATE TABLE kept AS SELECT * FROM sums")
        database.execute("CREATE TABLE kept_cursors AS SELECT * FROM millpond_cursors")
        insert(pond, 2, ("c", 3))
        eventually(lambda: len(table(database)) == 2)
    for name, kept in (("sums", "kept"), ("millpond_cursors", "kept_cursors")):
        database.execute(f"TRUNCATE {name}")
        database.execute(f"INSERT INTO {name} SELECT * FROM {kept}")
    with open_local(tmp_path / "store") as pond:
        insert(pond, 3, ("d", 4))
        eventually(lambda: "older than this store" in state(pond))
        assert len(table(database)) == 1


def test_large_rows_come_in_several_statements(database, senders):
    """All in one transaction; a server takes no statement of 1 GB."""
    database.execute(
        "ALTER TABLE rows ALTER v TYPE text; CREATE TABLE statements (n integer);"
        "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " INSERT INTO statements SELECT count(*) FROM come; RETURN NULL; END $$;"
        "CREATE TRIGGER note AFTER INSERT ON rows REFERENCING NEW TABLE AS come"
        " FOR EACH STATEMENT EXECUTE FUNCTION note()"
    )
    lengths = [3_000_000, 3_000_000, 9_000_000, 1, 1, *[1] * 2_000]
    answer = pa.table({"k": range(len(lengths)), "v": ["x" * length for length in lengths]})
    senders().send(replace(delivery(1), answer=answer))
    counts = [n for (n,) in database.execute("SELECT n FROM statements")]
    assert counts == [2, 1, 1000, 1000, 2]
    assert len(keys(database)) == len(lengths)


@pytest.mark.parametrize("encoding", ["LATIN1"])
def test_a_table_of_a_database_of_another_encoding(database, senders, encoding):
    database.execute("ALTER TABLE rows ALTER v TYPE text")
    sender = senders()
    sender.send(replace(delivery(1), answer=pa.table({"k": [1], "v": ["schön"]})))
    assert database.execute("SELECT v FROM rows") == [("schön",)]
    with pytest.raises(DeliveryError, match="has no equivalent in encoding") as stopped:
        sender.send(replace(delivery(2), answer=pa.table({"k": [1], "v": ["日本"]})))
    assert stopped.value.is_final


def test_a_text_that_postgresql_cannot_have_stops_the_sink(database, tmp_path, eventually):
    database.execute(TABLE)
    with open_local(tmp_path / "store") as pond:
        pond.execute(SCHEMA)
        create(pond, database)
        pond.execute("INSERT INTO s VALUES ('2026-03-01 10:00:00', 'a' || chr(0), 1)")
        insert(pond, 1, ("b", 2))
        told = "dead: a value cannot be written: A string literal cannot contain NUL"
        eventually(lambda: state(pond).startswith(told))


def test_a_table_that_is_not_there_yet(database, senders):
    sender = senders()
    database.execute("ALTER TABLE rows RENAME TO others")
    with pytest.raises(DeliveryError, match='there is no table "rows"') as failed:
        sender.send(delivery(1))
    assert not failed.value.is_final
    database.execute("ALTER TABLE others RENAME TO rows")
    sender.send(delivery(1))
    assert keys(database) == [0]


def test_a_table_without_a_unique_key(database, senders):
    database.execute("ALTER TABLE rows DROP CONSTRAINT rows_pkey")
    with pytest.raises(DeliveryError, match="no unique or exclusion constraint") as stopped:
        senders().send(delivery(1))
    assert stopped.value.is_final


@pytest.mark.parametrize("when", ["before the first delivery", "before the last", "at the end"])
def test_a_restored_store_goes_on_or_stops(database, tmp_path, eventually, when):
    """The table is never a mixture of what was undone and what is."""
    database.execute(TABLE)
    with open_local(tmp_path / "store") as pond:
        pond.execute(SCHEMA)
        create(pond, database)
        if when == "before the first delivery":
            backup_store(tmp_path / "store", tmp_path / "kept")
        insert(pond, 0, ("a", 1), ("b", 2))
        insert(pond, 1, ("c", 3))
        eventually(lambda: len(table(database)) == 2 and table(database) == final_answer(pond))
        if when == "before the last":
            backup_store(tmp_path / "store", tmp_path / "kept")
        insert(pond, 5, ("a", 10))
        eventually(lambda: len(table(database)) == 3 and table(database) == final_answer(pond))
    if when == "at the end":
        backup_store(tmp_path / "store", tmp_path / "kept")
    held = table(database)
    restore_store(tmp_path / "kept", tmp_path / "restored", cut_checkpoint=cut_back)
    with open_local(tmp_path / "restored") as pond:
        insert(pond, 7, ("x", 100))
        insert(pond, 8, ("y", 1))
        if when == "at the end":
            eventually(lambda: table(database) == final_answer(pond) and len(table(database)) == 4)
            assert state(pond) == "delivers"
            return
        eventually(lambda: "older than the table" in state(pond))
        assert table(database) == held
        # The way out: an empty table, into which the whole answer goes.
        pond.execute("DROP SINK out")
        database.execute("TRUNCATE sums")
        create(pond, database)
        eventually(lambda: table(database) and table(database) == final_answer(pond))
