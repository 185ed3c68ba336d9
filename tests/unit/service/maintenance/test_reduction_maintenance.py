"""How far a query is reduced follows the rates of its streams, and the grant."""

from __future__ import annotations

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

    # With more memory it is whole again.
    pond.alter_system(query_memory="10 MB")
    pond.catch_up()
    wait_until(lambda: reduced(pond) is None, 40)
    assert pond.query("q").invoke().exact
    wait_until(lambda: len(list_actions(pond)) == 2)


def test_who_is_followed_or_fits_is_left_alone(pond: Pond) -> None:
    pond.execute(SCHEMA)
    pond.ingest("s", elements(2_000))
    pond.catch_up()
    pond.alter_system(query_memory="60 KB")
    followed = pond.register("SELECT v FROM s", "followed", tolerate="sample 1 %")
    followed.fetch()
    fits = pond.register("SELECT v FROM s [RANGE 5 MINUTES]", "fits", tolerate="sample 1 %")
    before = reduced(pond, "followed"), reduced(pond, "fits")
    pond.ingest("s", elements(9_000)[2_000:])
    pond.catch_up()
    pond._components.maintenance.step()
    pond.wait_until_matched()
    assert (reduced(pond, "followed"), reduced(pond, "fits")) == before
    assert fits.invoke().exact
