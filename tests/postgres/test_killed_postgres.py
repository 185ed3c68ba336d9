"""Millpond and the database are killed at any moment: nothing is lost, nothing comes twice."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO, Any

import pytest
from tests.postgres.pond_life import push

from millpond.model.time import END
from millpond.testing.local_runtime import open_local


class Load:
    """Transactions of a user: each takes of one table what it gives to the other."""

    def __init__(self, database: Any) -> None:
        self._database = database
        self._stopped = threading.Event()
        self.done = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        chance = random.Random(7)
        while not self._stopped.is_set():
            k, v = chance.randrange(20), chance.randrange(1, 9)
            put = "ON CONFLICT (k) DO UPDATE SET v"
            sql = (
                f"BEGIN; INSERT INTO debit VALUES ({k}, {-v}) {put} = debit.v - {v};"
                f"INSERT INTO credit VALUES ({k}, {v}) {put} = credit.v + {v}; COMMIT"
            )
            if chance.random() < 0.1:
                gone = " ".join(f"DELETE FROM {t} WHERE k = {k};" for t in ("debit", "credit"))
                sql = f"BEGIN; {gone} COMMIT"
            try:
                self._database.execute(sql)
                self.done += 1
            except Exception:  # the server was killed
                self._database.forget()
                self._stopped.wait(0.05)
            self._stopped.wait(0.002)

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(60)


def live(store: Path, options: str) -> subprocess.Popen[str]:
    """Start a pond, and return once it pushes."""
    script = Path(__file__).with_name("pond_life.py")
    command = [sys.executable, str(script), str(store), options]
    life = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert life.stdout is not None
    assert life.stdout.readline() == "up\n"
    threading.Thread(target=drain, args=(life.stdout,), daemon=True).start()
    return life


def drain(pipe: IO[str]) -> None:
    with pipe:
        pipe.read()


@pytest.mark.parametrize("rounds", [1, pytest.param(30, marks=pytest.mark.slow)])
def test_nothing_is_lost_or_twice(database, tmp_path, rounds, eventually):
    database.execute(
        "CREATE TABLE debit (k integer PRIMARY KEY, v integer);"
        "CREATE TABLE credit (k integer PRIMARY KEY, v integer);"
        "CREATE TABLE sums (k integer PRIMARY KEY, total numeric)"
    )
    chance, store = random.Random(11), tmp_path / "store"
    load = Load(database)
    for number in range(rounds):
        life = live(store, database.options)
        time.sleep(chance.random())
        if number % 3 == 0:
            database.server.kill()
            time.sleep(chance.random() / 2)
            if number % 2 == 0:
                life.kill()
            database.server.start()
            time.sleep(chance.random())
        life.kill()
        life.wait(60)
    load.stop()
    assert load.done > 10 * rounds
    database.forget()
    with open_local(store) as pond:
        parts = pond._components
        # A reader that waits for a server that was killed goes on by itself.
        eventually(lambda: parts.replicas.catch_up(60) is None)
        held = {}
        for name in ("debit", "credit"):
            relation = parts.log.version.find(name)
            held[name] = parts.relations_state.read_rows(parts.log.version, relation)
            rows = held[name].at(END - 1, ("k", "v"))
            found = sorted((row["k"], row["v"]) for row in rows.to_pylist())
            assert found == database.execute(f"SELECT k, v FROM {name} ORDER BY k")
        # The second relation began a little later than the first.
        both = min(at for at in held["credit"].starts.tolist() if at > 0)
        instants = {at for rows in held.values() for at in rows.starts.tolist() if at >= both}
        assert len(instants) > 10
        for at in sorted(instants)[:: max(1, len(instants) // 500)]:
            sums = [sum(rows.at(at, ("v",))["v"].to_pylist()) for rows in held.values()]
            assert sum(sums) == 0, at
        push(pond)
        upto = pond.query("sums").fetch().as_of
        answer = parts.invoke(parts.registrar.find("sums"), upto, None, None)
        expected = sorted((k, int(total)) for k, total in answer.rows())
        assert expected

        def has_all() -> bool:
            found = database.execute("SELECT k, total FROM sums ORDER BY k")
            return [(k, int(total)) for k, total in found] == expected

        eventually(has_all)
        (sink,) = parts.sinks.describe()
        assert sink["dead"] is None
