"""Which stores of elements lend to which."""

from __future__ import annotations

import pytest
from tests.oracle.oracle_pond import OraclePond
from tests.tools.changes_play import plan_query

from millpond.engine.dataflow.lenders import Lending, find_lending
from millpond.operators.protocol.node import Node
from millpond.operators.select import Select
from millpond.operators.windows.shared_window import KeptElements
from millpond.planner.dataflow.plan import find_needed_columns, list_in_order


@pytest.fixture(scope="module")
def pond() -> OraclePond:
    pond = OraclePond()
    pond.execute(
        "CREATE STREAM s (at TIMESTAMP, k VARCHAR, v INTEGER, w DOUBLE, d DECIMAL(9, 2)) "
        "TIMESTAMP BY at DELAY 0 SECONDS"
    )
    return pond


def find(roots: list[Node]) -> Lending:
    return find_lending(list(list_in_order(roots)), find_needed_columns(roots))


def lend(pond: OraclePond, *queries: str) -> dict[str, str]:
    """Who lends to whom, by the texts of their selections."""
    roots = []
    for query in queries:
        what, _, rest = query.partition(" / ")
        window, _, selection = rest.partition(" / ")
        where = f"WHERE {selection}" if selection else ""
        text = f"SELECT k, {what} AS a FROM s [{window}] {where} GROUP BY k"
        roots.append(plan_query(pond.world, text).root)
    found = find(roots)
    stores = {n.key: n for root in roots for n in list_nodes(root) if isinstance(n, KeptElements)}

    def name(store: KeptElements) -> str:
        return store.input.text if isinstance(store.input, Select) else "all"

    return {
        name(stores[key]): name(lender)
        for key, lender in found.lenders.items()
        if isinstance(lender, KeptElements)
    }


def list_nodes(node):  # type: ignore[no-untyped-def]
    yield node
    for below in node.inputs:
        yield from list_nodes(below)


IMPLIED = [
    ("v > 5", "v > 1"),
    ("v >= 5", "v > 4.5"),
    ("v = 5", "v BETWEEN 1 AND 9"),
    ("v > 1 AND k = 'a'", "v > 1"),
    ("k = 'a'", "k IN ('a', 'b')"),
    ("k = 'a' AND w / 2 > 1", "k = 'a'"),
    ("w > 2.5", "w >= 2.5"),
    ("d > 2.55", "d > 2.5"),
    ("at > CAST('2026-01-02' AS TIMESTAMP)", "at > CAST('2026-01-01' AS TIMESTAMP)"),
    ("v > 5", "v > 1 OR k = 'a'"),
    ("v > 5", "v IS NOT NULL"),
]


@pytest.mark.parametrize(("narrow", "wide"), IMPLIED)
@pytest.mark.parametrize("turned", [False, True])
def test_the_wider_lends_to_the_narrower(
    pond: OraclePond, narrow: str, wide: str, turned: bool
) -> None:
    texts = [f"sum(v) / RANGE 5 SECONDS / {some}" for some in (narrow, wide)]
    assert lend(pond, *(reversed(texts) if turned else texts)) == {narrow: wide}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("v > 5", "v < 9"),
        ("v > 5", "w > 1"),
        ("v > 5 AND w > 1", "v > 6"),
        ("k = 'a'", "k <> 'a'"),
        # Whoever has no rows has none for others.
        ("v > 5", "v BETWEEN 9 AND 3"),
        ("v > 5 AND v < 3", "v BETWEEN 9 AND 3"),
        # A selection that may fail on a row is not asked for others.
        ("v > 1 AND 1 / v > 0", "1 / v > 0"),
    ],
)
def test_who_does_not_imply_does_not_borrow(pond: OraclePond, one: str, other: str) -> None:
    texts = [f"sum(v) / RANGE 5 SECONDS / {some}" for some in (one, other)]
    assert lend(pond, *texts) == {}


def test_who_has_everything_lends_to_all(pond: OraclePond) -> None:
    texts = [f"sum(v) / RANGE 5 SECONDS / {some}" for some in ("v > 1", "v > 2", "w > 3", "")]
    assert lend(pond, *texts) == {"v > 1": "all", "v > 2": "all", "w > 3": "all"}


def test_a_lender_does_not_borrow_and_has_the_most_conjuncts(pond: OraclePond) -> None:
    texts = [f"sum(v) / RANGE 5 SECONDS / v > {n}" for n in (1, 2, 3)]
    assert lend(pond, *texts) == {"v > 2": "v > 1", "v > 3": "v > 1"}
    wide = "v > 1 AND w > 1"
    texts = [
        f"sum(v) / RANGE 5 SECONDS / {some}"
        for some in ("v > 1 AND w > 1 AND k = 'a'", wide, "k IN ('a', 'b')")
    ]
    assert lend(pond, *texts) == {"v > 1 AND w > 1 AND k = 'a'": wide}


def test_nobody_keeps_more_because_of_others(pond: OraclePond) -> None:
    """Not for longer, and not more columns (INV-LEND-1)."""
    short, long = "RANGE 5 SECONDS", "RANGE 6 SECONDS"
    assert lend(pond, f"sum(v) / {long} / v > 5", f"sum(v) / {short} / v > 1") == {}
    assert lend(pond, f"sum(v) / {short} / v > 5", f"sum(v) / {long} / v > 1") != {}
    assert lend(pond, f"sum(w) / {short} / v > 5", f"sum(v) / {short} / v > 1") == {}
    sliding = "RANGE 4 SECONDS SLIDE 3 SECONDS"
    assert lend(pond, f"sum(v) / {sliding} / v > 5", f"sum(v) / {long} / v > 1") == {}
    assert lend(pond, f"sum(v) / {sliding} / v > 5", f"sum(v) / {sliding} / v > 1") != {}


def test_of_two_selections_of_the_same_rows_one_lends(pond: OraclePond) -> None:
    found = lend(pond, "sum(v) / NOW / v > 5", "sum(v) / NOW / v >= 6", "sum(v) / NOW / v > 7")
    assert len(found) == 2
    assert set(found.values()) < {"v > 5", "v >= 6"}


def test_who_has_operators_for_himself_neither_lends_nor_borrows(pond: OraclePond) -> None:
    nodes = [plan_query(pond.world, f"SELECT sum(v) FROM s [NOW] WHERE v > {n}") for n in (1, 2)]
    assert find([plan.root for plan in nodes]).lenders
    assert not find([own(nodes[0].root), nodes[1].root]).lenders


def own(node):  # type: ignore[no-untyped-def]
    inputs = tuple(map(own, node.inputs))
    found = node if inputs == node.inputs else node.over_inputs(inputs)
    return found.own_by("7") if found.inputs else found
