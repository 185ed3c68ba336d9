"""Who asks how far a derivation is learns what it has still to take in, and what runs now."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tests.unit.service.conftest import components_of, rows

from millpond.service.components import Components
from millpond.service.pond import Pond


@pytest.fixture
def parts(pond: Pond) -> Components:
    pond.execute("CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts")
    pond.register("SELECT v FROM s [RANGE 60 SECONDS]", "q", changes="from beginning")
    pond.query("q").fetch()
    return components_of(pond)


def figures(pond: Pond) -> dict[str, Any]:
    return pond.entities.one("derivation:q").figures


def test_final_elements_that_are_not_taken_in_are_counted(pond: Pond, parts: Components) -> None:
    pond.ingest("s", rows(1, 2, 3))
    pond.query("q").fetch()
    assert figures(pond)["elements behind"] == 0
    pond.execute("ALTER QUERY q SET (active = false)")
    pond.ingest("s", rows(4, 5, 6, 7))
    pond.catch_up()
    # The last of four is not final, and the last of three has become so.
    assert figures(pond)["elements behind"] == 4
    assert "; 4 elements behind" in pond.explain("q", "runtime")
    pond.execute("ALTER QUERY q SET (active = true)")
    pond.query("q").fetch()
    assert figures(pond)["elements behind"] == 0
    assert "behind" not in pond.explain("q", "runtime").splitlines()[1]


def test_a_step_that_runs_tells_since_when_and_over_what(
    pond: Pond, parts: Components, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, seen = parts.runtime.run, []

    def look_and_run(task: Callable[[Any], Any], jobs: Sequence[Any], *near: Any) -> list[Any]:
        if task.__name__ == "advance":
            seen.append((figures(pond), pond.explain("q", "runtime")))
        return run(task, jobs, *near)

    pond.ingest("s", rows(1, 2, 3))
    pond.query("q").fetch()
    monkeypatch.setattr(parts.runtime, "run", look_and_run)
    pond.ingest("s", rows(4, 5))
    pond.query("q").fetch()
    held, explained = seen[0]
    # The window's elements are read, too, should the worker have lost them.
    assert held["step elements"] >= held["elements behind"] == 2
    assert held["step upto"] == "1970-01-01 00:00:04.999999"
    assert held["step seconds"] < 60
    assert "; a step over " in explained
    assert "step elements" not in figures(pond)
    assert "a step over" not in pond.explain("q", "runtime")
