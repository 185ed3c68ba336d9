"""Derivations that are made: where their changes begin, and of whom there are none."""

from __future__ import annotations

import pytest
from tests.unit.service.changes.test_derivations import WINDOWED, parts, query
from tests.unit.service.conftest import rows

from millpond.catalog.objects import StreamDef
from millpond.errors import MillpondError
from millpond.model.time import BEGINNING
from millpond.service.components import Components
from millpond.service.pond import Pond

assert parts  # the fixture


def test_changes_begin_where_everything_is_kept(pond: Pond, parts: Components) -> None:
    pond.execute("CREATE STREAM short (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts RETAIN 5 SECONDS")
    for at in (10, 20, 30, 40):
        pond.ingest("short", rows(at))
    pond.wait_until_matched()
    version = parts.log.version
    stream = version.find("short")
    assert isinstance(stream, StreamDef)
    kept_from = version.clock(stream.id).kept_from
    assert kept_from > BEGINNING
    text = "SELECT v FROM short [RANGE 3 SECONDS]"
    log = parts.new_derivations.follow(query(pond, text, "q", changes="from beginning"))
    position = parts.log.version.clock(log.id).kept_from - 1
    # At the first instant that is delivered, all of its window is still there.
    assert position >= kept_from - 1
    plan = parts.derivations.of(parts.log.version, log).plan
    assert (plan.reach(position)["short"] or BEGINNING) >= kept_from
    # A window without an end begins with what is kept.
    everything = query(pond, "SELECT max(v) AS m FROM short", "all", changes="from beginning")
    log = parts.new_derivations.follow(everything)
    assert parts.log.version.clock(log.id).kept_from == kept_from


def test_a_query_that_was_dropped_has_no_changes(pond: Pond, parts: Components) -> None:
    gone = query(pond, WINDOWED, "q")
    pond.query("q").unregister()
    with pytest.raises(MillpondError, match='CQL-201: no query "q" any more'):
        parts.new_derivations.follow(gone)
