"""Followed parts over orders of arrival, RETAIN, and summaries that are dropped and made again."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from millpond.errors import MillpondError
from millpond.model.time import BEGINNING
from millpond.service.pond import Pond
from millpond.testing.local_runtime import open_local

STREAMS = ";".join(
    f"CREATE STREAM {name} (ts TIMESTAMP, item INTEGER, n BIGINT) TIMESTAMP BY ts DELAY 99 SECONDS"
    for name in "st"
)
SHAPE = "WITH GRANULARITY 64 SECONDS AND COLLAPSE (2, 3)"
SUMMARIES = (
    f"CREATE SUMMARY si ON s (item) {SHAPE}; CREATE SUMMARY ti ON t (item) {SHAPE};"
    f"CREATE SUMMARY sn ON s (n) {SHAPE} USING HISTOGRAM"
)
ITEM = "SUMMARY(si).ESTIMATE.COUNT"
#: Followed queries, without their budgets.
FOLLOWED = {
    "desc": ("SELECT item, n FROM s WHERE n % 3 <> 1", f"DESC {ITEM}(item)"),
    "fair": ("SELECT n, item FROM s [RANGE 9 SECONDS]", f"WEIGHTED {ITEM}(item)"),
    "ranged": ("SELECT n FROM s WHERE n > 50", "ASC SUMMARY(sn).ESTIMATE.COUNT(n)"),
    "joined": (
        "SELECT s.n, t.n AS other FROM s [RANGE 20 SECONDS], t [RANGE 9 SECONDS]"
        " WHERE s.item = t.item",
        f"DESC {ITEM}(s.item) * SUMMARY(ti).ESTIMATE.COUNT(t.item) FADE FACTOR 0.8",
    ),
    "summed": ("SELECT COUNT(*) AS c, SUM(n) AS n FROM s [RANGE 9 SECONDS]", f"DESC {ITEM}(item)"),
}
END = ";".join(f"HEARTBEAT {name} AT TIMESTAMP '1970-01-01 00:01:10'" for name in "st")


def register(pond: Pond, budget: str, names: list[str]) -> None:
    for name in names:
        text, preference = FOLLOWED[name]
        query = f"{text} WITH PREFERENCE {preference} BUDGET '{budget}'"
        pond.register(query, name, changes="from beginning")
        pond.query(name).fetch()


def read(pond: Pond, name: str, upto: int = 69_000_000) -> list[tuple[Any, ...]]:
    """All changes of a followed query, without the store's own part of the cursors."""
    found = pond.query(name).fetch()
    while found.as_of < upto:
        found = pond.query(name).fetch()
    return [tuple(row[1:]) for row in found.rows()]


def table(seed: int, count: int, seconds: int) -> pa.Table:
    """Elements at instants of their own: equal ones are told apart by their arrival."""
    random = np.random.default_rng(seed)
    ts = np.sort(random.choice(seconds * 1_000_000, count, replace=False))
    items = random.zipf(1.4, count).clip(1, 30).astype(np.int32)
    return pa.table({"ts": ts.astype("datetime64[us]"), "item": items, "n": np.arange(count)})


def cells_of(pond: Pond) -> dict[str, np.ndarray]:
    with pond._components.log.pin() as version:
        states = pond._components.invoker.summaries
        return {name: states.at(version, own).cells for name, own in version.summaries.items()}


def test_the_order_of_arrival_changes_neither_summaries_nor_what_is_found(
    tmp_path: Path,
) -> None:
    random = np.random.default_rng(1)
    rows = {name: table(10 + n, 150, 60) for n, name in enumerate("st")}
    found, cells = [], []
    for run in range(3):
        with open_local(tmp_path / f"store{run}") as pond:
            pond.execute(f"{STREAMS};{SUMMARIES}")
            register(pond, "0.6 probes", list(FOLLOWED))
            order = {n: random.permutation(150) if run else np.arange(150) for n in "st"}
            cuts = [0, *sorted(random.integers(0, 150, run * 2)), 150]
            for (low, high), name in itertools.product(itertools.pairwise(cuts), "st"):
                pond.ingest(name, rows[name].take(pa.array(order[name][low:high])))
                if run == 2:
                    pond.catch_up()
            pond.execute(END)
            found.append({name: read(pond, name) for name in FOLLOWED})
            cells.append(cells_of(pond))
    assert all(len(own) > 20 for own in found[0].values())
    assert found[0] == found[1] == found[2]
    for name, own in cells[0].items():
        assert own.sum() > 0
        assert (own == cells[1][name]).all()
        assert (own == cells[2][name]).all()


@pytest.mark.parametrize("window", ["[RANGE 20 SECONDS]", ""])
def test_retain_takes_nothing_that_waits_and_what_falls_out_is_said(
    tmp_path: Path, window: str
) -> None:
    """Regions wait as long as their window, or the summary, reaches; RETAIN trims below both."""
    rows = table(3, 300, 400)
    with open_local(tmp_path / "store") as pond:
        pond.execute(
            "CREATE STREAM s (ts TIMESTAMP, item INTEGER, n BIGINT) TIMESTAMP BY ts"
            " RETAIN 1 SECOND;"
            "CREATE SUMMARY si ON s (item) WITH GRANULARITY 32 SECONDS AND COLLAPSE (1, 2)"
        )
        query = f"SELECT n FROM s {window} WHERE n % 3 <> 1"
        query = f"{query} WITH PREFERENCE DESC {ITEM}(item) BUDGET '0.3 probes'"
        pond.register(query, "some", changes="from beginning")
        for start in range(0, 300, 50):
            pond.ingest("s", rows.slice(start, 50))
            pond.catch_up()
            pond.query("some").fetch()
            pond.wait_until_matched()
        with pond._components.log.pin() as version:
            kept_from = version.clock(version.find("s").id).kept_from
        # What a registered window reaches is kept; a window without an end reaches everything.
        assert kept_from > 200_000_000 if window else kept_from == BEGINNING
        # Then an hour in which nothing comes: what still waits leaves the window or the summary.
        pond.execute("HEARTBEAT s AT TIMESTAMP '1970-01-01 01:00:00'")
        pond.ingest("s", [{"ts": "1970-01-01 01:00:01", "item": 1, "n": 300}])
        pond.execute("HEARTBEAT s AT TIMESTAMP '1970-01-01 01:01:00'")
        found, page = read(pond, "some", 3_659_000_000), pond.query("some").fetch()
        matching = {n for n in range(301) if n % 3 != 1}
        seen = Counter(row[2] for row in found)
        assert set(seen) < matching
        assert set(seen.values()) == {1}
        assert 0.2 < len(seen) / len(matching) < 0.6
        assert (page.exact, [item.cause for item in page.loss]) == (False, ["budget"])


def test_a_summary_below_a_followed_query_stays_and_one_made_again_serves_a_new_query(
    tmp_path: Path,
) -> None:
    rows = {name: table(5 + n, 150, 60) for n, name in enumerate("st")}
    with open_local(tmp_path / "store") as pond, open_local(tmp_path / "other") as other:
        pond.execute(f"{STREAMS};{SUMMARIES}")
        register(pond, "0.6 probes", ["desc", "joined"])
        for name, own in rows.items():
            pond.ingest(name, own.slice(0, 70))
        pond.catch_up()
        with pytest.raises(MillpondError, match=r"(?s)POND-401.*query desc, query joined"):
            pond.execute("DROP SUMMARY si")
        again = "CREATE SUMMARY si ON s (item) WITH GRANULARITY 32 SECONDS AND COLLAPSE (3, 2)"
        pond.execute(f"DROP QUERY desc; DROP QUERY joined; DROP SUMMARY si; {again}")
        other.execute(f"{STREAMS};{SUMMARIES};DROP SUMMARY si;{again}")
        for each, start in ((other, 0), (pond, 70)):
            register(each, "0.6 probes", ["desc", "joined"])
            for name, own in rows.items():
                each.ingest(name, own.slice(start))
            each.execute(END)
        for name in ("desc", "joined"):
            found = read(pond, name)
            assert len(found) > 20
            assert found == read(other, name), name
