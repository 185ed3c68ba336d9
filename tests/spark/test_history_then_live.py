"""Files, then a topic: every row once, whatever ends in the middle, at the turn and behind it."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.spark.kafka.test_kafka_sources import Topic

from millpond.runtime.spark import supervisor

pytestmark = pytest.mark.spark

ROUNDS = int(os.environ.get("MILLPOND_KILLS", "30"))
BEGIN = datetime(2026, 3, 1)
CREATE = (
    "CREATE STREAM s (at TIMESTAMP, v INT, day INT) TIMESTAMP BY at IDLE AFTER INTERVAL 9 DAYS "
)


def row(v: int) -> dict[str, Any]:
    """Row number v: 100 a day, in order."""
    return {"at": (BEGIN + timedelta(minutes=v)).isoformat(), "v": v}


def write_history(folder: Path, rows: int) -> None:
    """Write rows into a dataset in folders, of files of 50 in no order."""
    for start in range(0, rows, 50):
        values = range(start, min(start + 50, rows))
        table = pa.table(
            {
                "at": [BEGIN + timedelta(minutes=v) for v in reversed(values)],
                "v": list(reversed(values)),
            }
        )
        part = folder / f"day={9 - start // 100}"
        part.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, part / f"part-{start}.parquet")


def using(folder: Path, topic: Topic, until: int | None, **options: str) -> str:
    cut = "" if until is None else f"UNTIL TIMESTAMP '{BEGIN + timedelta(minutes=until)}' "
    live = topic.using(**options).replace("USING", "THEN", 1)
    return f"USING parquet OPTIONS (path '{folder}', maxFilesPerTrigger 5) {cut}{live}"


class Interrupted:
    """`commit` fails once for the last batch of files, the turn and the first of the topic."""

    def __init__(self, pond: Any, when: str) -> None:
        self._commit, self._when = pond._components.sequencer.commit, when
        self._failed: set[int] = set()
        pond._components.sequencer.commit = self

    def __call__(self, source: str, batch_id: int, *rest: Any, **named: Any) -> None:
        fails = 0 < batch_id < 4 and batch_id not in self._failed
        self._failed.add(batch_id)
        if fails and self._when == "before":
            raise OSError("the disk is away")
        self._commit(source, batch_id, *rest, **named)
        if fails:
            raise OSError("the reply was lost")


def check(pond: Any, count: int) -> None:
    """Every row is there once, and no reject."""
    found = pond.ask("SELECT count(*), count(DISTINCT v), min(v), max(v), max(day) FROM s").rows()
    assert found == [(count, count, 0, count - 1, 9)]
    assert pond.ask("SELECT count(*) FROM s$rejects").rows() == [(0,)]


@pytest.mark.parametrize("when", ["before", pytest.param("after", marks=pytest.mark.slow)])
def test_batches_around_the_turn_fail(open_store, broker, tmp_path, eventually, monkeypatch, when):
    """Files and records overlap; what UNTIL says is of the other is passed over."""
    monkeypatch.setattr(supervisor, "_RETRY_SECONDS", (0.1,))
    topic, folder = Topic(broker), tmp_path / "files"
    write_history(folder, 420)
    topic.send(*[row(v) for v in range(200, 450) if v % 2], partition=1)
    topic.send(*[row(v) for v in range(200, 450) if not v % 2])
    pond = open_store()
    Interrupted(pond, when)
    pond.execute(CREATE + using(folder, topic, 400))
    query = pond.register("ISTREAM (SELECT v FROM s [NOW])", changes="from beginning")
    write_history(folder, 1_000)  # files that come later are not read
    eventually(lambda: pond.ask("SELECT count(*) FROM s").rows() == [(450,)])
    topic.send(*[row(v) for v in range(450, 500)])
    topic.send(row(500), partition=1)
    eventually(lambda: pond.ask("SELECT count(*) FROM s").rows() == [(501,)])
    check(pond, 501)
    eventually(lambda: len(query.fetch()) == 499)  # partition 0 has come to row 499


def test_offsets_say_where_the_topic_begins(bounded, broker, tmp_path):
    """Without UNTIL nothing is passed over, and the rows of a partition are not late."""
    topic, folder = Topic(broker), tmp_path / "files"
    write_history(folder, 100)
    topic.send(*[row(v) for v in range(0, 120, 2)])
    topic.send(*[row(v) for v in range(1, 120, 2)], partition=1)
    start = json.dumps({topic.name: {"0": 50, "1": 50}})
    bounded.execute(CREATE + using(folder, topic, None, start=start))
    check(bounded, 120)


#: Says again and again how many elements it has.
_LIFE = """
import sys, time
import millpond
with millpond.open(sys.argv[1], master="local[1]") as pond:
    if not pond.status()["streams"]:
        pond.execute(sys.argv[2])
    while True:
        print(pond.ask("SELECT count(*) FROM s").rows()[0][0], flush=True)
        time.sleep(0.1)
"""


@pytest.mark.slow
def test_killed_at_any_moment(open_store, broker, tmp_path):
    """Millpond is killed in the middle of the history, around the turn and behind it."""
    topic, folder, store = Topic(broker), tmp_path / "files", tmp_path / "store"
    write_history(folder, 4_000)
    create = CREATE + using(folder, topic, 4_000, max_records="200").replace(
        "Trigger 5", "Trigger 9"
    )
    command = [sys.executable, "-c", _LIFE, str(store), create]
    sent = 3_900

    def send() -> None:
        nonlocal sent
        topic.send(*[row(v) for v in range(sent, sent + 300)], partition=sent // 300 % 2)
        sent += 300

    chance, seen = random.Random(29), 0
    for _ in range(ROUNDS):
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as life:
            feeder = threading.Thread(target=send)
            feeder.start()
            # On any machine most lives come to something new; else one dies while it starts.
            wanted = seen + 1 if chance.random() < 0.7 else 0
            assert life.stdout is not None
            seen = next(count for count in map(int, life.stdout) if count >= wanted)
            time.sleep(2 * chance.random())
            feeder.join()
            life.kill()
        print("killed at", seen, flush=True)  # of 4,000 of the history
    pond = open_store()
    pond.catch_up()
    check(pond, sent)
