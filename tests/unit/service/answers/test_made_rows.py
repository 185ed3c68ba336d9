"""What joins make of few rows, as an estimate of bytes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from millpond.service.answers.made_rows import PAIR_BYTES, measure_pairs
from millpond.service.pond import Pond
from millpond.service.room import Room
from millpond.testing.local_runtime import open_local


@pytest.fixture(scope="module")
def pond(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pond]:
    with open_local(tmp_path_factory.mktemp("made") / "store") as pond:
        pond.execute("CREATE STREAM s (n BIGINT, t STRING); CREATE RELATION r (n BIGINT, u STRING)")
        yield pond


@pytest.mark.parametrize(
    ("query", "pairs"),
    [
        ("SELECT n FROM s", 0),
        ("SELECT n FROM s UNION ALL SELECT n FROM s", 0),
        ("SELECT a.n FROM s AS a, s AS b WHERE a.n = b.n", 0),
        ("SELECT a.n FROM s AS a JOIN r AS b USING (n)", 0),
        ("SELECT a.n FROM s AS a JOIN r AS b ON a.n = b.n AND a.t < b.u", 0),
        ("SELECT a.n FROM s AS a, s AS b", 100 * 100),
        ("SELECT a.n FROM s AS a JOIN s AS b ON a.n < b.n", 100 * 100),
        ("SELECT a.n FROM s AS a, s AS b WHERE a.n = a.n AND b.n = 1", 100 * 100),
        ("SELECT a.n FROM s AS a, s AS b WHERE a.n + 0 = b.n", 100 * 100),
        ("SELECT a.n FROM s AS a, s AS b, s AS c WHERE a.n = b.n", 100 * 100),
        ("SELECT a.n FROM s AS a, s AS b, r AS c", 100 * 100 * 10),
        ("SELECT n FROM s WHERE n IN (SELECT a.n FROM s AS a, r AS b)", 100 * 10),
        ("WITH c AS (SELECT n FROM s UNION ALL SELECT n FROM s) SELECT a.n FROM c AS a, r", 2000),
        (
            "SELECT a.n FROM (SELECT a.n FROM s AS a, r AS b) AS a, (SELECT n FROM r) AS b",
            100 * 10 + 100 * 10 * 10,
        ),
    ],
)
def test_pairs_are_counted_where_no_equality_narrows_them(
    pond: Pond, query: str, pairs: int
) -> None:
    bound = pond._components.registrar.bind(query)
    rows = {leaf.table: 100 for leaf in bound.streams} | {r.table: 10 for r in bound.relations}
    assert measure_pairs(bound, rows) == pairs * PAIR_BYTES


def test_a_product_of_many_is_a_number_still(pond: Pond) -> None:
    bound = pond._components.registrar.bind(
        f"SELECT a0.n FROM {', '.join(f's AS a{k}' for k in range(100))}"
    )
    assert measure_pairs(bound, {leaf.table: 100 for leaf in bound.streams}) == 1 << 50


@pytest.mark.parametrize("condition", ["a.n < b.n", "a.n < b.n AND a.n <> b.n", "a.n + b.n > 1"])
def test_an_invocation_holds_room_for_its_pairs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, condition: str
) -> None:
    """Whoever makes the pairs: DuckDB, or the join of a single link."""
    held: list[int] = []
    hold = Room.hold

    def note(room: Room, size: int) -> AbstractContextManager[None]:
        held.append(size)
        return hold(room, size)

    monkeypatch.setattr(Room, "hold", note)
    with open_local(tmp_path / "store") as pond:
        pond.execute("CREATE STREAM s (n BIGINT)")
        pond.ingest("s", [{"n": n} for n in range(100)])
        pond.catch_up()
        held.clear()
        pond.ask(f"SELECT count(*) AS c FROM s a, s b WHERE {condition}")
    assert max(held) >= 100 * 100 * 16
