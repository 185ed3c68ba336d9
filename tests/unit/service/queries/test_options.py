"""Options of queries: their defaults, what is settled, and where an error points."""

from __future__ import annotations

import pytest

from millpond.catalog.objects import QueryDef
from millpond.catalog.option import Scope
from millpond.catalog.options import OPTIONS, list_options
from millpond.errors import MillpondError
from millpond.service.queries.options import (
    check_options,
    check_stream_options,
    option,
    refuse_unchangeable,
)


def test_an_option_there_is_not_is_told_which_there_are() -> None:
    with pytest.raises(MillpondError, match='CQL-214: no query option "wieght"') as failure:
        check_options({"wieght": 1})
    assert failure.value.hint == 'Did you mean "weight"?'


def test_what_a_query_does_not_say_is_the_default() -> None:
    query = QueryDef(1, "q", "…", {"weight": 3})
    assert (option(query, "weight"), option(query, "materialize")) == (3, "lazy")
    # Every default is a value that could have been given.
    defaults = {n: OPTIONS[n].default for n in list_options(Scope.QUERY)}
    given = {name: value for name, value in defaults.items() if value is not None}
    assert check_options(given) == given


@pytest.mark.parametrize(
    "setting",
    ["weight = 0", "WEIGHT=-1", '"weight" = 0.0', "'weight'='a''b'", "weight = nonsense"],
)
def test_the_place_is_that_of_the_option(setting: str) -> None:
    statement = f"ALTER QUERY overweight SET (active = true, {setting}, max_rows = 3)"
    with pytest.raises(MillpondError) as failure:
        check_options({"weight": 0}, statement)
    span = failure.value.span
    assert span is not None
    assert statement[span.start : span.end] == setting


def test_an_interval_is_marked_to_its_end() -> None:
    for length in ("INTERVAL -5 SECONDS", "interval '5' fortnights"):
        statement = f"ALTER QUERY q SET (eager_expiration = {length}, seed = 1)"
        with pytest.raises(MillpondError) as failure:
            check_options({"eager_expiration": "never"}, statement)
        span = failure.value.span
        assert span is not None
        assert statement[span.start : span.end] == f"eager_expiration = {length}"


def test_what_changes_began_with_is_settled() -> None:
    query = QueryDef(1, "q", "…", {"seed": 5})
    refuse_unchangeable(query, {"seed": 5, "changes": "from registration", "weight": 2}, None)
    for given in ({"seed": 6}, {"changes": "from beginning"}):
        with pytest.raises(MillpondError, match=r'CQL-214: .* is settled for query "q"'):
            refuse_unchangeable(query, given, None)
    with pytest.raises(MillpondError, match="seed"):
        refuse_unchangeable(QueryDef(1, "q", "…"), {"seed": 6}, None)


def test_a_stream_can_only_be_told_to_go_on() -> None:
    assert check_stream_options({"ACTIVE": True}) == {"active": True}
    for options, words in (
        ({"active": False}, 'the stream option "active" cannot be False'),
        ({"active": 1}, 'the stream option "active" cannot be 1'),
        ({"weight": 1}, 'no stream option "weight"'),
    ):
        with pytest.raises(MillpondError, match=f"CQL-214: {words}"):
            check_stream_options(options)
