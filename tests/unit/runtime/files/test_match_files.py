"""Files of matches: written while matches are found, folded piece by piece."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from sqlglot import parse_one

from millpond.engine.matching.match import match
from millpond.engine.matching.query_stem import snapshot_queries
from millpond.engine.matching.results_structure import ORDER, MatchReader
from millpond.engine.matching.stem_snapshot import StemSnapshot
from millpond.engine.predicates.factors import factorize
from millpond.engine.scalars.evaluator import ScalarEvaluator
from millpond.model.schema import Field, Schema
from millpond.runtime.files.match_files import failed_slots, fold_matches, write_matches
from millpond.state.arrow_file import open_arrow

SCHEMA = Schema((Field("v", "INTEGER"), Field("s", "VARCHAR")))
ELEMENTS = pa.table({"v": pa.array(np.arange(5_000) % 997, pa.int32()), "s": ["x", "7"] * 2_500})

#: Matches 262,144 elements with queries each of which wants about half of them, by one of so many
#: attributes that no order of elements makes the matches smaller, and folds the file; tells how
#: long it is, and the most that the process has held besides mapped files, in MB.
_TASK = """
import json, sys, threading, time
from pathlib import Path
import numpy as np
import pyarrow as pa
from sqlglot import parse_one
from millpond.engine.matching.query_stem import snapshot_queries
from millpond.engine.predicates.factors import factorize
from millpond.model.schema import Field, Schema
from millpond.runtime.files.match_files import fold_matches, write_matches
from millpond.state.arrow_file import open_arrow

held = [0]

def watch():
    while True:
        lines = Path("/proc/self/status").read_text().splitlines()
        held.append(int(dict(line.split(":", 1) for line in lines)["RssAnon"].split()[0]) >> 10)
        time.sleep(0.01)

threading.Thread(target=watch, daemon=True).start()
names, queries = [f"v{n}" for n in range(48)], int(sys.argv[2])
schema, random = Schema(tuple(Field(name, "INTEGER") for name in names)), np.random.default_rng(1)
bounds = np.linspace(400_000, 600_000, queries).astype(int)
parsed = [
    (n, factorize(parse_one(f"{names[n % 48]} > {b}"), schema)) for n, b in enumerate(bounds)
]
elements = pa.table(
    {name: random.integers(0, 1_000_000, 1 << 18).astype(np.int32) for name in names}
)
_, file = write_matches(sys.argv[1], elements, snapshot_queries(parsed, schema))
folded = fold_matches(sys.argv[1], [open_arrow(file.path)], range(queries))
print(json.dumps([file.bytes >> 20, folded.rows, max(held)]))
"""


@pytest.fixture
def store(tmp_path: Path) -> str:
    (tmp_path / "matches").mkdir()
    return str(tmp_path)


def stem_of(*texts: str) -> StemSnapshot:
    parsed = [(n, factorize(parse_one(t, read="duckdb"), SCHEMA)) for n, t in enumerate(texts)]
    return snapshot_queries(parsed, SCHEMA)


def in_order(table: pa.Table) -> pa.Table:
    return table.replace_schema_metadata().sort_by("slot")


def test_a_file_has_what_is_found(store: str) -> None:
    stem = stem_of("v > 500", "v = 7", "s LIKE '%7'", "v % 2 = 0 AND v < 100", "TRUE", "v < 0")
    found, file = write_matches(store, ELEMENTS, stem)
    expected = match(ELEMENTS, stem, ScalarEvaluator.of_this_thread())
    table = open_arrow(file.path, file.checksum)
    assert in_order(table).equals(in_order(expected.to_table()))
    assert found.batches == []
    assert found.matched == expected.matched == sum(table["count"].to_pylist())
    assert (file.rows, failed_slots(table)) == (table.num_rows, frozenset())


def test_slots_that_fail_or_wait_are_noted_and_no_other_file_is_left(store: str) -> None:
    stem = stem_of("v > 500", "CAST(s AS INTEGER) = 7")
    found, file = write_matches(store, ELEMENTS, stem, deferred=(9,))
    assert found.failed.keys() == {1}
    assert failed_slots(open_arrow(file.path, file.checksum)) == {1, 9}
    assert list(Path(store, "matches").iterdir()) == [file.path]
    _, waiting = write_matches(store, ELEMENTS, stem_of("v > 500"), deferred=(9,))
    assert failed_slots(open_arrow(waiting.path)) == {9}


def test_what_is_folded_has_the_live_slots_of_all_parts(store: str) -> None:
    parts = [
        write_matches(store, ELEMENTS, stem_of("v > 500", "CAST(s AS INTEGER) = 7"))[1],
        write_matches(store, ELEMENTS, stem_of("FALSE", "FALSE", "v < 9", "v < 7"))[1],
    ]
    file = fold_matches(store, [open_arrow(part.path) for part in parts], (0, 1, 3))
    folded = open_arrow(file.path, file.checksum)
    assert failed_slots(folded) == {1}
    whole = match(ELEMENTS, stem_of("v > 500", "FALSE", "FALSE", "v < 7"), ScalarEvaluator())
    assert in_order(folded).equals(in_order(whole.to_table()))


def test_matches_with_like_elements_side_by_side_are_folded_with_their_orders(store: str) -> None:
    """Each part has an order of its own, and what matches is read by it."""
    random = np.random.default_rng(3)
    elements = pa.table(
        {
            "v": random.integers(0, 1_000, 40_000).astype(np.int32),
            "s": random.choice(["x", "7"], 40_000),
        }
    )
    bounds = [(300 + n, 700 + 3 * n) for n in range(80)]
    of_v = [f"v > {low} AND v < {high}" for low, high in bounds]
    of_s = [f"{text} AND s = 'x'" for text in of_v]
    parts = [write_matches(store, elements, stem_of(*of_v))[1]]
    parts.append(write_matches(store, elements, stem_of(*["FALSE"] * 80, *of_s))[1])
    tables = [open_arrow(part.path) for part in parts]
    assert all(table["encoding"].to_pylist().count(ORDER) == 1 for table in tables)
    file = fold_matches(store, tables, range(40, 120))
    reader = MatchReader(open_arrow(file.path, file.checksum))
    assert reader.slots.tolist() == list(range(40, 120))
    values, names = elements["v"].to_numpy(), np.array(elements["s"].to_pylist())
    for slot in range(40, 120):
        low, high = bounds[slot % 80]
        chosen = (values > low) & (values < high) & ((names == "x") | (slot < 80))
        assert reader.rows(slot, 0, 40_000).tolist() == np.flatnonzero(chosen).tolist()


def test_a_task_does_not_hold_the_matches_of_all_queries(store: str) -> None:
    """A gigabyte of them came on top of what a task holds before they were written as found."""
    told = {}
    for queries in (512, 32_768):
        command = [sys.executable, "-c", _TASK, store, str(queries)]
        run = subprocess.run(command, check=True, capture_output=True, text=True)
        told[queries] = json.loads(run.stdout)
    (few, _, least), (many, slots, most) = told.values()
    assert few > 10
    assert slots >= 32_768
    assert many > 1_000
    assert most - least < 250
