"""What somebody chose of a plan's operators holds, and a plan that was read is planned again."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.planner.optimize.test_strategies import JOIN, NEGATION, Rare, planned

from millpond.planner.optimize.choices import CARRIED, Choice, read_choices, separate_nodes

WINDOW = "flights [RANGE 1 HOUR]"
THREE = (
    f"SELECT a.carrier, c.delay FROM {WINDOW} a JOIN {WINDOW} b ON a.carrier = b.carrier"
    f" JOIN {WINDOW} c ON a.tailnum = c.tailnum WHERE b.delay > 5"
)
TEXTS = {
    "distinct": JOIN,
    "negation": NEGATION,
    "groups": f"SELECT carrier, count(*) FROM {WINDOW} GROUP BY carrier",
    "three": THREE,
    "union": f"SELECT carrier FROM {WINDOW} UNION SELECT tailnum FROM flights [RANGE 2 HOURS]",
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_a_plan_that_was_read_is_planned_again_whatever_the_statistics(names, text: str) -> None:  # type: ignore[no-untyped-def]
    for known in (Rare(1e-9), Rare(1e-1), Rare(1e-9, 1e6), Rare(0.5, 0.001)):
        plan = planned(names, text, known=known)
        choices = plan.read_choices()
        for other in (Rare(1e-9), Rare(1e-1), Rare(1e-9, 1e6), Rare(0.5, 0.001)):
            assert planned(names, text, known=other, choices=choices).key == plan.key


def test_choices_are_read_from_their_own_json(names) -> None:  # type: ignore[no-untyped-def]
    found = [*planned(names, THREE).read_choices().values(), Choice(shared=False)]
    assert [Choice.of_json(choice.to_json()) for choice in found] == found


def test_items_are_joined_in_the_order_that_was_chosen(names) -> None:  # type: ignore[no-untyped-def]
    plan = planned(names, THREE)
    choices = plan.read_choices()
    ((key, found),) = [(k, c) for k, c in choices.items() if c.order]
    assert found.order == (0, 1, 2)
    other = planned(names, THREE, choices={**choices, key: replace(found, order=(2, 0, 1))})
    assert other.root.schema == plan.root.schema
    joins = [line.strip() for line in other.explained.split("\n") if "join" in line]
    assert joins[0].startswith("join a.carrier = b.carrier")
    assert joins[1].startswith("join a.tailnum = c.tailnum")
    assert other.read_choices()[key].order == (2, 0, 1)


@pytest.mark.parametrize(
    "text",
    [
        THREE.replace("JOIN", "LEFT JOIN"),
        THREE.replace("a.tailnum = c.tailnum", "a.tailnum = CAST(c.delay AS STRING)"),
        f"SELECT a.carrier FROM {WINDOW} a, {WINDOW} b WHERE a.carrier = b.carrier",
    ],
    ids=["outer", "may-fail", "two"],
)
def test_other_joins_have_no_order_to_choose(names, text: str) -> None:  # type: ignore[no-untyped-def]
    assert not [c for c in planned(names, text).read_choices().values() if c.order]


@pytest.mark.parametrize("form", ["delta star", "delta star, announcing", "counts"])
def test_duplicates_are_eliminated_in_the_form_that_was_chosen(names, form: str) -> None:  # type: ignore[no-untyped-def]
    text = f"SELECT DISTINCT carrier FROM {WINDOW}"
    choices = planned(names, text).read_choices()
    chosen = {
        key: replace(found, distinct=form, expire=()) if found.distinct else Choice()
        for key, found in choices.items()
    }
    plan = planned(names, text, choices=chosen)
    assert form in {c.distinct for c in plan.read_choices().values()}


def test_what_a_reader_does_not_accept_is_planned_around(names) -> None:  # type: ignore[no-untyped-def]
    text = f"SELECT DISTINCT carrier FROM {WINDOW}"
    plan = planned(names, text)
    window = next(node for node in plan.nodes() if node.is_window)
    pinned = {
        window.logical_key: Choice(expire=(7,)),
        plan.root.logical_key: Choice(distinct="delta star"),
    }
    found = planned(names, text, choices=pinned).read_choices()
    announced = found[window.logical_key].expire == (7,)
    starred = found[plan.root.logical_key].distinct == "delta star"
    assert announced is not starred


def test_operators_that_are_not_shared_have_an_owner(names) -> None:  # type: ignore[no-untyped-def]
    text = f"SELECT carrier, count(*) FROM {WINDOW} GROUP BY carrier"
    plan = planned(names, text)
    grouping = next(node for node in plan.nodes() if type(node).__name__ == "Grouping")
    choices = {grouping.logical_key: Choice(shared=False)}
    mine, yours = (planned(names, text, choices=choices, owner=q) for q in ("1", "2"))
    common = {node.key for node in mine.nodes()} & {node.key for node in yours.nodes()}
    below = {node.key for node in grouping.inputs for node in [node, *node.inputs]}
    assert below <= common
    assert mine.key != yours.key
    assert mine.read_choices() == plan.read_choices()
    assert CARRIED not in choices[grouping.logical_key].expire
    assert mine.core is not None
    separate = separate_nodes(mine.core, choices, "1")
    assert separate.key != mine.core.key
    assert read_choices(mine.written, separate) == plan.read_choices()
