"""A whole pond's life as a careful client lives it: what was not acknowledged is sent again.

    python pond_life.py STORE KILLED...

lives it once in a process of its own for every `<fail point>:<hit>` given, each over a copy of
nothing under STORE/<fail point>:<hit>; the pond is killed at that point, opened again by the next
process, and the life goes on from the first step that was not acknowledged.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from millpond.errors import MillpondError
from millpond.state import fail_points
from millpond.testing.local_runtime import open_local
from millpond.testing.manual_clock import ManualClock

#: The clock of all these lives.
NOON = 1_772_366_400_000_000
SECOND = 1_000_000

#: A step: a script, or rows pushed to a stream.
Step = str | tuple[str, list[dict[str, Any]]]

SCHEMA = """
CREATE STREAM flights (ts TIMESTAMP, origin STRING, delay BIGINT) TIMESTAMP BY ts;
CREATE STREAM clicks (n BIGINT);
CREATE RELATION airports (code STRING, city STRING, PRIMARY KEY (code));
"""

QUERIES = {
    "late": "SELECT origin, delay FROM flights [RANGE 5 MINUTES] WHERE delay > 7",
    "counts": "SELECT origin, count(*) AS n, sum(delay) AS s FROM flights GROUP BY origin",
    "last": "SELECT delay FROM flights [PARTITION BY origin ROWS 2]",
    "cities": "SELECT f.delay, a.city FROM flights [RANGE 9 MINUTES] f"
    " JOIN airports a ON f.origin = a.code",
    "bad": "SELECT reason FROM flights$rejects",
    "many": "SELECT count(*) AS n, max(n) AS most FROM clicks WHERE n % 3 <> 1",
    "leaving": "SELECT * FROM flights WHERE delay < 3",
    "longest": "ISTREAM(SELECT origin, max(delay) AS most FROM long [RANGE 4 MINUTES]"
    " GROUP BY origin)",
}

#: The queries a subscriber follows, from the step on after which it finds them.
FOLLOWED = ("late", "counts", "last", "longest")


def steps() -> Iterator[Step]:
    """What the client does, one acknowledged step after the other."""
    yield from (f"{text};" for text in SCHEMA.strip().split(";") if text.strip())
    queries = iter(QUERIES.items())
    for number in range(12):
        rows = [
            {
                "ts": f"2026-01-01 00:{number:02}:{second:02}",
                "origin": "JFK" if second % 20 else "LGA",
                "delay": "soon" if second == 30 and number % 4 == 1 else (number * 7 + second) % 11,
            }
            for second in range(0, 60, 10)
        ]
        if number == 7:
            rows.append({"ts": "2026-01-01 00:01:00", "origin": "late", "delay": 1})
        yield "flights", rows
        yield "clicks", [{"n": number * 4 + i} for i in range(4)]
        if (found := next(queries, None)) is not None:
            yield f"CREATE QUERY {found[0]} WITH (changes = 'from beginning') AS {found[1]};"
        at = f"AT TIMESTAMP '2026-01-01 00:{number:02}:30'"
        match number:
            case 1:
                yield "CREATE STREAM long AS SELECT * FROM flights WHERE delay > 5;"
            case 2:
                yield f"INSERT INTO airports VALUES ('JFK', 'New York'), ('LGA', 'Queens') {at};"
            case 4:
                yield f"UPDATE airports SET city = 'Flushing' WHERE code = 'LGA' {at};"
            case 6:
                yield f"DELETE FROM airports WHERE code = 'JFK' {at};"
            case 9:
                yield "HEARTBEAT flights AT TIMESTAMP '2026-01-01 00:09:59';"
            case 10:
                yield "DROP QUERY leaving;"


def live(store: Path) -> None:
    """Go on with the life where its record ends; `<store>.said` has a line for every step done."""
    record = Path(f"{store}.said")
    done = len(record.read_text().splitlines()) if record.exists() else 0
    said = os.open(record, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    with open_local(store, clock=ManualClock(NOON)) as pond:
        for number, step in enumerate(steps()):
            if number < done:
                continue
            take(pond, step, f"step-{number}")
            follow(pond, store)
            os.write(said, f"{number}\n".encode())
        pond.wait_until_matched()
        follow(pond, store)
    os.close(said)


def follow(pond: Any, store: Path) -> None:
    """Read on behind what is recorded of every followed query, and record what comes."""
    there = {query.name for query in pond.queries()}
    for name in there.intersection(FOLLOWED):
        record = received(store, name)
        lines = record.read_text().splitlines() if record.exists() else []
        page = pond.query(name).fetch(after=json.loads(lines[-1])[0] if lines else None)
        if len(page):
            text = "".join(f"{line_of(row)}\n" for row in page.rows())
            with record.open("a") as file:
                file.write(text)


def line_of(change: tuple[Any, ...]) -> str:
    """A change as a subscriber records it: its cursor, and the rest as text."""
    return json.dumps([change[0], *map(str, change[1:])])


def received(store: Path, name: str) -> Path:
    """What a subscriber has received of a query's changes: a line each."""
    return Path(f"{store}.{name}")


def take(pond: Any, step: Step, key: str) -> None:
    """Do a step that may have been done already, as far as the client can know."""
    if not isinstance(step, str):
        pond.ingest(*step, idempotency_key=key)
        return
    try:
        pond.execute(step)
    except MillpondError as error:
        # Taken, gone or there already: it was done, and only its answer was lost.
        if error.code not in ("CQL-208", "CQL-201", "POND-408"):
            raise


def main(folder: Path, killed: list[str]) -> None:
    for setting in killed:
        store = folder / setting
        name, _, hit = setting.rpartition(":")
        first = in_a_process(lambda s=setting: fail_points.arm(s), store)
        print(setting, "killed" if first else "lived", flush=True)
        if first and in_a_process(lambda: None, store):
            sys.exit(f"{name}:{hit}: killed again")


def in_a_process(prepare: Callable[[], None], store: Path) -> bool:
    """Whether a life in a forked process was killed; it must live well otherwise."""
    child = os.fork()
    if child == 0:
        prepare()
        live(store)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return True
    if status:
        sys.exit(f"{store.name}: status {status}")
    return False


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
