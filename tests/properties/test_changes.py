"""The laws of SEMANTICS section 7 for changes: dataflows against the naive oracle."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millpond.algebra.denotation import World
from millpond.testing.changes_play import check_changes
from millpond.testing.oracle_pond import OraclePond
from millpond.testing.strategies import SECOND, Scenario, instants_of_elements, scenarios

LAW = settings(
    max_examples=40,
    derandomize=True,
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

END_OF_PLAY = 30 * SECOND


def world_of(scenario: Scenario) -> World:
    """The history a scenario makes."""
    pond = OraclePond()
    for stream in scenario.streams:
        pond.execute(stream.declaration)
    for name, rows in scenario.batches():
        pond.ingest(name, rows)
    return pond.world


def cuts() -> st.SearchStrategy[list[int]]:
    """Instants a flow is advanced to, the end of play among them."""
    some = st.lists(instants_of_elements(), max_size=5, unique=True)
    return some.map(lambda instants: [*sorted(instants), END_OF_PLAY])


@LAW
@given(st.data())
def test_law_1_and_4_changes_are_what_the_definition_says_however_cut(data: st.DataObject) -> None:
    scenario = data.draw(scenarios(most_queries=2))
    world = world_of(scenario)
    for query in scenario.queries:
        operator = data.draw(st.sampled_from(("", "", "", "ISTREAM", "DSTREAM", "RSTREAM")))
        text = f"{operator}({query})" if operator else query
        check_changes(world, text, data.draw(cuts()), pickled=data.draw(st.booleans()))
