"""ALTER STREAM … ADD COLUMN: no answer changes, and new queries find NULL in what is older."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millpond.errors import MillpondError
from millpond.service.definitions.change_fed_relations import PUSHED
from millpond.service.definitions.declarations import SHEDDABLE, WIDENABLE
from millpond.service.pond import Pond
from millpond.testing.local_runtime import LocalRuntime, open_local

START = datetime(2026, 1, 1)
#: `w` is also a column of the relation, so that the added one could be mistaken for it.
BEFORE = """
CREATE STREAM s (ts TIMESTAMP, k VARCHAR, v INTEGER) TIMESTAMP BY ts;
CREATE STREAM t (ts TIMESTAMP, k VARCHAR) TIMESTAMP BY ts;
CREATE RELATION r (k VARCHAR PRIMARY KEY, w INTEGER);
INSERT INTO r VALUES ('a', 1), ('b', 2);
CREATE STREAM picked AS SELECT * FROM s [RANGE UNBOUNDED] WHERE v > 2;
CREATE RELATION recent AS SELECT * FROM s [RANGE 1 HOUR];
"""
#: What is registered before the column is added; each would be another query with it.
QUERIES = {
    "star": "SELECT * FROM s WHERE v > 1",
    "last": "s [ROWS 3]",
    "bare": "SELECT k, w FROM s [RANGE 1 DAY] JOIN r USING (k)",
    "captured": "SELECT k FROM s [NOW] WHERE EXISTS (SELECT 1 FROM r WHERE r.k = s.k AND w > 1)",
    "around": "SELECT k, (SELECT count(*) FROM s [RANGE 1 HOUR] x WHERE x.v > w) AS n FROM r",
    "both": "SELECT * FROM s [RANGE 1 DAY] NATURAL JOIN r",
    "joined": "SELECT * FROM s [RANGE 1 DAY] x, t [RANGE 1 DAY] y WHERE x.k = y.k",
    "grouped": "SELECT k, count(*) AS n, sum(v) AS total FROM s [RANGE 1 DAY] GROUP BY k",
    "differing": "SELECT DISTINCT * FROM s [RANGE 1 DAY]",
    "derived": "SELECT * FROM picked [RANGE 1 DAY]",
    "view": "SELECT * FROM recent",
    "nested": "SELECT * FROM ISTREAM(SELECT * FROM s [RANGE 1 HOUR]) [RANGE 1 DAY] AS x",
    "member": "SELECT k FROM s [RANGE 1 DAY] WHERE v > 3",
    "member2": "SELECT k FROM s [RANGE 1 DAY] WHERE v > 4",
}
#: With the column these are wrong or mean something else, or what they read was made without it.
ANOTHER_AFTERWARDS = {"bare", "captured", "around", "derived", "view"}
SUMMARY = "CREATE SUMMARY sizes ON s (w) WITH GRANULARITY 1 MINUTE AND COLLAPSE (2, 4) USING SAMPLE"
FOLLOWED = ("star", "grouped", "joined", "view", "member", "member2", "bare")


def rows(first: int, last: int, *, with_column: bool) -> list[dict[str, Any]]:
    return [
        {
            "ts": START + timedelta(minutes=i),
            "k": "ab"[i % 2],
            "v": i % 7,
            **({"w": 10 * i} if with_column and i % 3 else {}),
        }
        for i in range(first, last)
    ]


def push(pond: Pond, first: int, last: int, *, with_column: bool = False) -> None:
    given = rows(first, last, with_column=with_column)
    pond.ingest("s", given)
    pond.ingest("t", [{"ts": row["ts"], "k": row["k"]} for row in given])
    pond.catch_up()


def sort_rows(table: pa.Table) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)


def answers(pond: Pond, names: Sequence[str]) -> dict[tuple[str, int], tuple[list[str], list[Any]]]:
    """The columns and rows of queries' answers at several instants."""
    found = {}
    for name in names:
        for minutes in (3, 7, 9, 12, 15):
            answer = pond.query(name).invoke(START + timedelta(minutes=minutes)).table
            found[name, minutes] = answer.column_names, sort_rows(answer)
    return found


def changes(pond: Pond, names: Sequence[str]) -> dict[str, list[Any]]:
    """The changes of queries, without their cursors."""
    return {n: sort_rows(pond.query(n).fetch().table.drop_columns(["cursor"])) for n in names}


def begin(folder: Path) -> Pond:
    pond = open_local(folder)
    pond.execute(BEFORE)
    for name, text in QUERIES.items():
        pond.register(text, name)
    push(pond, 0, 8)
    for name in FOLLOWED:
        pond.query(name).fetch()
    return pond


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[Pond]:
    """A pond whose stream gets no column."""
    with begin(tmp_path / "plain") as pond:
        push(pond, 8, 16)
        yield pond


def test_no_answer_and_no_change_of_before_is_another_one(plain: Pond, tmp_path: Path) -> None:
    with begin(tmp_path / "store") as pond:
        pond.execute("ALTER STREAM s ADD COLUMN w INTEGER")
        push(pond, 8, 12, with_column=True)
        push(pond, 12, 16)
        for name in QUERIES:
            pond.execute(f"INVOKE {name}; FETCH {name}; DESCRIBE {name}; EXPLAIN {name}")
        assert answers(pond, list(QUERIES)) == answers(plain, list(QUERIES))
        assert changes(pond, FOLLOWED) == changes(plain, FOLLOWED)
    with open_local(tmp_path / "store") as pond:
        assert answers(pond, list(QUERIES)) == answers(plain, list(QUERIES))
        assert changes(pond, FOLLOWED) == changes(plain, FOLLOWED)
        late = [name for name in QUERIES if name not in FOLLOWED]
        assert changes(pond, late) == changes(plain, late)


def test_new_queries_have_the_column_which_is_null_in_what_is_older(tmp_path: Path) -> None:
    texts = {
        **{f"new_{n}": q for n, q in QUERIES.items() if n not in ANOTHER_AFTERWARDS},
        "filtered": "SELECT * FROM s [RANGE 1 DAY] WHERE w > 90",
        "absent": "SELECT ts, k FROM s [RANGE 1 DAY] WHERE w IS NULL",
        "counted": "SELECT k, count(w) AS n, sum(w) AS total, max(w) AS most FROM s GROUP BY k",
        "logged": "SELECT k FROM s [RANGE 1 DAY] WHERE w > 100",
        "logged2": "SELECT k FROM s [RANGE 1 DAY] WHERE w > 110",
        "estimated": "SELECT SUMMARY(sizes).ESTIMATE.COUNT(100) AS n",
        "part": "SELECT v, w FROM s [RANGE 1 DAY]"
        " WITH PREFERENCE DESC SUMMARY(sizes).ESTIMATE.COUNT(w) BUDGET '20 probes'",
        "paired": "SELECT x.k, y.w FROM s [RANGE 1 DAY] x, s [RANGE 1 DAY] y WHERE x.w = y.w",
    }
    options = {"changes": "from beginning"}
    with open_local(tmp_path / "whole") as whole:
        whole.execute(BEFORE.replace("v INTEGER", "v INTEGER, w INTEGER"))
        whole.execute(SUMMARY)
        for name, text in texts.items():
            whole.register(text, name, **options)
        push(whole, 0, 8)
        push(whole, 8, 16, with_column=True)
        with begin(tmp_path / "store") as pond:
            pond.execute(f"ALTER STREAM s ADD COLUMN w INTEGER; {SUMMARY}")
            for name, text in texts.items():
                pond.register(text, name, **options)
            push(pond, 8, 16, with_column=True)
            assert answers(pond, list(texts)) == answers(whole, list(texts))
            while pond._components.maintenance.step():
                pass
            assert answers(pond, list(texts)) == answers(whole, list(texts))
        with open_local(tmp_path / "store") as pond:
            assert answers(pond, list(texts)) == answers(whole, list(texts))
            followed = [name for name in texts if name not in ("estimated", "part")]
            assert changes(pond, followed) == changes(whole, followed)


def test_a_query_that_is_replaced_reads_the_columns_of_then(tmp_path: Path) -> None:
    with begin(tmp_path / "store") as pond:
        pond.execute("ALTER STREAM s ADD COLUMN w INTEGER")
        push(pond, 8, 12, with_column=True)
        for name in ("star", "last"):  # one is followed, one is not
            text = f"CREATE OR REPLACE QUERY {name} AS {QUERIES[name]}"
            (result,) = pond.execute(text)
            assert "replaced" in str(result)
            assert pond.query(name).invoke().table.column_names[-1] == "w"
            (result,) = pond.execute(text)
            assert "there already" in str(result)
        before = pond.query("star").fetch()
        assert before.columns == ["ts", "k", "v"]
        behind = pond.query("star").fetch(before.cursor)
        assert behind.columns == ["ts", "k", "v", "w"]
        assert behind.redefined is not None


def test_a_script_with_it_may_be_run_twice_and_show_create_has_it(tmp_path: Path) -> None:
    with open_local(tmp_path / "store") as pond:
        pond.execute(BEFORE)
        once = "ALTER STREAM s ADD COLUMN IF NOT EXISTS w INTEGER"
        assert "altered" in str(pond.execute(once)[0])
        assert "w is there already" in str(pond.execute(once)[0])
        other = pond.execute(once.replace("INTEGER", "DOUBLE"))[0]
        assert "and otherwise: it is INTEGER" in str(other)
        (shown,) = pond.execute("SHOW CREATE STREAM s")
        assert shown.text is not None
        assert "v INTEGER) TIMESTAMP BY ts;\nALTER STREAM s ADD COLUMN w INTEGER;" in shown.text
        for added in ("", ", w INTEGER"):
            again = f"CREATE STREAM IF NOT EXISTS s (ts TIMESTAMP, k VARCHAR, v INTEGER{added})"
            (result,) = pond.execute(f"{again} TIMESTAMP BY ts")
            assert str(result.message).endswith("is there already")
        pond.execute("ALTER STREAM s ADD CONSTRAINT c UNIQUE (w)")
        (shown,) = pond.execute("SHOW CREATE STREAM s")
        pond.execute("DROP STREAM s CASCADE")
        pond.execute(str(shown.text))
        assert pond.execute("SHOW CREATE STREAM s")[0].text == shown.text


def test_show_create_of_what_is_older_makes_the_same_query(plain: Pond, tmp_path: Path) -> None:
    """In another pond, whose stream has had the column from the beginning, too."""
    with begin(tmp_path / "store") as pond:
        pond.execute("ALTER STREAM s ADD COLUMN w INTEGER")
        shown = {n: str(pond.execute(f"SHOW CREATE QUERY {n}")[0].text) for n in QUERIES}
        derived = [
            str(pond.execute(f"SHOW CREATE {of}")[0].text)
            for of in ("STREAM picked", "RELATION recent")
        ]
        assert shown["star"] == "CREATE QUERY star AS SELECT ts, k, v FROM s WHERE v > 1;"
        assert shown["grouped"].startswith("CREATE QUERY grouped AS SELECT k, count(*) AS n, ")
        pond.register("SELECT k FROM s WHERE v > $least", "p", params={"least": 3})
        assert "$least = 3" in str(pond.execute("SHOW CREATE QUERY p")[0].text)
    with open_local(tmp_path / "other") as other:
        created = BEFORE.partition("CREATE STREAM picked")[0]
        other.execute(created.replace("v INTEGER)", "v INTEGER, w INTEGER)") + "".join(derived))
        other.execute("".join(shown.values()))
        push(other, 0, 8)
        push(other, 8, 16)
        assert answers(other, list(QUERIES)) == answers(plain, list(QUERIES))
        assert changes(other, FOLLOWED) == changes(plain, FOLLOWED)


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        ("ALTER STREAM s ADD COLUMN K INTEGER", "CQL-209"),
        ("ALTER STREAM s ADD COLUMN w NOTHING", "CQL-210"),
        ("ALTER STREAM s ADD COLUMN __w INTEGER", "CQL-103"),
        ("ALTER STREAM s ADD COLUMN w INTEGER NOT NULL", "CQL-301"),
        ("ALTER STREAM s ADD COLUMN w INTEGER AS (v + 1)", "CQL-301"),
        ("ALTER STREAM s ADD COLUMN w INTEGER DEFAULT 1", "CQL-103"),
        ("ALTER STREAM s ADD COLUMN w", "CQL-103"),
        ("ALTER STREAM picked ADD COLUMN w INTEGER", "CQL-216"),
        ("ALTER STREAM nothing ADD COLUMN w INTEGER", "CQL-201"),
    ],
)
def test_what_cannot_be_added_is_refused(tmp_path: Path, statement: str, code: str) -> None:
    with open_local(tmp_path / "store") as pond:
        pond.execute(BEFORE)
        with pytest.raises(MillpondError) as raised:
            pond.execute(statement)
        assert raised.value.code == code


# -- streams that read sources ---------------------------------------------------------------------

#: What a stream reads that gets no column: `FILE` stands for a file with the columns `k` and `v`.
HINDERED = {
    "text": "CREATE STREAM x (value VARCHAR) USING text OPTIONS (path 'FILE')",
    "rate": "CREATE STREAM x (k VARCHAR) USING rate",
    "a Kafka topic of bytes": "CREATE STREAM x (k VARCHAR) USING kafka"
    " OPTIONS (bootstrap 'h:9', topic 't', format 'raw')",
    "a history": "CREATE STREAM x (ts TIMESTAMP, k VARCHAR) TIMESTAMP BY ts"
    " USING csv OPTIONS (path 'FILE') THEN PUSH",
    "changes": 'CREATE RELATION "x" (k VARCHAR PRIMARY KEY, v INTEGER)'
    " USING csv OPTIONS (path 'FILE', op_column 'op')",
}


def write_file(folder: Path, name: str, using: str, lines: list[dict[str, Any]]) -> None:
    """Write rows as a file of a source, with the columns that the first row has."""
    file = folder / name
    if using == "parquet":
        pq.write_table(pa.Table.from_pylist(lines), file)
        return
    if using == "json":
        texts = [json.dumps(line) for line in lines]
    else:
        header = [",".join(lines[0])] if using == "csv with header" else []
        texts = [*header, *(",".join(map(str, line.values())) for line in lines)]
    file.write_text("".join(f"{text}\n" for text in texts))


@pytest.mark.parametrize("using", ["csv", "csv with header", "json", "parquet"])
def test_files_that_come_after_it_have_the_column_and_each_row_counts_once(
    tmp_path: Path, using: str
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    options = f"path '{folder}'" + (", header 'true'" if "header" in using else "")
    write_file(folder, "a", using, [{"k": "a", "v": 1}, {"k": "b", "v": 2}])
    with open_local(tmp_path / "store", batch_rows=1) as pond:
        pond.execute(
            f"CREATE STREAM s (k VARCHAR, v INTEGER) USING {using.split()[0]} OPTIONS ({options});"
            "CREATE QUERY old AS SELECT * FROM s"
        )
        pond.execute("ALTER STREAM s ADD COLUMN w INTEGER; CREATE QUERY new AS SELECT * FROM s")
        write_file(folder, "b", using, [{"k": "c", "v": 3, "w": 30}, {"k": "d", "v": 4, "w": 40}])
        write_file(folder, "c", using, [{"k": "e", "v": 5}])  # as old as those of before
        pond.catch_up()
    with open_local(tmp_path / "store", batch_rows=1) as pond:
        write_file(folder, "d", using, [{"k": "f", "v": 6, "w": 60}])
        pond.catch_up()
        w = [None, None, 30, 40, None, 60]
        expected = [(k, v, w[v - 1]) for v, k in enumerate("abcdef", 1)]
        assert sorted(pond.query("new").invoke().rows()) == expected
        assert sorted(pond.query("old").invoke().rows()) == [row[:2] for row in expected]
        assert pond.ask("SELECT * FROM s$rejects").rows() == []


@pytest.mark.parametrize("what", list(HINDERED))
def test_what_a_source_cannot_give_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr(LocalRuntime, "check_source", lambda *_: None)
    monkeypatch.setattr(LocalRuntime, "open_source", lambda *_: None)
    with open_local(tmp_path / "store") as pond:
        pond.execute(HINDERED[what].replace("FILE", str(tmp_path / "file")))
        name = '"x$changes"' if what == "changes" else "x"
        with pytest.raises(MillpondError) as raised:
            pond.execute(f"ALTER STREAM {name} ADD COLUMN w INTEGER")
        assert raised.value.code == "CQL-301"
        said = "until the history is read" if what == "a history" else "over the source"
        assert said in str(raised.value.hint)


def test_behind_its_history_a_stream_gets_a_column(tmp_path: Path) -> None:
    write_file(tmp_path, "a", "csv", [{"ts": START, "k": "a"}])
    with open_local(tmp_path / "store") as pond:
        pond.execute(
            "CREATE STREAM s (ts TIMESTAMP, k VARCHAR) TIMESTAMP BY ts"
            f" USING csv OPTIONS (path '{tmp_path / 'a'}') THEN PUSH"
        )
        pond.catch_up()
        pond.execute("ALTER STREAM s ADD COLUMN w INTEGER")
        pond.ingest("s", [{"ts": START + timedelta(minutes=1), "k": "b", "w": 2}])
    with open_local(tmp_path / "store") as pond:
        pond.catch_up()
        assert sorted(row[1:] for row in pond.ask("SELECT * FROM s").rows()) == [
            ("a", None),
            ("b", 2),
        ]


def test_every_format_that_is_known_either_gets_columns_or_is_tried_above() -> None:
    tried = {text.partition("USING ")[2].split()[0] for text in HINDERED.values()}
    assert tried >= SHEDDABLE - WIDENABLE - {PUSHED}
    assert {"csv", "json", "parquet", "orc", "delta", "kafka"} == WIDENABLE
