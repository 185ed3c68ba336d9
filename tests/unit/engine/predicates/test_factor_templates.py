"""Factors by template are the factors: random shapes, random constants."""

from __future__ import annotations

import random
from typing import cast

import pytest
from sqlglot import exp

from millpond.cql.print.dialect import parse_query
from millpond.engine.predicates.factor_templates import (
    FactorTemplate,
    _conjuncts,
    factor_template,
)
from millpond.engine.predicates.factors import factorize
from millpond.model.schema import Field, Schema

SCHEMA = Schema(
    tuple(
        Field(name, type_)
        for name, type_ in {
            "i": "INTEGER",
            "t": "TINYINT",
            "l": "BIGINT",
            "d": "DOUBLE",
            "c": "DECIMAL(8,2)",
            "s": "VARCHAR",
            "ts": "TIMESTAMP",
            "day": "DATE",
            "b": "BOOLEAN",
        }.items()
    )
)
NUMBERS = ["0", "7", "-7", "126", "128", "-129", "2.5", "-0.005", "1e3", "4000000000", "1e400"]
TEXTS = ["'a'", "''", "'it''s'", "'7'", "'A%'", "'zz_'"]
MOMENTS = ["'2013-01-02'", "'2013-02-03 04:05:06'", "'1969-12-31 23:59:59.999999'"]
ATOMS = [
    *(f"{c} {o} N" for c in "itldc" for o in ("<", "<=", ">", ">=", "=", "<>", "IS DISTINCT FROM")),
    *(f"N {o} {c}" for c in "idc" for o in ("<", ">=", "=", "<>")),
    *(f"{c} BETWEEN N AND N" for c in "itldc"),
    "(i > N)", "NOT i BETWEEN N AND N", "i IN (N, N, N)", "i + N > N", "i > l + N",
    "s = S", "S < s", "s BETWEEN S AND S", "s LIKE S", "s IN (S, S)", "s > N", "b", "b = (i > N)",
    "ts >= M", "ts BETWEEN M AND M", "day < M", "ts > TIMESTAMP M", "s IS NULL", "i = N OR d < N",
]  # fmt: skip


def filled(shape: str, rng: random.Random) -> str:
    kinds = {"N": NUMBERS, "S": TEXTS, "M": MOMENTS}
    return " ".join(rng.choice(kinds[w]) if w in kinds else w for w in spaced(shape).split())


def spaced(shape: str) -> str:
    for mark in "(),":
        shape = shape.replace(mark, f" {mark} ")
    return shape


def where(text: str) -> exp.Expression:
    return cast(exp.Expression, parse_query(f"SELECT * FROM s WHERE {text}").args["where"].this)


def literals(tree: exp.Expression) -> list[exp.Literal]:
    return sorted(tree.find_all(exp.Literal), key=lambda literal: literal.meta["start"])


@pytest.mark.parametrize("seed", range(150))
def test_filling_a_template_is_factorizing(seed: int) -> None:
    rng = random.Random(seed)
    shape = " AND ".join(rng.sample(ATOMS, rng.randrange(1, 6)))
    first = where(filled(shape, rng))
    template = FactorTemplate([first], SCHEMA)
    for _ in range(8):
        text = filled(shape, rng)
        other = where(text)
        mine, its = literals(first), literals(other)
        if [type(a.parent) for a in mine] != [type(a.parent) for a in its]:
            continue  # a sign more or less is another shape
        given = {a.meta["start"]: str(b.this) for a, b in zip(mine, its, strict=True)}
        assert template.fill(given) == factorize(other, SCHEMA), text


def test_constants_that_are_not_given_stay_as_they_are() -> None:
    tree = where("i BETWEEN 3 AND 5 AND s = 'a' AND i % 2 = 1")
    assert FactorTemplate([tree], SCHEMA).fill({}) == factorize(tree, SCHEMA)


def test_two_shapes_are_a_conjunction() -> None:
    one, two = where("i > 3"), where("i < 9 AND s LIKE '%a'")
    both = where("i > 3 AND i < 9 AND s LIKE '%a'")
    assert FactorTemplate([one, two], SCHEMA).fill({}) == factorize(both, SCHEMA)


def test_a_shape_is_read_once_for_a_schema() -> None:
    tree = where("i > 3")
    assert factor_template((tree,), SCHEMA) is factor_template((tree,), SCHEMA)
    narrow = Schema((Field("i", "TINYINT"),))
    assert factor_template((tree,), narrow).fill({}) == factorize(tree, narrow)


def test_a_thousand_conjuncts_need_no_stack() -> None:
    shape: exp.Expr = exp.column("c0")
    for number in range(1, 5_000):
        shape = exp.And(this=shape, expression=exp.Paren(this=exp.column(f"c{number}")))
    assert [c.name for c in _conjuncts(shape)] == [f"c{n}" for n in range(5_000)]


@pytest.mark.parametrize("column", [field.name for field in SCHEMA.fields if field.name in "itlc"])
@pytest.mark.parametrize("number", ["0", "127", "128", "007", "999999999", "1000000000", "2.0"])
@pytest.mark.parametrize("sign", ["", "-"])
def test_an_equality_with_a_number_is_the_one_of_its_type(
    column: str, number: str, sign: str
) -> None:
    shape = where(f"{column} = {sign}5")
    (literal,) = literals(shape)
    found = FactorTemplate([shape], SCHEMA).fill({literal.meta["start"]: number})
    assert found == factorize(where(f"{column} = {sign}{number}"), SCHEMA)
