"""EXPLAIN APPROXIMATION says what is refused, and the answers are as it says."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.unit.service.answers.test_reduced import full

from millpond.errors import MillpondError
from millpond.service.pond import Pond

__all__ = ["full"]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT max(v) FROM s",
        "SELECT count(DISTINCT g) FROM s",
        "SELECT v FROM s ORDER BY v LIMIT 3",
        "SELECT v FROM s [ROWS 100]",
        "SELECT count(*) FROM s HAVING count(*) > 3",
        "SELECT g FROM s EXCEPT SELECT g FROM s [RANGE 1 HOUR] WHERE v > 10",
    ],
)
def test_what_cannot_be_reduced_safely_is_exact(full: Pond, text: str) -> None:
    query = full.register(text, "q", tolerate="window 1 s, sample 1 %")
    answer = query.invoke()
    said = full.explain("q", "approximation")
    assert "refused: " in said
    if "EXCEPT" in text:
        # What is subtracted stays whole, so no row is wrong.
        assert Counter(answer.rows()) <= Counter(full.ask(text).rows())
    else:
        assert answer.exact
        assert answer.rows() == full.ask(text).rows()


def test_it_says_what_would_be_saved(full: Pond) -> None:
    full.register("SELECT v FROM s [RANGE 1 HOUR]", "q", tolerate="window 6 minutes", weight=2)
    said = full.explain("q", "approximation").splitlines()
    assert said[0] == "tolerates: window 6 MINUTES"
    assert said[1] == "granted: 400 KB"
    assert said[3] == "reduced: no, it is exact"
    needs, least = said[2], said[4]
    assert needs.startswith("needs: ")
    assert least.startswith("at the least: window 6 MINUTES, ")
    assert float(least.split()[-2]) == pytest.approx(float(needs.split()[1]) / 10, rel=0.02)
    text = full.explain("SELECT count(*) AS n FROM s", "approximation")
    assert "sample: may be sampled; n: estimated, with bounds" in text
    assert "window: refused: an aggregate" in text


@pytest.mark.parametrize(
    ("tolerated", "weight", "text"),
    [
        ("sample 5 %", 0.01, "SELECT count(*) AS n FROM s"),
        ("window 6 minutes", 0.01, "SELECT v FROM s [RANGE 1 HOUR]"),
        ("window 6 minutes", 2, "SELECT v FROM s [RANGE 1 HOUR]"),
    ],
)
def test_options_in_front_say_how_far_it_would_be_reduced(
    full: Pond, tolerated: str, weight: float, text: str
) -> None:
    options = f"(tolerate = '{tolerated}', weight = {weight})"
    (before,) = full.execute(f"EXPLAIN APPROXIMATION WITH {options} {text}")
    full.execute(f"CREATE QUERY q WITH {options} AS {text}")
    registered = full.explain("q", "approximation").splitlines()
    assert before.text.splitlines() == [one for one in registered if "measured" not in one]
    assert ("reduced to: " in before.text) == (weight < 1)


def test_options_in_front_are_those_of_queries(full: Pond) -> None:
    with pytest.raises(MillpondError, match="CQL-2") as refused:
        full.execute("EXPLAIN APPROXIMATION WITH (tolerates = 'nothing') SELECT v FROM s")
    assert "tolerates" in str(refused.value)
    with pytest.raises(MillpondError, match="CQL-10"):
        full.execute("EXPLAIN LOGICAL WITH (tolerate = 'nothing') SELECT v FROM s")
    assert not full.queries()
