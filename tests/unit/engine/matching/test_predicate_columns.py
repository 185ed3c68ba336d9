"""Predicates as columns: laid out, merged and chosen from, they stay what they were."""

from __future__ import annotations

import sqlglot
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.engine.matching.predicate_columns import PredicateColumns, gather, merge
from millpond.engine.predicates.factors import Factors, factorize, pack_bare
from millpond.model.schema import Field, Schema

STREAM = Schema((Field("a", "INTEGER"), Field("x", "DOUBLE"), Field("s", "VARCHAR")))
TEXTS = [
    "a = 5",
    "a <> 5 AND x > 2.5",
    "a IN (1, 2, 7) AND s = 'b'",
    "s BETWEEN 'a' AND 'bcd' OR a IS NULL",
    "x = 'nan'::DOUBLE OR a < 3 OR s = ''",
    "s LIKE 'long-prefix-%' AND (a = 1 OR x = 2) AND length(s) > 3",
    "x IS NOT NULL",
    "s > 'ü'",
]
EVERY = [factorize(sqlglot.parse_one(text, read="duckdb"), STREAM) for text in TEXTS]


def unpacked(columns: PredicateColumns, known: dict[int, Factors]) -> dict[int, Factors]:
    return {
        slot: Factors.unpack(pack_bare(columns.bare(place, known[slot].others)))
        for place, slot in enumerate(columns.slots.tolist())
    }


@settings(max_examples=40)
@given(st.lists(st.sampled_from(EVERY), min_size=2, max_size=12), st.data())
def test_columns_keep_every_predicate(queries: list[Factors], data: st.DataObject) -> None:
    known = dict(enumerate(queries))
    of_part = data.draw(st.lists(st.booleans(), min_size=len(known), max_size=len(known)))
    parts = [
        gather([(s, q.pack()) for s, q in known.items() if of_part[s] == side], STREAM)
        for side in (True, False)
    ]
    whole = merge([part for part in parts if len(part)])
    assert whole.slots.tolist() == sorted(known)
    assert unpacked(whole, known) == known
    assert whole.deferred.tolist() == [bool(q.others) for q in queries]
    kept = [place for place in range(len(known)) if of_part[place]]
    some = whole.select(whole.slots[kept])
    assert unpacked(some, known) == {slot: known[slot] for slot in kept}
    # Axes have the cuts that are used, and no others.
    for number, axis in enumerate(some.axes):
        used = {
            code
            for part, of_axis in enumerate(some.part_axis.tolist())
            if of_axis == number
            for code in some.cuts[some.cut_start[part] : some.cut_start[part + 1]].tolist()
        }
        assert used == set(range(1, len(axis) + 1))
