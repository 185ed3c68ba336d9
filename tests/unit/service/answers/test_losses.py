"""What is missing of streams: in windows, over derived streams, and not elsewhere."""

from __future__ import annotations

from typing import Any

import pytest

from millpond.catalog.objects import StreamDef
from millpond.model.loss import Cause, Loss
from millpond.service.answers.losses import Losses
from millpond.service.pond import Pond

SECOND = 1_000_000


class Damage:
    """Pushes that were lost, by stream."""

    def __init__(self) -> None:
        self.lost_upto: dict[int, int] = {}


@pytest.fixture
def damage() -> Damage:
    return Damage()


@pytest.fixture
def losses(pond: Pond, damage: Damage) -> Losses:
    pond.execute(
        "CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts;"
        "CREATE STREAM d AS ISTREAM(SELECT v FROM s [RANGE 5 SECONDS]);"
        "CREATE STREAM e AS ISTREAM(SELECT v FROM d [RANGE 5 SECONDS])"
    )
    parts = pond._components
    return Losses(parts.invoker.files, damage, parts.invoker._followers)


def find(losses: Losses, pond: Pond, name: str, low: int | None, high: int) -> Any:
    version = pond._components.log.version
    stream = version.find(name)
    assert isinstance(stream, StreamDef)
    return losses.find(version, stream, low if low is None else low * SECOND, high * SECOND)


def test_nothing_is_missing(losses: Losses, pond: Pond) -> None:
    version = pond._components.log.version
    for name in ("s", "d", "e", "s$rejects"):
        stream = version.find(name)
        assert isinstance(stream, StreamDef)
        assert losses.is_whole(version, stream)
        assert find(losses, pond, name, None, 100) == ()


@pytest.mark.parametrize(
    ("name", "low", "exact"),
    [
        ("s", 10, False),
        ("s", 11, True),
        ("s", None, False),
        ("d", 10, False),
        # ISTREAM of a window: its elements from 16 s on depend on what comes from 11 s on.
        ("d", 16, True),
        ("e", 22, True),
        ("e", None, False),
    ],
)
def test_damage_reaches_what_depends_on_it(
    losses: Losses, pond: Pond, damage: Damage, name: str, low: int | None, exact: bool
) -> None:
    damage.lost_upto[pond.streams()[0].id] = 10 * SECOND
    lost = Loss("s", Cause.DAMAGED, None, 10 * SECOND)
    assert find(losses, pond, name, low, 100) == (() if exact else (lost,))


def test_an_empty_span_lacks_nothing(losses: Losses, pond: Pond, damage: Damage) -> None:
    damage.lost_upto[pond.streams()[0].id] = 10 * SECOND
    assert find(losses, pond, "s", 9, 8) == ()
