"""The names that are known of a text are those that parsing it finds."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from millpond.errors import MillpondError
from millpond.planner.bind import text_names
from millpond.planner.bind.text_names import TextNames
from millpond.planner.resolve.named_objects import NamedObject, list_named_objects

SHAPES = [
    "SELECT * FROM s WHERE a = {}",
    "SELECT * FROM s [RANGE {} SECONDS] WHERE a < -{} AND b = {}",
    "SELECT * FROM s [ROWS {}] WHERE a = {}",
    "SELECT {} AS n FROM {} WHERE a = {}",
    "SELECT * FROM s, {} WHERE {} < a OR a BETWEEN {} AND {}",
    'SELECT * FROM "s1", u AS "t" WHERE a LIKE {} AND "5" = {}',
    "WITH w AS (SELECT a FROM u WHERE a > {}) SELECT * FROM w, s WHERE s.a <> {}",
    "SELECT a FROM s WHERE a IN ({}, {}) AND b >= {}",
    "SELECT a FROM s WHERE a = (SELECT max(a) FROM u WHERE a < {} AND b = {})",
    "SELECT a FROM s WHERE b = {} UNION ALL SELECT a FROM u WHERE b = ({})",
    "SELECT a FROM s -- {}\n WHERE a = {}",
    "SELECT a FROM s WHERE a = {} {}",
    "SELECT a FROM s WHERE a = date {} AND b = interval {} day",
]
CONSTANTS = [
    "0",
    "1",
    "17",
    "999999999",
    "1234567890",
    "0.5",
    "1e3",
    "'u'",
    "'it''s'",
    "''",
    "'1'",
    "x",
]


def find_by_parsing(text: str) -> list[NamedObject] | str:
    try:
        return [replace(named, span=None) for named in list_named_objects(text)]
    except MillpondError as error:
        return error.primary


def find(names: TextNames, text: str) -> list[NamedObject] | str:
    try:
        return list(names.find(text))
    except MillpondError as error:
        return error.primary


@pytest.mark.parametrize("seed", range(8))
def test_known_names_are_those_that_parsing_finds(seed: int) -> None:
    rng = random.Random(seed)
    names = TextNames()
    for _ in range(250):
        text = rng.choice(SHAPES)
        while "{}" in text:
            text = text.replace("{}", rng.choice(CONSTANTS), 1)
        assert find(names, text) == find_by_parsing(text), text


def test_texts_that_differ_in_compared_constants_are_parsed_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parsed: list[str] = []

    def note(text: str) -> tuple[NamedObject, ...]:
        parsed.append(text)
        return list_named_objects(text)

    monkeypatch.setattr(text_names, "list_named_objects", note)
    names = TextNames()
    for n in range(50):
        for form in ("a = {} AND b > -{}", "a BETWEEN {} AND 5", "b LIKE '{}%'"):
            (named,) = names.find(f"SELECT a FROM s WHERE {form.replace('{}', str(n))}")
            assert named == NamedObject("s", False, False, None)
    assert len(parsed) == 3
    for n in range(50):
        names.find(f"SELECT a + {n} FROM s [ROWS {n + 1}] WHERE a = 1")
        names.find(f"SELECT a + {n} FROM s WHERE a = 1")
    assert len(parsed) == 103


def test_names_of_few_outlines_and_of_no_long_text_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(text_names, "_MOST", 10)
    names = TextNames()
    for n in range(30):
        names.find(f"SELECT c{n} FROM s")
        names.find(f"SELECT a + {n} FROM s")
    names.find(f"SELECT a FROM s WHERE b = '{'x' * 10_000}'")
    assert len(names._fixed) == len(names._names) == 10
    assert max(map(len, names._fixed)) < 100
