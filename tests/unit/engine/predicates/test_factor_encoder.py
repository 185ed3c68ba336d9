"""Encoded factors are the factors of the template: random shapes, random constants."""

from __future__ import annotations

import random

import pytest
from tests.unit.engine.predicates.test_factor_templates import (
    ATOMS,
    SCHEMA,
    filled,
    literals,
    where,
)

from millpond.engine.predicates.factor_encoder import FactorEncoder
from millpond.engine.predicates.factor_templates import FactorTemplate
from millpond.engine.predicates.factors import Factors


def check_encoder(shape: str, texts: list[str]) -> None:
    """Check an encoder of a filled shape with the constants of other texts of it."""
    first = where(shape)
    template = FactorTemplate([first], SCHEMA)
    places = [literal.meta["start"] for literal in literals(first)]
    kinds = [type(literal.parent) for literal in literals(first)]
    rows = [[str(one.this) for one in own] for text in texts if (own := literals(where(text)))
            and [type(one.parent) for one in own] == kinds]  # fmt: skip
    encoded = FactorEncoder(template, places).encode(rows)
    assert len(encoded) == len(rows)
    for row, (key_text, packed) in zip(rows, encoded, strict=True):
        factors = template.fill(dict(zip(places, row, strict=True)))
        assert key_text == factors.key_text, row
        assert Factors.unpack(packed) == factors, row


@pytest.mark.parametrize("seed", range(150))
def test_what_is_encoded_are_the_factors(seed: int) -> None:
    rng = random.Random(seed)
    shape = " AND ".join(rng.sample(ATOMS, rng.randrange(1, 4)))
    check_encoder(filled(shape, rng), [filled(shape, rng) for _ in range(12)])


@pytest.mark.parametrize("column", "itlcd")
@pytest.mark.parametrize("sign", ["", "-"])
@pytest.mark.parametrize("other", ["", " AND s = 'a'", " AND d < 0.5 AND s > 'b'"])
def test_equalities_with_numbers_are_encoded_together(column: str, sign: str, other: str) -> None:
    numbers = ["0", "5", "007", "127", "128", "999999999"]
    for more in ([], ["1000000000"], ["2.5"]):
        texts = [f"{column} = {sign}{n}{other}" for n in numbers + more]
        check_encoder(texts[1], texts)


def test_constants_that_are_not_given_stay_as_they_are() -> None:
    first = where("i = 5 AND d < 0.5")
    template = FactorTemplate([first], SCHEMA)
    place = literals(first)[0].meta["start"]
    encoded = FactorEncoder(template, [place]).encode([["6"], ["7"]])
    assert [Factors.unpack(packed) for _, packed in encoded] == [
        template.fill({place: "6"}),
        template.fill({place: "7"}),
    ]


def test_nothing_is_encoded_of_no_rows() -> None:
    assert FactorEncoder(FactorTemplate([where("i = 5")], SCHEMA), [4]).encode([]) == []
