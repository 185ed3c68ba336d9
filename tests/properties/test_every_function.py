"""Every function that is no plain scalar, in changes: they add up to the answer at each instant.

What a query's changes mean depends on which of its calls give one value for many rows, and which
give many rows for one. The functions are those of DuckDB's own catalog a query may call; each needs
an example here, so a function that is allowed later is not forgotten.
"""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pytest
from tests.oracle.oracle_pond import OraclePond
from tests.tools import golden_table as cells

from millpond.model.approximation import APPROXIMATE, TOP_K
from millpond.model.functions import ALLOWED, FUNCTIONS, SHOWING_ORDER, Kind
from millpond.testing.local_runtime import open_local
from millpond.testing.manual_clock import ManualClock

#: An example of each aggregate. Where the order of rows shows, it is said.
AGGREGATES = {
    "any_value": "any_value(v ORDER BY v)",
    "arbitrary": "arbitrary(v ORDER BY v)",
    "arg_max": "arg_max(k, v)",
    "arg_max_null": "arg_max_null(k, v)",
    "arg_max_nulls_last": "arg_max_nulls_last(k, v, 2)",
    "arg_min": "arg_min(k, v)",
    "arg_min_null": "arg_min_null(k, v)",
    "arg_min_nulls_last": "arg_min_nulls_last(k, v, 2)",
    "argmax": "argmax(k, v)",
    "argmin": "argmin(k, v)",
    "array_agg": "array_agg(v ORDER BY v)",
    "avg": "avg(v)",
    "bit_and": "bit_and(v)",
    "bit_or": "bit_or(v)",
    "bit_xor": "bit_xor(v)",
    "bitstring_agg": "bitstring_agg(v, 0, 63)",
    "bool_and": "bool_and(v > 2)",
    "bool_or": "bool_or(v > 2)",
    "corr": "corr(v, w)",
    "count": "count(v)",
    "count_if": "count_if(v > 2)",
    "count_star": "count_star()",
    "countif": "countif(v > 2)",
    "covar_pop": "covar_pop(v, w)",
    "covar_samp": "covar_samp(v, w)",
    "decimal_average": "decimal_average(CAST(v AS DECIMAL(9,2)))",
    "entropy": "entropy(v)",
    "favg": "favg(v)",
    "first": "first(v ORDER BY v)",
    "fsum": "fsum(v)",
    "geomean": "geomean(v)",
    "geometric_mean": "geometric_mean(v)",
    "group_concat": "group_concat(v, ',' ORDER BY v)",
    "histogram": "histogram(v)",
    "histogram_exact": "histogram_exact(v, [1, 2, 3])",
    "json_group_array": "json_group_array(v)",
    "json_group_object": "json_group_object(ts, w)",
    "json_group_structure": "json_group_structure(v)",
    "kahan_sum": "kahan_sum(v)",
    "kurtosis": "kurtosis(v)",
    "kurtosis_pop": "kurtosis_pop(v)",
    "last": "last(v ORDER BY v)",
    "list": "list(v ORDER BY v)",
    "listagg": "listagg(v, ',' ORDER BY v)",
    "lttb": "lttb(v, w, 3)",
    "mad": "mad(v)",
    "max": "max(v)",
    "max_by": "max_by(k, v)",
    "mean": "mean(v)",
    "median": "median(v)",
    "min": "min(v)",
    "min_by": "min_by(k, v)",
    "mode": "mode(v ORDER BY v)",
    "percentile_cont": "percentile_cont(0.4) WITHIN GROUP (ORDER BY v)",
    "percentile_disc": "percentile_disc(0.4) WITHIN GROUP (ORDER BY v)",
    "product": "product(v)",
    "quantile": "quantile(v, 0.4)",
    "quantile_cont": "quantile_cont(v, 0.4)",
    "quantile_disc": "quantile_disc(v, 0.4)",
    "regr_avgx": "regr_avgx(v, w)",
    "regr_avgy": "regr_avgy(v, w)",
    "regr_count": "regr_count(v, w)",
    "regr_intercept": "regr_intercept(v, w)",
    "regr_r2": "regr_r2(v, w)",
    "regr_slope": "regr_slope(v, w)",
    "regr_sxx": "regr_sxx(v, w)",
    "regr_sxy": "regr_sxy(v, w)",
    "regr_syy": "regr_syy(v, w)",
    "sem": "sem(v)",
    "skewness": "skewness(v)",
    "stddev": "stddev(v)",
    "stddev_pop": "stddev_pop(v)",
    "stddev_samp": "stddev_samp(v)",
    "string_agg": "string_agg(v, ',' ORDER BY v)",
    "sum": "sum(v)",
    "sum_no_overflow": "sum_no_overflow(v)",
    "sumkahan": "sumkahan(v)",
    "var_pop": "var_pop(v)",
    "var_samp": "var_samp(v)",
    "variance": "variance(v)",
    "variant_group_array": "CAST(variant_group_array(v) AS VARCHAR)",
    "wavg": "wavg(v, w)",
    "weighted_avg": "weighted_avg(v, w)",
}
#: Of each function that gives many rows for one.
SETS = {
    "generate_subscripts": "generate_subscripts([v, w], 1)",
    "regexp_split_to_table": "regexp_split_to_table(k || ',' || v, ',')",
    "unnest": "unnest([v, w])",
}
#: Of each function that is called OVER a window only.
WINDOWS = {
    "cume_dist": "cume_dist()",
    "dense_rank": "dense_rank()",
    "fill": "fill(w)",
    "first_value": "first_value(v)",
    "lag": "lag(v)",
    "last_value": "last_value(v)",
    "lead": "lead(v)",
    "nth_value": "nth_value(v, 2)",
    "ntile": "ntile(2)",
    "percent_rank": "percent_rank()",
    "rank": "rank()",
    "rank_dense": "rank_dense()",
    "row_number": "row_number()",
}

#: What an aggregate call cannot have OVER a window, for DuckDB.
_NOT_OVER = (" ORDER BY ", "percentile_", "_group_", "geo", "wavg", "weighted_avg")

STEPS = (
    "('2024-01-01 00:00:01', 'a', 3, 1.5)",
    "('2024-01-01 00:00:02', 'b', 1, 2.5), ('2024-01-01 00:00:03', 'a', 5, 2.0)",
    "('2024-01-01 00:00:04', 'a', 2, 4.0), ('2024-01-01 00:00:06', 'c', NULL, 1.0)",
    "('2024-01-01 00:00:07', 'b', 7, 8.0)",
    "('2024-01-01 00:00:30', 'd', 4, 3.0)",
)


#: The places an example is put in, and what they are called.
_S = "s [RANGE 4 SECONDS]"
OF_ALL = "SELECT {call} AS x FROM " + _S
BY_KEY = "SELECT k, {call} AS x FROM " + _S + " GROUP BY k"
HAVING = "SELECT k FROM " + _S + " GROUP BY k HAVING {call} IS NOT NULL"
EACH = (
    "SELECT o.k, (SELECT {call} FROM s [RANGE 2 SECONDS] i WHERE o.k = i.k) AS x FROM " + _S + " o"
)
OVER = "SELECT ts, {call} OVER (PARTITION BY k) AS x FROM " + _S
IN_ORDER = "SELECT ts, {call} OVER (PARTITION BY k ORDER BY ts) AS x FROM " + _S
ROWS = "SELECT k, {call} AS x FROM " + _S
INSIDE = "SELECT count(*) AS n FROM (SELECT {call} AS x FROM " + _S + ") t"
FILTERED = "SELECT x FROM (SELECT {call} AS x, v FROM " + _S + ") t WHERE v > 2"
ONCE = "SELECT DISTINCT {call} AS x FROM " + _S

#: Millpond's own: DuckDB's functions of these names are refused.
APPROXIMATIONS = {
    "approx_count_distinct": "approx_count_distinct(v)",
    "approx_quantile": "approx_quantile(v, 0.5)",
    "approx_count": "approx_count(v, 2)",
    "approx_top_k": "approx_top_k(v, 2)",
}
GROUPED = AGGREGATES | APPROXIMATIONS
PLAIN = {n: call for n, call in AGGREGATES.items() if not any(word in call for word in _NOT_OVER)}


def test_every_approximation_has_an_example() -> None:
    assert tuple(APPROXIMATIONS) == (*APPROXIMATE, TOP_K)


def test_every_function_has_an_example() -> None:
    """By DuckDB's catalog, and by what macros do to two rows: not by any list of the planner's."""
    allowed = set(ALLOWED)
    with duckdb.connect(":memory:") as connection:
        kinds: dict[str, set[str]] = {}
        for name, kind in connection.execute(
            "SELECT lower(function_name), function_type FROM duckdb_functions()"
        ).fetchall():
            kinds.setdefault(name, set()).add(kind)
        macros = {n for n in allowed if kinds.get(n) == {"macro"}}
        behaviour = {n: count_rows(connection, n) for n in macros}
    aggregates = {n for n in allowed if "aggregate" in kinds.get(n, ())}
    aggregates |= {n for n, rows in behaviour.items() if rows == 1}
    sets = {"unnest"} | {n for n, rows in behaviour.items() if rows not in (1, 2)}
    windows = {n for n in allowed if kinds.get(n) == {"window"}}
    assert aggregates | {"percentile_cont", "percentile_disc"} == AGGREGATES.keys()
    assert sets == SETS.keys()
    assert windows == WINDOWS.keys()
    by_kind = {kind: {n for n in allowed if FUNCTIONS[n].kind is kind} for kind in Kind}
    assert by_kind[Kind.AGGREGATE] == AGGREGATES.keys()
    assert by_kind[Kind.SET] == SETS.keys()
    assert by_kind[Kind.WINDOW] == WINDOWS.keys()


def test_which_aggregates_show_the_order_of_rows_is_known() -> None:
    rows = [
        ("2024-01-01 00:00:01", "'a'", "3", 1.5),
        ("2024-01-01 00:00:02", "'b'", "1", 2.5),
        ("2024-01-01 00:00:03", "'a'", "5", 2.0),
        ("2024-01-01 00:00:04", "'a'", "3", 4.0),
        ("2024-01-01 00:00:06", "'c'", "NULL", 1.0),
        ("2024-01-01 00:00:07", "'c'", "1", 8.0),
        ("2024-01-01 00:00:07", "'d'", "5", 0.5),
    ]
    orders = [random.Random(seed).sample(rows, len(rows)) for seed in range(40)]
    tables = [
        ", ".join(f"(TIMESTAMP '{ts}', {k}, {v}, CAST({w} AS DOUBLE))" for ts, k, v, w in order)
        for order in orders
    ]
    found = set()
    with duckdb.connect(config={"threads": "1"}) as connection:
        for name, call in AGGREGATES.items():
            plain = call if "WITHIN" in call else re.sub(r" ORDER BY v\b", "", call)
            answers = [
                connection.execute(f"SELECT {plain} FROM (VALUES {t}) t (ts, k, v, w)").fetchone()
                for t in tables
            ]
            (first,) = answers[0] or (None,)
            if any(not is_equal(first, answer[0]) for answer in answers if answer):
                found.add(name)
    # `json_group_structure` names an object's fields in the order in which they came.
    assert found | {"json_group_structure"} == SHOWING_ORDER


def is_equal(one: Any, other: Any) -> bool:
    """Whether two values are equal but for the rounding of doubles."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9)
    return bool(one == other)


def count_rows(connection: duckdb.DuckDBPyConnection, macro: str) -> int:
    """How many rows a call of a macro gives over two rows, of NULLs if it takes them."""
    (count,) = connection.execute(
        "SELECT max(len(parameters)) FROM duckdb_functions() WHERE function_name = ?", [macro]
    ).fetchone() or (0,)
    for argument in ("CASE WHEN v > 3 THEN NULL END", "NULL", "v"):
        sql = f"SELECT {macro}({', '.join([argument] * count)}) FROM (VALUES (2), (3)) t (v)"
        try:
            return len(connection.execute(sql).fetchall())
        except duckdb.Error:
            continue
    raise AssertionError(f"no arguments for {macro}")


@pytest.mark.parametrize(
    ("place", "calls"),
    [
        pytest.param(OF_ALL, GROUPED, id="of all rows"),
        pytest.param(BY_KEY, GROUPED, id="by key", marks=pytest.mark.slow),
        pytest.param(HAVING, GROUPED, id="in HAVING", marks=pytest.mark.slow),
        pytest.param(EACH, GROUPED, id="in a scalar subquery", marks=pytest.mark.slow),
        pytest.param(OVER, PLAIN, id="over a window", marks=pytest.mark.slow),
        pytest.param(IN_ORDER, WINDOWS, id="over an ordered window"),
        pytest.param(ROWS, SETS, id="many rows for one"),
        pytest.param(INSIDE, SETS, id="many rows for one, in a subquery"),
        pytest.param(FILTERED, SETS, id="many rows for one, filtered"),
        pytest.param(ONCE, SETS, id="many rows for one, each once"),
    ],
)
def test_changes_add_up_to_the_answer(place: str, calls: dict[str, str], tmp_path: Path) -> None:
    clock = ManualClock()
    pond, oracle = open_local(tmp_path / "store", clock), OraclePond(clock)
    queries = {name: place.format(call=call) for name, call in calls.items()}
    held: dict[str, Counter[tuple[str, ...]]] = {name: Counter() for name in queries}
    cursors = dict.fromkeys(queries, 0)
    wrong: dict[str, str] = {}
    try:
        statements = [
            "CREATE STREAM s (ts TIMESTAMP, k STRING, v INTEGER, w DOUBLE) TIMESTAMP BY ts",
            *(
                f"CREATE QUERY q_{name} WITH (changes = 'from beginning') AS {query}"
                for name, query in queries.items()
            ),
        ]
        for statement in statements:
            pond.execute(statement)
            oracle.execute(statement)
        for step in STEPS:
            for side in (pond, oracle):
                side.execute(f"INSERT INTO s VALUES {step}")
                side.catch_up()
            for name in queries:
                changes = pond.query(f"q_{name}").fetch(after=cursors[name])
                for cursor, _, sign, *row in changes.rows():
                    held[name][show(row)] += 1 if sign == "+" else -1
                    cursors[name] = cursor
                answer = bag(pond.query(f"q_{name}").invoke(at=changes.as_of))
                meant = bag(oracle.query(f"q_{name}").invoke(at=changes.as_of))
                if not (same(answer, meant) and same(held[name], meant)):
                    told = dict(held[name])
                    wrong.setdefault(name, f"changes {told}, INVOKE {answer}, meant {meant}")
    finally:
        pond.close()
    assert not wrong, "\n".join(f"{queries[name]}: {how}" for name, how in wrong.items())


def show(row: Sequence[Any]) -> tuple[str, ...]:
    return tuple(cells.show_rows([row])[0])


def bag(answer: Any) -> Counter[tuple[str, ...]]:
    return Counter(map(show, answer.rows()))


def same(one: Counter[tuple[str, ...]], other: Counter[tuple[str, ...]]) -> bool:
    """Whether two bags are one; floats may differ in their last digits."""
    left, right = sorted(one.elements()), sorted(other.elements())
    no_less = all(count >= 0 for count in one.values())
    return no_less and len(left) == len(right) and all(map(_same_row, left, right))


def _same_row(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    return all(map(cells.same_cell, one, other))
