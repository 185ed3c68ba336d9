"""Queries that are registered in bulk are what each would be, registered by itself."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.service.conftest import SECOND

from millpond.engine.predicates.factors import Factors
from millpond.errors import MillpondError
from millpond.service.pond import Pond
from millpond.service.queries.registration import Registrar
from millpond.testing.local_runtime import open_local
from millpond.testing.manual_clock import ManualClock

Registration = tuple[str, str | None, dict[str, Any]]

SHAPES = [
    "SELECT ts, v FROM s [RANGE 1 HOUR] WHERE a = {i}",
    "SELECT ts, v FROM s [RANGE 1 HOUR] WHERE a = {i} AND p < {d}",
    "SELECT ts FROM s WHERE p >= {n} AND name = {t}",
    "SELECT ts FROM s WHERE name LIKE {t} AND a > {n}",
    "SELECT ts FROM s WHERE a BETWEEN {n} AND {n}",
    "SELECT ts FROM s WHERE a = -{i} AND a < {n}",
    "SELECT ts FROM s [ROWS 5] WHERE ts > {m} AND a IN ({i}, {n})",
    "SELECT ts FROM s [ROWS 5 WHERE b] WHERE b AND v <> {n}",
    "SELECT count(*) FROM s WHERE a % 7 = {n} OR p < {d}",
    "SELECT ts FROM s WHERE a = {i} AND a = {i}",
    "SELECT count(*) FROM s GROUP BY a HAVING count(*) > {i}",
    "SELECT s.ts FROM s [RANGE 5 SECONDS], u WHERE s.a = u.a AND s.v > {n} AND u.a < {i}",
    "SELECT s.ts FROM s, r WHERE s.a = r.a AND s.p < {d}",
    "SELECT raw FROM s$rejects WHERE reason = {t}",
    "SELECT a + {i} FROM u [RANGE 5 SECONDS] WHERE a > {n}",
]
KINDS: dict[str, list[str]] = {
    "i": ["0", "7", "17", "40", "999999999", "1234567890", "12345678901234567890"],
    "n": ["0", "5", "2.5", "-3", "1e3", "0017", "4000000000"],
    "d": ["0.5", "0.25", "0.123456789012345678", "12.0"],
    "t": ["'a'", "''", "'it''s'", "'A%'", "'7'", "'é'"],
    "m": ["'2013-01-02'", "'2013-02-03 04:05:06'", "'1969-01-01'"],
}
WRONG = [
    "SELECT nothing FROM s WHERE a = 7",
    "SELECT ts FROM s WHERE a = 7 AND",
    "SELECT ts FROM s WHERE ts > 'never'",
    "SELECT ts FROM gone WHERE a = 7",
    "SELECT ts FROM s WHERE name = '\ud800'",
    "SELECT ts FROM s WHERE a = '7",
]
OPTIONS: list[dict[str, Any]] = [
    {}, {}, {}, {"owner": "ann", "max_rows": 5}, {"TAGS": "x"}, {"active": False},
    {"materialize": "none"}, {"tolerate": "sample 50%"}, {"seed": 3},
]  # fmt: skip


def drawn(rng: random.Random, many: int) -> list[Registration]:
    """Registrations of few shapes, now and then with a name or with options."""
    shapes = rng.sample(SHAPES, rng.randrange(1, 6))
    found: list[Registration] = []
    for number in range(many):
        text = rng.choice(shapes)
        for kind, constants in KINDS.items():
            while f"{{{kind}}}" in text:
                text = text.replace(f"{{{kind}}}", rng.choice(constants), 1)
        name = f"Named {number}" if rng.random() < 0.1 else None
        found.append((text, name, rng.choice(OPTIONS) if rng.random() < 0.1 else {}))
    return found


@pytest.fixture
def make_pond(tmp_path: Path) -> Iterator[Callable[[], Pond]]:
    opened: list[Pond] = []

    def make() -> Pond:
        store = tmp_path / f"store{len(opened)}"
        opened.append(open_local(store, clock=ManualClock(1_000 * SECOND)))
        opened[-1].execute(
            "CREATE STREAM s (ts TIMESTAMP, a INTEGER, b BOOLEAN, p DOUBLE, v DOUBLE, name VARCHAR)"
            " TIMESTAMP BY ts; CREATE STREAM u (ts TIMESTAMP, a BIGINT) TIMESTAMP BY ts;"
            " CREATE RELATION r (a INTEGER);"
            " CREATE QUERY first AS SELECT ts, v FROM s [RANGE 1 HOUR] WHERE a = 17"
        )
        return opened[-1]

    yield make
    for pond in opened:
        pond.close()


def catalog(pond: Pond) -> dict[str, Any]:
    """What the catalog has of the queries, whenever they were registered."""
    version = pond._components.log.version
    stems = pond._components.stems
    return {
        "queries": [replace(q, registered_epoch=1) for q in version.queries.values()],
        "names": {q.name: version.find(q.name.upper()) is q for q in version.queries.values()},
        "leaves": [version.leaves(id) for id in version.queries],
        "uses": [replace(use) for use in version.joins.uses.values()],
        "slots": {
            stream.id: [
                (x.slot, x.key, Factors.unpack(x.factors), stems.users(stream.id, x.slot))
                for x in version.slots(stream.id)
            ]
            for stream in version.named_streams()
        },
    }


@pytest.mark.parametrize("seed", range(12))
def test_many_at_once_are_what_one_by_one_is(make_pond: Callable[[], Pond], seed: int) -> None:
    given = drawn(random.Random(seed), 150)
    together, alone = make_pond(), make_pond()
    handles = together.register_many(given)
    for text, name, options in given:
        alone.register(text, name, **options)
    assert catalog(together) == catalog(alone)
    names = [query.name for query in alone._components.log.version.queries.values()]
    assert ["first", *(handle.name for handle in handles)] == names


@pytest.mark.parametrize("seed", range(3))
def test_answers_are_those_of_one_by_one(make_pond: Callable[[], Pond], seed: int) -> None:
    texts = [text for text, *_ in drawn(random.Random(seed), 150)]
    rng = random.Random(seed)
    rows = [
        {
            "ts": f"1970-01-01 00:00:{n // 4:02d}",
            "a": rng.choice([None, 0, 1, 5, 17]),
            "b": rng.choice([None, True, False]),
            "p": rng.choice([None, 0.25, 1.5, -3.0]),
            "v": float(n),
            "name": rng.choice([None, "", "a", "é", "x"]),
        }
        for n in range(60)
    ]
    answers = []
    for pond, is_together in ((make_pond(), True), (make_pond(), False)):
        if is_together:
            names = [handle.name for handle in pond.register_many([(t, None, {}) for t in texts])]
        else:
            names = [pond.register(text).name for text in texts]
        pond.ingest("s", rows)
        pond.catch_up()
        answers.append([sorted(map(repr, pond.query(name).invoke().rows())) for name in names])
    assert answers[0] == answers[1]
    assert sum(map(len, answers[0])) > 50


def register_up_to_error(pond: Pond, given: list[Registration]) -> tuple[int, MillpondError]:
    for number, (text, name, options) in enumerate(given):
        try:
            pond.register(text, name, **options)
        except MillpondError as error:
            return number, error
    raise AssertionError("no error")


@pytest.mark.parametrize("seed", range(12))
def test_the_first_that_is_wrong_is_the_error(make_pond: Callable[[], Pond], seed: int) -> None:
    rng = random.Random(seed)
    given = drawn(rng, 130)
    for _ in range(2):
        place = rng.randrange(20, 130)
        text, name, options = given[place]
        wrong: list[Registration] = [
            (rng.choice(WRONG), name, options),
            (text, "NAMED 0" if rng.random() < 0.5 else "First", {}),
            (text, "a/b", {}),
            (text, None, {"max_row": 5}),
            (text, None, {"seed": "many"}),
        ]
        given[place] = rng.choice(wrong)
    given[0] = given[0][0], "Named 0", {}
    together, alone = make_pond(), make_pond()
    before = catalog(together)
    with pytest.raises(MillpondError) as at_once:
        together.register_many(given)
    number, error = register_up_to_error(alone, given)
    place = f"Query {number} of 130 (counting from 0)."
    error.detail = f"{place} {error.detail or ''}".strip()
    assert at_once.value.to_json() == error.to_json()
    assert catalog(together) == before


def test_queries_of_few_shapes_are_not_bound_one_by_one(
    make_pond: Callable[[], Pond], monkeypatch: pytest.MonkeyPatch
) -> None:
    bound: list[str] = []
    real = Registrar.bind

    def noting(self: Registrar, text: str, text_epoch: int | None = None) -> Any:
        bound.append(text)
        return real(self, text, text_epoch)

    pond = make_pond()
    monkeypatch.setattr(Registrar, "bind", noting)
    texts = [
        f"SELECT ts, v FROM s WHERE {('a = ', 'a = 5 AND p < 0.', 'name = ')[n % 3]}"
        + (f"'{n}'" if n % 3 == 2 else str(n))
        for n in range(300)
    ]
    pond.register_many(texts)
    assert len(bound) <= 10
    assert [q.text for q in pond._components.log.version.queries.values()][1:] == texts


@pytest.mark.parametrize("wrong", ["never", "2013-02-30"])
def test_a_string_that_has_not_its_form_is_looked_at_by_itself(
    make_pond: Callable[[], Pond], wrong: str
) -> None:
    texts = [f"SELECT ts FROM s WHERE ts > '2013-01-{1 + n % 28:02}'" for n in range(120)]
    texts[100] = f"SELECT ts FROM s WHERE ts > '{wrong}'"
    with pytest.raises(MillpondError, match="CQL-") as raised:
        make_pond().register_many(texts)
    assert str(raised.value.detail).startswith("Query 100 of 120")
