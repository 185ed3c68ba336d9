"""How changes are computed: what a query says goes before what the engine is set to."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from millpond.errors import MillpondError
from millpond.service.changes.settings import ChangeSettings
from millpond.service.queries.options import check_settings

ENGINE = ChangeSettings("negative", eager_expiration=7_000_000, lazy_expiration=60_000_000)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ENGINE),
        ({"materialize": "eager", "weight": 3}, ENGINE),
        ({"strategy": "direct"}, ChangeSettings("direct", 7_000_000, 60_000_000)),
        ({"eager_expiration": "2 MINUTES"}, ChangeSettings("negative", 120_000_000, 60_000_000)),
        ({"lazy_expiration": "0 SECONDS"}, ChangeSettings("negative", 7_000_000, 0)),
        ({"lazy_expiration": "auto"}, ChangeSettings("negative", 7_000_000, None)),
    ],
)
def test_an_option_takes_the_place_of_its_setting_alone(
    options: dict[str, Any], expected: ChangeSettings
) -> None:
    assert ENGINE.with_options(options) == expected


def test_settings_are_written_as_they_can_be_given() -> None:
    assert ENGINE.format() == {
        "strategy": "negative",
        "eager_expiration": "7 SECONDS",
        "lazy_expiration": "1 MINUTE",
    }
    assert ChangeSettings().format()["lazy_expiration"] == "auto"
    for settings in (ENGINE, ChangeSettings()):
        assert (
            ChangeSettings("direct", 1, 1).with_options(check_settings(settings.format()))
            == settings
        )


def test_settings_are_checked_before_any_is_taken() -> None:
    given = {"strategy": "Direct", "eager_expiration": timedelta(seconds=3)}
    assert ENGINE.with_options(check_settings(given)) == ChangeSettings(
        "direct", 3_000_000, 60_000_000
    )
    with pytest.raises(MillpondError, match="CQL-214: the setting \"strategy\" cannot be 'clever'"):
        ENGINE.with_options(check_settings({"eager_expiration": "1 second", "strategy": "clever"}))
    with pytest.raises(MillpondError, match="A number needs a unit of time"):
        ENGINE.with_options(check_settings({"lazy_expiration": 5}))
