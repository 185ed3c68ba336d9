"""What queries share that read different columns of one stream."""

from __future__ import annotations

import pyarrow as pa
import pytest

from millpond.catalog.objects import StreamDef
from millpond.cql import parse_query
from millpond.engine.dataflow.dataflow import Dataflow
from millpond.model.schema import Field, Schema
from millpond.planner.bind.bind import bind
from millpond.planner.dataflow.leaves import WHOLE
from millpond.planner.dataflow.plan import Plan, plan_changes


def planned(names, text: str) -> Plan:  # type: ignore[no-untyped-def]
    return plan_changes(bind(parse_query(text), text, names), names)


def shared(names, *texts: str) -> list[str]:  # type: ignore[no-untyped-def]
    """What all of some queries have in common, by what EXPLAIN calls it, from below."""
    first, *others = [{n.key: n for n in planned(names, text).nodes()} for text in texts]
    common = set(first).intersection(*others)
    return [node.name for key, node in first.items() if key in common]


HOUR = "FROM flights [RANGE 1 HOUR]"


@pytest.mark.parametrize(
    ("one", "other", "common"),
    [
        # Predicates are evaluated once, whatever becomes of the rows.
        (
            f"SELECT carrier {HOUR} WHERE delay > 3",
            f"SELECT DISTINCT dest, carrier {HOUR} WHERE delay > 3",
            ["stream", "select"],
        ),
        (
            f"SELECT count(*) AS n {HOUR} WHERE delay > 3 AND origin = 'LGA'",
            "SELECT dest, distance FROM flights [NOW] WHERE origin = 'LGA' AND delay > 3",
            ["stream", "select", "kept elements"],
        ),
        # Groups are the same whatever is aggregated, and elements are kept once for all windows.
        (
            f"SELECT carrier, sum(delay) AS n {HOUR} GROUP BY carrier",
            f"SELECT carrier, max(distance) AS n {HOUR} GROUP BY carrier",
            ["stream", "kept elements", "window", "grouping"],
        ),
        (
            f"SELECT carrier, sum(delay) AS n {HOUR} GROUP BY carrier",
            "SELECT dest, max(distance) AS n FROM flights [RANGE 2 DAYS SLIDE 1 DAY] GROUP BY 1",
            ["stream", "kept elements"],
        ),
        (
            f"SELECT carrier, sum(delay) AS n {HOUR} GROUP BY carrier",
            f"SELECT k, max(v) AS n FROM (SELECT carrier AS k, delay AS v {HOUR}) x GROUP BY k",
            ["stream", "kept elements", "window", "grouping"],
        ),
    ],
)
def test_queries_share_what_is_below_their_columns(  # type: ignore[no-untyped-def]
    names, one: str, other: str, common: list[str]
) -> None:
    assert shared(names, one, other) == common


def test_columns_nobody_reads_are_not_fed(names) -> None:  # type: ignore[no-untyped-def]
    one = planned(names, f"SELECT carrier {HOUR} WHERE delay > 3")
    assert one.needs == {"flights": ("carrier", "delay")}
    other = planned(names, f"SELECT dest {HOUR} WHERE delay > 3")
    flow = Dataflow(one, since=0)
    flow.attach(Dataflow(other, since=0))
    assert set(flow.needs["flights"]) == {"carrier", "dest", "delay"}
    whole = planned(names, "SELECT * FROM flights")
    assert len(whole.needs["flights"]) == 7


def test_what_looks_like_a_column_in_a_text_is_none(names) -> None:  # type: ignore[no-untyped-def]
    plan = planned(names, f"SELECT dest {HOUR} WHERE carrier <> 'c77' AND origin <> 'c4'")
    assert set(plan.needs["flights"]) - {"delay"} == {"carrier", "origin", "dest"}
    assert planned(names, f"SELECT dest {HOUR} WHERE 'c1' < 'c99'").fallback is None


def test_a_query_that_comes_later_is_given_its_columns(names) -> None:  # type: ignore[no-untyped-def]
    def fed(flow: Dataflow, low: int, upto: int) -> dict[str, list[object]]:
        columns = {
            "carrier": [f"c{n}" for n in range(low, upto)],
            "dest": [f"d{n}" for n in range(low, upto)],
            "delay": [float(n) for n in range(low, upto)],
        }
        found = {name: columns[name] for name in flow.needs["flights"]}
        stamps = pa.array(range(low, upto), pa.int64())
        given = flow.advance({"flights": pa.table({**found, "__ts": stamps})}, upto - 1)
        return {key: table.columns[-1].to_pylist() for key, table in given.items()}

    one = planned(names, "SELECT carrier FROM flights WHERE delay <> 3")
    other = planned(names, "SELECT dest FROM flights WHERE delay <> 3")
    flow = Dataflow(one, since=0)
    assert fed(flow, 0, 5) == {one.key: ["c1", "c2", "c4"]}
    late = Dataflow(other, since=4)
    fed(late, 0, 5)
    flow.attach(late)
    assert fed(flow, 5, 7) == {one.key: ["c5", "c6"], other.key: ["d5", "d6"]}
    flow.detach(one.key)
    assert fed(flow, 7, 8) == {other.key: ["d7"]}


def test_of_a_very_wide_stream_is_read_what_is_needed(names) -> None:  # type: ignore[no-untyped-def]
    fields = [Field("ts", "TIMESTAMP"), *(Field(f"v{n}", "VARCHAR") for n in range(WHOLE))]
    names.put(StreamDef(77, "wide", Schema(tuple(fields)), timestamp_by="ts"))
    plan = planned(names, "SELECT v1, max(v2) AS m FROM wide GROUP BY v1")
    assert plan.needs == {"wide": ("v1", "v2")}
    (source,) = [node for node in plan.nodes() if node.feed is not None]
    assert len(source.schema) == 2
