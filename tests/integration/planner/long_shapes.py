"""Statements that make the parser or the planner work long: each near the limit of its length."""

# ruff: noqa: E501

from __future__ import annotations

from collections.abc import Iterable


def _join(separator: str, parts: Iterable[str]) -> str:
    return separator.join(parts)


def _nest(before: str, inner: str, after: str, times: int) -> str:
    return before * times + inner + after * times


def _ctes(count: int, reads: str) -> str:
    first = "WITH c0 AS (SELECT n, t FROM s)"
    more = (
        f", c{k} AS ({reads.format(last=f'c{k - 1}')})"  # each reads the one before
        for k in range(1, count)
    )
    return f"{first}{''.join(more)} SELECT n FROM c{count - 1}"


#: Queries over `CREATE STREAM s (n BIGINT, t STRING)` by what they are.
SHAPES = {
    "parentheses": f"SELECT {_nest('(', 'n', ')', 9_000)} AS v FROM s",
    "a few parentheses": f"SELECT {_nest('(', 'n', ')', 90)} AS v FROM s",
    "signs": f"SELECT {'- ' * 9_000}n AS v FROM s",
    "NOT": f"SELECT n FROM s WHERE {'NOT ' * 9_000} n > 1",
    "sums": f"SELECT {_join(' + ', ['n'] * 9_000)} AS v FROM s",
    "AND of equalities": f"SELECT n FROM s WHERE {_join(' AND ', (f'n = {k}' for k in range(4_500)))}",
    "OR of equalities": f"SELECT n FROM s WHERE {_join(' OR ', (f'n = {k}' for k in range(4_500)))}",
    "AND of ORs": f"SELECT n FROM s WHERE {_join(' AND ', (f'(n = {k} OR t = {k!r})' for k in range(1_500)))}",
    "OR of ANDs": f"SELECT n FROM s WHERE {_join(' OR ', (f'(n > {k} AND n < {k + 9})' for k in range(1_500)))}",
    "AND of ranges": f"SELECT n FROM s WHERE {_join(' AND ', (f'n BETWEEN {k} AND {k + 9}' for k in range(2_500)))}",
    "AND and OR in turn": f"SELECT n FROM s WHERE {_nest('(n > 1 AND (n < 9 OR ', 'n = 3', '))', 40)}",
    "NOT over AND and OR": f"SELECT n FROM s WHERE {_nest('NOT (n > 1 AND NOT (n < 9 OR ', 'n = 3', '))', 40)}",
    "IN of numbers": f"SELECT n FROM s WHERE n IN ({_join(', ', map(str, range(9_500)))})",
    "NOT IN of texts": f"SELECT n FROM s WHERE t NOT IN ({_join(', ', (f'{str(k)!r}' for k in range(9_500)))})",
    "IN of expressions": f"SELECT n FROM s WHERE n IN ({_join(', ', (f'n + {k}' for k in range(4_500)))})",
    "LIKE": "SELECT n FROM s WHERE " + _join(" OR ", (f"t LIKE '%{k}%'" for k in range(4_500))),
    "columns": f"SELECT {_join(', ', (f'n AS c{k}' for k in range(4_500)))} FROM s",
    "expressions": f"SELECT {_join(', ', (f'n + {k} AS c{k}' for k in range(3_000)))} FROM s",
    "aggregates": f"SELECT {_join(', ', (f'sum(n + {k}) AS c{k}' for k in range(2_000)))} FROM s",
    "GROUP BY": f"SELECT count(*) AS c FROM s GROUP BY {_join(', ', (f'n + {k}' for k in range(4_500)))}",
    "GROUPING SETS": f"SELECT count(*) AS c FROM s GROUP BY GROUPING SETS ({_join(', ', ['(n, t)', '(n)'] * 1_200)})",
    "CUBE": f"SELECT count(*) AS c FROM s GROUP BY CUBE ({_join(', ', (f'n + {k}' for k in range(30)))})",
    "ROLLUP": f"SELECT 1 AS c FROM s GROUP BY ROLLUP ({_join(', ', (f'n + {k}' for k in range(900)))})",
    "CUBE of ten": f"SELECT 1 AS c FROM s GROUP BY CUBE ({_join(', ', (f'n + {k}' for k in range(10)))})",
    "ROLLUP of sixty": f"SELECT 1 AS c FROM s GROUP BY ROLLUP ({_join(', ', (f'n + {k}' for k in range(60)))})",
    "ORDER BY": f"SELECT n FROM s ORDER BY {_join(', ', (f'n + {k}' for k in range(4_500)))}",
    "HAVING": f"SELECT t, count(*) AS c FROM s GROUP BY t HAVING {_join(' AND ', (f'count(*) > {k}' for k in range(2_500)))}",
    "CASE chain": f"SELECT CASE {_join(' ', (f'WHEN n = {k} THEN {k}' for k in range(2_400)))} END AS v FROM s",
    "CASE nested": f"SELECT {_nest('CASE WHEN n > 1 THEN n ELSE ', '0', ' END', 80)} AS v FROM s",
    "calls nested": f"SELECT {_nest('abs(', 'n', ')', 90)} AS v FROM s",
    "calls nested deep": f"SELECT {_nest('abs(', 'n', ')', 6_000)} AS v FROM s",
    "casts": f"SELECT n{'::BIGINT' * 6_000} AS v FROM s",
    "texts joined": f"SELECT {_join(' || ', ['t'] * 9_000)} AS v FROM s",
    "a long text": f"SELECT n FROM s WHERE t = '{'x' * 200_000}'",
    "a long pattern": f"SELECT n FROM s WHERE regexp_matches(t, '{'(a*)*' * 2_000}')",
    "a long LIKE": f"SELECT n FROM s WHERE t LIKE '{'%a' * 20_000}'",
    "a long number": f"SELECT n FROM s WHERE n > {'9' * 100_000}",
    "a long name": f"SELECT {'n' * 100_000} FROM s",
    "a comment": f"SELECT n /* {'/*' * 50_000} */ FROM s",
    "subqueries": f"SELECT n FROM {_nest('(SELECT n FROM ', 's', ') AS q', 50)}",
    "many subqueries": f"SELECT n FROM {_nest('(SELECT n FROM ', 's', ') AS q', 2_500)}",
    "subqueries with predicates": f"SELECT n FROM {_nest('(SELECT n FROM ', 's', ') AS q WHERE n > 1 AND n < 9', 40)}",
    "IN subqueries": f"SELECT n FROM s WHERE {_join(' AND ', ['n IN (SELECT n FROM s)'] * 150)}",
    "EXISTS nested": f"SELECT n FROM s WHERE {_nest('EXISTS (SELECT 1 FROM s WHERE ', 'n > 1', ')', 40)}",
    "scalar subqueries": f"SELECT {_join(' + ', ['(SELECT max(n) FROM s)'] * 150)} AS v FROM s",
    "comma join": f"SELECT a0.n FROM {_join(', ', (f's AS a{k}' for k in range(190)))}",
    "comma join with equalities": (
        f"SELECT a0.n FROM {_join(', ', (f's AS a{k}' for k in range(60)))}"
        f" WHERE {_join(' AND ', (f'a{k}.n = a{k + 1}.n' for k in range(59)))}"
    ),
    "join of all with all": (
        f"SELECT a0.n FROM {_join(', ', (f's AS a{k}' for k in range(30)))}"
        f" WHERE {_join(' AND ', (f'a{j}.n = a{k}.n' for k in range(30) for j in range(k)))}"
    ),
    "JOIN USING": f"SELECT n FROM s AS a0 {_join(' ', (f'JOIN s AS a{k} USING (n)' for k in range(1, 100)))}",
    "LEFT JOIN": (
        "SELECT a0.n FROM s AS a0 "
        + _join(" ", (f"LEFT JOIN s AS a{k} ON a{k}.n = a{k - 1}.n" for k in range(1, 100)))
    ),
    "UNION": _join(" UNION ", ["SELECT n FROM s"] * 190),
    "UNION ALL nested": _nest("(SELECT n FROM s UNION ALL ", "SELECT n FROM s", ")", 60),
    "EXCEPT and INTERSECT": _join(" EXCEPT SELECT n FROM s INTERSECT ", ["SELECT n FROM s"] * 90),
    "WITH": _ctes(190, "SELECT n, t FROM {last}"),
    "WITH that doubles": _ctes(30, "SELECT a.n, b.t FROM {last} AS a, {last} AS b"),
    "WITH that doubles by UNION": _ctes(
        30, "SELECT n, t FROM {last} UNION ALL SELECT n, t FROM {last}"
    ),
    "stars that multiply": _ctes(12, "SELECT a.*, b.n AS m, b.* FROM {last} AS a, {last} AS b"),
    "windows": f"SELECT {_join(', ', (f'sum(n) OVER (PARTITION BY t ORDER BY n + {k}) AS c{k}' for k in range(900)))} FROM s",
    "VALUES": f"SELECT * FROM (VALUES {_join(', ', ['(1)'] * 4_900)}) AS v (a)",
    "lists": f"SELECT {_nest('[', 'n', ']', 80)} AS v FROM s",
    "a long list": f"SELECT [{_join(', ', ['n'] * 9_500)}] AS v FROM s",
    "structs": f"SELECT {_nest('{a: ', 'n', '}', 80)} AS v FROM s",
    "lambdas": f"SELECT {_nest('list_transform([n], x -> ', 'n', '[1])', 40)} AS v FROM s",
    "calls over a join": (
        f"SELECT a0.n FROM {_join(', ', (f's AS a{k}' for k in range(150)))}"
        f" WHERE {_join(' AND ', (f'isnan(a{k % 150}.n + {k})' for k in range(1_500)))}"
    ),
    "a wrong conjunct over a join": (
        f"SELECT a0.n FROM {_join(', ', (f's AS a{k}' for k in range(150)))}"
        f" WHERE {_join(' AND ', (f'a{k % 150}.n + {k} > 1' for k in range(1_500)))} AND a0.t + []"
    ),
    "hops": "SELECT count(*) AS c FROM s GROUP BY HOP(INTERVAL 1 MICROSECOND, INTERVAL 900 MICROSECONDS)",
}
