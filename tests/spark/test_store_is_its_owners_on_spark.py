"""What Spark writes into a store, in a process of Millpond's own, is its owner's alone."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow]

#: It looks at the store while it is open, and again when it is closed.
PROGRAM = """
import os, stat, sys
from pathlib import Path
import millpond, pyarrow as pa
store = Path(sys.argv[1])
with millpond.open(store, master="local[1]") as mp:
    mp.execute(f"CREATE STREAM s (ts TIMESTAMP, k STRING, v INTEGER) TIMESTAMP BY ts USING csv "
               f"OPTIONS (path '{sys.argv[2]}', header 'true')")
    mp.execute("CREATE STREAM t (ts TIMESTAMP, k STRING, v INTEGER) TIMESTAMP BY ts")
    mp.function("twice", lambda v: pa.array([2 * x for x in v.to_pylist()]),
                arguments=["BIGINT"], returns="BIGINT")
    mp.execute("CREATE QUERY q AS SELECT v FROM t WHERE twice(v) > 2;"
               "CREATE STREAM d AS SELECT v FROM t;"
               "CREATE QUERY j AS SELECT t.v FROM s, t WHERE s.k = t.k")
    mp.ingest("t", [{"ts": f"2013-01-01 00:00:0{i}", "k": "a", "v": i} for i in range(4)])
    mp.wait_until_matched()
    mp.catch_up()
    while not mp.query("j").invoke().rows():
        mp.catch_up()
    every = [store, *store.rglob("*")]
    for path in every:
        try:
            bits = stat.S_IMODE(path.lstat().st_mode)
        except FileNotFoundError:
            continue
        if bits & 0o077:
            print(oct(bits), path)
    print(len(every), "looked at")
"""


def test_what_spark_writes(tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    (source / "a.csv").write_text("ts,k,v\n2013-01-01 00:00:00,a,1\n")
    store = tmp_path / "store"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(store), str(source)],
        capture_output=True,
        text=True,
        timeout=240,
        umask=0,
        check=False,
        env={**os.environ, "MILLPOND_FUNCTION_KEY": str(tmp_path / "key")},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    (line,) = done.stdout.splitlines()
    assert int(line.split()[0]) > 40
    for path in (store, *store.rglob("*")):
        assert not stat.S_IMODE(path.lstat().st_mode) & 0o077, path
