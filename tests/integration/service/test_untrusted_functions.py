"""Code that a store brings along runs only if the user's own key has sealed it."""

from __future__ import annotations

import json
import os
import pickle
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millpond.cli.trust_functions import trust_functions
from millpond.engine.scalars.user_functions import functions, load, save
from millpond.errors import MillpondError
from millpond.service.pond import Pond
from millpond.state.check_and_repair.check import check_store
from millpond.state.check_and_repair.repair import repair_store
from millpond.state.epoch.epoch_change import EpochChange
from millpond.state.store import Store
from millpond.testing.local_runtime import LocalRuntime

Open = Callable[..., Pond]


class Evil:
    """A pickle that leaves a mark when it is loaded."""

    def __init__(self, mark: Path) -> None:
        self.mark = str(mark)

    def __reduce__(self) -> Any:
        return os.mkdir, (self.mark,)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def keys(tmp_path: Path) -> tuple[Path, Path]:
    return tmp_path / "mine" / "key", tmp_path / "theirs" / "key"


def open_with(store: Path, key: Path) -> Pond:
    return Pond(store, LocalRuntime(), function_key=key)


def twice(values: pa.Array) -> pa.Array:
    return pa.array([2 * v for v in values.to_pylist()], pa.int64())


@pytest.fixture
def their_store(store: Path, keys: tuple[Path, Path]) -> Path:
    """A store that somebody else made, with a function, a derived stream and three queries."""
    with open_with(store, keys[1]) as pond:
        pond.execute("CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts")
        pond.function("twice", twice, arguments=["BIGINT"], returns="BIGINT")
        pond.execute(
            "CREATE RELATION r AS SELECT twice(v) AS w FROM s [ROWS 1];"
            "CREATE QUERY q AS SELECT v FROM s WHERE twice(v) > 2;"
            "CREATE QUERY below AS SELECT w FROM r;"
            "CREATE QUERY plain AS SELECT v FROM s;"
            "CREATE STREAM d AS SELECT twice(v) AS w FROM s"
        )
        push(pond, 1, 2)
        pond.wait_until_matched()
        pond.catch_up()
    return store


def push(pond: Pond, *seconds: int) -> None:
    pond.ingest("s", [{"ts": f"1970-01-01 00:00:{t:02}", "v": t} for t in seconds])
    pond.catch_up()


def forget(store: Path) -> None:
    """Have this process know no function, as one that has just begun."""
    functions._known.clear()


def test_with_another_key_queries_are_suspended_with_the_reason(
    their_store: Path, keys: tuple[Path, Path]
) -> None:
    forget(their_store)
    with open_with(their_store, keys[0]) as pond:
        assert [f["trusted"] for f in pond.functions()] == [False]
        for name in ("q", "below"):
            with pytest.raises(MillpondError, match=r"(?s)POND-402.*not trusted.*millpond trust"):
                pond.query(name).invoke()
        assert len(pond.query("plain").invoke().rows()) == 2
        push(pond, 3, 4)
        assert len(pond.query("plain").invoke().rows()) == 4
        with pytest.raises(MillpondError, match="not trusted"):
            pond.ask("SELECT twice(v) FROM s")
        with pytest.raises(MillpondError, match="not trusted"):
            pond.execute("FETCH d")
    trust_functions(their_store, ["twice"], False, keys[0])
    with open_with(their_store, keys[0]) as pond:
        assert [f["trusted"] for f in pond.functions()] == [True]
        pond.wait_until_matched()
        assert len(pond.query("q").invoke().rows()) == 3
        assert pond.query("below").invoke().rows() == [(8,)]
        pond.execute("HEARTBEAT s AT TIMESTAMP '1970-01-01 00:00:09'")
        pond.catch_up()
        (fetched,) = pond.execute("FETCH d")
        assert [row[-1] for row in fetched.changes.rows()] == [2, 4, 6, 8]
    with open_with(their_store, keys[1]) as pond:  # their key has not sealed it now
        assert [f["trusted"] for f in pond.functions()] == [False]


def test_who_defines_it_again_trusts_it(their_store: Path, keys: tuple[Path, Path]) -> None:
    forget(their_store)
    with open_with(their_store, keys[0]) as pond:
        assert pond.query("q").describe()["suspended"]
        pond.function("twice", twice, arguments=["BIGINT"], returns="BIGINT")
        assert [f["trusted"] for f in pond.functions()] == [True]
        assert len(pond.query("q").invoke().rows()) == 1


def test_nothing_of_a_foreign_store_is_run(
    their_store: Path, keys: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither opening nor looking, checking or repairing loads a pickle that somebody put there."""
    mark = tmp_path / "loaded"
    code = pickle.dumps(Evil(mark))
    with Store.open(their_store) as store:
        found = store.log.version.functions["twice"]
        store.log.commit(EpochChange(kind="function", add_functions=[replace(found, code=code)]))
    (their_store / "functions").mkdir(exist_ok=True)
    (their_store / "functions" / found.inside).write_bytes(code)
    (their_store / "stems").mkdir(exist_ok=True)
    (their_store / "stems" / "1.arrow").write_bytes(code)
    forget(their_store)
    assert check_store(their_store).is_whole
    repair_store(their_store, tmp_path / "repaired")
    trust_functions(their_store, [], False, keys[0])
    assert "os.mkdir" in capsys.readouterr().out.replace("posix.", "os.")
    for one in (their_store, tmp_path / "repaired"):
        for key in keys:
            with open_with(one, key) as pond:
                assert [f["trusted"] for f in pond.functions()] == [False]
                push(pond, 30)
                assert pond.query("plain").invoke().rows()
    assert not mark.exists()
    found = Store.open(their_store)
    definition = found.log.version.functions["twice"]
    found.close()
    with pytest.raises(FileExistsError):  # the test would see it
        mark.mkdir() or pickle.loads(definition.code)


def test_workers_take_no_other_code_than_was_asked_for(tmp_path: Path) -> None:
    with open_with(tmp_path / "store", tmp_path / "key") as pond:
        definition = pond.function("twice", twice, arguments=["BIGINT"], returns="BIGINT")
    file = tmp_path / "store" / "functions" / definition.inside
    assert load(file) == definition
    save(replace(definition, code=b"other"), file.parent)
    with pytest.raises(ValueError, match="is not what its name says"):
        load(file)
    body = json.loads(file.read_text())
    file.write_bytes(pickle.dumps(body))
    with pytest.raises(ValueError, match="codec"):
        load(file)
    save(replace(definition, code=b""), file.parent)
    assert not load(file).code


def test_trust_needs_a_store_and_a_name(their_store: Path, tmp_path: Path) -> None:
    with pytest.raises(MillpondError, match="STORE-604"):
        trust_functions(tmp_path / "nothing", [], True, None)
    assert not (tmp_path / "nothing").exists()
    with pytest.raises(MillpondError, match=r'(?s)CQL-212.*"twice"'):
        trust_functions(their_store, ["twise"], False, None)
    database = sqlite3.connect(their_store / "pond.db")
    assert database.execute("SELECT count(*) FROM definition WHERE kind = 'function'").fetchone()
    database.close()
