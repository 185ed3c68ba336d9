"""Settings of entities: which each has, and which values they take."""

from __future__ import annotations

from typing import Any

import pytest

from millpond.catalog.objects import QueryDef
from millpond.errors import MillpondError
from millpond.service.changes.settings import ChangeSettings
from millpond.service.maintenance.join_rounds import JoinSettings
from millpond.service.observe.control_settings import (
    check_setting_names,
    of_engine,
    of_query,
)
from millpond.service.queries.options import check_settings

QUERY = QueryDef(1, "q", "…", {"weight": 3, "strategy": "direct", "keep_changes": 5})


def test_a_querys_settings_are_its_options_by_what_works_for_it() -> None:
    answer = of_query("answer", QUERY, ChangeSettings())
    assert answer.keys() == {"materialize", "weight", "max_rows", "max_seconds", "max_memory"}
    assert (answer["materialize"], answer["weight"]) == ("lazy", 3)
    changes = ChangeSettings("negative", eager_expiration=2_000_000)
    assert of_query("derivation", QUERY, changes) == {
        "strategy": "negative",  # what holds, whoever said so
        "eager_expiration": "2 SECONDS",
        "lazy_expiration": "auto",
        "keep_changes": 5,
    }


def test_the_engines_settings_are_divided_among_its_entities() -> None:
    joins = JoinSettings(shards=4, routing="worst")
    assert of_engine("eddies", joins, ChangeSettings()) == {"routing": "worst"}
    shown = of_engine("joins", joins, ChangeSettings())
    assert shown.keys() == {"shards", "max_pairs", "max_cores"}
    assert shown["shards"] == 4
    assert of_engine("changes", joins, ChangeSettings("direct"))["strategy"] == "direct"
    assert of_engine("segments", joins, ChangeSettings()) == {}


def test_an_entity_without_the_setting_says_which_it_has() -> None:
    check_setting_names("joins:all", {"shards": 2}, {"shards": 3})
    with pytest.raises(MillpondError, match='CQL-214: no setting "shard"') as failure:
        check_setting_names("joins:all", {"shards": 2, "max_pairs": 1}, {"shard": 3})
    assert failure.value.detail == "It has: shards, max_pairs."
    with pytest.raises(MillpondError, match="Nothing of it can be set") as failure:
        check_setting_names("queue:inbox", {}, {"shards": 3})
    assert "routing of eddies:…" in (failure.value.hint or "")


@pytest.mark.parametrize(
    "given",
    [
        {"routing": "fastest"},
        {"shards": 0},
        {"shards": True},
        {"max_pairs": 1.5},
        {"max_cores": "4"},
    ],
    ids=str,
)
def test_no_other_value_is_taken(given: dict[str, Any]) -> None:
    with pytest.raises(MillpondError, match="CQL-214"):
        check_settings(given)
