"""Rows as clients write them: every one arrives, whatever it says."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

from millpond.engine.admission.admit import Admission, admit
from millpond.engine.admission.given_rows import CORRUPT, MOST_ROW_BYTES, REFUSED
from millpond.engine.admission.text_values import MOST_MEMBERS
from millpond.errors import MillpondError
from millpond.model.schema import Field, Schema
from millpond.service.ingest import row_formats
from millpond.service.ingest.given_rows import from_rows
from millpond.service.ingest.row_formats import MOST_COLUMNS, MOST_ROWS, from_text

SCHEMA = Schema((Field("a", "INTEGER"), Field("s", "VARCHAR")))


@pytest.mark.parametrize(
    "line",
    [
        '{"a": ' + "9" * 5000 + "}",
        '{"s": "\\ud800"}',
        "[1]",
        "null",
        '{"a": ',
        "[" * 100_000,
    ],
    ids=lambda line: line[:20],
)
def test_a_line_that_is_no_row_is_kept_as_it_is(line: str) -> None:
    table = from_text(
        f'{{"a": 1}}\n{line}\n{{"A": 2, "s": {{"x": [1]}}}}\n'.encode(), "ndjson", SCHEMA
    )
    assert table["a"].to_pylist() == ["1", None, "2"]
    assert table["s"].to_pylist() == [None, None, '{"x": [1]}']
    assert table[CORRUPT].to_pylist() == [None, line, None]
    found = "a text of it has half" if "\\u" in line else "it cannot be read as a JSON object"
    before, why, behind = table[REFUSED].to_pylist()
    assert before is behind is None
    assert why.startswith(f"malformed row: {found}")


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ('[{"a": 1, "s": "x]}"}, {"A": 2}]', [("1", "x]}"), ("2", None)]),
        ('\ufeff \r\n[\t{"s": "é"}\n]\n', [(None, "é")]),
        ('{"a": 7}', [("7", None)]),
        ("[]", []),
        (" [ ] ", []),
    ],
)
def test_json_has_a_row_an_element(text: str, values: list[tuple[str | None, str | None]]) -> None:
    table = from_text(text.encode(), "json", SCHEMA)
    assert list(zip(table["a"].to_pylist(), table["s"].to_pylist(), strict=True)) == values
    assert CORRUPT not in table.column_names


@pytest.mark.parametrize("element", ["[1]", "null", '{"s": "\\ud800"}', "9" * 5000, '"x"'])
def test_an_element_that_is_no_row_is_kept_as_it_is(element: str) -> None:
    rows = f'[{{"a": 1}}, {element}, {{"a": {"9" * 5000}}}, {{"s": 2}}]'
    table = from_text(rows.encode(), "json", SCHEMA)
    assert table[CORRUPT].to_pylist()[:2] == [None, element]
    assert table["s"].to_pylist() == [None, None, None, "2"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[",
        "[,]",
        "[] 1",
        '[{"a": 1}',
        '[{"a": 1},]',
        '[{"a": 1}]]',
        '[{"a": 1} {"a": 2}]',
        '{"a": 1}, {"a": 2}',
        "[" * 100_000,
        "[" * 100_000 + "]" * 100_000,
    ],
    ids=lambda text: text[:20] or "nothing",
)
def test_what_is_no_json_is_refused_whole(text: str) -> None:
    with pytest.raises(MillpondError, match="the rows cannot be read as JSON") as raised:
        from_text(text.encode(), "json", SCHEMA)
    assert raised.value.code == "DATA-501"
    assert raised.value.detail


def test_an_array_has_a_limit_of_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_formats, "MOST_COMMAS", 3)
    assert from_text(b'[{"s": "a,b,c"}, 1, 2, 3]', "json", SCHEMA).num_rows == 4
    with pytest.raises(MillpondError) as raised:
        from_text(b'[{"s": "a,b,c"}, 1, 2, 3, 4]', "json", SCHEMA)
    assert raised.value.detail == "It has more than 3 values."


def test_a_decimal_keeps_its_digits() -> None:
    schema = Schema((Field("m", "DECIMAL(38,10)"), Field("x", "DOUBLE"), Field("s", "VARCHAR")))
    digits = "1234567890123456789012345678.0123456789"
    lines = [
        f'{{"m": {digits}, "x": {digits}, "s": 1.50}}',
        '{"m": "1.50", "s": {"n": 1.50}}',
        '{"m": 1e-3, "x": 1e400, "s": "\\u00e9", "n": 1.5}',
    ]
    table = from_text("\n".join(lines).encode(), "ndjson", schema)
    assert table["m"].to_pylist() == [digits, "1.50", "0.001"]
    assert table["x"].to_pylist() == [str(float(digits)), None, "inf"]
    assert table["s"].to_pylist() == ["1.5", '{"n": 1.5}', "é"]


def test_a_quote_that_is_never_closed_is_refused() -> None:
    with pytest.raises(MillpondError, match="In line 3 a quote is opened and never closed"):
        from_text(b'a,s\n1,x\n2,"y\n3,z\n', "csv", SCHEMA)
    assert from_text(b'a,s\n1,5" wide\n', "csv", SCHEMA)["s"].to_pylist() == ['5" wide']


def test_csv_is_text_by_its_header_and_bad_lines_stay_in_place() -> None:
    table = from_text(b"\xef\xbb\xbfs, a\r\n007,1\r\nx\r\n,2\r\n1,2,3\r\n", "csv", SCHEMA)
    assert table["s"].to_pylist() == ["007", None, None, None]
    assert table["a"].to_pylist() == ["1", None, "2", None]
    assert table[CORRUPT].to_pylist() == [None, "x", None, "1,2,3"]
    assert table[REFUSED].to_pylist() == [
        None,
        "malformed row: fields in the header: 2, in the row: 1",
        None,
        "malformed row: fields in the header: 2, in the row: 3",
    ]


@pytest.mark.parametrize("data", [b"1,x", b"1,x\n2,y\n", b" 1 , x \n", b"\xef\xbb\xbf1,x\n"])
def test_csv_without_a_header_is_refused(data: bytes) -> None:
    with pytest.raises(MillpondError, match="DATA-501: the CSV has no header") as caught:
        from_text(data, "csv", SCHEMA)
    assert caught.value.hint == "Send the names of its columns first: a,s"
    assert from_text(b"b,S\n1,x\n", "csv", SCHEMA)["S"].to_pylist() == ["x"]


def test_bad_lines_stay_in_place_in_a_large_file() -> None:
    lines = [b"bad" if i % 40_000 == 7 else b"%d,%s" % (i, b"x" * 40) for i in range(100_000)]
    table = from_text(b"a,s\n" + b"\n".join(lines), "csv", SCHEMA)
    assert [i for i, a in enumerate(table["a"].to_pylist()) if a is None] == [7, 40_007, 80_007]
    assert table["a"][99_999].as_py() == "99999"


@pytest.mark.parametrize("name", [CORRUPT, REFUSED])
@pytest.mark.parametrize("value", [5, b"\xff", ["x"], {"a": 1}], ids=lambda v: type(v).__name__)
def test_a_reader_s_own_columns_are_none_of_a_client_s(name: str, value: object) -> None:
    given = pa.table({"a": [1], name: [value]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, given.schema) as writer:
        writer.write_table(given)
    judge = Admission(SCHEMA, None, 0, 0)
    for table in (from_rows(given), from_text(sink.getvalue().to_pybytes(), "arrow", SCHEMA)):
        assert admit(table, judge).elements.num_rows == 1


def test_the_header_of_csv_may_have_a_reader_s_names() -> None:
    table = from_text(f"a,{CORRUPT},{REFUSED}\n1,x,y\n".encode(), "csv", SCHEMA)
    assert not {CORRUPT, REFUSED} & set(table.column_names)


def test_an_arrow_stream_that_lies_is_refused() -> None:
    table = pa.table({"s": ["hello", "world"]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    data = sink.getvalue().to_pybytes()
    assert from_text(data, "arrow", SCHEMA).equals(table)
    offsets = np.array([0, 5, 10], np.int32).tobytes()
    lie = np.array([0, 5, 2_000_000_000], np.int32).tobytes()
    assert offsets in data
    with pytest.raises(MillpondError, match="DATA-501"):
        from_text(data.replace(offsets, lie), "arrow", SCHEMA)


@pytest.mark.parametrize(
    ("line", "format"), [("{}\n", "ndjson"), ("\n", "csv"), ("\r", "csv"), (",\n", "csv")]
)
def test_more_rows_than_can_be_judged_at_once_are_refused(line: str, format: str) -> None:
    data = (("a\n" if format == "csv" else "") + line * (MOST_ROWS + 1)).encode()
    with pytest.raises(MillpondError, match=r"DATA-501.*more than 1,000,000"):
        from_text(data, format, SCHEMA)


@pytest.mark.parametrize(
    ("data", "format"),
    [
        (b"\xff", "ndjson"),
        (b"\xff\n1", "csv"),
        (b"", "csv"),
        (b"", "arrow"),
        (b"garbage" * 10, "arrow"),
        (b"", "xml"),
    ],
)
def test_what_cannot_be_read_at_all_is_refused(data: bytes, format: str) -> None:
    with pytest.raises(MillpondError, match="DATA-501"):
        from_text(data, format, SCHEMA)


def test_a_row_that_is_too_large_is_not_read() -> None:
    large = '{"a": 1, "t": "' + "x" * MOST_ROW_BYTES + '"}'
    table = from_text(f'{large}\n{{"a": 2}}\n'.encode(), "ndjson", SCHEMA)
    assert table["a"].to_pylist() == [None, "2"]
    assert table[CORRUPT].to_pylist() == [large, None]


MANY = ", ".join(f'"k{n}": 1' for n in range(MOST_MEMBERS + 1))
ITEMS = ", ".join(['{"k": 1}'] * (MOST_MEMBERS + 1))


@pytest.mark.parametrize(
    "large", ["{" + MANY + "}", '{"a": 1, "s": {' + MANY + "}}", '{"s": [' + ITEMS + "]}"]
)
def test_a_row_of_very_many_members_is_not_read(large: str) -> None:
    table = from_text(f'{{"a": 2}}\n{large}\n'.encode(), "ndjson", SCHEMA)
    assert table["a"].to_pylist() == ["2", None]
    assert table[CORRUPT].to_pylist() == [None, large]
    assert table[REFUSED].to_pylist() == [None, "the row has more than 100,000 members"]


def test_members_are_counted_outside_of_texts() -> None:
    text = '": ' * MOST_MEMBERS + "\\"
    table = from_text(json.dumps({"a": 1, "s": text}).encode(), "ndjson", SCHEMA)
    assert table["s"].to_pylist() == [text]
    table = from_text(json.dumps({"a": [1] * (5 * MOST_MEMBERS)}).encode(), "ndjson", SCHEMA)
    assert len(table["a"][0].as_py()) > 5 * MOST_MEMBERS


@pytest.mark.parametrize(("columns", "rows"), [(MOST_COLUMNS + 1, 1), (1_000, 10_001)])
def test_csv_that_is_too_wide_is_refused_before_it_is_read(columns: int, rows: int) -> None:
    data = b"a" + b"," * (columns - 1) + b"\n" + b"\n" * rows
    with pytest.raises(MillpondError, match="DATA-501") as refused:
        from_text(data, "csv", SCHEMA)
    assert "10,0" in refused.value.primary


def test_csv_may_have_more_columns_than_the_stream() -> None:
    data = b"a" + b"".join(b",c%d" % n for n in range(999)) + b"\n1" + b"," * 999 + b"\n"
    assert from_text(data, "csv", SCHEMA)["a"].to_pylist() == ["1"]
