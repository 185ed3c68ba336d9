"""Answers are counted by query, of a bounded number of queries."""

from __future__ import annotations

import pytest

from millpond.service.answers import invocation_counts
from millpond.service.answers.invocation_counts import InvocationCounts


def test_those_that_were_asked_last_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(invocation_counts, "MOST_QUERIES", 2)
    counts = InvocationCounts()
    for query, seconds in ((1, 0.5), (2, 0.25), (1, 0.5), (3, 1.0)):
        counts.count(query, seconds)
    assert [counts.of(query) for query in (1, 2, 3)] == [(2, 1.0), (0, 0.0), (1, 1.0)]
