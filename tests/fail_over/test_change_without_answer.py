"""A shared store whose log takes a record, and whose answer is lost: another driver goes on."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.service.conftest import components_of

from millpond.errors import MillpondError
from millpond.service.changes.advancer import Advancer
from millpond.state.shared import shared_log
from millpond.state.shared.place import PlaceError
from millpond.testing.local_runtime import open_local


def advance_forever(advancer: Advancer) -> None:
    """Advance until it fails."""
    while True:
        advancer.step()


def test_what_was_derived_is_there_for_the_next_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = str(tmp_path / "place")
    monkeypatch.setattr(shared_log, "_TRY_SECONDS", -1.0)
    with open_local(tmp_path / "a", shared=place) as pond:
        pond.execute("CREATE STREAM s (v BIGINT); CREATE STREAM d AS SELECT v FROM s")
        pond.catch_up()
        parts = components_of(pond)
        parts.advancer.stop()
        parts.advancer.stopping = False
        parts.maintenance.stop()
        pond.ingest("s", [{"v": v} for v in range(5)])
        log = parts.log._database._journal._log
        create = log._place.create

        def lose_answer(key: str, data: bytes) -> bool:
            assert create(key, data)
            raise PlaceError("the answer is lost")

        monkeypatch.setattr(log._place, "create", lose_answer)
        with pytest.raises(MillpondError, match="STORE-603"):
            advance_forever(parts.advancer)
        monkeypatch.setattr(log._place, "create", create)
    with open_local(tmp_path / "b", shared=place) as pond:
        pond.catch_up()
        rows = pond.ask("SELECT v FROM d ORDER BY v").table.to_pylist()
        assert rows == [{"v": v} for v in range(5)]
