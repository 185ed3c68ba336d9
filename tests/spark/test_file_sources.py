"""File sources on Spark: what is in the files is what is in the stream, whatever their form."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest

from millpond.errors import MillpondError
from millpond.service.pond import Pond

pytestmark = pytest.mark.spark

COLUMNS = "(ts TIMESTAMP, origin STRING, delay DOUBLE)"


def slow(*values: Any) -> list[Any]:
    """Values of a parameter that say the same of another form."""
    return [pytest.param(value, marks=pytest.mark.slow) for value in values]


def at(second: int) -> datetime:
    return datetime(2024, 1, 1, 0, 0, second)


def lines(*rows: tuple[int, str, float]) -> str:
    return "".join(f"{at(second)},{origin},{delay}\n" for second, origin, delay in rows)


def create(pond: Pond, path: Path | str, using: str = "csv", columns: str = COLUMNS, **more: str):
    options = ", ".join(f"{name} '{value}'" for name, value in {"path": path, **more}.items())
    pond.execute(
        f"CREATE STREAM flights {columns} TIMESTAMP BY ts USING {using} OPTIONS ({options})"
    )


def rows(pond: Pond, cql: str = "SELECT * FROM flights") -> list[tuple[Any, ...]]:
    return pond.ask(cql).rows()


def rejects(pond: Pond) -> list[tuple[str, str]]:
    return rows(pond, "SELECT reason, raw FROM flights$rejects")


# -- files that stand for much ---------------------------------------------------------------------


def write_zeros(folder: Path, using: str, count: int) -> Path:
    """Write a small file of many equal rows."""
    file = folder / f"zeros.{using}"
    table = pa.table({"n": pa.array([0] * count, pa.int64())})
    if using == "parquet":
        pq.write_table(table, file)
    elif using == "orc":
        orc.write_table(table, file, compression="zlib")
    else:
        file = file.with_name("zeros.json.gz")
        file.write_bytes(gzip.compress(b'{"n": 0}\n' * count))
    return file


@pytest.mark.parametrize("using", ["json", *slow("parquet", "orc")])
def test_a_file_becomes_no_more_rows_than_it_may(pond, tmp_path, eventually, using):
    folder, count = tmp_path / "in", 200_000
    folder.mkdir()
    pond.execute(
        "ALTER SYSTEM SET (file_growth = '100 KB');"
        f"CREATE STREAM s (n BIGINT) USING {using} OPTIONS (path '{folder}')"
    )
    file = write_zeros(folder, using, count)
    assert file.stat().st_size < 10_000
    (stopped,) = eventually(
        lambda: [s for s in pond.status()["streams"] if s["state"] == "stopped"] or None
    )
    assert "stands for too many rows" in stopped["reason"]
    assert list((tmp_path / "store" / "segments").iterdir()) == []
    pond.execute("ALTER SYSTEM SET (file_growth = 'unbounded')")
    eventually(lambda: rows(pond, "SELECT count(*) FROM s") == [(count,)])


def test_a_line_without_end_is_refused(pond, tmp_path, eventually):
    folder = tmp_path / "in"
    folder.mkdir()
    pond.execute(f"CREATE STREAM s (t STRING) USING json OPTIONS (path '{folder}')")
    with gzip.open(tmp_path / "line.json.gz", "wb") as file:
        for piece in (b'{"t": "', *[b"x" * (1 << 20)] * 33):
            file.write(piece)
    # Written in place it could be read while it is a part, and is not looked at twice.
    (tmp_path / "line.json.gz").rename(folder / "line.json.gz")
    (stopped,) = eventually(
        lambda: [s for s in pond.status()["streams"] if s["state"] == "stopped"] or None
    )
    assert "cannot be read" in stopped["reason"]


# -- csv -------------------------------------------------------------------------------------------


def test_columns_are_found_by_the_header_in_any_order_and_case(bounded, tmp_path):
    file = tmp_path / "flights.csv"
    file.write_text(f"\ufeffDELAY, Origin ,more,ts\n1.5,JFK,x,{at(1)}\n,LGA,,{at(2)}\n")
    create(bounded, file, header="true")
    assert rows(bounded) == [(at(1), "JFK", 1.5), (at(2), "LGA", None)]
    assert rejects(bounded) == []


@pytest.mark.slow
def test_columns_without_a_name_or_with_a_name_twice(bounded, tmp_path):
    (tmp_path / "flights.csv").write_text(f",ts,,origin,delay,ORIGIN\n0,{at(1)},,JFK,1.5,x\n")
    create(bounded, tmp_path / "flights.csv", header="true")
    assert rows(bounded) == [(at(1), "JFK", 1.5)]


def test_columns_are_found_by_place_without_a_header(bounded, tmp_path):
    (tmp_path / "flights.csv").write_text(lines((1, "JFK", 1.5), (2, "LGA", -2)))
    create(bounded, tmp_path / "flights.csv")
    assert rows(bounded) == [(at(1), "JFK", 1.5), (at(2), "LGA", -2.0)]


def test_quotes_blanks_and_what_is_missing(bounded, tmp_path):
    (tmp_path / "flights.csv").write_text(
        f'{at(1)},"a,b",1\n'
        f'{at(2)},"say ""hi""", 2 \n'
        f'{at(3)},"",3\n'
        f"{at(4)},,4\n"
        f"{at(5)}, x ,5\n"
        f"{at(6)},back\\slash,6"
    )
    create(bounded, tmp_path / "flights.csv")
    assert rows(bounded) == [
        (at(1), "a,b", 1.0),
        (at(2), 'say "hi"', 2.0),
        (at(3), None, 3.0),
        (at(4), None, 4.0),
        (at(5), " x ", 5.0),
        (at(6), "back\\slash", 6.0),
    ]
    assert rejects(bounded) == []


@pytest.mark.slow
def test_the_separator_is_an_option(bounded, tmp_path):
    (tmp_path / "flights.csv").write_text(f"origin;ts;delay\nJFK;{at(1)};1.5\n")
    create(bounded, tmp_path / "flights.csv", header="true", sep=";")
    assert rows(bounded) == [(at(1), "JFK", 1.5)]


def test_bad_lines_are_rejected_with_their_reasons(bounded, tmp_path):
    (tmp_path / "flights.csv").write_text(
        f"ts,origin,delay\n{at(1)},JFK,1.5\n"
        f"{at(2)},JFK\n"
        f"{at(3)},JFK,1,2\n"
        f"{at(4)},JFK,soon\n"
        "tomorrow,JFK,1\n"
        ",JFK,1\n"
        "\n"
        f"{at(8)},JFK,2.5\n"
    )
    create(bounded, tmp_path / "flights.csv", header="true")
    assert rows(bounded) == [(at(1), "JFK", 1.5), (at(8), "JFK", 2.5)]
    assert rejects(bounded) == [
        ("malformed row: it does not fit the declared columns", f"{at(2)},JFK"),
        ("malformed row: it does not fit the declared columns", f"{at(3)},JFK,1,2"),
        (
            "column \"delay\": 'soon' is not a DOUBLE",
            f'{{"ts":"{at(4)}","origin":"JFK","delay":"soon"}}',
        ),
        (
            "column \"ts\": 'tomorrow' is not a TIMESTAMP",
            '{"ts":"tomorrow","origin":"JFK","delay":"1"}',
        ),
        ("no timestamp", '{"ts":null,"origin":"JFK","delay":"1"}'),
    ]
    (stream,) = bounded.status()["streams"]
    assert (stream["rows"], stream["rejected"], stream["state"]) == (2, 5, "ended")


def test_columns_beyond_the_declared_ones_are_ignored_without_a_header_too(bounded, tmp_path):
    wide = f"{at(1)},JFK,1.5,more,still more\n{at(2)},LGA,2.5\n"
    (tmp_path / "a.csv").write_text(wide)
    (tmp_path / "b.csv").write_text(lines((3, "EWR", 3.5)))
    (tmp_path / "c.csv").write_text("")
    create(bounded, tmp_path)
    assert rows(bounded) == [(at(1), "JFK", 1.5), (at(2), "LGA", 2.5), (at(3), "EWR", 3.5)]
    assert rejects(bounded) == []


def test_bytes_in_parquet_are_text_unless_they_are_not_utf_8(bounded, tmp_path):
    table = pa.table(
        {"ts": [at(1), at(2)], "origin": pa.array([b"JFK", b"\xff"]), "delay": [1.0, 2.0]}
    )
    pq.write_table(table, tmp_path / "in.parquet")
    create(bounded, tmp_path / "in.parquet", "parquet")
    assert rows(bounded) == [(at(1), "JFK", 1.0)]
    assert [reason for reason, _ in rejects(bounded)] == [
        'column "origin": its bytes are not UTF-8'
    ]


def test_every_file_has_its_own_header(bounded, tmp_path):
    folder = tmp_path / "in [1]"
    folder.mkdir()
    (folder / "a {x}.csv").write_text(f"ts,origin,delay\n{at(1)},JFK,1.5\n")
    (folder / "b*.csv").write_text(f"origin,ts,delay,more\nLGA,{at(2)},2.5,x\n")
    (folder / "c%20.csv").write_text("")
    with gzip.open(folder / "d #1.csv.gz", "wt") as file:
        file.write(f"delay,origin,ts\n3.5,EWR,{at(3)}\n")
    create(bounded, folder, header="true")
    assert rows(bounded) == [(at(1), "JFK", 1.5), (at(2), "LGA", 2.5), (at(3), "EWR", 3.5)]
    assert rejects(bounded) == []


#: Sources that find a column in the files that have it, each with a directory of its own. Parquet
#: files are read by the tasks, and with an option of Spark's reader by Spark.
WIDENED = {
    "headed": ("csv", "header 'true'"),
    "plain": ("csv", ""),
    "json": ("json", ""),
    "direct": ("parquet", ""),
    "by_spark": ("parquet", "pathGlobFilter '*', datetimeRebaseMode 'CORRECTED'"),
    "orc": ("orc", ""),
}


def write_numbers(folder: Path, name: str, kind: str, first: int, *, wide: bool) -> None:
    """Write two rows of `n`, and of `w` if the file is wide, as a file that comes at once."""
    rows = [{"n": n, "w": 10 * n} if wide else {"n": n} for n in (first, first + 1)]
    table, written = pa.Table.from_pylist(rows), folder / f".{name}"
    using = WIDENED[kind][0]
    if using == "parquet":
        pq.write_table(table, written)
    elif using == "orc":
        orc.write_table(table, written)
    elif using == "json":
        written.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    else:
        options = pa_csv.WriteOptions(include_header=kind == "headed")
        pa_csv.write_csv(table, written, options)
    os.replace(written, folder / name)


def test_files_have_a_column_that_was_added_and_older_ones_null(open_store, tmp_path):
    """Of every kind at once: before it, behind it in one batch with old files, and restarted."""
    folders = {kind: tmp_path / kind for kind in WIDENED}
    pond = open_store()
    for kind, (using, options) in WIDENED.items():
        folders[kind].mkdir()
        write_numbers(folders[kind], "a", kind, 1, wide=False)
        more = f", {options}" if options else ""
        pond.execute(
            f"CREATE STREAM {kind} (n BIGINT) USING {using} OPTIONS (path '{folders[kind]}'{more})"
        )
    pond.catch_up()
    for kind in WIDENED:
        pond.execute(f"ALTER STREAM {kind} ADD COLUMN w BIGINT")
        # The older one comes first, and Spark looks into one to know what all have.
        write_numbers(folders[kind], "b", kind, 3, wide=False)
        write_numbers(folders[kind], "c", kind, 5, wide=True)
    pond.catch_up()
    pond.close()
    pond = open_store()
    for kind, folder in folders.items():
        write_numbers(folder, "d", kind, 7, wide=False)
        write_numbers(folder, "e", kind, 9, wide=True)
    pond.catch_up()
    wide = (5, 6, 9, 10)
    expected = [(n, 10 * n if n in wide else None) for n in range(1, 11)]
    found = {kind: sorted(rows(pond, f"SELECT * FROM {kind}")) for kind in WIDENED}
    assert found == dict.fromkeys(WIDENED, expected)
    for kind in WIDENED:
        assert rows(pond, f"SELECT * FROM {kind}$rejects") == []


def test_a_file_without_a_declared_column_stops_the_stream_and_is_named(bounded, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.csv").write_text(f"ts,origin,delay\n{at(1)},JFK,1.5\n")
    (folder / "b.csv").write_text(f"ts,origin\n{at(2)},JFK\n")
    create(bounded, folder, header="true")
    with pytest.raises(MillpondError, match=r'DATA-502: "b\.csv" has no column "delay"'):
        rows(bounded)


@pytest.mark.parametrize("separator", ["||", *slow("|", "\\t", "\t")])
def test_a_header_is_split_as_its_rows_are(bounded, tmp_path, separator):
    between = separator.replace("\\t", "\t")
    cells = [("ts", "origin", "delay"), (str(at(1)), "JFK", "1.5")]
    (tmp_path / "in.csv").write_text("".join(between.join(row) + "\n" for row in cells))
    create(bounded, tmp_path / "in.csv", header="true", sep=separator)
    assert rows(bounded) == [(at(1), "JFK", 1.5)]


@pytest.mark.slow
def test_a_header_in_another_encoding(bounded, tmp_path):
    (tmp_path / "in.csv").write_text(f"ts,origin,delay\n{at(1)},Orlý,1.5\n", "utf-16")
    with pytest.raises(MillpondError, match=r"(?s)cannot be read.*encoding"):
        create(bounded, tmp_path / "in.csv", header="true")
    create(bounded, tmp_path / "in.csv", header="true", encoding="UTF-16")
    assert rows(bounded) == [(at(1), "Orlý", 1.5)]
    assert rejects(bounded) == []


def test_what_is_not_utf_8_behind_a_header_is_its_row_s_trouble_alone(bounded, tmp_path):
    text = f"ts,origin,delay\n{at(1)},JFK,1.5\n{at(2)},Orlý,2.5\n"
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_bytes(text.encode("latin-1"))
    (tmp_path / "in" / "b.csv").write_text(f"ts,origin,delay\n{at(3)},\ufffd,3.5\n")
    create(bounded, tmp_path / "in", header="true")
    assert rows(bounded) == [(at(1), "JFK", 1.5), (at(3), "\ufffd", 3.5)]
    (reject,) = rejects(bounded)
    assert reject[0] == 'column "origin": its bytes are not UTF-8'
    assert "Orl\ufffd" in reject[1]


def test_an_option_spark_cannot_take_is_refused_when_the_stream_is_created(bounded, tmp_path):
    (tmp_path / "in.csv").write_text(lines((1, "JFK", 1)))
    with pytest.raises(MillpondError, match=r"(?s)DATA-502.*nosuch"):
        create(bounded, tmp_path / "in.csv", encoding="nosuch")
    assert bounded.streams() == []


@pytest.mark.slow
def test_a_relation_of_an_empty_file_is_empty(bounded, tmp_path):
    (tmp_path / "in.csv").write_text("")
    bounded.execute(
        "CREATE RELATION r (a INTEGER)"
        f" USING csv OPTIONS (path '{tmp_path / 'in.csv'}', header 'true')"
    )
    assert rows(bounded, "SELECT * FROM r") == []


# -- json ------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_json_values_keep_their_text_until_they_are_cast(bounded, tmp_path):
    columns = "(ts TIMESTAMP, big BIGINT, exact DECIMAL(20,2), yes BOOLEAN, note STRING)"
    (tmp_path / "in.json").write_text(
        f'{{"ts":"{at(1)}","big":9007199254740993,"exact":123456789012345678.25,"yes":true}}\n'
        f'{{"ts":"{at(2)}Z","big":"12","yes":"false","note":{{"a":[1,2]}}}}\n'
    )
    create(bounded, tmp_path / "in.json", using="json", columns=columns)
    (first, second) = rows(bounded)
    assert first[:2] == (at(1), 9007199254740993)
    assert str(first[2]) == "123456789012345678.25"
    assert first[3:] == (True, None)
    assert second == (at(2), 12, None, False, '{"a":[1,2]}')


def test_json_keys_in_any_case(bounded, tmp_path):
    """Each file as its first rows spell them; a byte order mark is no part of the first."""
    (tmp_path / "1.json").write_text(
        f'\ufeff{{"TS": "{at(1)}", "Origin": "JFK", "more": 1}}\n'
        f'{{"TS": "{at(2)}", "DELAY": 2.5}}\n'
    )
    (tmp_path / "2.json").write_text(f'{{"ts": "{at(3)}", "origin": "LGA", "ORIGIN": "x"}}\n')
    (tmp_path / "3.json").write_text("no json\n")
    with gzip.open(tmp_path / "4.json.gz", "wt") as file:
        file.write(f'\n{{"Ts": "{at(4)}"}}\n')
    create(bounded, tmp_path, "json")
    assert rows(bounded, "SELECT * FROM flights ORDER BY ts") == [
        (at(1), "JFK", None),
        (at(2), None, 2.5),
        (at(3), "LGA", None),
        (at(4), None, None),
    ]
    assert [raw for _, raw in rejects(bounded)] == ["no json"]


@pytest.mark.slow
def test_keys_of_one_json_text_in_any_case(bounded, tmp_path):
    file = tmp_path / "flights.json"
    file.write_text(
        f'[{{"TS": "{at(1)}",\n "ORIGIN": {{"ts": 1}}}},\n {{"DELAY": 1, "TS": "{at(2)}"}}]'
    )
    create(bounded, file, "json", multiLine="true")
    assert rows(bounded, "SELECT * FROM flights ORDER BY ts") == [
        (at(1), '{"ts": 1}', None),
        (at(2), None, 1.0),
    ]


def test_corrupt_json_lines_are_rejected(bounded, tmp_path):
    good = [json.dumps({"ts": str(at(n)), "origin": "JFK", "delay": n}) for n in (1, 2)]
    (tmp_path / "in.json").write_text("\n".join([good[0], '{"ts": "2024', "not json", good[1]]))
    create(bounded, tmp_path / "in.json", using="json")
    assert [row[2] for row in rows(bounded)] == [1.0, 2.0]
    assert rejects(bounded) == [
        ("malformed row: it does not fit the declared columns", '{"ts": "2024'),
        ("malformed row: it does not fit the declared columns", "not json"),
    ]


@pytest.mark.slow
def test_a_file_that_is_no_text_is_rejected_line_by_line(bounded, tmp_path):
    good = json.dumps({"ts": str(at(1)), "origin": "JFK", "delay": 1}).encode()
    (tmp_path / "in.json").write_bytes(good + b"\n\x80\x81PAR1\xff\n")
    create(bounded, tmp_path / "in.json", using="json")
    assert len(rows(bounded)) == 1
    malformed = "malformed row: its bytes are not UTF-8"
    assert rejects(bounded) == [(malformed, "\ufffd\ufffdPAR1\ufffd")]


# -- parquet ---------------------------------------------------------------------------------------


def test_parquet_columns_by_name_with_their_own_types(bounded, tmp_path):
    table = pa.table(
        {
            "unused": ["x", "y", "z"],
            "Delay": pa.array([1, 2, None], pa.int32()),
            "ts": pa.array([at(1), at(2), None], pa.timestamp("us", "UTC")),
        }
    )
    pq.write_table(table, tmp_path / "in.parquet")
    create(bounded, tmp_path / "in.parquet", using="parquet")
    assert rows(bounded) == [(at(1), None, 1.0), (at(2), None, 2.0)]
    assert [reason for reason, _ in rejects(bounded)] == ["no timestamp"]


def test_parquet_rows_that_do_not_fit_are_rejected(bounded, tmp_path):
    table = pa.table({"ts": [at(1), at(2)], "origin": ["JFK", "LGA"], "delay": ["1.5", "x"]})
    pq.write_table(table, tmp_path / "in.parquet")
    create(bounded, tmp_path / "in.parquet", using="parquet")
    assert rows(bounded) == [(at(1), "JFK", 1.5)]
    assert [reason for reason, _ in rejects(bounded)] == ["column \"delay\": 'x' is not a DOUBLE"]


@pytest.mark.parametrize("zone", ["Europe/Berlin", *slow(None)])
def test_parquet_as_pandas_writes_it(bounded, tmp_path, zone):
    stamps = pa.array([at(1), at(2)], pa.timestamp("ns", zone))
    table = pa.table({"ts": stamps, "origin": ["JFK", None], "delay": [1.5, 2.5]})
    pq.write_table(table, tmp_path / "in.parquet")
    create(bounded, tmp_path / "in.parquet", using="parquet")
    bounded.execute(
        f"CREATE RELATION r {COLUMNS} USING parquet OPTIONS (path '{tmp_path / 'in.parquet'}')"
    )
    expected = [(at(1), "JFK", 1.5), (at(2), None, 2.5)]
    assert rows(bounded) == expected
    assert rows(bounded, "SELECT * FROM r") == expected


def test_large_parquet_files_are_read_by_several_tasks(bounded, tmp_path, monkeypatch):
    from millpond.runtime.spark import batches

    monkeypatch.setattr(batches, "LARGE_ROWS", 100)
    folder = tmp_path / "files"
    folder.mkdir()
    for name, first, count in (("a", 0, 1000), ("b", 1000, 50), ("c[1]", 1050, 450)):
        numbers = list(range(first, first + count))
        stamps = pa.array([0] * count, pa.timestamp("us"))
        table = pa.table({"ts": stamps, "n": pa.array(numbers)})
        pq.write_table(table, folder / f"{name}.parquet", row_group_size=90)
    bounded.execute(
        "CREATE STREAM s (ts TIMESTAMP, n BIGINT) TIMESTAMP BY ts"
        f" USING parquet OPTIONS (path '{folder}')"
    )
    everything = bounded.ask("SELECT n FROM s").rows()
    assert [n for (n,) in everything] == list(range(1500)), "in the order of files and row groups"
    last = [n for (n,) in bounded.ask("SELECT n FROM s [ROWS 3]").rows()]
    assert last == [1497, 1498, 1499]
    (stream,) = bounded.status()["streams"]
    assert stream["segments"] > 1


@pytest.mark.slow
def test_parquet_files_with_odd_names(bounded, tmp_path):
    folder = tmp_path / "in [1]"
    folder.mkdir()
    for number, name in enumerate(("a [1]", "b {x}*", "c%20", "d #1?")):
        pq.write_table(pa.table({"ts": [at(number)]}), folder / f"{name}.parquet")
    create(bounded, folder, using="parquet")
    assert sorted(row[0] for row in rows(bounded)) == [at(0), at(1), at(2), at(3)]


@pytest.mark.parametrize("using", ["json", *slow("csv")])
def test_text_files_with_odd_names(bounded, tmp_path, using):
    for number, name in enumerate(("a [1]", "b {x}*", "c%20", "d #1?")):
        text = json.dumps({"ts": str(at(number))}) if using == "json" else str(at(number))
        (tmp_path / f"{name}.{using}").write_text(text)
    create(bounded, tmp_path / f"*.{using}", using=using, columns="(ts TIMESTAMP)")
    assert sorted(row[0] for row in rows(bounded)) == [at(0), at(1), at(2), at(3)]


def test_parquet_without_any_of_the_columns_is_refused(bounded, tmp_path):
    pq.write_table(pa.table({"a": [1]}), tmp_path / "in.parquet")
    with pytest.raises(MillpondError, match="DATA-502"):
        create(bounded, tmp_path / "in.parquet", using="parquet")
    assert bounded.streams() == []


# -- files -----------------------------------------------------------------------------------------


def test_a_directory_of_plain_and_packed_files_in_the_order_of_their_names(bounded, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "b.csv").write_text(lines((1, "second", 3)))
    with gzip.open(folder / "a.csv.gz", "wt") as file:
        file.write(lines((1, "first", 1), (1, "first", 2)))
    (folder / "c.csv").write_text("")
    (folder / "_ignored.csv").write_text("nothing of ours")
    (folder / ".hidden.csv").write_text("nothing of ours")
    create(bounded, folder)
    assert rows(bounded, "SELECT origin, delay FROM flights [ROWS 2]") == [
        ("first", 2.0),
        ("second", 3.0),
    ]
    assert len(rows(bounded)) == 3
    assert rejects(bounded) == []


@pytest.mark.slow
def test_one_file_is_read_without_its_neighbours(bounded, tmp_path):
    name = "odd [1] {a,b}*.csv"
    (tmp_path / name).write_text(lines((1, "JFK", 1)))
    (tmp_path / "odd 1 a.csv").write_text(lines((2, "LGA", 2)))
    create(bounded, tmp_path / name)
    assert rows(bounded) == [(at(1), "JFK", 1.0)]


@pytest.mark.slow
def test_a_file_named_by_its_uri(bounded, tmp_path):
    (tmp_path / "in.csv").write_text(lines((1, "JFK", 1)))
    create(bounded, f"file://{tmp_path}/in.csv")
    assert rows(bounded) == [(at(1), "JFK", 1.0)]


@pytest.mark.slow
def test_a_glob(bounded, tmp_path):
    for name, second in (("day-1.csv", 1), ("day-2.csv", 2), ("week.csv", 3)):
        (tmp_path / name).write_text(f"delay,ts\n1,{at(second)}\n")
    create(bounded, tmp_path / "day-*.csv", columns="(ts TIMESTAMP, delay DOUBLE)", header="true")
    assert rows(bounded) == [(at(1), 1.0), (at(2), 1.0)]


@pytest.mark.parametrize(
    ("using", "options", "code"),
    [
        ("csv", "path '/nowhere/at/all'", "DATA-502"),
        ("csv", "header 'true'", "CQL-214"),
        ("nosuch", "path '/tmp'", "DATA-502"),
    ],
)
def test_a_source_that_clearly_cannot_be_read_is_refused(bounded, using, options, code):
    with pytest.raises(MillpondError) as caught:
        bounded.execute(
            f"CREATE STREAM flights {COLUMNS} TIMESTAMP BY ts USING {using} OPTIONS ({options})"
        )
    assert caught.value.code == code
    assert bounded.streams() == []


def test_files_that_come_later_are_read_as_they_come(pond, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    create(pond, folder, header="true")
    assert rows(pond) == []
    query = pond.register("SELECT count(*), max(delay) FROM flights [RANGE 3 SECONDS]")
    for number in range(1, 4):
        (folder / f".{number}.tmp").write_text(f"delay,origin,ts\n{number},JFK,{at(number)}\n")
        os.rename(folder / f".{number}.tmp", folder / f"{number}.csv")
        pond.catch_up()
        assert query.invoke().rows() == [(number, float(number))]
    (folder / "late.csv").write_text(f"delay,origin,ts\n9,JFK,{at(1)}\n")
    pond.catch_up()
    assert query.invoke().rows() == [(3, 3.0)]
    ((reason, _),) = rejects(pond)
    assert reason == "late: its timestamp is before the heartbeat"


@pytest.mark.slow
def test_parquet_files_that_come_later_are_read_as_they_come(pond, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    create(pond, folder, using="parquet")
    for number in range(2):
        pq.write_table(pa.table({"ts": [at(number)]}), folder / f".{number}.tmp")
        os.rename(folder / f".{number}.tmp", folder / f"{number}.parquet")
        pond.catch_up()
        assert len(rows(pond)) == number + 1


def test_files_of_any_age_are_read(pond, tmp_path):
    """A file that is moved, copied or unpacked keeps its time; Spark's own limit is a week."""
    folder = tmp_path / "in"
    folder.mkdir()
    pond.execute(f"CREATE STREAM s (n BIGINT) USING csv OPTIONS (path '{folder}')")
    ages = (0, 8, 4_000, -400, 6)  # days; that of -400 is from the future
    for number, age in enumerate(ages):
        file = tmp_path / "new"
        file.write_text(f"{number}\n")
        at = file.stat().st_mtime - age * 86_400
        os.utime(file, (at, at))
        os.rename(file, folder / f"{number}.csv")
        pond.catch_up()
        assert rows(pond, "SELECT n FROM s") == [(n,) for n in range(number + 1)]


@pytest.mark.parametrize("how", ["delete", *slow("archive")])
def test_files_are_taken_away_when_what_they_hold_is_kept(
    open_store, tmp_path, monkeypatch, eventually, how
):
    folder, kept = tmp_path / "in", tmp_path / "kept"
    folder.mkdir()
    kept.mkdir()
    options = f"path '{folder}', cleanSource '{how}'"
    if how == "archive":
        options += f", sourceArchiveDir '{kept}'"
    pond = open_store()
    pond.execute(f"CREATE STREAM s (n BIGINT) USING csv OPTIONS ({options})")

    def drop(number: int) -> None:
        (tmp_path / "new").write_text(f"{number}\n")
        os.rename(tmp_path / "new", folder / f"{number}.csv")

    def left() -> list[str]:
        return sorted(file.name for file in folder.iterdir())

    drop(0)
    pond.catch_up()
    failures: list[list[str]] = []

    def fail(*arguments: Any, **named: Any) -> None:
        failures.append(left())
        raise RuntimeError("the disk is full")

    monkeypatch.setattr(pond._components.sequencer, "commit", fail)
    drop(1)
    eventually(lambda: len(failures) > 1)
    pond.close()
    assert all("1.csv" in names for names in failures)
    pond = open_store()
    for number in (2, 3):
        pond.catch_up()
        assert rows(pond, "SELECT n FROM s") == [(n,) for n in range(number)]
        drop(number)
    pond.catch_up()
    eventually(lambda: left() == ["3.csv"])  # files go with the next batch
    assert rows(pond, "SELECT n FROM s") == [(0,), (1,), (2,), (3,)]
    archived = sorted(file.name for file in kept.rglob("*.csv"))
    assert archived == ([] if how == "delete" else ["0.csv", "1.csv", "2.csv"])


def test_a_relation_from_files(pond, tmp_path):
    folder = tmp_path / "planes"
    folder.mkdir()
    (folder / "a.csv").write_text("model,tailnum\n737,N1\n")
    (folder / "b.csv").write_text("tailnum,model\nN2,A320\n")
    pond.execute(
        "CREATE RELATION planes (tailnum STRING, model STRING, PRIMARY KEY (tailnum))"
        f" USING csv OPTIONS (path '{folder}', header 'true')"
    )
    assert rows(pond, "SELECT * FROM planes ORDER BY tailnum") == [("N1", "737"), ("N2", "A320")]
    table = pa.table({"tailnum": ["N3"], "seats": pa.array([7], pa.int64())})
    pq.write_table(table, tmp_path / "seats.parquet")
    pond.execute(
        "CREATE RELATION seats (tailnum STRING, seats INTEGER)"
        f" USING parquet OPTIONS (path '{tmp_path / 'seats.parquet'}')"
    )
    assert rows(pond, "SELECT * FROM seats") == [("N3", 7)]


def test_a_relation_with_a_bad_row_is_refused_with_the_row(pond, tmp_path):
    (tmp_path / "seats.csv").write_text("N1,100\nN2,many\n")
    create_seats = (
        "CREATE RELATION seats (tailnum STRING, seats INTEGER, PRIMARY KEY (tailnum))"
        f" USING csv OPTIONS (path '{tmp_path / 'seats.csv'}')"
    )
    with pytest.raises(MillpondError, match="DATA-501") as caught:
        pond.execute(create_seats)
    assert "'many' is not an INTEGER" in caught.value.detail
    assert "N2" in caught.value.detail
    (tmp_path / "seats.csv").write_text("N1,100\nN1,200\n")
    with pytest.raises(MillpondError, match="POND-408"):
        pond.execute(create_seats)
    (tmp_path / "seats.csv").write_text("N1,100\nN2,200\n")
    pond.execute(create_seats)
    assert rows(pond, "SELECT sum(seats) FROM seats") == [(300,)]


def test_the_rate_source(pond, eventually: Callable[..., Any]):
    pond.execute(
        "CREATE STREAM ticks (timestamp TIMESTAMP, value BIGINT) TIMESTAMP BY timestamp"
        " USING rate OPTIONS (rowsPerSecond '100')"
    )
    query = pond.register(
        "SELECT count(*), count(DISTINCT value), min(value), max(value) FROM ticks"
    )
    eventually(lambda: query.invoke().rows()[0][0] > 100)
    count, distinct, least, greatest = query.invoke().rows()[0]
    assert count == distinct == greatest - least + 1


def test_columns_that_are_none_of_the_sources_are_refused(pond):
    with pytest.raises(MillpondError) as refused:
        pond.execute("CREATE STREAM ticks (at TIMESTAMP, n BIGINT) TIMESTAMP BY at USING rate")
    assert refused.value.code == "DATA-502"
    assert '"at"' in refused.value.primary
    assert refused.value.detail == "It has timestamp, value."


@pytest.mark.parametrize("path", ["a[1] {b}.csv", *slow("a*.csv")])
def test_a_relative_path_in_a_directory_that_looks_like_a_pattern(
    bounded, tmp_path, monkeypatch, path
):
    directory = tmp_path / "d[1] {x} *"
    directory.mkdir()
    (directory / "a[1] {b}.csv").write_text(lines((1, "JFK", 5.0)))
    monkeypatch.chdir(directory)
    create(bounded, path)
    assert rows(bounded) == [(at(1), "JFK", 5.0)]


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_files_of_more_than_may_wait_are_shed_in_part(pond, tmp_path, format):
    folder = tmp_path / "in"
    folder.mkdir()
    rows = pa.table({"a": pa.array(range(5_000), pa.int32())})
    pond.execute("ALTER SYSTEM SET (queue_memory = '10 KB')")
    pond.execute(
        f"CREATE STREAM s (a INTEGER) USING {format} OPTIONS (path '{folder}', header 'true') "
        "WITH (overload = 'shed random')"
    )
    write = pa_csv.write_csv if format == "csv" else pq.write_table
    write(rows, tmp_path / "moved")
    (tmp_path / "moved").rename(folder / f"part.{format}")
    pond.catch_up()
    ((kept,),) = pond.ask("SELECT count(*) FROM s").rows()
    answer = pond.ask("SELECT a FROM s")
    assert [loss.elements for loss in answer.loss] == [5_000 - kept]
    assert 300 < kept < 700
