"""How many requests a token sends, and an owner has under way."""

from __future__ import annotations

import pytest

from millpond.api.rights.caller import Caller, Quotas, Role
from millpond.api.rights.gate import Traffic
from millpond.errors import MillpondError


def caller(id: str, **quotas: float) -> Caller:
    return Caller(id, "alice", Role.READER, (), Quotas(**quotas))  # type: ignore[arg-type]


def test_the_rate_of_a_token() -> None:
    now = [0.0]
    traffic = Traffic(lambda: now[0])
    first, second = caller("a", rate=2), caller("b", rate=2)
    for _ in range(2):
        traffic.enter(first)
        traffic.leave(first)
    with pytest.raises(MillpondError, match="rate"):
        traffic.enter(first)
    traffic.enter(second)
    now[0] = 0.5
    traffic.enter(first)
    with pytest.raises(MillpondError, match="rate"):
        traffic.enter(first)
    now[0] = 1000.0
    for _ in range(2):
        traffic.enter(first)
    with pytest.raises(MillpondError, match="rate"):
        traffic.enter(first)


def test_what_an_owner_has_under_way() -> None:
    traffic = Traffic()
    first, second = caller("a", running=2), caller("b", running=2)
    traffic.enter(first)
    traffic.enter(second)
    with pytest.raises(MillpondError, match="running"):
        traffic.enter(second)
    traffic.leave(first)
    traffic.enter(second)
