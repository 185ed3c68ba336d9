"""Every operator of a dataflow that runs is an entity, with its rows and bytes."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integration.service.test_every_operator_fails import QUERIES, TOLERATED, plan_of, push

from millpond.errors import MillpondError
from millpond.testing.local_runtime import open_local
from millpond.testing.manual_clock import ManualClock

#: Operators that keep rows of these streams, at least in the query they are shown with.
KEEPING = {
    "Expire",
    "Grouping",
    "KeptElements",
    "Join",
    "Negation",
    "RowsWindow",
    "Semijoin",
    "SetOperation",
}


def test_each_kind_of_operator_appears_with_rows_and_bytes(tmp_path: Path) -> None:
    with open_local(tmp_path / "store", ManualClock()) as pond:
        for stream in ("s", "t"):
            pond.execute(
                f"CREATE STREAM {stream} (ts TIMESTAMP, k STRING, v INTEGER) TIMESTAMP BY ts"
            )
        pond.execute("CREATE RELATION r (k STRING, d INTEGER)")
        pond.execute("CREATE NON RETROACTIVE RELATION n (k STRING, d INTEGER)")
        pond.execute("INSERT INTO r VALUES ('a', 1), ('b', 2)")
        pond.execute("INSERT INTO n VALUES ('a', 1), ('b', 2)")
        pond._components.advancer.ladder.reduced_weight = 1.0
        for name, (query, strategy) in QUERIES.items():
            options = f"strategy = '{strategy}', changes = 'from beginning'"
            if name in TOLERATED:
                options += f", tolerate = '{TOLERATED[name]}'"
            pond.execute(f"CREATE QUERY q{name} WITH ({options}) AS {query}")
        push(pond, 1, 2, 3, 4)
        expected = {name: pond.query(f"q{name}").fetch().rows() for name in QUERIES}
        every = {entity.id: entity for entity in pond.entities.every()}
        keeping = set()
        for name in QUERIES:
            shown = []
            for node in plan_of(pond, f"q{name}"):
                entity = every[f"operator:{node.name}.{node.key[:10]}"]
                figures = entity.figures
                assert {"rows", "bytes", "bytes in files", "rows in", "rows out"} <= set(figures)
                assert figures["bytes"] > 0
                assert entity.settings["memory"] == "auto"
                shown.append(type(node).__name__)
                if figures["rows"]:
                    keeping.add(type(node).__name__)
            assert name in shown
        assert keeping >= KEEPING
        assert "; keeps 3 rows, " in pond.explain("qKeptElements", "runtime")

        # Memory of its own is kept to from the next step on, and changes nothing.
        ids = [id for id in every if id.startswith("operator:") and every[id].figures["rows"]]
        for id in ids:
            changed = pond.entities.set(id, {"memory": "1 KB"})
            assert changed.settings["memory"] == "1 KB"
        push(pond, 5, 6)
        for name, before in expected.items():
            now = pond.query(f"q{name}").fetch().rows()
            assert now[: len(before)] == before
        pond.entities.set(ids[0], {"memory": "auto"})
        assert pond.entities.one(ids[0]).settings["memory"] == "auto"
        with pytest.raises(MillpondError, match="CQL-214"):
            pond.entities.set(ids[0], {"memory": "much"})
        with pytest.raises(MillpondError, match="CQL-214"):
            pond.entities.set(ids[0], {"partitions": 3})


def test_an_operator_that_becomes_another_is_found_by_what_the_answer_says(tmp_path: Path) -> None:
    with open_local(tmp_path / "store", ManualClock()) as pond:
        for stream in "stu":
            pond.execute(f"CREATE STREAM {stream} (ts TIMESTAMP, k STRING) TIMESTAMP BY ts")
        texts = {
            "seen": "SELECT DISTINCT k FROM s [RANGE 1 MINUTE]",
            "joined": "SELECT s.k FROM s [RANGE 1 MINUTE], t [RANGE 1 MINUTE], u [RANGE 1 MINUTE]"
            " WHERE s.k = t.k AND t.k = u.k",
        }
        for name, text in texts.items():
            pond.execute(f"CREATE QUERY {name} WITH (changes = 'from beginning') AS {text}")

        def push_and_follow(second: int) -> None:
            for stream in "stu":
                rows = [
                    {"ts": f"1970-01-01 00:00:{second + more:02}", "k": "a"} for more in (0, 1, 2)
                ]
                pond.ingest(stream, rows)
            pond.catch_up()
            for name in texts:
                pond.query(name).fetch()

        for second, field in ((1, "synopsis"), (20, "order")):
            push_and_follow(second)
            before = next(
                e
                for e in pond.entities.every()
                if e.id.startswith(("operator:distinct.", "operator:join.")) and field in e.settings
            )
            value = "counts" if field == "synopsis" else before.settings["order"][::-1]
            changed = pond.entities.set(before.id, {field: value, "memory": "2 KB"})
            push_and_follow(second + 10)
            assert changed.id != before.id
            now = pond.entities.one(changed.id)
            assert now.settings == changed.settings
            assert now.figures["rows"]
            with pytest.raises(MillpondError, match="CQL-201"):
                pond.entities.one(before.id)
        with pytest.raises(MillpondError, match="memory of operator"):
            pond.entities.set(changed.id, {"order": before.settings["order"], "memory": "much"})
        assert pond.entities.one(changed.id).settings == changed.settings


def test_an_operator_is_an_entity_before_its_first_step(tmp_path: Path) -> None:
    with open_local(tmp_path / "store", ManualClock()) as pond:
        for stream in "stu":
            pond.execute(f"CREATE STREAM {stream} (ts TIMESTAMP, k STRING) TIMESTAMP BY ts")
        pond.execute(
            "CREATE QUERY joined WITH (changes = 'from beginning') AS SELECT s.k FROM"
            " s [RANGE 1 MINUTE], t [RANGE 1 MINUTE], u [RANGE 1 MINUTE]"
            " WHERE s.k = t.k AND t.k = u.k"
        )
        for stream in "stu":
            pond.ingest(stream, [{"ts": f"1970-01-01 00:00:0{n}", "k": "a"} for n in (1, 2)])
        pond.catch_up()
        pond.query("joined").fetch()
        order = ["u", "t", "s"]
        for memory in ("2 KB", "4 KB"):
            operators = pond.export_plan(["joined"])["operators"]
            id = next(id for id, one in operators.items() if one["order"])
            changed = pond.entities.set(id, {"order": order, "memory": memory})
            now = pond.entities.one(changed.id)
            assert now.settings == changed.settings
            assert now.figures == changed.figures
            assert now.of == "joined"
            assert now.figures["rows"] == 0
            every = {entity.id for entity in pond.entities.every()}
            assert every >= set(pond.export_plan(["joined"])["operators"])
            order = order[1:] + order[:1]
