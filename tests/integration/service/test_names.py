"""One rule for names, wherever one is given."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from millpond.cql.tree import statements
from millpond.errors import MillpondError
from millpond.service.pond import Pond
from millpond.testing.local_runtime import open_local

#: What can be no name of a thing.
ODD = {
    "slash": "a/b", "back": "a\\b", "up": "..", "here": ".", "CR": "a\rb", "LF": "a\nb",
    "NUL": "a\0b", "escape": "\x1b[31m", "DEL": "a\x7f", "line": "a\u2028b", "bidi": "\u202ea",
    "long": "x" * 201, "very long": "x" * 100_000, "spaces": "  ", "number": "17",
}  # fmt: skip
#: Those of them that are no printable line either.
LINES = {k: ODD[k] for k in ("CR", "LF", "NUL", "escape", "DEL", "line", "bidi", "long")}
FINE = ["a b", "é", "a.b", "%2e%2e", "a?b#c", "-", "x" * 200, "SELECT", 'quo"te', "日本"]

#: Every statement that gives something a name.
CREATE = {
    "CreateStream": ["CREATE STREAM {} (n BIGINT)"],
    "CreateRelation": ["CREATE RELATION {} (n BIGINT)"],
    "CreateDerived": [
        "CREATE STREAM {} AS ISTREAM(SELECT n FROM s)",
        "CREATE RELATION {} AS SELECT n FROM s",
    ],
    "CreateQuery": ["CREATE QUERY {} AS SELECT n FROM s"],
    "CreateSink": [
        "CREATE SINK {} USING http (url 'https://example.org/', key_env 'A_KEY') FROM QUERY q"
    ],
    "CreateSummary": [
        "CREATE SUMMARY {} ON s (n) WITH GRANULARITY INTERVAL 1 MINUTE AND COLLAPSE (4, 6)"
    ],
}
TEXTS = [text for texts in CREATE.values() for text in texts]


@pytest.fixture(scope="module")
def pond(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with (
        pytest.MonkeyPatch.context() as patch,
        open_local(tmp_path_factory.mktemp("names") / "store") as pond,
    ):
        patch.setenv("A_KEY", "k" * 64)
        pond.execute("CREATE STREAM s (n BIGINT); CREATE QUERY q AS SELECT n FROM s")
        yield pond


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def refused(call: Callable[[], object], code: str = "CQL-102") -> MillpondError:
    with pytest.raises(MillpondError, match=code) as raised:
        call()
    # What is said of an odd name is printable, and short.
    message = raised.value.to_json()["error"]["message"]
    assert message.isprintable()
    assert len(message) < 400
    return raised.value


def test_every_statement_that_names_something_is_tried() -> None:
    found = {name for name in vars(statements) if re.match("Create[A-Z]", name)}
    assert found == set(CREATE)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("name", ODD.values(), ids=ODD)
def test_no_statement_makes_something_of_an_odd_name(pond: Pond, text: str, name: str) -> None:
    error = refused(lambda: pond.execute(text.format(quoted(name))))
    assert error.detail
    assert error.hint


@pytest.mark.parametrize("text", TEXTS)
def test_other_names_are_taken_and_found(pond: Pond, text: str) -> None:
    kind = text.split()[1]
    for name in FINE:
        pond.execute(text.format(quoted(name)))
        pond.execute(f"DROP {kind} {quoted(name)}")


@pytest.mark.parametrize("name", ODD.values(), ids=ODD)
def test_registering_is_held_to_it_too(pond: Pond, name: str) -> None:
    refused(lambda: pond.register("SELECT n FROM s", name))
    refused(lambda: pond.register_many([("SELECT n FROM s", name, {})]))


@pytest.mark.parametrize("name", LINES.values(), ids=LINES)
def test_owners_tags_comments_and_keys_are_lines(pond: Pond, name: str) -> None:
    for option in ("owner", "tags"):
        refused(lambda option=option: pond.query("q").alter(**{option: name}), "CQL-214")
        literal = name.replace("'", "''")
        refused(
            lambda text=f"ALTER QUERY q SET ({option} = '{literal}')": pond.execute(text), "CQL-214"
        )
        refused(lambda option=option: pond.register("SELECT n FROM s", **{option: name}), "CQL-214")
    key = name if len(name) < 200 else name * 10
    refused(lambda: pond.ingest("s", [{"n": 1}], idempotency_key=key), "DATA-501")


def test_a_comment_may_have_several_lines(pond: Pond) -> None:
    pond.query("q").alter(comment="one\n\ttwo")
    assert pond.query("q").definition.options["comment"] == "one\n\ttwo"
    refused(lambda: pond.query("q").alter(comment="\x1b[2J"), "CQL-214")


@pytest.mark.parametrize("name", ["a\rb", "a\0b", "\x1b[31m", "a\u2028b", "x" * 201])
def test_columns_control_nothing(pond: Pond, name: str) -> None:
    for kind in ("STREAM", "RELATION"):
        refused(lambda kind=kind: pond.execute(f"CREATE {kind} c ({quoted(name)} BIGINT)"))
    pond.execute('CREATE STREAM c ("a/b" BIGINT, ".." BIGINT, "a b" BIGINT); DROP STREAM c')
