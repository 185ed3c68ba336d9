"""Takes the pictures of the console that stand in the guide: python docs/take_pictures.py [FOLDER].

It serves a pond in this process, without Spark, and looks at it with Chromium. All sizes are taken
into FOLDER, to be looked at; those that the guide shows are kept in docs/pictures/console.
"""

from __future__ import annotations

import itertools
import json
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from millpond.model.time import format_instant, parse_instant
from millpond.service.pond import Pond
from millpond.testing.local_runtime import open_local

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "docs" / "pictures" / "console"
sys.path.insert(0, str(ROOT / "tests" / "surfaces" / "console"))

from browser import Browser, find_programs  # noqa: E402
from served import serve  # noqa: E402

WIDTHS = {390: 844, 1280: 860, 1920: 1080}

WORLD = """
CREATE STREAM flights (ts TIMESTAMP, carrier STRING, origin STRING, delay DOUBLE) TIMESTAMP BY ts;
CREATE STREAM weather (ts TIMESTAMP, origin STRING, wind DOUBLE) TIMESTAMP BY ts;
CREATE RELATION planes (tail STRING PRIMARY KEY, model STRING);
CREATE QUERY by_carrier WITH (owner = 'ann', tags = 'delays') AS
  SELECT carrier, count(*) AS flights, avg(delay) AS mean_delay
  FROM flights [RANGE 1 HOUR] GROUP BY carrier ORDER BY carrier;
CREATE QUERY late WITH (owner = 'bob') AS
  SELECT ts, carrier, delay FROM flights [RANGE 1 HOUR] WHERE delay > 30 ORDER BY ts;
CREATE QUERY windy AS
  SELECT f.carrier, w.wind FROM flights [RANGE 1 HOUR] f, weather [RANGE 1 HOUR] w
  WHERE f.origin = w.origin AND w.wind > 15;
"""
TEXT = """SELECT ts, delay, delay + 10 AS with_taxi
FROM flights [RANGE 10 MINUTES]
WHERE carrier = 'B6' ORDER BY ts;"""

#: What each further element is later than the last.
SECONDS = itertools.count()

#: The pages, each with how it is brought to show something.
PAGES = ("write", "queries", "query", "plan", "trace", "document", "system", "past")


def fill(pond: Pond) -> None:
    """Give a pond an hour of flights, and some queries of many."""
    pond.execute(WORLD)
    chance = random.Random(7)
    start = parse_instant("2026-03-01 09:00:00")
    for batch in range(12):
        at = [start + (batch * 300 + i * 3) * 1_000_000 for i in range(100)]
        pond.ingest(
            "flights",
            [
                {
                    "ts": format_instant(t),
                    "carrier": chance.choice(["AA", "B6", "DL", "UA"]),
                    "origin": chance.choice(["JFK", "LGA", "EWR"]),
                    "delay": round(chance.gauss(15, 25), 1),
                }
                for t in at
            ]
            + [{"ts": "soon", "carrier": "AA"}],
        )
        pond.ingest(
            "weather",
            [{"ts": format_instant(at[0]), "origin": "JFK", "wind": round(chance.gauss(15, 5), 1)}],
        )
    pond.register_many(
        [
            (
                f"SELECT ts, carrier FROM flights [RANGE 1 HOUR] WHERE delay > {n % 90}",
                f"delay_over_{n % 90}_for_{n}",
                {"owner": chance.choice(["ann", "bob", "cleo"]), "tags": "alerts"},
            )
            for n in range(500)
        ]
    )
    for name in ("by_carrier", "late", "windy", "delay_over_81_for_81", "delay_over_82_for_82"):
        pond.query(name).fetch()
    pond.catch_up()


def show(browser: Browser, url: str, page: str, pond: Pond) -> None:
    """Bring a page to show something."""
    address = {
        "write": "#/write?view=chart",
        "queries": "#/queries?containing=delay%20%3E%208",
        "query": "#/query/by_carrier?view=chart&live=1",
        "plan": "#/plan?query=late",
        "trace": "#/plan?query=late&trace=flights&tuple=0",
        "document": "#/plan?query=by_carrier",
        "system": "#/system",
        "past": "#/system",
    }[page]
    if page == "trace":
        push_flights(pond, (("AA", 44.0), ("B6", 5.0)))
    browser.forget(url)
    browser.open(f"{url}/{address}")
    browser.sees("running", "#state")
    if page == "write":
        browser.write(TEXT)
        browser.click("#run")
        browser.find("#results .chart canvas")
    if page == "query":
        browser.sees("following", "#feed")
        push_flights(pond, (("AA", 20.0), ("B6", 20.0)))
        browser.sees("+", "#changes")
    if page == "document":
        change_plan(browser, pond)
    if page == "past":
        at = format_instant(parse_instant("2026-03-01 10:00:00") + next(SECONDS) * 1_000_000)
        pond.ingest("flights", [{"ts": at, "carrier": "AA", "delay": 5.0}] * 50)
        pond._history.look()
        browser.find("#past .chart canvas")
        browser.run("document.querySelector('#past').scrollIntoView()")
    if page in ("plan", "trace"):
        browser.find(".plan-canvas[data-laid]:not([data-laid=''])")
    time.sleep(4.5 if page == "system" else 1.0)  # two looks make a rate; charts draw their axes


def push_flights(pond: Pond, flights: tuple[tuple[str, float], ...]) -> None:
    """Let flights come, each with its carrier and delay, a second after the last ones."""
    second = parse_instant("2026-03-01 10:00:00") + next(SECONDS) * 1_000_000
    at, after = format_instant(second), format_instant(second + 500_000)
    pond.ingest("flights", [{"ts": at, "carrier": name, "delay": late} for name, late in flights])
    pond.execute(f"HEARTBEAT flights AT TIMESTAMP '{after}'")
    pond.catch_up()


def change_plan(browser: Browser, pond: Pond) -> None:
    """Edit the plan of a query, and show the difference."""
    browser.press("Export the plan of by_carrier")
    browser.editor("#document")
    document = pond.export_plan(["by_carrier"])
    document["settings"]["scheduler"] = "chain"
    for operator in document["operators"].values():
        if "group" in operator["name"]:
            operator["shared"] = False
    browser.write(json.dumps(document, indent=2), "#document")
    browser.press("Show the difference")
    browser.find("#difference table")
    browser.run("document.querySelector('#document-title').scrollIntoView()")


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as store,
        open_local(Path(store) / "store") as pond,
        Browser(*find_programs()) as browser,
    ):
        fill(pond)
        for _ in range(3):
            pond._history.look()
            time.sleep(1)
        with serve(pond) as served:
            for dark in (False, True):
                for width, height in WIDTHS.items():
                    browser.resize(width, height, dark)
                    for page in PAGES:
                        show(browser, served.url, page, pond)
                        name = f"{page}_{width}_{'dark' if dark else 'light'}.png"
                        browser.save_picture(folder / name)
                        if browser.complaints():
                            print(name, browser.complaints())
    KEPT.mkdir(parents=True, exist_ok=True)
    text = (ROOT / "docs" / "guide" / "console.md").read_text()
    for path in sorted(folder.glob("*.png")):
        if f"pictures/console/{path.name}" in text:
            shutil.copy(path, KEPT / path.name)
    print(f"all pictures are in {folder}")


if __name__ == "__main__":
    main()
