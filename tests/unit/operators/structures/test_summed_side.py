"""`operators/structures/summed_side.py`: lumps, and what stands for them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from millpond.operators.protocol.delta import Delta, positional_schema
from millpond.operators.structures.summed_side import SummedSide, meet

SCHEMA = positional_schema((pa.int32(), pa.float64()))
ROOM = 1 << 20


def delta(*rows: tuple[int, float | None, int]) -> Delta:
    """Rows of a key, a value and a weight, an instant apart."""
    keys, values, weights = zip(*rows, strict=True)
    columns = [pa.array(keys, pa.int32()), pa.array(values, pa.float64())]
    batch = pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
    return Delta.of(batch, np.arange(len(rows)), None, np.array(weights, np.int64))


def step(sides: tuple[SummedSide, SummedSide], ours: Delta, theirs: Delta) -> list[tuple]:
    """Let all of ours meet, then all of theirs; list what is given, by event, value and weight."""
    keys = [d.rows.column(0).to_numpy().astype(np.int64) for d in (ours, theirs)]
    most = max(int(k.max(initial=0)) for k in keys) + 1
    arrived = tuple(
        s.take_in(d, k, most) for s, d, k in zip(sides, (ours, theirs), keys, strict=True)
    )
    side = np.repeat(np.arange(2), (len(ours), len(theirs)))
    place = np.concatenate([np.arange(len(ours)), np.arange(len(theirs))])
    found = []
    for met in meet(sides, (arrived[0], arrived[1]), side, place, ROOM):
        kinds = [s.make_kinds()[0] for s in sides]
        for event, kind, weight in zip(met.event, met.kind, met.weight, strict=True):
            value = kinds[1 - side[event]][int(kind)].as_py()
            found.append((int(event), value, int(weight)))
    return found


def make_sides() -> tuple[SummedSide, SummedSide]:
    return SummedSide(SCHEMA, (0,), (1,)), SummedSide(SCHEMA, (0,), (1,))


NONE = delta((0, 0.0, 1)).slice(0, 0)


def test_a_row_meets_a_lump_and_not_its_rows() -> None:
    sides = make_sides()
    step(sides, delta(*((7, 0.5, 1) for _ in range(1000))), NONE)
    found = step(sides, NONE, delta((7, 1.0, 2), (8, 1.0, 1)))
    assert {event for event, _, _ in found} == {0}
    assert len(found) < 6
    assert sum(weight for _, _, weight in found) == 2 * 1000
    assert sum(value * weight for _, value, weight in found) == 2 * 500.0
    assert (sides[0].alive, sides[1].alive) == (1, 2)


def test_nulls_are_counted_apart() -> None:
    sides = make_sides()
    step(sides, delta((7, None, 1), (7, 3.0, 1), (7, None, 1)), NONE)
    found = step(sides, NONE, delta((7, 1.0, 1)))
    assert sum(weight for _, _, weight in found) == 3
    assert sum(weight for _, value, weight in found if value is not None) == 1
    assert sum(value * weight for _, value, weight in found if value is not None) == 3.0


def test_sums_forget_completely() -> None:
    sides = make_sides()
    step(sides, delta((7, 1.0, 1), (7, 1e300, 1), (7, 5e-324, 1)), NONE)
    step(sides, delta((7, 1e300, -1), (7, 5e-324, -1)), NONE)
    found = step(sides, NONE, delta((7, 0.0, 1)))
    assert sum(value * weight for _, value, weight in found) == 1.0


def test_lumps_without_rows_are_forgotten() -> None:
    sides = make_sides()
    rows = [(key, 0.1 * key, 1) for key in range(300)]
    step(sides, delta(*rows), NONE)
    step(sides, delta(*((key, value, -1) for key, value, _ in rows[1:])), NONE)
    assert sides[0].alive == 1
    assert sides[0].compact()
    assert len(sides[0].numbers()) == 1
    assert not sides[0].compact()
    found = step(sides, NONE, delta(*((key, 1.0, 1) for key in range(300))))
    assert {event for event, _, _ in found} == {0}


def test_what_is_given_at_once_is_bounded() -> None:
    sides = SummedSide(SCHEMA, (0, 1), ()), SummedSide(SCHEMA, (0, 1), ())
    ours, theirs = (delta(*((7, float(n), 1) for n in range(40))) for _ in range(2))
    arrived = [s.take_in(d, np.full(40, 7), 8) for s, d in zip(sides, (ours, theirs), strict=True)]
    side, place = np.repeat(np.arange(2), 40), np.tile(np.arange(40), 2)
    parts = list(meet(sides, (arrived[0], arrived[1]), side, place, 100))
    assert len(parts) > 10
    assert max(len(met.event) for met in parts) <= 102
    pairs = {(int(e), int(i)) for met in parts for e, i in zip(met.event, met.lump, strict=True)}
    assert len(pairs) == sum(len(met.event) for met in parts) == 1600


def test_a_weight_beyond_all_bounds_is_refused() -> None:
    sides = make_sides()
    step(sides, delta((7, 1.5, 1 << 40)), NONE)
    with pytest.raises(OverflowError):
        step(sides, NONE, delta((7, 1.0, 1 << 40)))


def test_sums_beyond_all_bounds_are_refused() -> None:
    sides = make_sides()
    with pytest.raises(OverflowError):
        step(sides, delta((7, 1.5, 1 << 61)), NONE)  # a digit times its copies
    step(sides, delta(*[(7, 0.0, 1 << 60)] * 3), NONE)
    with pytest.raises(OverflowError):
        step(sides, delta((7, 0.0, 1 << 60)), NONE)
