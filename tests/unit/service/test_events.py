"""Damage that reading finds is reported, and other errors are not."""

from __future__ import annotations

from typing import Any

import pytest

from millpond.errors import MillpondError
from millpond.service.events import noting_damage


class Recorded:
    """Keeps the errors that were reported."""

    def __init__(self) -> None:
        self.damage: list[MillpondError] = []

    def file_damaged(self, error: MillpondError) -> None:
        self.damage.append(error)


@pytest.mark.parametrize(("code", "reported"), [("STORE-602", 1), ("POND-412", 0)])
def test_a_damaged_file_is_reported_and_the_error_goes_on(code: str, reported: int) -> None:
    recorded = Recorded()
    events: Any = recorded
    error = MillpondError(code, "it cannot be read")
    with pytest.raises(MillpondError) as raised, noting_damage(events):
        raise error
    assert raised.value is error
    assert recorded.damage == [error] * reported


def test_what_succeeds_reports_nothing() -> None:
    recorded: Any = Recorded()
    with noting_damage(recorded):
        pass
    assert recorded.damage == []
