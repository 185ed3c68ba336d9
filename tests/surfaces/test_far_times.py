"""Instants and days before the year 1, after 9999, and infinite, by every way out."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pyarrow as pa
import pytest

from millpond.api import decode
from millpond.cli.output_format import Format
from millpond.cli.result_writers import writer
from millpond.model.far_times import format_ticks, parse_ticks
from millpond.service.json_values import json_rows

QUERY = """SELECT TIMESTAMP '-0044-03-15 01:02:03' AS t, DATE '-0044-03-15' AS d,
  TIMESTAMP '20000-01-01' AS late, DATE 'infinity' AS never, TIMESTAMP '-infinity' AS always,
  DATE '2026-01-01' AS day, [DATE '-0044-03-15'] AS days,
  map([1], [DATE '0044-03-15 (BC)']) AS part"""

SHOWN = [
    "-0044-03-15T01:02:03.000000",
    "-0044-03-15",
    "20000-01-01T00:00:00.000000",
    "infinity",
    "-infinity",
    "2026-01-01",
    ["-0044-03-15"],
    [[1, "-0043-03-15"]],
]


def test_in_json(pond, http):
    answer = http.post("/v1/statements", json={"text": QUERY}).json()["results"][0]
    assert answer["rows"] == [SHOWN]
    assert decode.table({k: v[:6] if k != "rows" else [v[0][:6]] for k, v in _table(answer)}) == (
        pond.ask(QUERY).table.select(range(6))
    )


def _table(answer):
    return [(key, answer[key]) for key in ("columns", "types", "rows")]


@pytest.mark.parametrize("format", Format)
def test_from_the_command_line(pond, format):
    out = io.StringIO()
    writer(format, out).write(pond.execute(QUERY)[0])
    text = out.getvalue()
    if format is Format.JSON:
        assert json.loads(text)["rows"] == [SHOWN]
    elif format is Format.CSV:
        assert list(csv.reader(text.splitlines()))[1][:6] == SHOWN[:6]
    else:
        assert all(str(value).replace("T", " ")[:11] in text for value in SHOWN[:6])


def test_in_python(pond):
    (row,) = pond.ask(QUERY).rows()
    assert row[:2] == ("-0044-03-15 01:02:03.000000", "-0044-03-15")
    assert row[3:5] == ("infinity", "-infinity")
    assert row[6:] == (["-0044-03-15"], [(1, "-0043-03-15")])


def test_every_text_reads_back():
    days = np.array([-(2**31) + 1, -3_000_000, -735_629, -719_529, -719_528, 0, 2**31 - 1])
    instants = np.array([-(2**63) + 1, -(2**62), -62_167_219_200_000_001, 0, 2**62, 2**63 - 1])
    assert [
        parse_ticks(text, "D") for text in format_ticks(days.astype("datetime64[D]"))
    ] == days.tolist()
    texts = format_ticks(instants.astype("datetime64[us]"))
    assert [parse_ticks(text, "us") for text in texts] == instants.tolist()


def test_what_is_absent_is_null():
    days = pa.table({"d": pa.array([None, -735_629], pa.int32()).cast(pa.date32())})
    assert json_rows(days) == [[None], ["-0045-12-02"]]


def test_an_element_far_in_the_future_is_shown_everywhere(pond, http):
    pond.execute("CREATE STREAM far (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts AHEAD UNBOUNDED")
    pond.execute("CREATE QUERY q AS SELECT v FROM far")
    pond.ingest("far", [{"ts": "99999-01-01", "v": 1}])
    pond.catch_up()
    for path in ("/v1/status", "/v1/streams", "/v1/queries/q", "/v1/entities"):
        assert http.get(path).status_code == 200, path
    answer = http.get("/v1/queries/q/result").json()
    assert (answer["as_of"], answer["rows"]) == ("99999-01-01T00:00:00.000000", [[1]])
    again = http.get("/v1/queries/q/result", params={"at": answer["as_of"]}).json()
    assert again["rows"] == answer["rows"]
    (stream,) = [s for s in http.get("/v1/status").json()["streams"] if s["name"] == "far"]
    assert stream["heartbeat"] == "99999-01-01T00:00:00.000000"


def test_both_ends_of_time_are_infinite_for_machines(pond, http):
    pond.execute("CREATE STREAM empty (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts")
    pond.execute("CREATE QUERY e AS SELECT count(*) AS n FROM empty")
    assert http.get("/v1/queries/e/result").json()["as_of"] == "-infinity"
    (line,) = pond.execute("INVOKE e")
    assert "beginning of time" in repr(line.answer)


def test_the_answer_at_infinity_is_that_of_the_last_instant(pond, http):
    pond.execute("CREATE STREAM given (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts")
    pond.execute("CREATE RELATION held (v INTEGER); INSERT INTO held VALUES (1)")
    pond.execute("CREATE QUERY h AS SELECT v FROM given WHERE v IN (SELECT v FROM held)")
    pond.ingest("given", [{"ts": "2026-03-01 11:00:00", "v": 1}])
    pond.catch_up()
    answers = [
        http.get("/v1/queries/h/result", params={"at": at}).json()["rows"]
        for at in ("99999-01-01", "infinity")
    ]
    assert answers == [[[1]], [[1]]]
