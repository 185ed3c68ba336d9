"""A document that is no plan of what runs is refused, and says where."""

from __future__ import annotations

from typing import Any

import pytest

from millpond.errors import MillpondError
from millpond.service.pond import Pond

WRONG = {
    "form": ({"form": 2}, "CQL-214"),
    "field": ({"form": 1, "what": 1}, "CQL-214"),
    "setting": ({"form": 1, "settings": {"memory": "1 GB"}}, "CQL-214"),
    "scheduler": ({"form": 1, "settings": {"scheduler": "odd"}}, "CQL-214"),
    "query": ({"form": 1, "queries": {"nobody": {}}}, "CQL-201"),
    "strategy": ({"form": 1, "queries": {"kinds": {"strategy": "odd"}}}, "CQL-214"),
    "direct": ({"form": 1, "queries": {"not_there": {"strategy": "direct"}}}, "CQL-214"),
    "operator": ({"form": 1, "operators": {"operator:join.0": {}}}, "CQL-201"),
    "object": ({"form": 1, "operators": []}, "CQL-214"),
}


@pytest.mark.parametrize(("document", "code"), WRONG.values(), ids=WRONG)
def test_what_is_no_plan_is_refused(pond: Pond, document: dict[str, Any], code: str) -> None:
    for call in (pond.compare_plan, pond.adopt_plan):
        with pytest.raises(MillpondError) as caught:
            call(document)
        assert caught.value.code == code
    assert pond.adopted_plans() == []


def test_what_a_document_says_is_described(pond: Pond) -> None:
    document = pond.export_plan(["kinds"])
    assert list(document["queries"]) == ["kinds"]
    last = document["operators"][document["queries"]["kinds"]["operator"]]
    assert last["name"] == "distinct"
    assert "kinds" in last["queries"]
    for operator in document["operators"].values():
        assert set(operator["inputs"]) <= set(document["operators"])
        assert operator["synopsis"] is None or operator["synopsis"] in operator["synopses"]
