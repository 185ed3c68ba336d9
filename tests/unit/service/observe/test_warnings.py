"""Everything that can be wrong with a pond is told, and each of it says what to do."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.unit.service.conftest import components_of

from millpond.errors import MillpondError
from millpond.service.components import Components
from millpond.service.ingest.door import SHARES
from millpond.service.ingest.pressure import RUNGS
from millpond.service.observe.status import describe_status
from millpond.service.pond import Pond
from millpond.state.disk_floor import DiskRoom


def climb(step: int) -> Callable[[Components], None]:
    def act(parts: Components) -> None:
        parts.pressure.step = step

    return act


def shed(step: int) -> Callable[[Components], None]:
    def act(parts: Components) -> None:
        parts.door._steps[parts.log.version.find("s").id] = step

    return act


def hold_back(parts: Components) -> None:
    parts.door._holding[parts.log.version.find("s").id] = "s"


def spill(parts: Components) -> None:
    parts.advancer.ladder.spilled_weight = 1.0


def reduce_state(parts: Components) -> None:
    parts.advancer.ladder.reduced_weight = 1.0


def lack_state(parts: Components) -> None:
    parts.advancer.ladder.shortage = "99 of 100 bytes of state are taken"


def suspend(parts: Components) -> None:
    parts.registrar.suspend(parts.registrar.find("q"), "its function failed")


def stop_stream(parts: Components) -> None:
    parts.sequencer.troubles[parts.log.version.find("s").id] = MillpondError("POND-404", "no")


def stop_stream_oddly(parts: Components) -> None:
    parts.sequencer.troubles[parts.log.version.find("s").id] = ValueError("odd")


def stop_changes(parts: Components) -> None:
    version = parts.log.version
    log = version.maker(version.change_log(parts.registrar.find("q").id))
    parts.advancer.retries.note(log.id, MillpondError("POND-404", "it cannot be evaluated"))


def damage(parts: Components) -> None:
    parts.events.file_damaged(MillpondError("STORE-602", 'the file "segments/a" is torn'))


def fail(parts: Components) -> None:
    parts.runtime.trouble = MillpondError("STORE-603", "it cannot be written")


def fill_disk(parts: Components) -> None:
    full = DiskRoom(free=1, floor=1 << 30)
    parts.__class__ = type("OnAFullDisk", (Components,), {"disk_room": full})


def lose_replica(parts: Components) -> None:
    trouble = MillpondError("POND-404", "the database does not answer")
    parts.replicas.trouble = lambda relation: trouble


def deliver(state: str, dead: str | None) -> Callable[[Components], None]:
    def act(parts: Components) -> None:
        told = {"name": "out", "to": "https://x", "state": state, "dead": dead}
        parts.sinks.describe = lambda: [told]

    return act


#: Whatever can be wrong, and the code under which it is told.
WRONG: dict[str, tuple[str, Callable[[Components], None]]] = {
    **{f"rung {n} of work": (RUNGS[n - 1].action, climb(n)) for n in range(1, len(RUNGS) + 1)},
    **{f"step {n} of shedding": ("shed", shed(n)) for n in range(1, len(SHARES))},
    "a stream holds back": ("hold back", hold_back),
    "state in files": ("spill", spill),
    "state is reduced": ("reduce", reduce_state),
    "no room for state": ("hold back", lack_state),
    "a suspended query": ("suspended", suspend),
    "a stopped stream": ("POND-404", stop_stream),
    "a stream that stopped oddly": ("stopped", stop_stream_oddly),
    "changes that stand still": ("POND-404", stop_changes),
    "a damaged file": ("STORE-602", damage),
    "a store that cannot be written": ("STORE-603", fail),
    "a full disk": ("STORE-603", fill_disk),
    "a replica": ("POND-404", lose_replica),
    "a dead sink": ("POND-418", deliver("dead: 410", "410")),
    "a sink that retries": ("retries", deliver("retries: refused", None)),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_told_with_what_to_do(pond: Pond, what: str) -> None:
    pond.execute(
        "CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts; CREATE RELATION r (v INTEGER);"
        "CREATE QUERY q AS SELECT v FROM s [RANGE 1 HOUR] WHERE v > 1"
    )
    pond.query("q").fetch()
    parts = components_of(pond)
    before = describe_status(parts)
    assert (before["problems"], before["warnings"]) == ([], [])
    code, happen = WRONG[what]
    parts.advancer.stop()
    happen(parts)
    status = describe_status(parts)
    told = [*status["problems"], *status["warnings"]]
    assert code in [one["code"] for one in told]
    for one in told:
        assert set(one) == {"code", "message", "detail", "hint", "place"}
        assert len(one["hint"]) > 20, one


def test_the_highest_rung_of_each_action_is_told(pond: Pond) -> None:
    parts = components_of(pond)
    parts.pressure.step = len(RUNGS)
    told = describe_status(parts)["warnings"]
    assert [(one["code"], one["detail"].split(",")[0]) for one in told] == [
        ("defer", "Rung 2 of 4"),
        ("reduce", "Rung 4 of 4"),
    ]
    parts.pressure.step = 0
