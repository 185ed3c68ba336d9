"""Streams that read from a source and shed: what was read, accepted, rejected and shed adds up."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from millpond.errors import MillpondError
from millpond.service.ingest.sequencer import Sequencer
from millpond.service.pond import Pond
from millpond.testing.local_runtime import open_local

#: 1,000 rows, of which every hundredth is rejected; a batch has 100, and what may wait is 300.
ROWS, BATCH, QUEUE = 1_000, 100, "6 KB"
COUNTS = (
    "SELECT count(*) FROM s",
    "SELECT count(*) FROM s$rejects",
    "SELECT coalesce(sum(elements), 0)::BIGINT FROM s$shed",
)


def write(folder: Path, hour: int, rows: int = ROWS) -> None:
    """Write the file of an hour; as the first of a watched folder one without rows."""
    folder.mkdir(exist_ok=True)
    begin = datetime(2026, 1, 1, hour)
    lines = ("x" if n % 100 == 7 else str(n % 10) for n in range(rows))
    shown = [f"{begin + timedelta(seconds=n)},{value}\n" for n, value in enumerate(lines)]
    (folder / f"{hour}.csv").write_text("ts,v\n" + "".join(shown))


def create(folder: Path, overload: str = "shed random") -> str:
    return (
        f"ALTER SYSTEM SET (queue_memory = '{QUEUE}');"
        "CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts "
        f"USING csv OPTIONS (path '{folder}', header 'true') WITH (overload = '{overload}');"
    )


def open_pond(tmp_path: Path, **more: Any) -> Pond:
    return open_local(tmp_path / "store", batch_rows=BATCH, **more)


def count(pond: Pond) -> tuple[int, int, int]:
    elements, rejects, shed = (int(pond.ask(text).rows()[0][0]) for text in COUNTS)
    return elements, rejects, shed


def list_kept(pond: Pond) -> list[Any]:
    return sorted(pond.ask("SELECT ts, v FROM s").rows())


def list_steps(pond: Pond) -> list[tuple[Any, ...]]:
    return pond.ask("SELECT name, before, after FROM system$actions WHERE action = 'shed'").rows()


@pytest.mark.parametrize("overload", ["shed random", "shed chunks", "shed lightest"])
def test_what_was_read_adds_up_and_the_loss_is_said(tmp_path: Path, overload: str) -> None:
    write(tmp_path / "in", 0, 0)
    with open_pond(tmp_path) as pond:
        pond.execute(create(tmp_path / "in", overload))
        pond.execute("CREATE QUERY heavy WITH (weight = 9) AS SELECT v FROM s WHERE v = 3")
        for hour in (1, 2):
            write(tmp_path / "in", hour)
        pond.catch_up()
        elements, rejects, shed = count(pond)
        assert (elements + rejects + shed, rejects) == (2 * ROWS, 20)
        assert shed > ROWS / 2
        answer = pond.ask("SELECT v FROM s")
        assert not answer.exact
        assert [(loss.cause.value, loss.elements) for loss in answer.loss] == [("shed", shed)]
        assert pond.query("heavy").invoke().exact == (overload == "shed lightest")
        # Shed elements move the heartbeat as others do, and in the end nothing is shed.
        last = datetime(2026, 1, 1, 2, 16, 39, tzinfo=UTC)
        assert pond.ask("SELECT v FROM s").as_of == last.timestamp() * 1_000_000
        steps = list_steps(pond)
        assert [name for name, _, _ in steps] == ["s"] * len(steps)
        chain = [0.0, *(after for _, _, after in steps)]
        assert [before for _, before, _ in steps] == chain[:-1]
        assert (max(chain), chain[-1]) == (0.9, 0.0)


def test_a_stream_that_does_not_shed_loses_nothing(tmp_path: Path) -> None:
    write(tmp_path / "in", 0)
    with open_pond(tmp_path) as pond:
        pond.execute(create(tmp_path / "in", "block"))
        assert count(pond) == (ROWS - 10, 10, 0)
        pond.execute("ALTER STREAM s SET (overload = 'shed random')")
        write(tmp_path / "in", 1)
        pond.catch_up()
        elements, rejects, shed = count(pond)
        assert shed
        assert (elements + shed, rejects) == (2 * ROWS - 20, 20)
        pond.execute("ALTER STREAM s SET (overload = 'block')")
        write(tmp_path / "in", 2)
        pond.catch_up()
        assert count(pond) == (elements + ROWS - 10, 30, shed)


def test_nothing_is_shed_of_a_source_that_is_read_to_its_end(tmp_path: Path) -> None:
    write(tmp_path / "in", 0)
    with open_pond(tmp_path, bounded=True) as pond:
        pond.execute(create(tmp_path / "in"))
        assert count(pond) == (ROWS - 10, 10, 0)


@pytest.mark.parametrize("overload", ["shed random", "shed chunks", "shed lightest"])
def test_a_batch_that_failed_sheds_the_same_after_a_restart(
    tmp_path: Path, overload: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "in", 0)
    kept = []
    commit = Sequencer.commit
    for fails_at in (None, 4):
        folder = tmp_path / str(fails_at)
        folder.mkdir()

        def fail(
            self: Any, source: str, batch: int, *more: Any, at: Any = fails_at, **named: Any
        ) -> None:
            if batch == at:
                raise OSError("the disk is away")
            commit(self, source, batch, *more, **named)

        with open_pond(folder) as pond, monkeypatch.context() as patch:
            patch.setattr(Sequencer, "commit", fail)
            with suppress(OSError):
                pond.execute(create(tmp_path / "in", overload))
        with open_pond(folder) as pond:
            pond.catch_up()
            kept.append((list_kept(pond), count(pond), list_steps(pond)))
            assert sum(count(pond)) == ROWS
    assert kept[0][1][2]
    assert all(each == kept[0] for each in kept[1:])


def test_work_waits_before_a_source_is_shed_and_does_not_afterwards(tmp_path: Path) -> None:
    write(tmp_path / "in", 0)
    with open_pond(tmp_path) as pond:
        pond.execute("CREATE STREAM other (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts")
        pond.execute("CREATE QUERY light AS SELECT v FROM other WHERE v = 3")
        pond.execute("CREATE QUERY heavy WITH (weight = 9) AS SELECT v FROM other WHERE v = 3")
        pond.execute(create(tmp_path / "in"))
        pond.catch_up()
        steps = pond.ask("SELECT action, after FROM system$actions").rows()
        assert steps[0] == ("defer", 1.0)
        assert [after for action, after in steps if action == "defer"][-1] == 0.0
        assert [after for action, after in steps if action == "shed"][-1] == 0.0


def test_only_sources_shed_of_which_it_is_known_what_waits(tmp_path: Path) -> None:
    with open_pond(tmp_path) as pond, pytest.raises(MillpondError) as refused:
        pond.execute(
            "CREATE STREAM s (timestamp TIMESTAMP, value BIGINT) TIMESTAMP BY timestamp "
            "USING rate OPTIONS (rowsPerSecond '10') WITH (overload = 'shed random')"
        )
    assert refused.value.code == "CQL-301"
    assert "rate" in refused.value.primary
