"""Law 1 for relations: updates in any order, at any instants, leave what the definition says."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracle.oracle_pond import OraclePond
from tests.tools import golden_table as cells

from millpond.errors import MillpondError
from millpond.model.time import format_instant, to_datetime
from millpond.testing.local_runtime import open_local
from millpond.testing.manual_clock import ManualClock

SECOND = 1_000_000
KEYS = st.sampled_from(("'a'", "'b'", "'c'", "NULL"))
VALUES = st.sampled_from(("0", "1", "2", "NULL"))
WHEN = st.one_of(
    st.just(""),
    st.integers(0, 9).map(lambda s: f" AT TIMESTAMP '{format_instant(s * SECOND)}'"),
)
WHERE = st.one_of(
    st.just(""),
    KEYS.map(lambda k: f" WHERE k = {k}"),
    VALUES.map(lambda v: f" WHERE v <> {v} OR k IS NULL"),
    VALUES.map(lambda v: f" WHERE EXISTS (SELECT 1 FROM s WHERE s.k = r.k AND s.v > {v})"),
    st.sampled_from(("< ANY", ">= ALL", "= ANY", "<> ALL")).map(
        lambda compared: f" WHERE v {compared} (SELECT o.v FROM r AS o WHERE o.k <> r.k)"
    ),
)
ROWS = st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=3).map(
    lambda rows: ", ".join(f"({k}, {v})" for k, v in rows)
)
CHANGES = st.one_of(
    st.builds("INSERT INTO r VALUES {}{}".format, ROWS, WHEN),
    st.builds("DELETE FROM r{}{}".format, WHERE, WHEN),
    st.builds("UPDATE r SET v = v + 1{}{}".format, WHERE, WHEN),
    st.builds("UPDATE r SET v = (SELECT max(s.v) FROM s WHERE s.k = r.k){}{}".format, WHERE, WHEN),
    st.builds("UPDATE r SET k = {}, v = length(k){}{}".format, KEYS, WHERE, WHEN),
)
#: A change of the relation, the seconds of an epoch's elements, or the pond opened again.
EVENTS = st.one_of(
    CHANGES,
    CHANGES,
    st.lists(st.integers(0, 9), min_size=1, max_size=3),
    st.just("reopen"),
)
QUERIES = {
    "whole": "SELECT k, v FROM r",
    "joined": "SELECT s.v AS s, r.v AS r FROM s [RANGE 4 SECONDS] JOIN r ON s.k = r.k",
    "absent": "SELECT k FROM s WHERE NOT EXISTS (SELECT 1 FROM r WHERE r.k = s.k)",
}


FEW = settings(max_examples=6)


@FEW
@given(st.lists(EVENTS, min_size=3, max_size=9), st.booleans())
def test_any_updates_leave_what_the_definition_says(events: list[Any], keyed: bool) -> None:
    with TemporaryDirectory(prefix="millpond-relations-") as directory:
        run(events, keyed, Path(directory) / "store")


@pytest.mark.slow
@settings(FEW, max_examples=60)
@given(st.lists(EVENTS, min_size=4, max_size=14), st.booleans())
def test_many_updates_leave_what_the_definition_says(events: list[Any], keyed: bool) -> None:
    with TemporaryDirectory(prefix="millpond-relations-") as directory:
        run(events, keyed, Path(directory) / "store")


def run(events: list[Any], keyed: bool, store: Path) -> None:
    clock = ManualClock()
    oracle, pond = OraclePond(clock), open_local(store, clock=clock)
    key = ", PRIMARY KEY (k)" if keyed else ""
    script = (
        "CREATE STREAM s (ts TIMESTAMP, k STRING, v INTEGER) TIMESTAMP BY ts"
        f" DELAY INTERVAL 10 SECONDS; CREATE RELATION r (k STRING, v INTEGER{key});"
    )
    script += ";".join(f"CREATE QUERY {name} AS {query}" for name, query in QUERIES.items())
    try:
        for each in (oracle, pond):
            each.execute(script)
        for event in events:
            if event == "reopen":
                pond.close()
                pond = open_local(store, clock=clock)
            elif isinstance(event, list):
                rows = [{"ts": to_datetime(t * SECOND), "k": "abc"[t % 3], "v": t} for t in event]
                for each in (oracle, pond):
                    each.ingest("s", rows)
                    each.catch_up()
            else:
                codes = [outcome(each, event) for each in (oracle, pond)]
                assert codes[0] == codes[1], f"{event}: {codes[1]}, by the definition {codes[0]}"
        for name in QUERIES:
            for at in (None, *(second * SECOND for second in range(-1, 11))):
                answers = [each.query(name).invoke(at=at) for each in (oracle, pond)]
                meant, actual = (sorted(cells.show_rows(a.rows())) for a in answers)
                assert actual == meant, f"{name} at {at}: {actual}, by the definition {meant}"
    finally:
        pond.close()


def outcome(pond: Any, statement: str) -> str:
    """'done', or the code of the error."""
    try:
        pond.execute(statement)
    except MillpondError as error:
        return error.code
    return "done"
