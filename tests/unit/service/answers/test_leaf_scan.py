"""Leaves of kept segments: where elements are found, what matches, and which files stay open."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.unit.service.conftest import SECOND, RecordedEvents, components_of, rows
from tests.unit.service.versions import SCHEMA, segment

from millpond.cql import parse_query
from millpond.engine.predicates.factors import Factors, factorize
from millpond.errors import MillpondError
from millpond.service.answers import leaf_scan
from millpond.service.answers.leaf_scan import Files, LeafView, OpenSegment
from millpond.service.components import Components
from millpond.service.pond import Pond
from millpond.state.version import SegmentRef


def opened(arrivals: list[int]) -> OpenSegment:
    """A segment whose rows arrived with these numbers."""
    runs = tuple((i, number) for i, number in enumerate(arrivals))
    ref = replace(segment(1, 0, 9, rows=len(arrivals)), seq_runs=runs)
    count = range(len(arrivals))
    table = pa.table({"__ts": pa.array(count, pa.int64()), "__seq": pa.array(count, pa.int32())})
    return OpenSegment(ref, table)


@pytest.mark.parametrize(
    "arrivals",
    [
        [5, 6, 7, 8],
        [8, 6, 5, 7],
        [5, 7, 8, 12],
        [12, 5, 8],
        [5, 900, 40_000],
        [40_000, 5, 900],
        [7],
    ],
    ids=str,
)
def test_elements_are_found_by_their_arrival(arrivals: list[int]) -> None:
    segment = opened(arrivals)
    assert segment.arrived == (min(arrivals), max(arrivals))
    known = {number: row for row, number in enumerate(arrivals)}
    for asked in (arrivals, [4, *arrivals, 6, 900, 50_000], [1, 2], [99_999], []):
        places, found = segment.locate(np.array(asked, np.int64))
        if places is None:
            assert all(number in known for number in asked)
            places = np.arange(len(asked))
        assert places.tolist() == [i for i, number in enumerate(asked) if number in known]
        assert found.tolist() == [known[n] for n in asked if n in known]


def test_only_the_last_few_results_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaf_scan, "_KEPT", 2)
    segment, computed = opened([1]), []

    def of(key: str) -> None:
        def compute() -> np.ndarray:
            computed.append(key)
            return np.zeros(1)

        segment.get_or_compute((key,), compute)

    for key in "abacab":
        of(key)
    assert computed == ["a", "b", "c", "b"]


@pytest.fixture
def parts(pond: Pond) -> Components:
    """Four elements with v from 0 to 3, matched by `q`: v >= 2."""
    pond.execute("CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts")
    pond.register("SELECT v FROM s WHERE v >= 2", "q")
    pond.ingest("s", rows(10, 20, 30, 40))
    pond.wait_until_matched()
    return components_of(pond)


def only_segment(parts: Components) -> SegmentRef:
    (found,) = parts.log.version.segments_by_id.values()
    return found


def factors(predicate: str) -> Factors:
    tree: Any = parse_query(f"SELECT v FROM s WHERE {predicate}").args["where"].this
    return factorize(tree, SCHEMA)


def open_files(parts: Components, events: Any = None) -> Files:
    return Files(parts.invoker.files._store, events or RecordedEvents())


def view(
    parts: Components, predicate: str | None, slot: int | None = None, **others: Any
) -> LeafView:
    given = {"files": open_files(parts), "sample": None, **others}
    files, sample = given["files"], given["sample"]
    found = None if predicate is None else factors(predicate)
    return LeafView(files, parts.log.version, only_segment(parts), SCHEMA, found, slot, sample)


def matching(view: LeafView, lo: int, hi: int) -> list[int] | None:
    found = view.matching(lo, hi)
    return None if found is None else found.tolist()


def test_stored_matches_come_before_the_predicate(parts: Components) -> None:
    assert matching(view(parts, None), 0, 4) is None
    # The predicate given is not that of the slot, to see who is asked.
    assert matching(view(parts, "v = 1", slot=0), 0, 4) == [2, 3]
    assert matching(view(parts, "v = 1", slot=0), 3, 4) == [3]
    assert matching(view(parts, "v = 1"), 0, 4) == [1]
    assert matching(view(parts, "v >= 1"), 2, 4) == [2, 3]
    assert matching(view(parts, "v = 1", slot=5), 0, 4) == [1]


def test_without_its_file_a_segment_is_matched_anew(parts: Components) -> None:
    (ref,) = parts.log.version.matches(only_segment(parts).id)
    events = RecordedEvents()
    files = open_files(parts, events)
    (files._store / ref.path).write_bytes(b"torn")
    assert matching(view(parts, "v = 1", slot=0, files=files), 0, 4) == [1]
    assert events.calls == [("matches_torn", ref)]


def test_a_predicate_that_cannot_be_evaluated_says_so(parts: Components) -> None:
    with pytest.raises(MillpondError, match="POND-404: the query's predicate") as failure:
        view(parts, "CAST(CASE WHEN v > 2 THEN 'x' ELSE '3' END AS INTEGER) = 1").matching(0, 4)
    assert "'x'" in (failure.value.detail or "")


def test_a_sample_is_of_what_matches(parts: Components) -> None:
    assert matching(view(parts, "v >= 1", sample=(7, 100.0)), 0, 4) == [1, 2, 3]
    assert matching(view(parts, None, sample=(7, 0.0)), 0, 4) == []
    one = matching(view(parts, None, sample=(7, 50.0)), 0, 4)
    assert one is not None
    # Which elements are in a sample does not depend on what is asked.
    parted = [matching(view(parts, None, sample=(7, 50.0)), at, at + 1) for at in range(4)]
    assert one == [row for rows in parted for row in rows or ()]


def test_rows_are_taken_in_one_piece_or_one_by_one(parts: Components) -> None:
    own = view(parts, None)
    assert (own.min_ts, own.max_ts) == (10 * SECOND, 40 * SECOND)
    for wanted in ([1, 2], [0, 3], [2], []):
        assert own.take(np.array(wanted, np.int64), ["v"])["v"].to_pylist() == wanted
    assert own.span(1, 3, ["v"])["v"].to_pylist() == [1, 2]
    assert own.sequence(np.array([3, 0])).tolist() == [3, 0]


def test_the_files_used_longest_ago_are_closed(
    parts: Components, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leaf_scan, "_OPEN_SEGMENTS", 2)
    files = open_files(parts)
    ref = only_segment(parts)
    refs = [replace(ref, path=f"{folder}{ref.path}") for folder in ("", "./", "././")]
    first = files.segment(refs[0])
    files.segment(refs[1])
    assert files.segment(refs[0]) is first
    files.segment(refs[2])
    assert set(files._segments) == {refs[0].path, refs[2].path}
    files.forget([refs[0].path, "another"])
    assert set(files._segments) == {refs[2].path}


def test_a_segment_that_is_missing_is_damage(tmp_path: Path) -> None:
    events: Any = RecordedEvents()
    files = Files(tmp_path, events)
    with pytest.raises(MillpondError, match="STORE-602"):
        files.segment(segment(1, 0, 9))
    pairs: Any = segment(1, 0, 9)  # it has a path and a checksum, as pairs have
    assert files.pairs(pairs) is None
