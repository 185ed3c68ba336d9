"""What of a predicate becomes a value set, a clause, or an other."""

from __future__ import annotations

import pickle

import pytest
import sqlglot

from millpond.engine.predicates.factors import Factors, factorize
from millpond.engine.predicates.normal_form import MAX_CLAUSES, MAX_CUTS
from millpond.engine.values.value_sets import EVERYTHING, Domain, ValueSet, interval, points
from millpond.model.schema import Field, Schema

SCHEMA = Schema(
    (
        Field("a", "INTEGER"),
        Field("Big", "BIGINT"),
        Field("f", "DOUBLE"),
        Field("r", "FLOAT"),
        Field("s", "VARCHAR"),
        Field("ts", "TIMESTAMP"),
        Field("d", "DATE"),
        Field("flag", "BOOLEAN"),
        Field("order", "INTEGER"),
        Field("dec", "DECIMAL(10,2)"),
        Field("wide", "DECIMAL(30,2)"),
    )
)


def factors(text: str) -> Factors:
    return factorize(sqlglot.parse_one(text, read="duckdb"), SCHEMA)


def the_set(text: str) -> ValueSet:
    found = factors(text)
    assert len(found.sets) == 1, found
    assert not found.clauses
    assert not found.others
    return found.sets[0][1]


def test_no_predicate_is_everything() -> None:
    for text in ("TRUE", "a = 1 OR a <> 1 OR a IS NULL"):
        assert factors(text) == factorize(None, SCHEMA) == Factors()


@pytest.mark.parametrize("text", ["FALSE", "NULL", "a > 5 AND a < 3", "a = NULL", "a IN (NULL)"])
def test_what_no_row_can_satisfy_is_never(text: str) -> None:
    assert factors(text).never


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("a > 5 AND 10 > a", interval(Domain.INT32, 6, 10)),
        ("a BETWEEN 1 AND 2.5", interval(Domain.INT32, 1, 3)),
        ("a NOT BETWEEN 1 AND 2", interval(Domain.INT32, 1, 3).complement()),
        ("a = 1 OR a IN (2, 3)", interval(Domain.INT32, 1, 4)),
        ("a IS NULL", ValueSet((), False, True)),
        ("a IS DISTINCT FROM 1", points(Domain.INT32, [1]).complement()),
        ("a >= '7'", interval(Domain.INT32, 7, None)),
        ("a < 2147483648", ValueSet((), True, False)),
        ("s LIKE 'ab%'", interval(Domain.TEXT, b"ab", b"ac")),
        ("s < 'b'", interval(Domain.TEXT, None, b"b")),
        ("flag", points(Domain.BOOL, [1])),
        ("dec > 1.005", interval(Domain.INT64, 101, None)),
        ("d = '1970-01-02'", points(Domain.INT32, [1])),
        ("ts < TIMESTAMP '1970-01-01 00:00:01'", interval(Domain.INT64, None, 1_000_000)),
        ("ts >= DATE '1970-01-01' - INTERVAL 1 DAY", interval(Domain.INT64, -86_400_000_000, None)),
    ],
)
def test_predicates_on_one_attribute_are_a_value_set(text: str, want: ValueSet) -> None:
    found = the_set(text)
    if "NOT BETWEEN" in text:
        want = want.intersection(EVERYTHING.intersection(ValueSet((), True, False)))
    assert found == want


def test_attributes_are_named_as_declared() -> None:
    assert [attribute for attribute, _ in factors("BIG = 1 AND big < 7").sets] == ["Big"]


@pytest.mark.parametrize(
    "text",
    [
        "s LIKE '%x'",
        "s LIKE 'a_'",
        "a + 1 > 3",
        "a < Big",
        "length(s) > 2",
        "wide > 5",
        "a = TRUE",
        "s > '5' COLLATE NOCASE",
        "Big > 9007199254740993e0",
        "ts = TIMESTAMPTZ '2020-01-01 00:00:00+00'",
        "d < TIMESTAMP '2020-01-01 12:00:00'",
        "a IN ('x')",
        "d = '2020-02-31'",
        "CASE WHEN flag THEN a > 1 END",
    ],
)
def test_what_a_grouped_filter_cannot_decide_is_left_to_duckdb(text: str) -> None:
    found = factors(text)
    assert len(found.others) == 1
    assert not found.sets
    assert not found.clauses


def test_others_are_spelt_alike_and_keep_their_order() -> None:
    found = factors("S LIKE '%x' AND a > 1 AND length(\"s\") > 2 AND s LIKE '%x'")
    assert found.others == ("\"s\" LIKE '%x'", 'LENGTH("s") > 2')
    assert factors('"order" + 1 > 2').others == ('"order" + 1 > 2',)


def test_negation_reaches_the_atoms() -> None:
    assert factors("NOT (a = 1 OR s LIKE '%x')").others == ("NOT (\"s\" LIKE '%x')",)
    assert factors("NOT (a = 1 OR s LIKE '%x')").sets == factors("a <> 1").sets
    assert factors("NOT (a < 5 AND f < 2)").clauses == factors("a >= 5 OR f >= 2").clauses


def test_a_disjunction_over_attributes_is_a_clause() -> None:
    (clause,) = factors("a = 1 OR s = 'x' OR a = 2").clauses
    assert dict(clause) == {
        "a": points(Domain.INT32, [1, 2]),
        "s": points(Domain.TEXT, [b"x"]),
    }


def test_a_disjunction_of_conjunctions_implies_a_value_set_for_shared_attributes() -> None:
    found = factors("(a = 1 AND s = 'x') OR (a = 2 AND s = 'y')")
    assert dict(found.sets)["a"] == points(Domain.INT32, [1, 2])
    assert dict(found.sets)["s"] == points(Domain.TEXT, [b"x", b"y"])
    assert len(found.clauses) == 2


def test_a_disjunction_with_an_other_is_an_other_and_what_it_implies() -> None:
    found = factors("(a > 5 AND s LIKE '%x') OR flag")
    assert found.others == ('("a" > 5 AND "s" LIKE \'%x\') OR "flag"',)
    assert found.clauses == factors("a > 5 OR flag").clauses


def test_value_sets_cut_clauses_down() -> None:
    assert factors("(a = 1 OR s = 'x') AND a > 5").sets == factors("a > 5 AND s = 'x'").sets
    assert not factors("(a > 1 OR s = 'x') AND a > 5").clauses


def test_a_long_disjunction_is_one_value_set() -> None:
    values = [*range(1_000, 2_000, 2), *range(0, 1_000, 2)]
    assert the_set(" OR ".join(f"a = {i}" for i in values)) == points(Domain.INT32, values)


def test_too_many_clauses_are_left_to_duckdb() -> None:
    pairs = [f"(a = {i} AND f = {i})" for i in range(MAX_CLAUSES)]
    found = factors(" OR ".join(pairs))
    assert len(found.others) == 1
    assert not found.clauses


def test_too_many_cuts_are_left_to_duckdb() -> None:
    values = ", ".join(str(2 * i) for i in range(MAX_CUTS // 2 + 1))
    assert len(factors(f"a IN ({values})").others) == 1


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("a > 5 AND s = 'x'", "s = 'x' AND 5 < A"),
        ("a = 1 OR s = 'x'", "'x' = s OR a = 1"),
        ("s LIKE '%x' AND f * 2 > 1", "F * 2 > 1 AND s LIKE '%x'"),
        ("a BETWEEN 1 AND 5", "a >= 1 AND NOT a > 5"),
    ],
)
def test_the_key_does_not_depend_on_the_order(one: str, two: str) -> None:
    assert factors(one).key == factors(two).key
    assert hash(factors(one).key) == hash(factors(two).key)


def test_factors_can_be_pickled() -> None:
    found = factors("a > 5 AND (s = 'x' OR f < 1) AND s LIKE '%y'")
    assert pickle.loads(pickle.dumps(found)) == found
