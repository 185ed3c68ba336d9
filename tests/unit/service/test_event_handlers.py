"""Who acts on what happens: each event reaches those who are named for it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.service.conftest import RecordedEvents, components_of, rows

from millpond.errors import MillpondError
from millpond.service.components import Components
from millpond.service.event_handlers import EventHandlers
from millpond.service.events import EpochTimes
from millpond.service.pond import Pond

PARTS = (
    "epochs",
    "stems",
    "registrar",
    "maintenance",
    "advancer",
    "new_derivations",
    "subscriptions",
    "refresher",
    "plan_monitor",
    "files",
    "pressure",
    "relaxing",
)


class Connected:
    """EventHandlers over parts that only write down what they are told."""

    def __init__(self) -> None:
        self.progress: list[dict[str, Any]] = []
        self.handlers = EventHandlers(self.progress.append)
        self.parts: dict[str, Any] = {name: RecordedEvents() for name in PARTS}
        self.handlers.connect(**self.parts)
        for part in self.parts.values():
            part.calls.clear()

    def told(self) -> list[tuple[str, str]]:
        """Each part that was told, and what."""
        return [(name, call[0]) for name, part in self.parts.items() for call in part.calls]


@pytest.fixture
def connected() -> Connected:
    return Connected()


@pytest.fixture
def parts(pond: Pond) -> Components:
    pond.execute("CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts")
    return components_of(pond)


def test_a_batch_wakes_those_who_work_on_elements(connected: Connected, parts: Components) -> None:
    connected.handlers.batch_committed(parts.log.version, [], EpochTimes(1, 2))
    assert connected.told() == [("maintenance", "wake"), ("advancer", "wake"), ("pressure", "look")]


def test_advanced_derivations_wake_maintenance_and_who_looks_at_their_plans(
    connected: Connected, parts: Components
) -> None:
    connected.handlers.derivations_advanced(parts.log.version, [], EpochTimes(1, 2))
    assert connected.told() == [("maintenance", "wake"), ("plan_monitor", "wake")]


def test_followers_are_woken_by_progress(connected: Connected) -> None:
    connected.handlers.advancer_progressed()
    assert connected.told() == [("subscriptions", "notify")]


def test_only_a_users_function_suspends_a_query(connected: Connected, pond: Pond) -> None:
    pond.execute("CREATE STREAM s (v INTEGER)")
    query = pond.register("SELECT v FROM s", "q").definition
    connected.handlers.answer_failed(query, MillpondError("POND-404", "no", detail="why"))
    assert connected.told() == []
    connected.handlers.answer_failed(query, MillpondError("POND-411", "no", detail="why"))
    assert connected.parts["registrar"].calls == [("suspend", query, "why")]


def test_damage_is_kept_once_for_each_file(connected: Connected) -> None:
    first, again, other = (
        MillpondError("STORE-602", f'the file "segments/{name}"') for name in ("a", "a", "b")
    )
    for error in (first, again, other):
        connected.handlers.file_damaged(error)
    assert list(connected.handlers.damage.values()) == [first, other]


def test_progress_is_shown_for_the_streams_of_a_batch(
    connected: Connected, pond: Pond, parts: Components
) -> None:
    stream = pond.streams()[0]
    connected.handlers.source_read(stream, 7)
    assert connected.progress == [{"stream": "s", "rows": 7, "done": True}]


def test_a_predicate_that_fails_on_new_elements_suspends_its_query(pond: Pond) -> None:
    pond.execute("CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts")
    pond.register("SELECT v FROM s WHERE v::STRING::DATE > '2024-01-01'", "bad")
    pond.register("SELECT v FROM s WHERE v > 0", "good")
    pond.ingest("s", rows(1, 2))
    assert pond.query("bad").definition.suspended is not None
    assert pond.query("good").definition.suspended is None


def test_changes_that_cannot_be_computed_take_no_answer_away(pond: Pond) -> None:
    pond.execute("CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts")
    pond.register("SELECT v::STRING::DATE AS d FROM s", "bad", changes="from beginning")
    pond.query("bad").fetch()
    pond.ingest("s", rows(1, 9))
    pond.catch_up()
    assert pond.query("bad").definition.suspended is None
    (problem,) = pond.status()["problems"]
    assert problem["message"].startswith('changes of query "bad" stand still: ')
