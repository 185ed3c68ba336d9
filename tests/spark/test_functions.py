"""User-defined functions in Spark's workers: shipped, measured, kept across restarts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from millpond.errors import MillpondError

pytestmark = pytest.mark.spark

FACTOR = 3


def scaled(x: pa.Array) -> pa.Array:
    """Code of this module, which workers cannot import."""
    return pc.multiply(x, FACTOR)


def test_workers_call_what_was_defined(open_store: Callable[..., Any]) -> None:
    pond = open_store()
    pond.execute("CREATE STREAM s (ts TIMESTAMP, v BIGINT) TIMESTAMP BY ts")
    pond.function("scaled", scaled, arguments=["BIGINT"], returns="BIGINT")
    before = pond.register("SELECT scaled(v) AS v FROM s WHERE scaled(v) > 6")
    pond.ingest("s", [{"ts": f"2024-01-01 00:00:0{v}", "v": v} for v in range(5)])
    pond.wait_until_matched(timeout=120)
    (figures,) = pond.functions()
    assert figures["rows"] == 5, "matched in a worker, and told of"
    assert sorted(before.invoke().rows()) == [(9,), (12,)]
    after = pond.register("SELECT v FROM s WHERE scaled(v) = 6", "after")
    pond.wait_until_matched(timeout=120)
    assert after.invoke().rows() == [(2,)]

    @pond.function(arguments=["BIGINT"], returns="BIGINT")
    def unwilling(x: pa.Array) -> pa.Array:
        raise ValueError(f"not {x[0]}")

    failing = pond.register("SELECT v FROM s WHERE unwilling(v) > 1", "failing")
    pond.wait_until_matched(timeout=120)
    assert 'function "unwilling" raised ValueError: not 0' in failing.describe()["suspended"]
    pond.close()

    pond = open_store()
    pond.ingest("s", [{"ts": "2024-01-01 00:00:09", "v": 9}])
    pond.wait_until_matched(timeout=120)
    assert sorted(pond.query(before.name).invoke().rows()) == [(9,), (12,), (27,)]
    with pytest.raises(MillpondError, match="POND-402"):
        pond.query("failing").invoke()
