"""Answers over a derived stream that has stopped: those it has no elements for are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from millpond.errors import MillpondError
from millpond.service.pond import Pond
from millpond.testing.local_runtime import open_local

SCHEMA = """
CREATE STREAM f (ts TIMESTAMP, t STRING) TIMESTAMP BY ts;
CREATE STREAM parsed AS SELECT ts, CAST(t AS BIGINT) AS x FROM f;
CREATE STREAM small AS SELECT ts, x FROM parsed WHERE x < 10;
CREATE STREAM lengths AS SELECT ts, length(t) AS x FROM f;
CREATE QUERY parsed_rows AS SELECT count(*) AS n FROM parsed;
CREATE QUERY small_rows AS SELECT count(*) AS n FROM small;
CREATE QUERY length_rows AS SELECT count(*) AS n FROM lengths;
"""


def push(pond: Pond, *texts: str, minute: int) -> None:
    rows = [{"ts": f"2026-03-01 00:{minute:02}:{s:02}", "t": t} for s, t in enumerate(texts)]
    pond.ingest("f", rows)
    pond.catch_up(timeout=60)


@pytest.mark.parametrize("name", ["parsed_rows", "small_rows"])
def test_what_a_stopped_stream_lacks_is_no_answer(tmp_path: Path, name: str) -> None:
    with open_local(tmp_path / "store") as pond:
        pond.execute(SCHEMA)
        push(pond, "1", "2", "3", minute=0)
        push(pond, "x", "5", "6", minute=1)
        push(pond, "7", minute=2)
        for at in (None, "2026-03-01 00:01:02"):
            with pytest.raises(MillpondError, match=r'POND-406: stream "parsed" has stopped'):
                pond.query(name).invoke(at)
        assert pond.query(name).invoke("2026-03-01 00:00:01").rows() == [(2,)]
        assert pond.query("length_rows").invoke("2026-03-01 00:01:02").rows() == [(6,)]
