"""What can be chosen of an operator, and what cannot."""

from __future__ import annotations

import pytest
from tests.unit.service.plans.plan_ponds import find

from millpond.errors import MillpondError
from millpond.service.pond import Pond


def test_what_an_operator_cannot_be_is_refused(pond: Pond) -> None:
    document = pond.export_plan()
    join = next(i for i, o in document["operators"].items() if o["order"])
    distinct = find(document, "distinct", "kinds")
    expire = next(i for i, o in document["operators"].items() if o["name"] == "expire")
    source = next(i for i, o in document["operators"].items() if not o["inputs"])
    for id, field, value in (
        (join, "order", ["a", "b"]),
        (join, "order", ["a", "b", "d"]),
        (join, "order", "a"),
        (join, "synopsis", "counts"),
        (distinct, "synopsis", "odd"),
        (distinct, "shared", "no"),
        (expire, "synopsis", "0 partitions"),
        (source, "shared", False),
        (join, "inputs", []),
        (join, "rate", 1),
    ):
        with pytest.raises(MillpondError) as caught:
            pond.compare_plan({"form": 1, "operators": {id: {field: value}}})
        assert caught.value.code == "CQL-214", (id, field)
    for id, field, hint in (
        (
            distinct,
            "synopsis",
            "It can be 'delta star', 'delta star, announcing', 'counts'.",
        ),
        (distinct, "shared", "It can be true or false."),
        (expire, "synopsis", "It can be 'arrival order', or '1 partitions' to '10000 partitions'."),
    ):
        with pytest.raises(MillpondError) as caught:
            pond.compare_plan({"form": 1, "operators": {id: {field: "odd"}}})
        assert caught.value.hint == hint
    fixed = {"form": 1, "queries": {"kinds": {"strategy": "negative"}}}
    pond.adopt_plan(fixed)
    now = pond.export_plan(["kinds"])
    id = find(now, "distinct", "kinds")
    with pytest.raises(MillpondError, match="CQL-214"):
        pond.compare_plan({"form": 1, "operators": {id: {"synopsis": "delta star"}}})
