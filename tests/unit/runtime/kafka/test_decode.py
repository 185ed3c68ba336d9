"""Values of records as columns: by the quick way and the slow one the same."""

from __future__ import annotations

import io
import json

import httpx
import pyarrow as pa
import pytest

from millpond.engine.admission.admit import Admission, admit
from millpond.engine.admission.given_rows import CORRUPT, REFUSED
from millpond.engine.admission.text_values import MOST_MEMBERS, read_json_rows
from millpond.errors import MillpondError
from millpond.model.schema import Field, Schema
from millpond.model.time import BEGINNING
from millpond.runtime.kafka import decode
from millpond.runtime.kafka.avro import AvroDecoder
from millpond.runtime.kafka.settings import KafkaOptions

SCHEMA = Schema(
    (Field("n", "INTEGER"), Field("x", "DOUBLE"), Field("t", "VARCHAR"), Field("b", "BOOLEAN"))
)
PLAIN = [b'{"n": 1, "x": 2, "t": "\\u00e9\xc3\xa9", "b": true}', b'{"t": null}', b"{}"]


def admitted(rows: pa.Table, schema: Schema = SCHEMA) -> tuple[list, list]:
    found = admit(rows, Admission(schema, None, BEGINNING, 0))
    return found.elements.drop_columns(["__ts"]).to_pylist(), found.rejects.to_pylist()


def test_plain_values_go_the_quick_way_and_mean_the_same():
    quick = decode._read_json_block(PLAIN, SCHEMA)
    assert quick is not None
    slow = read_json_rows([v.decode() for v in PLAIN], SCHEMA)
    assert admitted(quick) == admitted(slow)
    assert admitted(quick)[0][0] == {"n": 1, "x": 2.0, "t": "éé", "b": True}


@pytest.mark.parametrize(
    "odd",
    [
        b'{"n": "1"}',
        b'{"N": 1}',
        b'{"n": 1, "n": 2}',
        b'{"n": 1.5}',
        b'{"n": 99999999999999999999}',
        b'{"t": 1.50}',
        b'{"t": {"a": [1]}}',
        b'{"x": NaN}',
        b'{"n": 1}{"n": 2}',
        b'{"n": {}',
        b'{"t": "\\ud800"}',
        b'{"t": "a\nb"}',
        b"",
        b"[]",
        b"{nothing}",
        b'{"other": 1}',
        None,
    ],
)
def test_any_other_value_goes_the_slow_way(odd):
    values = [PLAIN[0], odd, PLAIN[2]]
    slow = read_json_rows([None if v is None else v.decode() for v in values], SCHEMA)
    rows = decode.decode_json(values, SCHEMA)
    assert rows.num_rows == 3
    assert repr(admitted(rows)) == repr(admitted(slow))  # NaN equals nothing


def test_bytes_that_are_not_utf8_are_refused_and_shown():
    rows = decode.decode_json([b'{"t": "\xff"}x', b"{}"], SCHEMA)
    assert rows[REFUSED].to_pylist() == ["the record's bytes are not UTF-8", None]
    assert rows[CORRUPT].to_pylist() == ['{"t": "�"}x', None]
    elements, rejects = admitted(rows)
    assert len(elements) == len(rejects) == 1


def test_lines_of_csv_keep_their_places():
    values = [b'1;2;"a;b";true', b"2;1", None, b'3;;"";', b'4;1;"x', b"5;1;x;no\r\n", b"\xff"]
    rows = decode.decode_csv(values, SCHEMA, ";")
    assert rows["n"].to_pylist() == ["1", None, None, "3", None, "5", None]
    assert rows["t"].to_pylist() == ["a;b", None, None, "", None, "x", None]
    assert rows[CORRUPT].to_pylist() == [None, "2;1", None, None, '4;1;"x', None, "�"]
    assert [r is not None for r in rows[REFUSED].to_pylist()] == [False] * 6 + [True]


def test_lines_of_csv_may_end_before_added_columns():
    added = (Field("u", "VARCHAR", added=3), Field("w", "INTEGER", added=4))
    schema = Schema((Field("n", "INTEGER"), Field("t", "VARCHAR"), *added))
    values = [b"1,a", b"2,b,C", b'3,"x,y",D,7', b"4", None, b"6,f,,8,9", b"7,"]
    rows = decode.decode_csv(values, schema, ",")
    assert rows["n"].to_pylist() == ["1", "2", "3", None, None, None, "7"]
    assert rows["t"].to_pylist() == ["a", "b", "x,y", None, None, None, None]
    assert rows["u"].to_pylist() == [None, "C", "D", None, None, None, None]
    assert rows["w"].to_pylist() == [None, None, "7", None, None, None, None]
    assert rows[CORRUPT].to_pylist() == [None, None, None, "4", None, "6,f,,8,9", None]


def test_a_record_of_avro_may_lack_added_columns(tmp_path):
    fastavro = pytest.importorskip("fastavro")
    file = tmp_path / "a.avsc"
    file.write_text(
        json.dumps({"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]})
    )
    schema = Schema((Field("n", "INTEGER"), Field("u", "VARCHAR", added=3)))
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(file.read_text())), {"n": 5})
    rows = AvroDecoder(options(schema=str(file)), schema).decode([out.getvalue()])
    assert rows.to_pydict() == {"n": [5], "u": [None]}


def test_a_union_of_bytes_and_text_in_avro(tmp_path):
    """A text is read with its escapes, bytes are as they are, whichever stand beside them."""
    fastavro = pytest.importorskip("fastavro")
    fields = [{"name": "v", "type": ["null", "bytes", "string"]}]
    schema = {"type": "record", "name": "R", "fields": fields}
    (tmp_path / "u.avsc").write_text(json.dumps(schema))
    values = []
    for value in (rb"\x41", "\\x41", None, b"\xff"):
        out = io.BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(schema), {"v": value})
        values.append(out.getvalue())
    columns = Schema((Field("V", "BLOB"),))
    rows = AvroDecoder(options(schema=str(tmp_path / "u.avsc")), columns).decode(values)
    elements, rejects = admitted(rows, columns)
    assert [x["V"] for x in elements] == [rb"\x41", b"A", None, b"\xff"]
    assert rejects == []


def options(schema: str | None = None, registry: str | None = None) -> KafkaOptions:
    start, loss, isolation = "earliest", "stop", "read_committed"
    more = (None, schema, registry, ",", {})
    return KafkaOptions("s", "b", ("t",), "avro", start, loss, isolation, 9, *more)


def test_avro_by_a_file_and_by_a_registry(tmp_path, monkeypatch):
    fastavro = pytest.importorskip("fastavro")
    schema = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "n", "type": "int"},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {"name": "raw", "type": "bytes"},
        ],
    }
    (tmp_path / "r.avsc").write_text(json.dumps(schema))
    columns = Schema((Field("N", "INTEGER"), Field("at", "TIMESTAMP"), Field("raw", "BLOB")))
    body = io.BytesIO()
    row = {"n": 7, "at": 1_000_000, "raw": b"\xff"}
    fastavro.schemaless_writer(body, fastavro.parse_schema(schema), row)
    value = body.getvalue()
    decoder = AvroDecoder(options(schema=str(tmp_path / "r.avsc")), columns)
    rows = decoder.decode([value, None, value + b"?", value[:2]])
    elements, rejects = admitted(rows, columns)
    assert elements[0]["N"] == 7
    assert elements[0]["raw"] == b"\xff"
    assert elements[0]["at"].isoformat() == "1970-01-01T00:00:01"
    assert set(elements[1].values()) == {None}
    assert [r["raw"] for r in rejects] == [(value + b"?").hex(), value[:2].hex()]
    asked = []
    monkeypatch.setattr(
        "millpond.runtime.kafka.avro.fetch_schema",
        lambda options, number: asked.append(number) or schema,
    )
    decoder = AvroDecoder(options(registry="http://r"), columns)
    framed = b"\0\0\0\0\x05" + value
    assert admitted(decoder.decode([framed, framed]), columns)[0][1]["N"] == 7
    assert asked == [5]


def test_a_schema_of_a_registry_that_names_others(monkeypatch):
    """Types of other subjects are fetched with it; what lacks them stops the stream."""
    fastavro = pytest.importorskip("fastavro")
    unit = {"type": "enum", "name": "org.Unit", "symbols": ["C", "F"]}
    fields = [{"name": "n", "type": "int"}, {"name": "unit", "type": "org.Unit"}]
    schema = {"type": "record", "name": "R", "fields": fields}
    named = [{"name": "org.Unit", "subject": "org/Unit", "version": 2}]
    answers = {
        "/schemas/ids/5": {"schema": json.dumps(schema), "references": named},
        "/subjects/org%2FUnit/versions/2": {"schema": json.dumps(unit)},
    }

    def answer(url, **_):
        given = answers.get(str(url).removeprefix("http://r"))
        request = httpx.Request("GET", url)
        return httpx.Response(200 if given else 404, json=given, request=request)

    monkeypatch.setattr(httpx, "get", answer)
    known = {}
    fastavro.parse_schema(unit, named_schemas=known)
    body = io.BytesIO()
    parsed = fastavro.parse_schema(schema, named_schemas=known)
    fastavro.schemaless_writer(body, parsed, {"n": 7, "unit": "F"})
    columns = Schema((Field("n", "INTEGER"), Field("unit", "VARCHAR")))
    value = b"\0\0\0\0\x05" + body.getvalue()
    decoder = AvroDecoder(options(registry="http://r"), columns)
    elements, rejects = admitted(decoder.decode([value]), columns)
    assert (elements[0]["n"], elements[0]["unit"], rejects) == (7, "F", [])
    del answers["/subjects/org%2FUnit/versions/2"]
    with pytest.raises(MillpondError, match="DATA-502") as refused:
        AvroDecoder(options(registry="http://r"), columns).decode([value])
    assert 'no version 2 of "org/Unit"' in str(refused.value.detail)


def test_reasons_of_the_reader_and_of_the_decoder_stand_side_by_side():
    many = b"{" + b",".join(b'"k%d": 1' % n for n in range(MOST_MEMBERS + 1)) + b"}"
    rows = decode.decode_json([many, b'{"n": 1}', b'{"t": "\xff"}'], SCHEMA)
    elements, rejects = admitted(rows)
    assert [row["n"] for row in elements] == [1]
    assert [reject["reason"] for reject in rejects] == [
        "the row has more than 100,000 members",
        "the record's bytes are not UTF-8",
    ]
    assert rejects[0]["raw"] == many.decode()
