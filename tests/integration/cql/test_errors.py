"""Every error the language raises: its code, and the place its marker points at.

The place is written into the text: what «these» enclose is what the marker must cover.
"""

from __future__ import annotations

import logging

import pytest

from millpond.cql import parse_query, parse_script, parse_statement
from millpond.errors import MillpondError

#: (code, text with the marked place, what the primary says)
#: The beginning of a summary.
_ON = "ON s (a) WITH GRANULARITY"

STATEMENTS = [
    # the text is not a statement
    ("CQL-101", "«SELCT» a FROM s", '"SELCT" starts no statement'),
    ("CQL-101", "«TRUNCATE» s", "starts no statement"),
    ("CQL-101", "«1» + 1", "starts no statement"),
    ("CQL-101", "«'x'»", "starts no statement"),
    ("CQL-101", "«istream»", "starts no statement"),
    ("CQL-101", "«»", "no statement"),
    ("CQL-101", "INVOKE q; «INVOKE r»", "several statements"),
    # a token cannot be read
    ("CQL-102", "SELECT «'JFK FROM s»", "the string never ends"),
    ("CQL-102", "SELECT a FROM s WHERE a = «'it''s»", "the string never ends"),
    ("CQL-102", 'SELECT «"a FROM s»', "the quoted name never ends"),
    ("CQL-102", "SELECT a «/* and /* so */ on»", "the comment never ends"),
    ("CQL-102", "SELECT «“»a” FROM s", "cannot be read"),
    ("CQL-102", "SELECT a FROM s WHERE a = «`»x`", "cannot be read"),
    ("CQL-102", "SELECT a FROM s WHERE a = «$»1", "cannot be read"),
    ("CQL-102", "SELECT a FROM s WHERE a = «?»", "cannot be read"),
    ("CQL-102", "SELECT «{»'a': 1}", "cannot be read"),
    ("CQL-102", "SELECT a FROM s [RANGE «10min»]", "neither a number nor a name"),
    ("CQL-102", "SELECT «1.2.»3", "neither a number nor a name"),
    ("CQL-102", "SELECT «0x1F»", "neither a number nor a name"),
    ("CQL-102", 'SELECT «""» FROM s', "a quoted name is empty"),
    # brackets
    ("CQL-103", "SELECT «(»a FROM s", '"(" is never closed'),
    ("CQL-103", "SELECT a FROM s «[»NOW", '"[" is never closed'),
    ("CQL-103", "SELECT a«)» FROM s", '")" closes no bracket'),
    ("CQL-103", "SELECT a FROM s [ROWS 5«)»", '")" closes no bracket'),
    ("CQL-103", "CREATE STREAM s «(»a INT; INVOKE q", '"(" is never closed'),
    ("CQL-103", f"SELECT {'(' * 32}«(»a{')' * 33} FROM s", "brackets nest too deeply"),
    ("CQL-103", "SELECT v FROM s «WINDOW» TUMBLE (5 MINUTES)", "WINDOW TUMBLE"),
    ("CQL-103", "SELECT v FROM s «WINDOW» HOP (SIZE 5 MINUTES)", "WINDOW HOP"),
    # texts that are too long
    ("CQL-104", "SELECT «" + "9" * 41 + "»" + "9" * 1000, "a constant of more than 1,000"),
    ("CQL-104", f"SELECT «'{'x' * 40}»{'x' * 1_048_576}'", "a constant of more than 1,048,576"),
    ("CQL-104", "SELECT " + "1+" * 9999 + "1«+»1", "more than 20,000 words and signs"),
    ("CQL-104", "INSERT INTO s VALUES (1), (" + "1+" * 9999 + "«1»+1)", "more than 20,000"),
    ("CQL-104", "SELECT 1 FROM «s»" + ", s" * 200, "more than 200 streams and relations"),
    (
        "CQL-104",
        f"SELECT 1 FROM s GROUP BY CUBE («a», {', '.join('a' * 10)})",
        "more than 1,024 grouping sets",
    ),
    (
        "CQL-104",
        f"SELECT 1 FROM s GROUP BY ROLLUP («a», {', '.join(f'a + {k}' for k in range(64))})",
        "more than 64 keys in its grouping sets",
    ),
    ("CQL-104", "INSERT INTO s SELECT " + "1," * 9998 + "«1», 2", "more than 20,000"),
    # definitions
    ("CQL-103", "CREATE «TABLE» t (a INT)", "expected STREAM, RELATION, QUERY, SUMMARY or SINK"),
    ("CQL-103", "CREATE «OR REPLACE» STREAM s (a INT)", "only a query is replaced"),
    ("CQL-103", "CREATE OR REPLACE QUERY «IF» NOT EXISTS q AS SELECT 1", "or replaced"),
    ("CQL-103", "CREATE STREAM IF «EXISTS» s (a INT)", 'expected "("'),
    ("CQL-103", "CREATE STREAM «select» (a INT)", "expected the name of the new stream"),
    ("CQL-103", "CREATE STREAM s«»", 'expected "("'),
    ("CQL-103", "CREATE STREAM s («)»", "expected the name of a column"),
    ("CQL-103", "CREATE STREAM s (a«,» b INT)", 'expected the type of column "a"'),
    ("CQL-103", "CREATE STREAM s (a INT «NOT»)", 'expected "," or ")"'),
    ("CQL-103", "CREATE STREAM s (a INT, «PRIMARY KEY (a)»)", "a stream has no primary key"),
    ("CQL-103", "CREATE RELATION r (a INT PRIMARY KEY, «PRIMARY KEY (a)»)", "a second primary key"),
    ("CQL-103", "CREATE STREAM s (a INT) «DELAY» 5 SECONDS", "DELAY without TIMESTAMP BY"),
    ("CQL-103", "CREATE STREAM s (a INT) «IDLE» AFTER 5 SECONDS", "IDLE without TIMESTAMP BY"),
    ("CQL-103", "CREATE STREAM s (a INT) TIMESTAMP BY a «TIMESTAMP» BY a", "a second TIMESTAMP"),
    ("CQL-103", "CREATE STREAM s (a INT) RETAIN 5 DAYS «RETAIN» 5 ROWS", "a second RETAIN"),
    ("CQL-103", "CREATE STREAM s (a INT) «OPTIONS» (a 1)", "OPTIONS without USING"),
    ("CQL-103", "CREATE STREAM s (a INT) USING csv OPTIONS (a 1, «A» 2)", "is given twice"),
    ("CQL-103", "CREATE STREAM s (a INT) USING csv OPTIONS (path «x»)", 'a value of option "path"'),
    ("CQL-103", "CREATE STREAM s (a INT) «PARTITION BY» a", "expected TIMESTAMP BY"),
    ("CQL-103", "CREATE RELATION r (a INT) «RETAIN» 5 DAYS", "RETAIN is a clause of streams"),
    ("CQL-103", "CREATE NON RETROACTIVE RELATION r «AS» SELECT 1", "cannot be NON RETROACTIVE"),
    ("CQL-103", "CREATE NON «RELATION» r (a INT)", "expected RETROACTIVE"),
    ("CQL-103", "CREATE QUERY q «SELECT» a FROM s", "expected AS"),
    ("CQL-103", "CREATE QUERY q AS «INSERT» INTO s VALUES (1)", "expected a query"),
    ("CQL-103", "CREATE QUERY q WITH (weight «2») AS SELECT 1", 'expected "="'),
    ("CQL-103", "CREATE QUERY q WITH (weight = «none») AS SELECT 1", 'a value of option "weight"'),
    ("CQL-103", "ALTER «RELATION» r SET (a = 1)", "expected STREAM, QUERY, SINK or SYSTEM"),
    ("CQL-103", "ALTER QUERY q SET «()»", "no option is set"),
    ("CQL-103", "DROP «TABLE» t", "expected QUERY, STREAM, RELATION, SUMMARY or SINK"),
    ("CQL-103", "DROP QUERY q «RESTRICT»", 'unexpected "RESTRICT"'),
    ("CQL-103", "SHOW CREATE «TABLE» t", "expected QUERY, STREAM, RELATION, SUMMARY or SINK"),
    # requests
    ("CQL-103", "INVOKE«»", "expected the name of a query, but the statement ends"),
    ("CQL-103", "INVOKE q AT «'2020-01-01'»", "expected TIMESTAMP"),
    ("CQL-103", "INVOKE q AT TIMESTAMP «'2020-02-30'»", "'2020-02-30' is not a timestamp"),
    ("CQL-103", "INVOKE q AT TIMESTAMP «5»", "expected a timestamp"),
    ("CQL-103", "INVOKE q «r»", 'unexpected "r"'),
    ("CQL-103", "FETCH q AFTER «x»", "expected a cursor"),
    ("CQL-103", "FETCH q LIMIT «-1»", "LIMIT is negative"),
    ("CQL-103", "FETCH q LIMIT «1.5»", "not a usable whole number"),
    ("CQL-103", "EXPLAIN «ANALYZE» SELECT 1", "no level of EXPLAIN"),
    ("CQL-103", "SHOW «TABLES»", "expected STREAMS, RELATIONS"),
    ("CQL-103", "DESCRIBE «'s'»", "expected the name of a stream"),
    ("CQL-103", "HEARTBEAT s«»", "expected AT TIMESTAMP"),
    # changes
    ("CQL-103", "INSERT INTO s «UPDATE» r", "expected VALUES"),
    ("CQL-209", "CREATE RELATION v (a, b, «A») AS SELECT 1, 2, 3", "named twice"),
    ("CQL-103", "CREATE QUERY q (a) «AS» SELECT 1", "columns are named for a query"),
    ("CQL-103", "INSERT INTO s VALUES («JFK»)", 'the column "JFK" stands among the values'),
    ("CQL-103", "INSERT INTO s VALUES «1»", 'expected "("'),
    ("CQL-103", "INSERT INTO s VALUES (1, «)»", "expected a value"),
    ("CQL-217", "INSERT INTO s VALUES (1), «(1, 2)»", "a row has 2 values, not 1"),
    ("CQL-217", "INSERT INTO s (a, b) VALUES «(1)»", "a row has 1 value"),
    ("CQL-103", "UPDATE r SET a «5»", 'expected "="'),
    ("CQL-103", "UPDATE r SET a = 1, «a» = 2", "is set twice"),
    ("CQL-103", "DELETE FROM r WHERE«»", "expected a predicate"),
    ("CQL-301", "INSERT INTO r VALUES ((«SELECT a FROM s»))", "not available yet"),
    # summaries
    ("CQL-103", "CREATE SUMMARY x«»", "expected ON"),
    ("CQL-103", "CREATE SUMMARY x ON s (a«,» b)", 'expected ")"'),
    ("CQL-103", "CREATE SUMMARY x ON s (a)«»", "expected WITH"),
    ("CQL-103", f"CREATE SUMMARY x {_ON} «1 US» AND COLLAPSE (4, 6)", "granularity is too short"),
    ("CQL-103", f"CREATE SUMMARY x {_ON} 1 MINUTE AND COLLAPSE («0», 6)", "between 1 and 64"),
    ("CQL-103", f"CREATE SUMMARY x {_ON} 1 MINUTE AND COLLAPSE (4, «99»)", "between 1 and 16"),
    ("CQL-103", f"CREATE SUMMARY x {_ON} 1 MINUTE AND COLLAPSE (4, 6) USING «WAVELETS»", "SKETCH"),
    ("CQL-103", f"CREATE SUMMARY x {_ON} 1 MINUTE AND COLLAPSE (4, 6) MEMORY «'1 b'»", "no size"),
    ("CQL-103", "INVOKE q BUDGET «'0 probes'»", "is no budget"),
    ("CQL-103", "INVOKE q BUDGET «'0 ms'»", "is no budget"),
    ("CQL-103", "INVOKE q BUDGET «'5'»", "is no budget"),
    ("CQL-103", "INVOKE «q» AFTER 'x'", "AFTER goes with BUDGET"),
]

QUERIES = [
    # preferences and estimates
    ("CQL-103", "SELECT a FROM s WITH PREFERENCE ASC a FADE FACTOR «2»", "the fade factor"),
    ("CQL-103", "SELECT a FROM s WITH PREFERENCE ASC a BUDGET «'x'»", "is no budget"),
    ("CQL-103", "ISTREAM(SELECT a FROM s) «WITH PREFERENCE ASC a»", "stands behind a SELECT"),
    ("CQL-103", "SELECT a FROM (SELECT a FROM s «WITH» PREFERENCE ASC a)", 'expected ")"'),
    ("CQL-217", "SELECT «SUMMARY(x).ESTIMATE.COUNT()» FROM s", "COUNT takes one value, or two"),
    ("CQL-217", "SELECT «SUMMARY(x).ESTIMATE.TOTAL(1)» FROM s", "TOTAL takes no value"),
    ("CQL-103", "SELECT SUMMARY(x).«COUNT»(1) FROM s", "expected ESTIMATE"),
    ("CQL-103", "SELECT SUMMARY(x).ESTIMATE.«MEDIAN»(1) FROM s", "expected one of COUNT"),
    # sizes a window cannot have
    ("CQL-207", "SELECT a FROM s [ROWS «0»]", "is zero"),
    ("CQL-207", "SELECT a FROM s [ROWS «-5»]", "is negative"),
    ("CQL-207", "SELECT a FROM s [PARTITION BY a ROWS «0»]", "is zero"),
    ("CQL-207", "SELECT a FROM s [ROWS «99999999999»]", "too great"),
    ("CQL-207", "SELECT a FROM s [RANGE «0» SECONDS]", "is zero"),
    ("CQL-207", "SELECT a FROM s [RANGE «-1» HOURS]", "is negative"),
    ("CQL-207", "SELECT a FROM s [RANGE INTERVAL «'-1 hour'»]", "is negative"),
    ("CQL-207", "SELECT a FROM s [RANGE 1 HOUR SLIDE «0» MINUTES]", "is zero"),
    ("CQL-207", "SELECT a FROM s [RANGE «99999999999» WEEKS]", "too great"),
    ("CQL-207", "SELECT a FROM s [RANGE «3 MONTHS»]", "given in months"),
    ("CQL-207", "SELECT a FROM s [RANGE «INTERVAL '1 year'»]", "given in year"),
    ("CQL-207", "SELECT a FROM s [RANGE «INTERVAL '1 fortnight'»]", '"fortnight" is no unit'),
    ("CQL-207", "SELECT a FROM s [RANGE INTERVAL «'soon'»]", "cannot be read"),
    ("CQL-207", "SELECT a FROM s [RANGE «0.1» MICROSECONDS]", "not a whole number"),
    ("CQL-207", "SELECT a FROM s [«SLIDE» 1 HOUR]", "SLIDE without RANGE"),
    # contradictions
    ("CQL-218", "SELECT a FROM s [ROWS 5 «SLIDE» 1 HOUR]", "SLIDE goes with RANGE"),
    ("CQL-218", "SELECT a FROM s [NOW «SLIDE» 1 HOUR]", "SLIDE goes with RANGE"),
    ("CQL-218", "SELECT a FROM s [RANGE UNBOUNDED «SLIDE» 1 HOUR]", "SLIDE goes with RANGE"),
    ("CQL-218", "SELECT a FROM s [RANGE 1 HOUR «ROWS» 5]", "a second ROWS"),
    ("CQL-218", "SELECT a FROM s [ROWS 5 «RANGE» 1 HOUR]", "a second RANGE"),
    ("CQL-218", "SELECT a FROM s [NOW «PARTITION BY» a ROWS 3]", "a second PARTITION BY"),
    ("CQL-218", "SELECT a FROM s [PARTITION BY a «RANGE» 1 HOUR]", "PARTITION BY goes with ROWS"),
    ("CQL-218", "SELECT a FROM s [ROWS 1] «[»NOW]", "a second window"),
    ("CQL-218", "SELECT a FROM s «[NOW]» BEGIN NOW END NOW", "a window inside a SELECT with BEGIN"),
    ("CQL-218", "SELECT a FROM s «BEGIN NOW END NOW - 1 HOUR»", "ends before it begins"),
    ("CQL-218", "SELECT a FROM s «BEGIN '2020-02-01' END '2020-01-01'»", "ends before it begins"),
    # malformed windows, periods and samples
    ("CQL-103", "SELECT a FROM s [«5»]", "expected NOW, RANGE, ROWS or PARTITION BY"),
    ("CQL-103", "SELECT a FROM s [«]»", "expected NOW, RANGE, ROWS or PARTITION BY"),
    ("CQL-103", "SELECT a FROM s [RANGE «]»", "expected the length of RANGE"),
    ("CQL-103", "SELECT a FROM s [RANGE «NOW»]", "expected a length or UNBOUNDED"),
    ("CQL-103", "SELECT a FROM s [RANGE 5 «x»]", "expected a unit of time"),
    ("CQL-103", "SELECT a FROM s [ROWS «1.5»]", "not a usable whole number"),
    ("CQL-103", "SELECT a FROM s [ROWS «many»]", "expected the number of rows"),
    ("CQL-103", "SELECT a FROM s [PARTITION BY a«]»", "expected ROWS"),
    ("CQL-103", "SELECT a FROM s [NOW WHERE «]»", "expected a predicate"),
    ("CQL-103", "SELECT a FROM s [NOW WHERE a «b»]", 'expected "]"'),
    ("CQL-218", "SELECT a FROM s [NOW] f «[»NOW]", "a second window"),
    ("CQL-103", "SELECT a FROM s f [PARTITION BY «g.a» ROWS 1]", "is not the stream"),
    ("CQL-103", "SELECT a FROM «VALUES» (1)", "VALUES stands in brackets"),
    ("CQL-217", "VALUES (1, 2), «(1)»", "a row has 1 value, not 2"),
    ("CQL-218", "SELECT a FROM (ISTREAM(SELECT b FROM s)) [NOW] t «[»NOW]", "a second window"),
    ("CQL-103", "SELECT a «[»ROWS 1] FROM s", "a window stands behind an expression"),
    ("CQL-103", "SELECT a FROM s BEGIN «5» END NOW", "expected NOW or a timestamp"),
    ("CQL-103", "SELECT a FROM s BEGIN NOW«»", "expected END"),
    ("CQL-103", "SELECT a FROM s BEGIN «'soon'» END NOW", "'soon' is not a timestamp"),
    ("CQL-103", "SELECT 1 «BEGIN NOW END NOW»", "without FROM"),
    ("CQL-103", "SELECT a FROM s SAMPLE(«101»)", "between 0 and 100"),
    ("CQL-103", "SELECT a FROM s SAMPLE(«x»)", "expected a percentage"),
    # FROM
    ("CQL-103", "SELECT a FROM«»", "expected the name of a stream or a relation"),
    ("CQL-103", "SELECT a FROM s,«»", "expected the name of a stream or a relation"),
    ("CQL-103", "SELECT a FROM «range»(5)", "FROM takes streams, relations and queries only"),
    (
        "CQL-103",
        "SELECT a FROM «read_csv»('x')",
        "FROM reads streams, relations and queries, not files",
    ),
    ("CQL-103", "SELECT a FROM «'x.csv'»", "FROM reads streams, relations and queries, not files"),
    ("CQL-103", "SELECT a FROM s «RANGE» 1 MINUTE", "RANGE stands outside brackets"),
    ("CQL-103", "SELECT a FROM s f «ROWS» 5", "ROWS stands outside brackets"),
    ("CQL-103", "SELECT a FROM s GROUP BY a «EMIT» CHANGES", "EMIT CHANGES is not part of CQL"),
    ("CQL-103", "SELECT a FROM s «WINDOW» HOPPING (SIZE 1)", "WINDOW HOPPING is not part of CQL"),
    ("CQL-103", "SELECT a FROM main«.»s", "no qualifier"),
    ("CQL-103", "SELECT list_filter(a, x -> «x» > 1) FROM s", "behind -> is no constant"),
    ("CQL-103", "SELECT a FROM TUMBLE(s«)»", 'expected ","'),
    ("CQL-103", "SELECT a FROM TUMBLE(s, ts, «x»)", "expected the length of the window"),
    ("CQL-103", "SELECT a FROM HOP(s, ts, 1 MINUTE«)»", 'expected ","'),
    ("CQL-207", "SELECT a FROM HOP(s, ts, «3 MINUTES, 5 MINUTES»)", "no multiple"),
    ("CQL-207", "SELECT a FROM HOP(s, ts, «1 MS, 5 MINUTES»)", "300000 windows"),
    ("CQL-103", "SELECT a FROM «SESSION»(s, ts, 1 MINUTE)", "SESSION is not part of CQL"),
    ("CQL-103", "SELECT a FROM s GROUP BY HOP«(»ts, 1 MINUTE, 5 MINUTES)", "HOP stands in FROM"),
    ("CQL-103", "SELECT a FROM s «JOIN» t", "JOIN without a condition"),
    ("CQL-103", "SELECT a FROM s ASOF JOIN t ON a >= b", None),
    ("CQL-103", "SELECT a FROM s t «u»", 'unexpected "u"'),
    ("CQL-103", "SELECT a FROM s [NOW] AS (x«)»", None),
    ("CQL-103", "SELECT a FROM («FROM» s) t", "expected a query in the brackets"),
    ("CQL-103", "SELECT a FROM s AS«»", "expected a name behind AS"),
    ("CQL-103", "SELECT a AS «FROM» s", None),
    ("CQL-103", "SELECT a FROM s LIMIT«»", None),
    ("CQL-103", "SELECT a FROM s WHERE b«,» t", 'unexpected ","'),
    ("CQL-103", "SELECT a FROM s LIMIT «1, 2»", "LIMIT takes one number"),
    ("CQL-103", "SELECT a IN («SELECT b FROM t WHERE c», u)", "stands in brackets of its own"),
    ("CQL-103", "SELECT f(«SELECT b FROM t»)", "stands in brackets of its own"),
    ("CQL-103", "(SELECT a FROM s)«,» t", 'unexpected ","'),
    ("CQL-103", "SELECT a FROM s «USING» SAMPLE 10", "unexpected"),
    # queries
    ("CQL-103", "SELECT «FROM» s", "expected columns behind SELECT"),
    ("CQL-103", "SELECT a,«» ", "expected an expression"),
    ("CQL-103", "SELECT a, «FROM» s", "expected an expression"),
    ("CQL-103", "SELECT a FROM s WHERE«»", "expected a predicate behind WHERE"),
    ("CQL-103", "SELECT a FROM s ORDER BY«»", "expected columns behind ORDER BY"),
    ("CQL-103", "SELECT a FROM s WHERE a = «GROUP BY» b", "expected an expression"),
    ("CQL-103", "SELECT a FROM s GROUP BY«»", "expected columns behind GROUP BY"),
    ("CQL-103", "SELECT a FROM s LIMIT «'x'»", "LIMIT takes a whole number"),
    ("CQL-103", "SELECT a FROM s LIMIT 1 «LIMIT» 2", None),
    ("CQL-103", "SELECT a FROM s UNION SELECT b FROM t «BY» (b)", "BY goes with EXCEPT ALL only"),
    ("CQL-103", "SELECT a FROM s EXCEPT SELECT b FROM t «BY» (b)", "BY goes with EXCEPT ALL only"),
    ("CQL-103", "SELECT a FROM s LIMIT «1» UNION SELECT b FROM t", "of one side stand in brackets"),
    ("CQL-103", "SELECT a FROM s UNION«»", "expected a query"),
    ("CQL-103", "WITH x AS («INSERT» INTO s VALUES (1)) SELECT 1", "expected a query"),
    ("CQL-103", "WITH x AS (SELECT 1) «ISTREAM»(SELECT 2)", "ISTREAM stands inside a query"),
    ("CQL-103", "WITH RECURSIVE «x AS (SELECT 1») SELECT 2", "not part of CQL"),
    # expressions
    ("CQL-103", "SELECT * EXCLUDE («a») FROM s", "not part of CQL"),
    ("CQL-103", "SELECT «COLUMNS('v')», k FROM s", "COLUMNS is not part of CQL"),
    ("CQL-103", "SELECT max(«columns('v')») FROM s", "COLUMNS is not part of CQL"),
    ("CQL-103", "SELECT f(x -> «x + 1») FROM s", "behind -> is no constant"),
    ("CQL-103", "SELECT a IN () FROM s", None),
    ("CQL-103", "SELECT CASE END FROM s", None),
    ("CQL-103", "SELECT a IS «5» FROM s", "IS takes NULL, TRUE or FALSE"),
    ("CQL-103", "SELECT sum(a, b«)» FROM s", "too many arguments"),
    ("CQL-103", "SELECT INTERVAL «'1'» FROM s", "an INTERVAL needs"),
    ("CQL-103", "SELECT a ~ 'x' FROM s", None),
    ("CQL-103", "SELECT a.«.»b FROM s", "expected an expression"),
    ("CQL-210", "SELECT CAST(a AS «FOO») FROM s", 'the type "FOO" is unknown'),
    ("CQL-210", "SELECT CAST(a AS STRUCT(b «FOO»)) FROM s", 'the type "FOO" is unknown'),
]


def unmark(marked: str) -> str:
    return marked.replace("«", "").replace("»", "")


def check(error: MillpondError, code: str, marked: str, primary: str | None) -> None:
    text = unmark(marked)
    assert error.code == code, error.render()
    assert error.text == text
    assert error.span is not None
    if "«" in marked:
        found = f"{text[: error.span.start]}«{text[error.span.start : error.span.end]}»"
        assert found + text[error.span.end :] == marked, error.render()
    if primary is not None:
        assert primary in error.primary
    assert error.primary != "the statement cannot be read"
    assert error.primary[0].islower() or error.primary[0] in "\"'(" or error.primary[:2].isupper()


@pytest.mark.parametrize(("code", "marked", "primary"), STATEMENTS + QUERIES)
def test_statement(code: str, marked: str, primary: str | None) -> None:
    with pytest.raises(MillpondError) as caught:
        parse_statement(unmark(marked))
    check(caught.value, code, marked, primary)


@pytest.mark.parametrize(("code", "marked", "primary"), QUERIES)
def test_query(code: str, marked: str, primary: str | None) -> None:
    with pytest.raises(MillpondError) as caught:
        parse_query(unmark(marked))
    check(caught.value, code, marked, primary)


@pytest.mark.parametrize(
    ("code", "marked", "primary"),
    [row for row in QUERIES if "«" in row[1] and row[0] != "CQL-102"],
)
def test_places_in_scripts_are_the_scripts(code: str, marked: str, primary: str | None) -> None:
    script = f"-- some script\nINVOKE q;\n  {marked} ; INVOKE r"
    with pytest.raises(MillpondError) as caught:
        parse_script(unmark(script))
    check(caught.value, code, script, primary)


def test_what_a_person_reads() -> None:
    with pytest.raises(MillpondError) as caught:
        parse_script("INVOKE q;\nSELECT a\nFROM s [RANGE 3 MONTHS]")
    assert caught.value.render() == (
        "CQL-207: the length of RANGE is given in months\n"
        "  FROM s [RANGE 3 MONTHS]\n"
        "                ^^^^^^^^\n"
        "Detail: Months and years have no fixed length, and a window's length is fixed.\n"
        "Hint: Write it in days or weeks."
    )
    assert (caught.value.line, caught.value.column) == (3, 15)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("SELCT 1", "Did you mean SELECT?"),
        ("invok q", "Did you mean INVOKE?"),
        ("SELECT 'it's' FROM s", "written twice"),
        ("INSERT INTO s VALUES (JFK)", "'JFK'"),
        ("SELECT a FROM s WHERE select > 1", None),
        ("CREATE STREAM select (a INT)", "double quotes"),
    ],
)
def test_hints(text: str, hint: str | None) -> None:
    with pytest.raises(MillpondError) as caught:
        parse_statement(text)
    if hint is not None:
        assert hint in (caught.value.hint or "")


def test_unknown_statements_name_the_known_ones() -> None:
    with pytest.raises(MillpondError) as caught:
        parse_statement("GRANT x")
    for word in ("SELECT", "CREATE", "INVOKE", "HEARTBEAT", "DESCRIBE"):
        assert word in (caught.value.detail or "")


@pytest.mark.parametrize(
    "text",
    [
        "SELECT " + "(" * 5000 + "a",
        "SELECT " + "NOT " * 5000 + "a FROM s",
        "SELECT " + "- " * 5000 + "a FROM s",
        "SELECT a" + "::INT" * 5000 + " FROM s",
        "SELECT a" + " + 1 - 2" * 2000 + " FROM s",
        "SELECT " + "CASE WHEN a THEN b ELSE " * 2000 + "1" + " END" * 2000 + " FROM s",
        "SELECT a FROM s" + " JOIN t" * 2000 + " ON a = b" * 2000,
        "SELECT a FROM " + "(SELECT a FROM " * 2000,
        "SELECT INTERVAL " + "1" * 50_000 + " HOURS",
        "SELECT a FROM s [RANGE " + "1" * 50_000 + " HOURS]",
        "SELECT a FROM s [ROWS " + "1" * 50_000 + "]",
    ],
)
def test_huge_nests_are_refused(text: str) -> None:
    with pytest.raises(MillpondError) as caught:
        parse_statement(text)
    assert caught.value.code in ("CQL-103", "CQL-104", "CQL-207")


def test_nothing_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        for _, marked, _ in STATEMENTS + QUERIES:
            with pytest.raises(MillpondError):
                parse_statement(unmark(marked))
    assert not [record for record in caplog.records if record.name.startswith("sqlglot")]
