"""Aggregates that show the order of their rows say that order where one stream is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from millpond.testing.local_runtime import open_local

BY = "ORDER BY __ts_leaf_0, __seq_leaf_0"


@pytest.fixture(scope="module")
def bind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], str]]:
    with open_local(tmp_path_factory.mktemp("order") / "store") as pond:
        pond.execute("CREATE STREAM s (k STRING, v INTEGER); CREATE RELATION r (v INTEGER)")
        yield lambda text: " ".join(pond.explain(text, "rewritten").split())


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("SELECT last(v) FROM s", f"last(v {BY})"),
        ("SELECT k, list(v) AS l FROM s GROUP BY k", f"list(v {BY})"),
        ("SELECT string_agg(k, ',') FROM s [ROWS 3]", f"string_agg(k, ',' {BY})"),
        ("SELECT first(v) FILTER (WHERE v > 1) FROM s", f"first(v {BY}) FILTER"),
        ("SELECT k FROM s GROUP BY k HAVING arg_max(k, v) = 'a'", f"arg_max(k, v {BY})"),
        ("SELECT k FROM s GROUP BY k ORDER BY mode(v)", f"mode(v {BY})"),
        ("SELECT list(v ORDER BY k) FROM s", f"list(v ORDER BY k, {BY[9:]})"),
        ("SELECT last(v ORDER BY k DESC) FROM s", f"last(v ORDER BY k DESC, {BY[9:]})"),
        ("SELECT l FROM (SELECT last(v) AS l FROM s) AS x", f"last(v {BY})"),
        ("SELECT v FROM r WHERE v > (SELECT last(v) AS l FROM s)", f"last(v {BY})"),
    ],
)
def test_they_say_it_over_one_stream(bind: Callable[[str], str], text: str, part: str) -> None:
    assert part in bind(text)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT max(v) FROM s",
        "SELECT list(DISTINCT v) FROM s",
        "SELECT list(DISTINCT v ORDER BY v) FROM s",
        "SELECT sum(v ORDER BY k) FROM s",
        "SELECT json_group_array(v) FROM s",
        "SELECT last(v) FROM r",
        "SELECT last(a.v) FROM s AS a, s AS b WHERE a.k = b.k",
        "SELECT last(v) FROM s SEMI JOIN r USING (v)",
        "SELECT last(v) FROM s AS x(k, v)",
        "SELECT * FROM (SELECT last(v) FROM s) AS x",
    ],
)
def test_nothing_is_added_elsewhere(bind: Callable[[str], str], text: str) -> None:
    assert "__seq" not in bind(text)


def test_columns_keep_their_names(tmp_path_factory: pytest.TempPathFactory) -> None:
    with open_local(tmp_path_factory.mktemp("names") / "store") as pond:
        pond.execute("CREATE STREAM s (k STRING, v INTEGER)")
        assert pond.ask("SELECT list(v), k FROM s GROUP BY k").columns == ["list(v)", "k"]
