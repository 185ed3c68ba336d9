"""What binding refuses: the code, the place, the hint. «…» marks the place in the query."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from millpond.errors import MillpondError
from millpond.planner.bind.bound_query import BoundQuery

Binding = Callable[[str], BoundQuery]

REFUSED = [
    # names of streams and relations
    ("SELECT * FROM «flihgts»", "CQL-201", 'Did you mean "flights"?'),
    ("SELECT * FROM flights WHERE EXISTS (SELECT 1 FROM «wether»)", "CQL-201", "weather"),
    ("WITH c AS (SELECT * FROM «plains») SELECT * FROM c", "CQL-201", "planes"),
    ("SELECT dest FROM flights UNION SELECT origin FROM «weathr»", "CQL-201", "weather"),
    ("SELECT * FROM «nothing$rejects»", "CQL-201", None),
    ("SELECT * FROM «late»", "CQL-216", "INVOKE late"),
    ("SELECT * FROM flights RIGHT JOIN «fares» USING (carrier)", "CQL-301", "NON RETROACTIVE"),
    # windows and samples
    ("SELECT * FROM planes «[ROWS 10]»", "CQL-204", "Remove [ROWS 10]"),
    (
        "WITH c AS (SELECT * FROM flights) SELECT * FROM c «[RANGE 1 HOUR]»",
        "CQL-204",
        "Move the window",
    ),
    ("SELECT * FROM planes SAMPLE(«10»)", "CQL-216", "SAMPLE"),
    ("SELECT * FROM flights [PARTITION BY «carier» ROWS 3]", "CQL-202", "carrier"),
    # columns
    ("SELECT «dellay» FROM flights", "CQL-202", 'Did you mean "delay"?'),
    ("SELECT * FROM flights WHERE «dep_delay» > 3", "CQL-202", None),
    ("SELECT * FROM flights [RANGE 1 HOUR WHERE «delya» > 3]", "CQL-202", "delay"),
    ("SELECT * FROM flights [RANGE 1 HOUR WHERE «w.wind» > 3], weather w", "CQL-202", None),
    ("SELECT * FROM flights ORDER BY «dealy»", "CQL-202", "delay"),
    ("SELECT dest FROM flights UNION SELECT origin FROM weather ORDER BY «dst»", "CQL-202", "dest"),
    ("SELECT «x.delay» FROM flights f", "CQL-202", None),
    ("SELECT «flights.delay» FROM flights f", "CQL-202", None),
    ("SELECT «f.dely» FROM flights f", "CQL-202", "delay"),
    ("SELECT «z.*» FROM flights", "CQL-202", "flights"),
    ("SELECT * FROM flights JOIN weather USING («dest»)", "CQL-202", None),
    ("SELECT «t.delay» FROM (SELECT carrier FROM flights) t", "CQL-202", None),
    ("SELECT «delay»", "CQL-202", None),
    (
        "SELECT t.n, «t.m» FROM (SELECT delay AS n, count(*) FROM flights GROUP BY 1) t",
        "CQL-202",
        None,
    ),
    ("SELECT «m» FROM (SELECT count(*) FROM flights) t", "CQL-202", None),
    ('SELECT * FROM flights WHERE origin = «"JFK"»', "CQL-202", "'JFK'"),
    ("SELECT «ts» FROM flights, weather", "CQL-203", "flights.ts"),
    ("SELECT * FROM flights, «flights»", "CQL-203", "another name"),
    # aggregates
    ("SELECT * FROM flights WHERE «avg(delay)» > 3", "CQL-206", "HAVING"),
    ("SELECT * FROM flights f JOIN weather w ON «max(wind)» > 3", "CQL-206", None),
    ("SELECT count(*) FROM flights GROUP BY «sum(delay)»", "CQL-206", None),
    ("SELECT * FROM flights [RANGE 1 HOUR WHERE «avg(delay)» > 3]", "CQL-206", None),
    ("SELECT sum(«avg(delay)») FROM flights", "CQL-206", None),
    ("SELECT median(«first(delay)») FROM flights", "CQL-206", None),
    ("SELECT * FROM flights WHERE «row_number() OVER (ORDER BY ts)» < 3", "CQL-206", "QUALIFY"),
    # functions
    ("SELECT «lowwer(carrier)» FROM flights", "CQL-212", 'Did you mean "lower"?'),
    ("SELECT * FROM flights WHERE delay > 3 AND «no_such(delay)»", "CQL-212", None),
    ("SELECT «random()» FROM flights", "CQL-213", None),
    ("SELECT * FROM flights WHERE ts > «now()»", "CQL-213", None),
    ("SELECT * FROM flights WHERE ts > «current_timestamp»", "CQL-213", "window"),
    ("SELECT «user» FROM flights", "CQL-213", None),
    ("SELECT «age(ts)» FROM flights", "CQL-213", None),
    ("SELECT «nextval('s')» FROM flights", "CQL-213", None),
    ("SELECT «current_setting('threads')» FROM flights", "CQL-213", None),
    ("SELECT * FROM flights [RANGE 1 HOUR WHERE «random()» > 0.5]", "CQL-213", None),
    # types
    ("SELECT * FROM flights WHERE «delay»", "CQL-205", "Compare"),
    ("SELECT * FROM flights WHERE delay > 3 AND «distance + 1»", "CQL-205", None),
    ("SELECT * FROM flights f JOIN planes p ON «p.seats»", "CQL-205", None),
    ("SELECT carrier FROM flights GROUP BY carrier HAVING «count(*)»", "CQL-205", None),
    ("SELECT * FROM flights [RANGE 1 HOUR WHERE «delay»]", "CQL-205", None),
    ("SELECT * FROM flights WHERE delay > 3 AND «carrier + 1» > 2", "CQL-205", "Cast"),
    ("SELECT carrier, «sum(origin)» FROM flights GROUP BY carrier", "CQL-205", "Cast"),
    ("SELECT * FROM flights WHERE «ts > carrier»", "CQL-205", "Cast"),
    ("SELECT upper(«lower(distance, 2)») FROM flights", "CQL-205", None),
    (
        "SELECT 1 FROM flights f WHERE EXISTS (SELECT 1 FROM weather w WHERE «w.ts > f.dest»)",
        "CQL-205",
        "Cast",
    ),
    ("SELECT * FROM flights WHERE «delay IN (SELECT ts FROM weather)»", "CQL-205", None),
    ("SELECT * FROM flights WHERE delay > «'late'»", "CQL-205", None),
    ("SELECT * FROM flights WHERE distance IN (1, «'two'»)", "CQL-205", None),
    ("SELECT * FROM flights WHERE ts BETWEEN '2013-01-01' AND «'then'»", "CQL-205", None),
    ("SELECT * FROM flights WHERE ts > TIMESTAMP «'soon'»", "CQL-205", None),
    # what cannot be understood
    ("SELECT carrier, «delay» FROM flights GROUP BY carrier", "CQL-219", "any_value(delay)"),
    ("SELECT «delay», count(*) FROM flights", "CQL-219", None),
    ("SELECT avg(delay) FROM flights GROUP BY carrier HAVING «delay» > 3", "CQL-219", None),
    (
        "WITH c AS (SELECT upper(dest), «dest + 1» AS x FROM flights) SELECT * FROM c",
        "CQL-205",
        None,
    ),
    ("SELECT t.x FROM (SELECT dest, «dest * 2» AS x FROM flights) t WHERE x > 3", "CQL-205", None),
    (
        "WITH a AS (SELECT dest AS x FROM flights), b AS (SELECT «x - 1» AS y FROM a) "
        "SELECT * FROM b",
        "CQL-205",
        None,
    ),
    (
        "SELECT dest FROM flights UNION «SELECT model, seats FROM planes»",
        "CQL-219",
        None,
    ),
    (
        "SELECT * FROM flights WHERE «delay > (SELECT wind, temp FROM weather)»",
        "CQL-219",
        "compared",
    ),
    # later
    (
        "«SELECT DISTINCT ON (dest) * FROM flights» EXCEPT ALL SELECT * FROM flights BY (dest)",
        "CQL-301",
        "EXCEPT ALL",
    ),
]


def _text_and_place(marked: str) -> tuple[str, str]:
    start, end = marked.index("«"), marked.index("»")
    return marked.replace("«", "").replace("»", ""), marked[start + 1 : end]


@pytest.mark.parametrize(("marked", "code", "hint"), REFUSED, ids=[q for q, _, _ in REFUSED])
def test_refused(binding: Binding, marked: str, code: str, hint: str | None) -> None:
    text, place = _text_and_place(marked)
    with pytest.raises(MillpondError) as caught:
        binding(text)
    error = caught.value
    assert error.code == code, error.render()
    assert error.text == text
    assert error.span is not None
    assert text[error.span.start : error.span.end] == place, error.render()
    assert error.span.start == marked.index("«")
    if hint is not None:
        assert hint in (error.hint or ""), error.render()


def test_a_window_beside_a_period_is_refused(binding: Binding) -> None:
    with pytest.raises(MillpondError) as caught:
        binding("SELECT * FROM flights [NOW] BEGIN NOW END NOW")
    assert caught.value.code == "CQL-218"


def test_a_cte_under_two_periods_is_refused(binding: Binding) -> None:
    with pytest.raises(MillpondError) as caught:
        binding(
            "WITH c AS (SELECT * FROM flights) "
            "SELECT carrier FROM c BEGIN NOW - 1 HOUR END NOW UNION ALL SELECT carrier FROM c"
        )
    assert caught.value.code == "CQL-218"


def test_details_list_what_there_is(binding: Binding) -> None:
    with pytest.raises(MillpondError) as caught:
        binding("SELECT seets FROM planes")
    assert caught.value.detail == '"planes" has: tailnum, model, seats.'
    with pytest.raises(MillpondError) as caught:
        binding("SELECT * FROM plan")
    assert caught.value.detail == "There are: fares, flights, planes, weather."


def test_no_word_of_the_library_below_reaches_the_user(binding: Binding) -> None:
    for marked, _, _ in REFUSED:
        with pytest.raises(MillpondError) as caught:
            binding(_text_and_place(marked)[0])
        shown = caught.value.render()
        assert "Binder" not in shown
        assert "Catalog Error" not in shown
        assert "leaf_" not in shown
