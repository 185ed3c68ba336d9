"""What EXPLAIN says of totals."""

from __future__ import annotations

from tests.unit.service.conftest import components_of, rows

from millpond.service.observe.explain_aggregates import describe_totals
from millpond.service.pond import Pond


def test_what_is_kept_and_what_an_answer_opens(pond: Pond) -> None:
    pond.execute("CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts")
    for start in (10, 20, 30):
        pond.ingest("s", rows(*range(start, start + 10)))
    query = pond.register("SELECT sum(v) AS n FROM s [RANGE 15 SECONDS] WHERE v > 1")
    pond.register("SELECT max(v) AS n FROM s WHERE v > 1")
    pond.register("SELECT max(v) AS n FROM s WHERE v > 2")
    bare = pond.register("SELECT max(v) AS n FROM s WHERE v > 1", materialize="none")
    pond.wait_until_matched()
    parts = components_of(pond)

    def describe(handle: object) -> dict[str, object]:
        definition = handle.definition  # type: ignore[attr-defined]
        bound = parts.registrar.bind(definition.text)
        return describe_totals(parts, parts.log.version, definition, bound)

    before = describe(query)
    assert before["segments at the window's edges"] == 1
    assert before["merged subtrees"] == 1
    assert before["stored totals"] == "0 of 0 large segments"
    assert before["shared by"] == 2
    assert before["bytes in memory"] == 0
    query.invoke()
    after = describe(query)
    assert int(str(after["bytes in memory"])) > 0
    assert describe(bare)["kept"] == "nothing: the query has no slot"
