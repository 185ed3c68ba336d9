"""Looking elements of a Data SteM up by their places, in one part or in several."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from millpond.engine.joins.join_stem import JoinSteM, StemPart
from millpond.engine.joins.plan import Value

K = Value('"k"', "k", "integer")
SIZES = (3, 0, 4, 1)


@pytest.fixture
def stem() -> JoinSteM:
    """Parts of several sizes; an element's k is its place times ten, NULL at the last place."""
    parts, offset = [], 0
    for size in SIZES:
        places = range(offset, offset + size)
        values = [None if place == 7 else 10 * place for place in places]
        table = pa.table({"k": pa.array(values, pa.int32()), "__seq": pa.array(places, pa.int64())})
        parts.append(StemPart(table, offset, arrivals_of(table)))
        offset += size
    return JoinSteM(parts)


def arrivals_of(table: pa.Table):
    return lambda rows: 100 + table["__seq"].to_numpy()[rows]


@pytest.mark.parametrize(
    "places",
    [[], [0], [2, 0, 1], [3, 4, 5, 6], [6, 3], [2, 3], [7], [0, 7, 3, 1], [6, 7], [3, 2]],
)
def test_places_are_looked_up_in_whatever_parts_they_are(stem: JoinSteM, places: list[int]):
    at = np.array(places, np.int64)
    found = stem.gather(K, at)
    nulls = np.zeros(len(at), bool) if found.nulls is None else found.nulls
    values = [None if gone else n for n, gone in zip(found.numbers.tolist(), nulls, strict=True)]
    assert values == [None if place == 7 else 10 * place for place in places]
    assert stem.arrivals(at).tolist() == [100 + place for place in places]
    by_part = {int(i): part for part, mine in stem.by_part(at) for i in mine}
    assert len(by_part) == len(places)
    for i, part in by_part.items():
        assert part.offset <= places[i] < part.offset + len(part)
