"""Relations that follow tables of PostgreSQL."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.postgres.server import PASSWORD, USER

from millpond.errors import MillpondError
from millpond.model.time import END
from millpond.service.ingest import slot_reader
from millpond.service.pond import Pond
from millpond.testing.local_runtime import open_local

PLANES = "CREATE TABLE planes (tail text PRIMARY KEY, model text, seats integer)"


@pytest.fixture
def open_pond(tmp_path: Path) -> Iterator[Callable[[], Pond]]:
    opened: list[Pond] = []

    def open_one() -> Pond:
        opened.append(open_local(tmp_path / "store"))
        return opened[-1]

    yield open_one
    for pond in opened:
        pond.close()


@pytest.fixture
def pond(open_pond: Callable[[], Pond]) -> Pond:
    return open_pond()


def follow(pond: Pond, database: Any, table: str = "planes", columns: str = "") -> str:
    columns = columns or "tail VARCHAR, model VARCHAR, seats INTEGER, PRIMARY KEY (tail)"
    result = pond.execute(
        f"CREATE RELATION {table} ({columns})"
        f" USING postgres OPTIONS ({database.options}, table '{table}')"
    )
    return str(result)


def rows(pond: Pond, table: str = "planes") -> list[tuple[Any, ...]]:
    """What a relation holds at the end of time, once it has caught up."""
    pond._components.replicas.catch_up(60)
    parts = pond._components
    relation = parts.log.version.find(table)
    held = parts.relations_state.read_rows(parts.log.version, relation)
    found = held.at(END - 1, tuple(relation.schema.names))
    return sorted(tuple(row.values()) for row in found.to_pylist())


def slots(database: Any) -> list[str]:
    found = database.execute(
        "SELECT slot_name FROM pg_replication_slots WHERE database = current_database()"
    )
    return [name for (name,) in found]


def trouble(pond: Pond, table: str = "planes") -> str:
    found = pond._components.replicas.trouble(pond._components.log.version.find(table))
    return "" if found is None else f"{found.detail} {found.hint}"


def test_a_table_is_followed_from_its_rows_on(database, open_pond):
    database.execute(PLANES)
    database.execute("INSERT INTO planes VALUES ('N1', '737', 180), ('N2', NULL, 100)")
    with open_pond() as pond:
        follow(pond, database)
        assert rows(pond) == [("N1", "737", 180), ("N2", None, 100)]
        database.execute("INSERT INTO planes VALUES ('N3', 'A320', 150)")
        database.execute("UPDATE planes SET seats = 101 WHERE tail = 'N2'")
        database.execute("UPDATE planes SET tail = 'N9' WHERE tail = 'N3'")
        database.execute("DELETE FROM planes WHERE tail = 'N1'")
        assert rows(pond) == [("N2", None, 101), ("N9", "A320", 150)]
        result = pond.execute("SHOW RELATIONS")
        assert "postgres" in str(result)
    # While nobody reads, and all in one transaction; a row that comes and goes never held.
    database.execute(
        "BEGIN; INSERT INTO planes VALUES ('N5', 'x', 1); DELETE FROM planes WHERE tail = 'N5';"
        "INSERT INTO planes VALUES ('N5', 'y', 2); UPDATE planes SET seats = seats + 1; COMMIT"
    )
    with open_pond() as pond:
        assert rows(pond) == [("N2", None, 102), ("N5", "y", 3), ("N9", "A320", 151)]
        relation = pond._components.log.version.find("planes")
        held = pond._components.relations_state.read_rows(pond._components.log.version, relation)
        assert "x" not in held.table["model"].to_pylist()


def test_a_transaction_over_two_tables_is_one_instant(database, pond):
    database.execute(f"{PLANES}; CREATE TABLE seats (tail text PRIMARY KEY, seats integer)")
    follow(pond, database)
    follow(pond, database, "seats", "tail VARCHAR, seats INTEGER, PRIMARY KEY (tail)")
    assert len(slots(database)) == 1
    for n in range(5):
        database.execute(
            f"BEGIN; INSERT INTO planes VALUES ('N{n}', '', {n});"
            f"INSERT INTO seats VALUES ('N{n}', {n}); COMMIT"
        )
    assert [row[0] for row in rows(pond, "seats")] == [f"N{n}" for n in range(5)]
    parts = pond._components
    starts = []
    for name in ("planes", "seats"):
        relation = parts.log.version.find(name)
        starts.append(parts.relations_state.read_rows(parts.log.version, relation).starts.tolist())
    assert starts[0] == starts[1]
    assert starts[0] == sorted(starts[0])
    deltas = [
        [delta.epoch for delta in parts.log.version.relation_deltas(parts.log.version.find(n).id)][
            1:
        ]
        for n in ("planes", "seats")
    ]
    assert deltas[0] == deltas[1]


def test_a_relation_that_is_added_later_begins_with_a_snapshot(database, pond):
    """What was committed before it was added is in its rows, and is not told again."""
    database.execute(f"{PLANES}; CREATE TABLE others (k integer PRIMARY KEY, v integer)")
    follow(pond, database)
    database.execute("INSERT INTO others SELECT n, n FROM generate_series(1, 5) n")
    database.execute("UPDATE others SET v = v + 1; INSERT INTO planes VALUES ('N1', '', 1)")
    follow(pond, database, "others", "k INTEGER, v INTEGER, PRIMARY KEY (k)")
    database.execute("UPDATE others SET v = v + 1 WHERE k = 1")
    assert rows(pond, "others") == [(1, 3), (2, 3), (3, 4), (4, 5), (5, 6)]
    assert rows(pond) == [("N1", "", 1)]
    pond.execute("DROP RELATION planes")
    database.execute("DELETE FROM others WHERE k > 1")
    assert rows(pond, "others") == [(1, 3)]
    assert len(slots(database)) == 1
    pond.execute("DROP RELATION others")
    assert slots(database) == []
    assert database.execute("SELECT * FROM pg_publication") == []


def test_a_relation_is_dropped_with_what_reads_it(database, pond):
    database.execute(PLANES)
    follow(pond, database)
    pond.execute("CREATE QUERY q AS SELECT tail FROM planes")
    with pytest.raises(MillpondError, match="POND-401"):
        pond.execute("DROP RELATION planes")
    database.execute("INSERT INTO planes VALUES ('N1', '', 1)")
    assert rows(pond) == [("N1", "", 1)]
    pond.execute("DROP RELATION planes CASCADE")
    assert slots(database) == []


def test_values_of_all_types(database, pond):
    """What a copy reads and what replication sends is the same value."""
    database.execute(
        "CREATE TABLE every (k bigint PRIMARY KEY, t text, b boolean, f real, d double precision,"
        " n numeric(20, 4), da date, ts timestamp, tz timestamptz, j jsonb, by bytea, u uuid)"
    )
    given = (
        "'Łódź '' \\ \" ', true, 1.1, 'NaN', 12345678901.5, '2026-02-28',"
        " '2026-02-28 12:00:00.000001', '2026-02-28 12:00:00+02', '{\"a\": [1]}',"
        " '\\x00ff', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'"
    )
    nulls = ", ".join(["NULL"] * 11)
    database.execute(f"INSERT INTO every VALUES (1, {given}), (2, {nulls})")
    follow(
        pond,
        database,
        "every",
        "k BIGINT, t VARCHAR, b BOOLEAN, f FLOAT, d DOUBLE, n DECIMAL(20, 4), da DATE,"
        " ts TIMESTAMP, tz TIMESTAMPTZ, j JSON, by BLOB, u VARCHAR, PRIMARY KEY (k)",
    )
    database.execute(f"INSERT INTO every VALUES (3, {given}), (4, {nulls})")
    found = rows(pond, "every")
    assert [row[0] for row in found] == [1, 2, 3, 4]
    assert str(found[0][1:]) == str(found[2][1:])
    assert found[1][1:] == found[3][1:] == (None,) * 11
    assert found[0][1] == "Łódź ' \\ \" "
    assert found[0][10] == b"\x00\xff"
    assert found[0][8].isoformat() == "2026-02-28T10:00:00+00:00"


def test_truncate_takes_all_rows(database, pond):
    database.execute(f"{PLANES}; INSERT INTO planes VALUES ('N1', '', 1), ('N2', '', 2)")
    follow(pond, database)
    database.execute(
        "BEGIN; INSERT INTO planes VALUES ('N3', '', 3); TRUNCATE planes;"
        "INSERT INTO planes VALUES ('N1', '', 7); COMMIT"
    )
    assert rows(pond) == [("N1", "", 7)]


def test_a_long_value_that_does_not_change_is_kept(database, open_pond):
    """PostgreSQL does not send it again; it is the old row's, in this epoch or an earlier one."""
    database.execute(PLANES)
    database.execute("ALTER TABLE planes ALTER model SET STORAGE EXTERNAL")
    long = "heron" * 2_000
    with open_pond() as pond:
        follow(pond, database)
        database.execute("INSERT INTO planes VALUES ('N1', %s, 1)", long)
        assert rows(pond) == [("N1", long, 1)]
        database.execute("UPDATE planes SET seats = 2")
        assert rows(pond) == [("N1", long, 2)]
    database.execute("INSERT INTO planes VALUES ('N2', %s, 1)", long[::-1])
    for _ in range(3):
        database.execute("UPDATE planes SET seats = seats + 1")
    database.execute("UPDATE planes SET tail = 'N3', model = NULL WHERE tail = 'N1'")
    with open_pond() as pond:
        assert rows(pond) == [("N2", long[::-1], 4), ("N3", None, 5)]


def test_columns_that_are_altered(database, pond, eventually):
    """A column that comes is left out; one that goes, or gets another type, stops the relation."""
    database.execute(f"{PLANES}; INSERT INTO planes VALUES ('N1', 'a', 1)")
    follow(pond, database)
    database.execute("ALTER TABLE planes ADD extra text; UPDATE planes SET seats = 2, extra = 'x'")
    database.execute("ALTER TABLE planes RENAME TO aircraft")
    database.execute("UPDATE aircraft SET seats = 3")
    assert rows(pond) == [("N1", "a", 3)]
    database.execute("ALTER TABLE aircraft RENAME model TO kind; UPDATE aircraft SET seats = 4")
    eventually(lambda: 'no column "model"' in trouble(pond))
    with pytest.raises(MillpondError, match="DATA-502"):
        pond._components.replicas.catch_up(60)
    assert "stands still" in str(pond.execute("SHOW RELATIONS"))
    told = 'relation "planes" stands still: the source of "planes" cannot be read'
    assert told in [p["message"] for p in pond.status()["problems"]]
    # The transaction is read as the table was then; so only a new relation can go on.
    pond.execute("DROP RELATION planes")
    assert slots(database) == []


@pytest.mark.parametrize(
    ("alter", "words"),
    [
        ("ALTER model TYPE varchar(9) USING upper(model)", "its values were rewritten"),
        ("DROP model, ADD model text DEFAULT 'b'", "not the one it was"),
        ("DROP model", 'no column "model"'),
        ("ALTER code TYPE varchar(20)", ""),
        ("ALTER code SET NOT NULL; CLUSTER planes USING planes_pkey", ""),
    ],
    ids=["rewritten", "another", "dropped", "longer", "clustered"],
)
def test_values_that_change_without_a_word_in_the_log(
    database, open_pond, eventually, monkeypatch, alter, words
):
    """No row is told; what changes no value does no harm."""
    monkeypatch.setattr(slot_reader, "_LOOK_SECONDS", 0.1)
    database.execute(f"{PLANES}; ALTER TABLE planes ADD code varchar(10)")
    database.execute("INSERT INTO planes VALUES ('N1', 'a', 1, 'x')")
    columns = "tail VARCHAR, model VARCHAR, code VARCHAR, PRIMARY KEY (tail)"
    pond = open_pond()
    follow(pond, database, columns=columns)
    assert rows(pond) == [("N1", "a", "x")]
    database.execute(f"ALTER TABLE planes {alter}")
    if words:
        eventually(lambda: words in trouble(pond))
    pond.close()
    pond = open_pond()
    if words:
        eventually(lambda: words in trouble(pond))
        pond.execute("DROP RELATION planes")
        return
    database.execute("UPDATE planes SET code = 'y'")
    assert rows(pond) == [("N1", "a", "y")]


def test_a_value_that_does_not_fit_stops_the_relation(database, pond, eventually):
    database.execute(
        "CREATE TABLE r (k integer PRIMARY KEY, v text); INSERT INTO r VALUES (1, '1')"
    )
    follow(pond, database, "r", "k INTEGER, v INTEGER, PRIMARY KEY (k)")
    database.execute("INSERT INTO r VALUES (2, 'two')")
    eventually(lambda: "'two' is not an INTEGER" in trouble(pond, "r"))
    pond.execute("DROP RELATION r")
    with pytest.raises(MillpondError, match="'two' is not an INTEGER"):
        follow(pond, database, "r", "k INTEGER, v INTEGER, PRIMARY KEY (k)")
    assert slots(database) == []


def test_tables_whose_changes_do_not_name_the_row(database, pond):
    database.execute("CREATE TABLE planes (tail text, model text, seats integer)")
    with pytest.raises(MillpondError, match="do not name the old row by tail"):
        follow(pond, database)
    database.execute("ALTER TABLE planes REPLICA IDENTITY FULL")
    database.execute("INSERT INTO planes VALUES ('N1', 'a', 1), ('N2', NULL, 2)")
    follow(pond, database)
    database.execute("UPDATE planes SET tail = 'N3' WHERE tail = 'N1'")
    database.execute("DELETE FROM planes WHERE tail = 'N2'")
    assert rows(pond) == [("N3", "a", 1)]


def test_an_identity_that_changes_stops_the_relation(database, pond, eventually):
    database.execute(f"{PLANES}; INSERT INTO planes VALUES ('N1', 'a', 1)")
    follow(pond, database)
    database.execute(
        "ALTER TABLE planes ALTER seats SET NOT NULL; CREATE UNIQUE INDEX i ON planes (seats);"
        "ALTER TABLE planes REPLICA IDENTITY USING INDEX i; DELETE FROM planes"
    )
    eventually(lambda: "do not name the old row" in trouble(pond))


def test_a_relation_that_stands_still_says_so_until_it_goes_on(database, pond, eventually):
    """Every attempt reads up to what stops it; what is told before that is no recovery."""
    database.execute(f"{PLANES}; INSERT INTO planes VALUES ('N1', 'a', 1)")
    follow(pond, database)
    database.execute(
        "ALTER TABLE planes REPLICA IDENTITY NOTHING; INSERT INTO planes VALUES ('N2', 'b', 2)"
    )
    eventually(lambda: "do not name the old row" in trouble(pond))
    said = set()
    end = time.monotonic() + 6
    while time.monotonic() < end:
        said.add("do not name the old row" in trouble(pond))
        time.sleep(0.01)
    assert said == {True}
    (reader,) = pond._components.replicas._readers.values()
    assert reader._failures > 1  # so the next attempts come later and later


def test_a_slot_that_is_lost(database, open_pond, eventually):
    database.execute(PLANES)
    with open_pond() as pond:
        follow(pond, database)
        (slot,) = slots(database)
    eventually(
        lambda: (
            database.execute("SELECT active FROM pg_replication_slots") == [(False,)]
            or database.execute("SELECT pg_drop_replication_slot(%s)", slot) == 0
        )
    )
    database.execute("SELECT pg_drop_replication_slot(%s)", slot)
    with open_pond() as pond:
        eventually(lambda: "is gone" in trouble(pond))
        pond.execute("DROP RELATION planes")


def test_a_slot_that_another_copy_of_the_store_has_read(database, open_pond, eventually):
    database.execute(PLANES)
    with open_pond() as pond:
        follow(pond, database)
        (slot,) = slots(database)
    database.execute("INSERT INTO planes VALUES ('N1', '', 1)")
    eventually(lambda: database.execute("SELECT active FROM pg_replication_slots") == [(False,)])
    database.execute("SELECT pg_replication_slot_advance(%s, pg_current_wal_lsn())", slot)
    with open_pond() as pond:
        eventually(lambda: "is further than this store" in trouble(pond))
        assert pond._components.replicas.describe()[0]["trouble"] is not None


def test_a_table_that_is_dropped(database, open_pond, eventually):
    database.execute(PLANES)
    with open_pond() as pond:
        follow(pond, database)
    database.execute(f"DROP TABLE planes; {PLANES}")
    with open_pond() as pond:
        eventually(lambda: "is not in the publication" in trouble(pond))


def test_a_publication_that_leaves_out_changes(database, pond, eventually, monkeypatch):
    monkeypatch.setattr(slot_reader, "_LOOK_SECONDS", 0.1)
    database.execute(PLANES)
    follow(pond, database)
    (slot,) = slots(database)
    database.execute(f"ALTER PUBLICATION {slot} SET (publish = 'insert')")
    eventually(lambda: "leaves out some of its changes" in trouble(pond))


@pytest.mark.slow
def test_a_database_that_dies(database, pond, eventually):
    database.execute(f"{PLANES}; INSERT INTO planes VALUES ('N1', '', 1)")
    follow(pond, database)
    database.execute("UPDATE planes SET seats = 2")
    database.server.kill()
    database.server.start()
    database.forget()
    database.execute("UPDATE planes SET seats = seats + 1; INSERT INTO planes VALUES ('N2', '', 9)")
    found = eventually(lambda: rows(pond))
    assert found == [("N1", "", 3), ("N2", "", 9)]
    assert trouble(pond) == ""


def test_nothing_is_confirmed_that_is_not_stored(database, pond, eventually):
    database.execute(PLANES)
    follow(pond, database)
    for n in range(3):
        database.execute("INSERT INTO planes VALUES (%s, '', 1)", f"N{n}")
    rows(pond)
    parts = pond._components
    relation = parts.log.version.find("planes")

    def is_confirmed() -> bool:
        stored = parts.log.last_batch(f"postgres.{relation.id}")
        ((confirmed,),) = database.execute(
            "SELECT confirmed_flush_lsn - '0/0'::pg_lsn FROM pg_replication_slots"
            " WHERE database = current_database()"
        )
        assert confirmed < stored
        return bool(confirmed == stored - 1)

    eventually(is_confirmed)


def test_the_log_a_server_keeps_is_a_metric(database, pond, eventually):
    """It grows while the reader is away from the slot, and is named by the slot."""
    database.execute(PLANES)
    follow(pond, database)
    (slot,) = slots(database)

    def retained() -> float | None:
        return pond.metrics.get_sample_value("millpond_postgres_retained_bytes", {"slot": slot})

    eventually(lambda: retained() is not None)
    before = retained()
    many = "SELECT n, repeat('x', 900), n FROM generate_series(1, 9999) n"
    database.execute(f"INSERT INTO planes {many}")
    eventually(lambda: retained() > before)


def test_a_relation_that_follows_is_not_changed_by_statements(database, pond):
    database.execute(PLANES)
    follow(pond, database)
    for statement in (
        "INSERT INTO planes VALUES ('N1', '', 1)",
        "UPDATE planes SET seats = 1",
        "DELETE FROM planes",
    ):
        with pytest.raises(MillpondError, match="CQL-216"):
            pond.execute(statement)


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        ("tail VARCHAR", "", "CQL-223"),
        ("tail VARCHAR, nope VARCHAR, PRIMARY KEY (tail)", "", 'no column "nope"'),
        ("tail VARCHAR[], PRIMARY KEY (tail)", "", "CQL-301"),
        ("tail VARCHAR, PRIMARY KEY (tail)", ", tabel 'x'", "CQL-214"),
    ],
)
def test_relations_that_cannot_follow(database, pond, columns, options, words):
    database.execute(PLANES)
    with pytest.raises(MillpondError, match=words):
        pond.execute(
            f"CREATE RELATION planes ({columns})"
            f" USING postgres OPTIONS ({database.options}, table 'planes'{options})"
        )
    assert slots(database) == []


def test_a_relation_that_is_refused_does_not_go_on(database, pond):
    """There is none that could."""
    away = database.options.replace(str(database.server.port), "1")
    with pytest.raises(MillpondError, match="DATA-502") as refused:
        pond.execute(
            "CREATE RELATION planes (tail VARCHAR, PRIMARY KEY (tail))"
            f" USING postgres OPTIONS ({away}, table 'planes')"
        )
    assert refused.value.hint == "Check the source and its options. Nothing was created."


def test_a_password_is_shown_nowhere(database, pond, tmp_path, caplog):
    database.execute(PLANES)
    for password in (f"'{PASSWORD}'", "secret('wrong')"):
        options = database.options.replace("secret('shop')", password)
        with pytest.raises(MillpondError) as refused:
            pond.execute(
                "CREATE RELATION planes (tail VARCHAR, PRIMARY KEY (tail)) USING postgres OPTIONS"
                f" ({options}, table 'planes')"
            )
        said = str(refused.value) + str(refused.value.to_json()) + caplog.text
        assert "magpie" not in said
        assert PASSWORD not in said
    follow(pond, database)
    stored = b"".join(p.read_bytes() for p in (tmp_path / "store").rglob("*") if p.is_file())
    assert PASSWORD.encode() not in stored


def test_the_copy_and_the_log_tell_the_same_texts(database, pond):
    """A cast to text takes blanks from a char, and writes other words for a truth value."""
    database.execute(
        "CREATE TABLE t (k char(5) PRIMARY KEY, truth boolean, address inet, n integer);"
        "INSERT INTO t VALUES ('ab', true, '10.0.0.1', 1), ('cd', false, '10.0.0.1', 1)"
    )
    columns = "k VARCHAR, truth VARCHAR, address VARCHAR, n INTEGER, PRIMARY KEY (k)"
    follow(pond, database, "t", columns)
    told = [("ab   ", "t", "10.0.0.1"), ("cd   ", "f", "10.0.0.1")]
    assert rows(pond, "t") == [(*row, 1) for row in told]
    database.execute("UPDATE t SET n = 2 WHERE k = 'ab'; DELETE FROM t WHERE k = 'cd'")
    database.execute("INSERT INTO t VALUES ('cd', false, '10.0.0.1', 2)")
    assert rows(pond, "t") == [(*row, 2) for row in told]


def test_a_transaction_that_alters_the_table_between_its_rows(database, pond):
    """Each row is read by the columns that the table had when it was written."""
    database.execute("CREATE TABLE t (k integer PRIMARY KEY, gone text, v text)")
    follow(pond, database, "t", "k INTEGER, v VARCHAR, PRIMARY KEY (k)")
    database.execute(
        "BEGIN; INSERT INTO t VALUES (1, 'wrong', 'right'); ALTER TABLE t DROP gone;"
        "INSERT INTO t VALUES (2, 'right'); ALTER TABLE t ADD more text;"
        "INSERT INTO t VALUES (3, 'right', 'wrong'); COMMIT"
    )
    assert rows(pond, "t") == [(1, "right"), (2, "right"), (3, "right")]


def test_rows_that_the_log_does_not_tell_or_the_copy_does_not_see(
    database, pond, eventually, monkeypatch
):
    """Tables that inherit, and policies that hide rows."""
    monkeypatch.setattr(slot_reader, "_LOOK_SECONDS", 0.1)
    database.execute(
        f"{PLANES}; CREATE TABLE jets () INHERITS (planes);"
        "CREATE TABLE hidden (k integer PRIMARY KEY); INSERT INTO hidden VALUES (1), (2);"
        "ALTER TABLE hidden ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;"
        "CREATE POLICY one ON hidden USING (k = 1);"
        "CREATE ROLE hider LOGIN REPLICATION PASSWORD '%s';"
        f"GRANT CREATE ON DATABASE {database.name} TO hider; ALTER TABLE hidden OWNER TO hider"
        % PASSWORD
    )
    with pytest.raises(MillpondError, match='Other tables inherit from "planes"'):
        follow(pond, database)
    options = database.options.replace(f"user '{USER}'", "user 'hider'")
    with pytest.raises(MillpondError, match="row-level security"):
        pond.execute(
            "CREATE RELATION hidden (k INTEGER, PRIMARY KEY (k))"
            f" USING postgres OPTIONS ({options}, table 'hidden')"
        )
    assert slots(database) == []
    database.execute("DROP TABLE jets, hidden; DROP OWNED BY hider; DROP ROLE hider")
    follow(pond, database)
    database.execute("CREATE TABLE jets () INHERITS (planes)")
    eventually(lambda: "Another table inherits from it" in trouble(pond))


@pytest.mark.parametrize("encoding", ["LATIN1", "EUC_JP"])
def test_a_database_of_another_encoding(database, pond, encoding):
    text = {"LATIN1": "schön", "EUC_JP": "日本"}[encoding]
    database.execute(f'CREATE TABLE t (k text PRIMARY KEY, "{text}" text)')
    database.execute("INSERT INTO t VALUES ('copied', %s)", text)
    follow(pond, database, "t", f'k VARCHAR, "{text}" VARCHAR, PRIMARY KEY (k)')
    database.execute("INSERT INTO t VALUES ('told', %s)", text)
    assert rows(pond, "t") == [("copied", text), ("told", text)]


@pytest.mark.parametrize("encoding", ["SQL_ASCII"])
def test_a_database_without_an_encoding(database, pond, eventually, encoding):
    """What is UTF-8 is read; a text that is not is named."""
    database.execute("CREATE TABLE t (k text PRIMARY KEY); INSERT INTO t VALUES ('schön')")
    follow(pond, database, "t", "k VARCHAR, PRIMARY KEY (k)")
    assert rows(pond, "t") == [("schön",)]
    database.execute("INSERT INTO t VALUES (E'\\xfc')")
    said = 'invalid byte sequence for encoding "UTF8": 0xfc'
    eventually(lambda: said in trouble(pond, "t"))
    pond.execute("DROP RELATION t")
    with pytest.raises(MillpondError, match=said):
        follow(pond, database, "t", "k VARCHAR, PRIMARY KEY (k)")
    assert slots(database) == []
