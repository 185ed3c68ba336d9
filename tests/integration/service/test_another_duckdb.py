"""A store that another DuckDB has worked on: what was derived is made again, nothing else."""

from __future__ import annotations

import logging
from pathlib import Path

import duckdb
import pytest
from tests.unit.service.conftest import OpenPond, components_of, rows, values

from millpond.service.pond import Pond
from millpond.state.scalar_version import FILE
from millpond.state.store import Store

SCRIPT = """
CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts;
CREATE STREAM t (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts;
CREATE SUMMARY seen ON s (v) WITH GRANULARITY INTERVAL 1 HOUR AND COLLAPSE (4, 6);
CREATE QUERY q AS SELECT v FROM s WHERE v > 1;
CREATE QUERY j AS SELECT s.v FROM s, t WHERE s.v = t.v;
CREATE QUERY f WITH (changes = 'from beginning') AS SELECT v FROM s WHERE v < 3
"""


@pytest.fixture
def filled(pond: Pond) -> tuple[Path, str]:
    """A closed store with matches, joined pairs and changes; and the cursor behind them."""
    pond.execute(SCRIPT)
    for name in ("s", "t"):
        pond.ingest(name, rows(1, 2, 3, 4))
    pond.catch_up()
    pond.wait_until_matched()
    cursor = pond.query("f").fetch().cursor
    version = components_of(pond).log.version
    assert any(version.matches_of.values())
    assert any(version.joins.pairs(id) for id in version.joins.cores)
    store = components_of(pond)._store.directory
    pond.close()
    return store, cursor


@pytest.mark.parametrize("before", ["1.9.0\n", None], ids=["another", "unknown"])
def test_what_was_derived_by_another_is_made_again(
    filled: tuple[Path, str],
    open_pond: OpenPond,
    caplog: pytest.LogCaptureFixture,
    before: str | None,
) -> None:
    store, cursor = filled
    assert (store / FILE).read_text() == f"{duckdb.__version__}\n"
    (store / FILE).unlink()
    if before is not None:
        (store / FILE).write_text(before)
    with caplog.at_level(logging.WARNING), Store.open(store) as opened:
        version = opened.log.version
        assert not any(version.matches_of.values())
        assert not any(version.joins.pairs(id) for id in version.joins.cores)
        assert all(core.upto == 0 for core in version.joins.cores.values())
        assert not any(summary.file for summary in version.summaries.values())
        epoch = version.epoch
    (said,) = [r.getMessage() for r in caplog.records if "are made again" in r.getMessage()]
    assert ("DuckDB 1.9.0" if before else "an unknown DuckDB") in said
    with Store.open(store) as opened:
        assert opened.log.version.epoch == epoch, "the second opening finds nothing to do"
    pond = open_pond()
    pond.wait_until_matched()
    assert any(components_of(pond).log.version.matches_of.values())
    assert values(pond.query("q").invoke()) == [2, 3]
    assert values(pond.query("j").invoke()) == [0, 1, 2, 3]
    assert [change.row for change in pond.query("f").fetch(0)] == [(0,), (1,), (2,)]
    assert len(pond.query("f").fetch(cursor)) == 0


def test_one_of_the_same_version_is_left_alone(
    filled: tuple[Path, str], open_pond: OpenPond
) -> None:
    version = components_of(open_pond()).log.version
    assert any(version.matches_of.values())
