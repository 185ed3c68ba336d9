"""Every file of a store is its owner's alone, whatever the umask is and whoever wrote it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from millpond.service.pond import Pond
from millpond.state.check_and_repair.repair import repair_store
from millpond.testing.local_runtime import open_local
from millpond.testing.manual_clock import ManualClock

LIFE = """
    CREATE STREAM s (ts TIMESTAMP, k STRING, v INTEGER) TIMESTAMP BY ts;
    CREATE STREAM t (ts TIMESTAMP, k STRING, v INTEGER) TIMESTAMP BY ts;
    CREATE RELATION r (k STRING, n INTEGER);
    INSERT INTO r VALUES ('a', 1);
    CREATE STREAM d AS SELECT v FROM s;
    CREATE QUERY mine AS SELECT v FROM s WHERE twice(v) > 2;
    CREATE QUERY more AS SELECT v FROM s WHERE v > 1;
    CREATE QUERY joined AS SELECT s.v, t.v AS w FROM s, t WHERE s.k = t.k;
    CREATE QUERY followed WITH (changes = 'from beginning') AS SELECT k, count(*) FROM s GROUP BY k;
"""


@pytest.fixture(params=[0, 0o022])
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def others_may_read(store: Path) -> dict[str, str]:
    """Everything in a store, the directory too, that others than its owner may touch."""
    every = [store, *store.rglob("*")]
    assert len(every) > 20
    return {
        str(path.relative_to(store)): oct(bits)
        for path in every
        if (bits := stat.S_IMODE(path.lstat().st_mode)) & 0o077
    }


def live(pond: Pond) -> None:
    pond.function(
        "twice",
        lambda v: pa.array([2 * x for x in v.to_pylist()]),
        arguments=["BIGINT"],
        returns="BIGINT",
    )
    pond.execute(LIFE)
    for second in range(1, 5):
        for name in ("s", "t"):
            row = {"ts": f"1970-01-01 00:00:{second:02}", "k": "a", "v": second}
            pond.ingest(name, [row, {"ts": "no time", "k": "a", "v": 1}], idempotency_key=str(row))
    pond.wait_until_matched()
    for name in ("mine", "more", "joined"):
        assert pond.query(name).invoke().rows()
    assert pond.query("followed").fetch().rows()


def test_every_file_is_its_owners(umask: None, tmp_path: Path) -> None:
    store = tmp_path / "store"
    with open_local(store, clock=ManualClock()) as pond:
        live(pond)
        assert others_may_read(store) == {}
        seen = {path.relative_to(store).parts[0] for path in store.rglob("*") if path.is_file()}
    assert {"segments", "rejects", "matches", "relations", "runs", "functions", "journal"} <= seen
    assert {"pond.db", "pond.db-wal", "LOCK", "FORMAT", "stems"} <= seen
    assert others_may_read(store) == {}
    (store / "segments" / "stray.arrow").write_bytes(b"")
    for path in (store, *store.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    with open_local(store, clock=ManualClock()) as pond:
        assert others_may_read(store) == {}
        assert pond.query("more").invoke().rows()
    assert list((store / "set_aside").rglob("stray.arrow"))
    repair_store(store, tmp_path / "repaired")
    assert others_may_read(tmp_path / "repaired") == {}
