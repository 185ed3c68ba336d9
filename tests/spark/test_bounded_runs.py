"""A script over files gives the same bytes whatever Spark makes of the files."""

from __future__ import annotations

import io
import json
import os
import random
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from millpond.cli.output_format import Format
from millpond.cli.result_writers import writer
from millpond.errors import MillpondError
from millpond.service.pond import Pond

pytestmark = pytest.mark.spark

FILES, ROWS = 6, 300

QUERIES = {
    "far": "SELECT ts, origin, delay FROM flights [RANGE 40 MINUTES] WHERE delay > 55.5",
    "by_origin": "SELECT origin, count(*) AS n, avg(delay) AS late, sum(delay) AS total"
    " FROM flights [RANGE 1 HOUR] GROUP BY origin",
    "latest": "SELECT * FROM flights [ROWS 7 WHERE origin = 'JFK']",
    "each": "SELECT number, origin FROM flights [PARTITION BY origin ROWS 2]",
    "steps": "SELECT count(*) AS n, min(number) AS least"
    " FROM flights [RANGE 1 HOUR SLIDE 7 MINUTES]",
    "storms": "SELECT f.number, w.wind, p.model FROM flights [RANGE 20 MINUTES] f"
    " JOIN weather [PARTITION BY origin ROWS 1] w ON f.origin = w.origin"
    " LEFT JOIN planes p ON f.number % 5 = p.id WHERE w.wind > 3 AND f.delay > 50",
    "places": "SELECT DISTINCT origin FROM flights WHERE number > 100",
    "bad": "SELECT reason, raw FROM flights$rejects",
}

MOMENTS = ("", " AT TIMESTAMP '2024-01-01 05:00:00'", " AT TIMESTAMP '2024-01-01 20:00:00'")


def flights(shuffled: bool) -> Iterator[tuple[int, str]]:
    """Lines of the files, by file; shuffled ones arrive within five minutes of their order."""
    pick = random.Random(7)
    lines = []
    for number in range(FILES * ROWS):
        at = datetime(2024, 1, 1) + timedelta(seconds=40 * number)
        origin = pick.choice(["JFK", "LGA", "EWR", ""])
        delay = "late" if number % 211 == 5 else f"{pick.uniform(-10, 60):.3f}"
        lines.append((at, f"{number},{origin},{at},{delay}"))
    order = range(len(lines))
    if shuffled:
        order = sorted(order, key=lambda n: n + random.Random(n).randrange(7))
    for place, number in enumerate(order):
        yield place // ROWS, lines[number][1]


def lay(folder: Path, shuffled: bool = False) -> Path:
    """Files of flights whose times of change follow their names, weather and planes."""
    folder.mkdir()
    (folder / "flights").mkdir()
    texts = ["number,origin,ts,delay\n"] * FILES
    for file, line in flights(shuffled):
        texts[file] += line + "\n"
    for number, text in enumerate(texts):
        path = folder / "flights" / f"{number}.csv"
        path.write_text(text)
        os.utime(path, (1_700_000_000 + number,) * 2)
    hours = [datetime(2024, 1, 1) + timedelta(hours=h) for h in range(20)]
    (folder / "weather.json").write_text(
        "".join(
            json.dumps({"at": str(at), "origin": origin, "wind": (h * 5 + i) % 9}) + "\n"
            for h, at in enumerate(hours)
            for i, origin in enumerate(("JFK", "LGA", "EWR"))
        )
    )
    (folder / "planes.csv").write_text("id,model\n0,737\n1,A320\n2,E190\n")
    return folder


def script(folder: Path, order: str = "first", using: str = "csv", **options: str) -> str:
    given = {"path": str(folder / "flights"), **({"header": "true"} if using == "csv" else {})}
    shown = ", ".join(f"{k} '{v}'" for k, v in {**given, **options}.items())
    streams = [
        f"CREATE STREAM flights (number BIGINT, origin STRING, ts TIMESTAMP, delay DOUBLE)"
        f" TIMESTAMP BY ts DELAY INTERVAL 5 MINUTES USING {using} OPTIONS ({shown})",
        "CREATE STREAM weather (origin STRING, at TIMESTAMP, wind INTEGER) TIMESTAMP BY at"
        f" USING json OPTIONS (path '{folder / 'weather.json'}')",
        "CREATE RELATION planes (id BIGINT, model STRING, PRIMARY KEY (id))"
        f" USING csv OPTIONS (path '{folder / 'planes.csv'}', header 'true')",
    ]
    creations = [f"CREATE QUERY {name} AS {text}" for name, text in QUERIES.items()]
    asked = [f"INVOKE {name}{moment}" for moment in MOMENTS for name in QUERIES if name != "bad"]
    match order:
        case "first":
            statements = [*streams, *creations, *asked, "INVOKE bad"]
        case "reversed":
            statements = [*streams, *reversed(creations), *asked, "INVOKE bad"]
        case "last":
            reading = "SELECT count(*) FROM flights, weather"
            statements = [*streams, reading, *creations, *asked, "INVOKE bad"]
    return ";\n".join(statements) + ";\n"


def printed(pond: Pond, text: str) -> list[str]:
    """What `millpond run --format json` prints."""
    out = io.StringIO()
    json_writer = writer(Format.JSON, out)
    for result in pond.run(text):
        json_writer.write(result)
    pond.close()
    return [line for line in out.getvalue().splitlines() if json.loads(line)["query"]]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lay(tmp_path_factory.mktemp("files") / "in order")


@pytest.fixture(scope="module")
def expected(files: Path, spark: Any, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    from millpond.runtime.spark.runtime import SparkRuntime

    store = tmp_path_factory.mktemp("plain") / "store"
    return printed(Pond(store, SparkRuntime(spark=spark), bounded=True), script(files))


@pytest.fixture
def small_splits(spark: Any) -> Iterator[None]:
    name = "spark.sql.files.maxPartitionBytes"
    before = spark.conf.get(name)
    spark.conf.set(name, "3000")
    yield
    spark.conf.set(name, before)


def test_answers_are_those_of_the_definition(files, expected):
    answers = {}
    for line in expected:
        answer = json.loads(line)
        answers[answer["query"], answer["as_of"][:19]] = answer
    assert len(answers) == len(MOMENTS) * (len(QUERIES) - 1) + 1
    assert all(answer["final"] for (name, _), answer in answers.items() if name != "bad")
    wanted = duckdb.sql(f"""
        SELECT origin, count(*), avg(delay), sum(delay) FROM (
          SELECT origin, ts::TIMESTAMP AS ts, try_cast(delay AS DOUBLE) AS delay
          FROM read_csv('{files}/flights/*.csv', all_varchar = true))
        WHERE delay IS NOT NULL AND ts > TIMESTAMP '2024-01-01 04:00:00'
          AND ts <= TIMESTAMP '2024-01-01 05:00:00' GROUP BY origin ORDER BY origin NULLS LAST
    """).fetchall()
    found = answers["by_origin", "2024-01-01T05:00:00"]["rows"]
    found = sorted(found, key=lambda row: (row[0] is None, row[0] or ""))
    assert [tuple(row[:2]) for row in found] == [row[:2] for row in wanted]
    for row, meant in zip(found, wanted, strict=True):
        assert row[2:] == pytest.approx(meant[2:])
    bad = answers["bad", next(at for name, at in answers if name == "bad")]["rows"]
    assert [row[0] for row in bad] == ["column \"delay\": 'late' is not a DOUBLE"] * 9


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"maxFilesPerTrigger": "1"}, id="1", marks=pytest.mark.slow),
        pytest.param({"maxFilesPerTrigger": "4"}, id="4"),
    ],
)
def test_files_a_batch(bounded, files, expected, options):
    same(printed(bounded, script(files, **options)), expected)


def test_files_in_small_splits(bounded, files, expected, small_splits):
    same(printed(bounded, script(files)), expected)


@pytest.mark.slow
def test_small_splits_and_batches(bounded, files, expected, small_splits):
    same(printed(bounded, script(files, maxFilesPerTrigger="2")), expected)


@pytest.mark.parametrize("order", ["reversed", pytest.param("last", marks=pytest.mark.slow)])
def test_order_of_registration(bounded, files, expected, order):
    same(printed(bounded, script(files, order)), expected)


def test_order_of_arrival_within_the_delay(bounded, tmp_path, expected):
    files = lay(tmp_path / "shuffled", shuffled=True)
    same(printed(bounded, script(files, maxFilesPerTrigger="1")), expected)


def test_parquet_instead(bounded, files, tmp_path, expected):
    folder = tmp_path / "parquet"
    (folder / "flights").mkdir(parents=True)
    for file in sorted((files / "flights").iterdir()):
        convert = pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(("number", "origin", "ts", "delay"), "string"),
            strings_can_be_null=True,
            null_values=[""],
        )
        table = pyarrow.csv.read_csv(file, convert_options=convert)
        pq.write_table(table, folder / "flights" / f"{file.stem}.parquet", row_group_size=77)
    for name in ("weather.json", "planes.csv"):
        (folder / name).write_bytes((files / name).read_bytes())
    same(printed(bounded, script(folder, using="parquet")), expected)


def test_a_run_that_was_cut_short_goes_on(open_store: Callable[..., Pond], files, expected):
    """The first run dies after a few files; the next one, over the same store, reads the rest."""
    lines = script(files, maxFilesPerTrigger="2").splitlines(keepends=True)
    pond = open_store(bounded=True)
    commits = []
    commit = pond._components.sequencer.commit

    def failing(source: str, batch_id: int, *rest: Any) -> None:
        if batch_id == 1:
            raise RuntimeError("cut short")
        commits.append(batch_id)
        commit(source, batch_id, *rest)

    pond._components.sequencer.commit = failing  # type: ignore[method-assign]
    creations = len(QUERIES) + 3
    pond.execute("".join(lines[:creations]))
    with pytest.raises(MillpondError, match="DATA-502") as caught:
        pond._components.sources.read_to_end()
    assert caught.value.detail == "cut short"
    pond.close()
    assert commits == [0]
    same(printed(open_store(bounded=True), "".join(lines[creations:])), expected)


def same(found: list[str], expected: list[str]) -> None:
    assert len(found) == len(expected)
    for line, wanted in zip(found, expected, strict=True):
        if json.loads(line)["query"] == "bad":  # rejects are stamped with the clock
            assert json.loads(line)["rows"] == json.loads(wanted)["rows"]
        else:
            assert line == wanted
