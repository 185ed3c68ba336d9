"""Estimates of summaries: where one may be asked, and of what."""

from __future__ import annotations

import pytest
from tests.unit.planner.refusing import Binding, refuse


@pytest.mark.parametrize(
    ("text", "code", "place"),
    [
        ("SELECT SUMMARY(x).ESTIMATE.COUNT(3)", "CQL-201", "x"),
        (
            "SELECT 1 AS a WHERE SUMMARY(x).ESTIMATE.COUNT(3) > 1",
            "CQL-224",
            "SUMMARY(x).ESTIMATE.COUNT(3)",
        ),
    ],
)
def test_it_is_refused_at_its_place(binding: Binding, text: str, code: str, place: str) -> None:
    assert refuse(binding, text) == (code, place)
