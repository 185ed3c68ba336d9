"""A store of format 1 becomes one of format 2, wherever the process dies on the way."""

import os
import pickle
import shutil
import signal
import sqlite3
import sys
import types
from contextlib import closing
from pathlib import Path

import pytest

from millpond.engine.joins import keys, plan
from millpond.engine.joins.plan import JoinPlan
from millpond.errors import MillpondError
from millpond.state import fail_points
from millpond.state.check_and_repair.check import check_store
from millpond.state.store import FORMAT, Store
from millpond.testing.local_runtime import open_local

SCHEMA = """
CREATE STREAM s (ts TIMESTAMP, n BIGINT) TIMESTAMP BY ts;
CREATE QUERY q AS SELECT n FROM s WHERE n > 1;
CREATE QUERY twice AS SELECT a.n FROM s [RANGE 1 DAY] a, s [RANGE 1 DAY] b WHERE a.n = b.n;
"""


def pickle_as_before(packed: bytes, patch: pytest.MonkeyPatch) -> bytes:
    """A join's plan as format 1 kept it: objects of modules that are no more."""
    for module, names in (
        ("millpond.engine.join_plan", [plan.Link, plan.Operand, plan.Value]),
        ("millpond.engine.join_keys", [keys.Axis]),
    ):
        made = types.ModuleType(module)
        patch.setitem(sys.modules, module, made)
        for known in names:
            setattr(made, known.__name__, known)
            patch.setattr(known, "__module__", module)
    found = JoinPlan.unpack(packed)
    return pickle.dumps((found.streams, found.timed_by, found.links), protocol=5)


def before(store: Path) -> None:
    """Make a store one of format 1 again."""
    shutil.rmtree(store / "journal")
    (store / "LAST").unlink()
    (store / "FORMAT").write_text("millpond store 1\n")
    with (
        pytest.MonkeyPatch.context() as patch,
        closing(sqlite3.connect(store / "pond.db")) as database,
        database,
    ):
        database.execute("DROP TABLE fold")
        plans = database.execute("SELECT id, plan FROM join_core").fetchall()
        assert plans
        for id, packed in plans:
            old = pickle_as_before(packed, patch)
            assert b"join_plan" in old
            database.execute("UPDATE join_core SET plan = ? WHERE id = ?", (old, id))
        database.execute("PRAGMA user_version = 1")


@pytest.fixture
def store(tmp_path) -> Path:
    with open_local(tmp_path / "store") as pond:
        pond.execute(SCHEMA)
        for n in (1, 2, 3):
            pond.ingest("s", [{"ts": "2024-01-01", "n": n}])
        pond.wait_until_matched()
    before(tmp_path / "store")
    return tmp_path / "store"


def assert_it_lives(store: Path) -> None:
    for extra in (4, 5):
        with open_local(store) as pond:
            assert pond.status()["problems"] == []
            pond.ingest("s", [{"ts": "2024-01-01", "n": extra}])
            pond.wait_until_matched()
            assert sorted(pond.query("q").invoke().rows()) == [(n,) for n in range(2, extra + 1)]
            assert len(pond.query("twice").invoke()) == extra
    assert check_store(store).is_whole
    assert (store / "FORMAT").read_text() == FORMAT


def test_a_store_of_format_1_is_brought_forward(store):
    assert_it_lives(store)


@pytest.mark.parametrize("format", [2, 3])
def test_a_store_whose_files_are_the_same_gets_another_number(store, format):
    Store.open(store).close()
    (store / "FORMAT").write_text(f"millpond store {format}\n")
    assert_it_lives(store)


@pytest.mark.parametrize("name", [n for n in fail_points.FAIL_POINTS if "migration" in n])
def test_killed_on_the_way(store, name):
    child = os.fork()
    if child == 0:
        fail_points.arm(name)
        Store.open(store)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
    assert_it_lives(store)


@pytest.mark.parametrize("how", ["missing", "damaged"])
def test_without_its_database_it_is_refused_and_untouched(store, how):
    if how == "missing":
        (store / "pond.db").unlink()
    else:
        (store / "pond.db").write_bytes((store / "pond.db").read_bytes()[:9_000])
    files = {file for file in store.rglob("*") if file.is_file()}
    with pytest.raises(MillpondError, match="STORE-602"):
        Store.open(store)
    assert files <= {file for file in store.rglob("*") if file.is_file()}
    assert (store / "FORMAT").read_text() == "millpond store 1\n"


def test_a_plan_that_names_anything_else_runs_nothing(store):
    with closing(sqlite3.connect(store / "pond.db")) as database, database:
        evil = pickle.dumps((os.getcwd, (), ()))
        database.execute("UPDATE join_core SET plan = ?", (evil,))
    with pytest.raises(MillpondError, match=r"(?s)STORE-602.*no part of a join"):
        Store.open(store)
