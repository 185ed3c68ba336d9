"""What do forty large queries at once take of a server, and what do others wait for meanwhile?

Each form of query is asked forty times at once over HTTP, of a server whose three streams have
4,000 rows each: eight texts in `t`, four values in `k`. Every 0.05 seconds the memory of the server
and of all it started is looked at (RssAnon), and every 0.1 seconds another client counts rows.
Wanted: less than 1 GB above idle, and others are answered within a second. A request may take a
minute, so that each form ends.

    python benchmarks/attacks/forty_at_once.py [--spark] [--form NAME] [--clients 40]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import httpx

ROWS = 4_000
_PAIRS = "FROM a [RANGE 1 HOUR], b [RANGE 1 HOUR] WHERE a.n < b.n AND b.n < 3000"
_EQUAL = "FROM a [RANGE 1 HOUR], b [RANGE 1 HOUR] WHERE a.k = b.k"
#: A query for each way of taking much: rows, groups, and values made of very many.
FORMS = {
    "three streams by <, ordered": "SELECT a.n, b.n AS m, c.n AS o FROM a [RANGE 1 HOUR], "
    "b [RANGE 1 HOUR], c [RANGE 1 HOUR] WHERE a.n < b.n AND b.n < c.n ORDER BY o, m, a.n LIMIT 5",
    "CUBE over a join by <": f"SELECT a.n, b.n AS m, a.t, b.t AS u, count(*) AS v {_PAIRS} "
    "GROUP BY CUBE (a.n, b.n, a.t, b.t)",
    "join by k, ordered": f"SELECT a.n, b.n AS m, a.t {_EQUAL} ORDER BY a.t, m, a.n",
    "DISTINCT over a join by k": f"SELECT DISTINCT a.n, b.n AS m, a.t {_EQUAL}",
    "quantiles over a join by k": f"SELECT a.k, median(a.n + b.n) AS m {_EQUAL} GROUP BY a.k",
    "levenshtein": f"SELECT sum(levenshtein(repeat(a.t, 500), repeat(b.t, 500))) AS d {_PAIRS}",
    "list of texts": f"SELECT a.k, list(a.t) AS l {_PAIRS} GROUP BY a.k",
    "list of texts, all": f"SELECT list(a.t || b.t) AS l {_PAIRS}",
    "list of whole numbers": f"SELECT a.k, list(a.n * b.n) AS l {_PAIRS} GROUP BY a.k",
    "list of structs": "SELECT a.k, list(struct_pack(x := a.t, y := b.n)) AS l "
    f"{_PAIRS} GROUP BY a.k",
    "array_agg, ordered": f"SELECT a.k, array_agg(a.t ORDER BY b.n) AS l {_PAIRS} GROUP BY a.k",
    "string_agg": f"SELECT a.k, string_agg(a.t, ',') AS l {_PAIRS} GROUP BY a.k",
    "json_group_array": f"SELECT a.k, json_group_array(a.t) AS l {_PAIRS} GROUP BY a.k",
    "json_group_object": "SELECT a.k, json_group_object(CAST(a.n * 5000 + b.n AS VARCHAR), b.t) "
    f"AS l {_PAIRS} GROUP BY a.k",
    "histogram": f"SELECT a.k, histogram(a.n * 5000 + b.n) AS l {_PAIRS} GROUP BY a.k",
    "map of lists": f"SELECT a.k, map(list(a.n * 5000 + b.n), list(a.t)) AS l {_PAIRS} GROUP BY 1",
    "list of lists": f"SELECT list(l) AS l FROM (SELECT a.n, list(b.t) AS l {_PAIRS} GROUP BY a.n)",
    "wide texts": f"SELECT a.n, b.n AS m, a.t || ' ' || repeat('x', 60) || b.t AS w {_EQUAL}",
    "window aggregate": f"SELECT a.n, list(b.t) OVER (PARTITION BY a.k ORDER BY b.n) AS l {_EQUAL}",
}


def held(pid: int) -> int:
    """Bytes that a process and all it started hold and that are no file's (RssAnon)."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        found = re.search(r"RssAnon:\s+(\d+) kB", status)
        children = [
            int(child)
            for task in Path(f"/proc/{pid}/task").iterdir()
            for child in (task / "children").read_text().split()
        ]
    except OSError:
        return 0
    return (int(found[1]) << 10 if found else 0) + sum(map(held, children))


@contextmanager
def served(store: Path, spark: bool) -> Iterator[tuple[str, int]]:
    """Serve a store by a process of its own; gives its URL and the process's id."""
    millpond = str(Path(sys.executable).with_name("millpond"))
    program = [millpond, "serve", "--store", str(store), "--port", "0"]
    if not spark:
        local = Path(__file__).parents[2] / "tests" / "faults" / "serve_local.py"
        program = [str(local), str(store), "0"]
    with (store.parent / "server.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, *program], stdout=subprocess.PIPE, stderr=log, text=True
        )
        assert process.stdout is not None
        try:
            url = next(
                found[0]
                for line in process.stdout
                if (found := re.search(r"http://[0-9.]+:[0-9]+", line))
            )
            threading.Thread(target=process.stdout.read, daemon=True).start()
            yield url, process.pid
        finally:
            process.terminate()
            process.wait()


def fill(url: str) -> None:
    """Make three streams of rows, and wait until they are there."""
    names = ("a", "b", "c")
    run(url, ";".join(f"CREATE STREAM {s} (n BIGINT, k INTEGER, t STRING)" for s in names))
    rows = "\n".join(
        json.dumps({"n": n, "k": n % 4, "t": f"text number {n % 8} of eight"}) for n in range(ROWS)
    )
    for name in names:
        headers = {"Content-Type": "application/x-ndjson"}
        answer = httpx.post(f"{url}/v1/streams/{name}/tuples", content=rows, headers=headers)
        answer.raise_for_status()
    until = time.monotonic() + 120
    while any(count(url, name) < ROWS for name in names):
        assert time.monotonic() < until
        time.sleep(0.2)


def run(url: str, text: str) -> httpx.Response:
    """Run statements."""
    return httpx.post(f"{url}/v1/statements?max_seconds=60", json={"text": text}, timeout=300)


def count(url: str, stream: str) -> int:
    """How many rows a stream has."""
    answer = run(url, f"SELECT count(*) AS n FROM {stream}").json()
    return int(answer["results"][0]["rows"][0][0])


def outcome(url: str, sql: str) -> str:
    """What a query is answered with: its status, and of an error the code."""
    try:
        answer = run(url, sql)
    except httpx.HTTPError as error:
        return type(error).__name__
    if answer.status_code == 200:
        return "answered"
    return f"{answer.status_code} {answer.json()['error']['code']}"


def ask(url: str, told: Connection) -> None:
    """Another client, a process of its own: count rows until told to end, send back the waits."""
    waits: list[float] = []
    with httpx.Client(timeout=300) as client:
        told.send(None)
        while not told.poll(0.1):
            began = time.monotonic()
            text = {"text": "SELECT count(*) AS n FROM quiet"}
            client.post(f"{url}/v1/statements", json=text).raise_for_status()
            waits.append(time.monotonic() - began)
    told.send(waits)


def attack(url: str, pid: int, sql: str, clients: int) -> list[object]:
    """Ask for one query many times at once, and look at what it does."""
    time.sleep(3.0)
    idle, most = held(pid), 0
    over = threading.Event()

    def weigh() -> None:
        nonlocal most
        while not over.wait(0.05):
            most = max(most, held(pid))

    processes = multiprocessing.get_context("spawn")
    ours, theirs = processes.Pipe()
    other = processes.Process(target=ask, args=(url, theirs))
    other.start()
    ours.recv()
    weighing = threading.Thread(target=weigh)
    weighing.start()
    began = time.monotonic()
    with ThreadPoolExecutor(clients) as pool:
        outcomes = Counter(pool.map(lambda _: outcome(url, sql), range(clients)))
    took = time.monotonic() - began
    ours.send(None)
    waits: list[float] = ours.recv()
    over.set()
    weighing.join()
    other.join()
    return [
        idle >> 20,
        (most - idle) >> 20,
        ", ".join(f"{number} {name}" for name, number in outcomes.most_common()),
        took,
        statistics.median(waits) if waits else None,
        max(waits, default=None),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spark", action="store_true", help="a server with Spark")
    parser.add_argument("--form", help="a part of the names of the forms to ask for")
    parser.add_argument("--clients", type=int, default=40)
    parser.add_argument("--together", action="store_true", help="one server for all forms")
    given = parser.parse_args()
    chosen = {name: sql for name, sql in FORMS.items() if (given.form or "") in name}
    print("query | idle, MB | above, MB | outcomes | s | others' median | most | load")

    def try_forms(forms: dict[str, str]) -> None:
        with (
            tempfile.TemporaryDirectory() as scratch,
            served(Path(scratch) / "store", given.spark) as (url, pid),
        ):
            fill(url)
            run(url, "CREATE STREAM quiet (n BIGINT)").raise_for_status()
            for name, sql in forms.items():
                load = os.getloadavg()[0]
                print(name, *attack(url, pid, sql, given.clients), load, sep=" | ", flush=True)

    if given.together or given.spark:
        try_forms(chosen)
    else:
        for name, sql in chosen.items():
            try_forms({name: sql})


if __name__ == "__main__":
    main()
