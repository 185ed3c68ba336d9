"""How far a query is reduced follows the rates of its streams, and the grant."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.unit.service.answers.test_reduced import SCHEMA, elements
from tests.waiting import wait_until

from millpond.service.pond import Pond


def reduced(pond: Pond, name: str = "q") -> str | None:
    found: str | None = pond.query(name).describe()["reduced"]
    return found


def list_actions(pond: Pond) -> list[str]:
    asked = pond.ask("SELECT why FROM system$actions WHERE action = 'reduce' AND name = 'q'")
    return [why for (why,) in asked.rows()]


def test_a_query_that_was_registered_before_its_elements_is_reduced_once_they_are_there(
    pond: Pond,
) -> None:
    pond.execute(SCHEMA)
    pond.alter_system(query_memory="20 KB")
    pond.register("SELECT v FROM s", "q", tolerate="sample 1 %")
    pond.register("SELECT v FROM s", "exact")
    assert reduced(pond) is None
    pond.ingest("s", elements(5_000))
    pond.catch_up()
    wait_until(lambda: reduced(pond) is not None, 40)
    answer = pond.query("q").invoke()
    assert not answer.exact
    assert 0 < len(answer.rows()) < 5_000
    assert pond.query("exact").invoke().exact
    wait_until(lambda: list_actions(pond))
    assert "20,000 bytes, are reduced to sample" in list_actions(pond)[0]
    kept = float(str(reduced(pond)).split()[1]) / 100
    asked = pond.ask("SELECT before, after FROM system$actions WHERE name = 'q'").rows()
    assert asked == [(0.0, pytest.approx(1 - kept))]  # the share that it gives up

    # With more memory it is whole again.
    pond.alter_system(query_memory="10 MB")
    pond.catch_up()
    wait_until(lambda: reduced(pond) is None, 40)
    assert pond.query("q").invoke().exact
    wait_until(lambda: len(list_actions(pond)) == 2)


def test_a_followed_query_is_chosen_for_again_and_its_changes_add_up(pond: Pond) -> None:
    pond.execute(SCHEMA)
    pond.alter_system(query_memory="20 KB")
    query = pond.register("SELECT v FROM s", "q", tolerate="sample 1 %", changes="from beginning")
    query.fetch()
    pond.ingest("s", elements(3_000)[:100])
    pond.catch_up()
    assert query.fetch().exact

    def add_up() -> Counter[object]:
        rows = query.fetch(limit=100_000).rows()
        found = Counter(row for _, _, sign, row in rows if sign == "+")
        return found - Counter(row for _, _, sign, row in rows if sign == "-")

    pond.ingest("s", elements(3_000)[100:])
    pond.catch_up()
    wait_until(lambda: reduced(pond) is not None, 40)
    pond.ingest("s", elements(3_010)[3_000:])  # the changes go on with these
    pond.catch_up()
    assert any("the changes of" in why for why in list_actions(pond))
    page = query.fetch(limit=100_000)
    assert not page.exact
    assert page.as_of is not None
    answer = query.invoke(at=page.as_of)
    assert not answer.exact
    assert add_up() == Counter(v for (v,) in answer.rows())
    assert 0 < len(answer.rows()) < 3_010

    # With more memory it is whole again, and what was missing comes.
    pond.alter_system(query_memory="10 MB")
    pond.catch_up()
    wait_until(lambda: reduced(pond) is None, 40)
    pond.ingest("s", elements(3_020)[3_010:])
    pond.catch_up()
    page = query.fetch(limit=100_000)
    whole = query.invoke(at=page.as_of)
    assert whole.exact
    assert add_up() == Counter(v for (v,) in whole.rows())


def test_who_is_stream_valued_and_followed_or_fits_is_left_alone(pond: Pond) -> None:
    pond.execute(SCHEMA)
    pond.ingest("s", elements(2_000))
    pond.catch_up()
    pond.alter_system(query_memory="60 KB")
    followed = pond.register("ISTREAM(SELECT v FROM s)", "followed", tolerate="sample 1 %")
    followed.fetch()
    fits = pond.register("SELECT v FROM s [RANGE 5 MINUTES]", "fits", tolerate="sample 1 %")
    before = reduced(pond, "followed"), reduced(pond, "fits")
    pond.ingest("s", elements(9_000)[2_000:])
    pond.catch_up()
    pond._components.maintenance.step()
    pond.wait_until_matched()
    assert (reduced(pond, "followed"), reduced(pond, "fits")) == before
    assert fits.invoke().exact
