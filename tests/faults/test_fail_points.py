"""A whole pond is killed at every fail point, and the life of its client goes on.

Restart is invisible: whatever instant the pond dies at, the client that sends again what was not
acknowledged ends where one ends whose pond never died, and where the definition says.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from pond_life import FOLLOWED, NOON, QUERIES, line_of, received, steps, take
from tests.oracle.oracle_pond import OraclePond

from millpond.state.fail_points import FAIL_POINTS
from millpond.state.store import REFERENCED
from millpond.testing.local_runtime import open_local
from millpond.testing.manual_clock import ManualClock

pytestmark = pytest.mark.slow

LIFE = Path(__file__).parent / "pond_life.py"

#: The hits of a fail point a life ends at; those it does not come to are passed over.
HITS = (1, 3, 9, 27, 81)

#: Past instants, and the present.
INSTANTS = [None, *(1_767_225_600_000_000 + minutes * 60_000_000 for minutes in (1, 3, 5, 8, 11))]


@pytest.fixture(scope="module")
def oracle() -> OraclePond:
    """A life in which nothing was killed, as the definition has it."""
    oracle = OraclePond(ManualClock(NOON))
    for step in steps():
        if isinstance(step, str):
            oracle.execute(step)
        else:
            oracle.ingest(*step)
    return oracle


@pytest.fixture(scope="module")
def delivered(oracle: OraclePond) -> dict[str, list[Any]]:
    """The changes the definition says of the followed queries."""
    return {name: oracle.query(name).fetch().rows() for name in FOLLOWED}


@pytest.fixture(scope="module")
def meant(oracle: OraclePond) -> dict[tuple[str, int | None], list[Any]]:
    """What the definition says of the answers of that life."""
    names = [name for name in QUERIES if name not in ("leaving", "longest")]
    return {(n, at): ordered(oracle.query(n).invoke(at).rows()) for n in names for at in INSTANTS}


#: A life this short has no snapshot and no earlier format; `tests/unit/state` kills those, and
#: backups. Sinks are killed by `test_killed_sinks.py`.
ELSEWHERE = ("backup.", "sink.", "migration.", "journal.before_snapshot", "journal.after_snapshot")


@pytest.mark.parametrize("name", [n for n in FAIL_POINTS if not n.startswith(ELSEWHERE)])
def test_killed_at(name, meant, delivered, tmp_path):
    settings = [f"{name}:{hit}" for hit in HITS]
    shown = subprocess.run(
        [sys.executable, str(LIFE), str(tmp_path), *settings],
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert shown.returncode == 0, shown.stdout + shown.stderr
    told = dict(line.split() for line in shown.stdout.splitlines())
    assert told[f"{name}:1"] == "killed", "the life does not come by here"
    for setting in settings:
        check(tmp_path / setting, meant, delivered)


def check(
    store: Path, meant: dict[tuple[str, int | None], list[Any]], delivered: dict[str, list[Any]]
) -> None:
    for name, rows in delivered.items():
        lines = received(store, name).read_text().splitlines()
        assert lines == [line_of(row) for row in rows], (store.name, name)
    with open_local(store, clock=ManualClock(NOON)) as pond:
        assert pond.status()["problems"] == []
        names = {query.name for query in pond.queries()}
        assert names == QUERIES.keys() - {"leaving"}
        for (query, at), rows in meant.items():
            assert ordered(pond.query(query).invoke(at).rows()) == rows, (store.name, query, at)
        for number, step in enumerate(steps()):
            if not isinstance(step, str):
                take(pond, step, f"step-{number}")
        pond.wait_until_matched()
        for (query, at), rows in meant.items():
            assert ordered(pond.query(query).invoke(at).rows()) == rows, "sent once more"
        for name, rows in delivered.items():
            found = pond.query(name).fetch().rows()
            assert list(map(line_of, found)) == list(map(line_of, rows)), "sent once more"
        found = {f"{kind}/{file.name}" for kind in REFERENCED for file in (store / kind).iterdir()}
        assert found == pond._components.log.version.paths().keys()
        assert not list((store / "inbox").iterdir())


def ordered(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(rows, key=repr)
