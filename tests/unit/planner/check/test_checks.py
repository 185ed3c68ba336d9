"""Which functions a query may call: what depends on its arguments only."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from millpond.errors import MillpondError
from millpond.planner.bind.bound_query import BoundQuery

Binding = Callable[[str], BoundQuery]

ALLOWED = [
    "lower(carrier)",
    "upper(carrier) || ':' || dest",
    "coalesce(delay, 0)",
    "nullif(delay, 0)",
    "round(delay / 60, 1)",
    "date_trunc('hour', ts)",
    "extract(hour FROM ts)",
    "ts + INTERVAL 3 HOURS",
    "age(ts, ts)",
    "time_bucket(INTERVAL 5 MINUTES, ts)",
    "strftime(ts, '%Y-%m')",
    "CASE WHEN delay > 60 THEN 'late' ELSE 'fine' END",
    "carrier LIKE 'A%' AND dest NOT ILIKE 's_o'",
    "regexp_matches(carrier, '^A')",
    "split_part(carrier, 'A', 1)",
    "substring(carrier FROM 1 FOR 1)",
    "trim(carrier)",
    "greatest(delay, distance)",
    "list_sum([1, 2])",
    "CAST(distance AS VARCHAR)",
    "TRY_CAST(carrier AS INTEGER)",
    "hash(carrier)",
    "md5(carrier)",
    "typeof(delay)",
    "delay BETWEEN 1 AND 2",
    "delay IS DISTINCT FROM 3",
    "count(*)",
    "count(DISTINCT carrier)",
    "avg(delay) FILTER (WHERE origin = 'JFK')",
    "median(delay)",
    "quantile_cont(delay, 0.9)",
    "string_agg(carrier, ',' ORDER BY carrier)",
    "arg_max(carrier, delay)",
    "max(delay) - min(delay)",
    "row_number() OVER (PARTITION BY carrier ORDER BY ts)",
    "lag(delay) OVER (ORDER BY ts)",
    "sum(delay) OVER (ORDER BY ts ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)",
]


@pytest.mark.parametrize("expression", ALLOWED)
def test_allowed(binding: Binding, expression: str) -> None:
    assert len(binding(f"SELECT {expression} AS x FROM flights").output.fields) == 1


FORBIDDEN = """
    random() now() today() uuid() gen_random_uuid() current_date current_timestamp current_time
    localtime localtimestamp get_current_timestamp() get_current_time() current_localtime()
    current_localtimestamp() transaction_timestamp() age(ts) ago(INTERVAL 1 HOUR) version()
    current_setting('threads') getvariable('x') current_query() current_database()
    current_schema() txid_current() pg_backend_pid() pg_conf_load_time() nextval('s')
    currval('s') setseed(1) sleep_ms(1) write_log('x') error('x') read_text('x')
    in_search_path('a','b') query('x') get_block_size('x') reservoir_quantile(delay,0.5)
    approx_top_k(delay,0) approx_count(delay,delay) approx_quantile(delay) session_user
    has_table_privilege('x','y')
"""


@pytest.mark.parametrize(
    "expression", FORBIDDEN.replace("INTERVAL 1 HOUR", "INTERVAL_1_HOUR").split()
)
def test_forbidden(binding: Binding, expression: str) -> None:
    expression = expression.replace("_1_", " 1 ")
    for text in (
        f"SELECT {expression} FROM flights",
        f"SELECT count(*) AS n FROM flights HAVING max({expression}) IS NULL",
        f"SELECT 1 FROM flights WHERE EXISTS (SELECT 1 FROM weather WHERE {expression} IS NULL)",
    ):
        with pytest.raises(MillpondError) as caught:
            binding(text)
        # The parser refuses some of them before binding can.
        assert caught.value.code in ("CQL-103", "CQL-206", "CQL-212", "CQL-213")
        assert caught.value.span is not None


REASONS = [
    ("now()", "Its answer depends on when it is called."),
    ("current_date", "Its answer depends on when it is called."),
    ("age(ts)", "Its answer depends on when it is called."),
    (
        "bitstring_agg(distance)",
        "Without the least and the greatest value its answer depends on how rows are kept.",
    ),
    ("random()", "Its answer would change from call to call."),
    ("version()", "Its answer depends on the session or the server it is called in."),
    (
        "reservoir_quantile(delay, 0.5)",
        "Its answer depends on the order in which rows are read.",
    ),
    (
        "approx_count_distinct(delay) OVER ()",
        "It takes a value and, in some cases, a constant of a range; no ORDER BY and no OVER.",
    ),
    ("error('x')", "It is called for what it does, and not for its answer."),
    ("combine(delay, 1)", "It belongs to the inside of DuckDB."),
    ("read_text('x')", "It reads what no stream or relation holds."),
]


@pytest.mark.parametrize(("expression", "reason"), REASONS)
def test_why_a_function_is_refused(binding: Binding, expression: str, reason: str) -> None:
    with pytest.raises(MillpondError) as caught:
        binding(f"SELECT {expression} FROM flights")
    assert (caught.value.code, caught.value.detail) == ("CQL-213", reason)


@pytest.mark.parametrize(
    "expression",
    ["geomean(delay)", "weighted_avg(delay, distance)", "json_group_array(delay)"],
)
def test_an_aggregate_that_is_a_macro_is_an_aggregate(binding: Binding, expression: str) -> None:
    assert len(binding(f"SELECT {expression} AS x FROM flights").output.fields) == 1
    with pytest.raises(MillpondError) as caught:
        binding(f"SELECT 1 FROM flights WHERE {expression} IS NULL")
    assert caught.value.code == "CQL-206"


def test_truth_values(binding: Binding) -> None:
    for predicate in (
        "NULL",
        "TRUE",
        "delay > 3",
        "NOT (delay > 3)",
        "CASE WHEN delay > 3 THEN TRUE END",
        "starts_with(carrier, 'A')",
        "CAST('true' AS BOOLEAN)",
        "coalesce(delay > 3, FALSE)",
        "(SELECT max(wind) > 3 FROM weather)",
        "EXISTS (SELECT 1 FROM planes p WHERE p.tailnum = flights.tailnum)",
    ):
        binding(f"SELECT carrier FROM flights WHERE {predicate}")
