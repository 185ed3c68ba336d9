"""SHOW: what there is, in tables."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from millpond.service.pond import Pond
from millpond.service.statements.show import tabulate


@pytest.fixture
def pond(pond: Pond) -> Pond:
    pond.execute(
        "CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts; CREATE STREAM c (v INTEGER);"
        "CREATE STREAM d AS SELECT v FROM s;"
        "CREATE RELATION r (k INTEGER, v INTEGER, PRIMARY KEY (k, v));"
        "CREATE RELATION view AS SELECT v FROM r;"
        "CREATE RELATION fed (k INTEGER, PRIMARY KEY (k)) USING push OPTIONS (op_column 'op')"
    )
    return pond


def show(pond: Pond, what: str) -> list[dict[str, Any]]:
    (result,) = pond.execute(f"SHOW {what}")
    assert result.table is not None
    return result.table.to_pylist()


def test_streams_say_by_what_time_they_go(pond: Pond) -> None:
    pond.ingest("s", [{"ts": "1970-01-01 00:00:05", "v": 1}, {"ts": "never"}])
    shown = {row["name"]: row for row in show(pond, "STREAMS")}
    assert [shown[name]["time"] for name in ("s", "c", "d")] == ["ts", "system", "derived"]
    assert [shown[name]["source"] for name in ("s", "d")] == ["statements", "query"]
    assert (shown["s"]["rows"], shown["s"]["rejected"], shown["s"]["state"]) == (1, 1, "running")
    assert shown["s"]["heartbeat"].startswith("1970-01-01 00:00:05")


def test_relations_say_where_their_rows_come_from(pond: Pond) -> None:
    shown = {row["name"]: (row["primary key"], row["source"]) for row in show(pond, "RELATIONS")}
    assert shown == {
        "r": ("k, v", "statements"),
        "view": ("", "query"),
        "fed": ("k", "changes of fed$changes"),
    }


def test_queries_say_whether_they_are_matched(pond: Pond) -> None:
    pond.register("SELECT v FROM s", "on", materialize="eager")
    pond.register("SELECT v FROM s", "off", active=False)
    pond.register("SELECT v FROM s WHERE v::STRING::DATE > '2024-01-01'", "bad")
    pond.ingest("s", [{"ts": "1970-01-01 00:00:05", "v": 1}])
    pond.wait_until_matched()
    shown = {row["name"]: (row["state"], row["materialize"]) for row in show(pond, "QUERIES")}
    assert shown["on"] == ("active", "eager")
    assert shown["off"] == ("inactive", "lazy")
    assert shown["bad"][0].startswith("suspended: Its predicate could not be evaluated")


def test_functions_and_entities_are_shown(pond: Pond) -> None:
    assert show(pond, "FUNCTIONS") == []
    pond.function("f", lambda x, y: x, arguments=["DOUBLE", "STRING"], returns="DOUBLE")
    (function,) = show(pond, "FUNCTIONS")
    assert (function["name"], function["arguments"]) == ("f", "DOUBLE, VARCHAR")
    shown = {row["id"]: row for row in show(pond, "ENTITIES")}
    assert shown["joins:all"]["settings"].startswith("shards 2, max_pairs ")
    assert shown["queue:inbox"]["figures"] == "waiting pushes 0, bytes 0"


def test_summaries_are_shown_with_what_is_in_them(pond: Pond) -> None:
    assert show(pond, "SUMMARIES") == []
    (stream,) = [s.name for s in pond.streams()][:1]
    pond.execute(f"CREATE SUMMARY y ON {stream} (v) WITH GRANULARITY 1 MINUTE AND COLLAPSE (4, 6)")
    (shown,) = show(pond, "SUMMARIES")
    assert (shown["name"], shown["of"], shown["kind"]) == ("y", f"{stream} (v)", "count sketch")
    assert (shown["granularity"], shown["collapse"]) == ("1 MINUTE", "4, 6")
    (entity,) = [row for row in show(pond, "ENTITIES") if row["id"] == "summary:y"]
    assert "bytes declared 4194304" in entity["figures"]


def test_a_table_without_rows_has_columns() -> None:
    assert tabulate(["a", "b"], []).schema == pa.schema({"a": pa.string(), "b": pa.string()})
    assert tabulate(["a", "b"], [(1, "x"), (2, "y")])["a"].to_pylist() == [1, 2]
