"""Jobs of the advancer: who is advanced together, and what a job is given to read."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.service.versions import segment, stream, version_of

from millpond.catalog.objects import Derived, RelationDef
from millpond.model.schema import Field, Schema
from millpond.runtime.advance_job import AdvanceJob
from millpond.service.changes import advance_jobs
from millpond.service.changes.advance_jobs import AdvanceJobs, Runnable, step_end
from millpond.service.changes.dataflow_accounts import DataflowAccounts
from millpond.service.changes.derivation import Derivation
from millpond.state.version import RelationDelta, SegmentRef, StreamClock, StreamState, Version

RELATION = RelationDef(2, "r", Schema((Field("k", "VARCHAR"),)))
DELTAS = tuple(RelationDelta(2, epoch, f"deltas/{epoch}", "sum", 1) for epoch in (3, 5))
SEGMENTS = (
    segment(1, 0, 9, id=1, rows=200_000),
    segment(1, 5, 19, id=2, rows=200_000),
    segment(1, 20, 29, id=3, rows=200_000),
    segment(1, 30, 39, id=4, rows=200_000),
)


@pytest.fixture
def version() -> Version:
    return version_of(
        stream(1, "s"), RELATION, states={1: StreamState(data=SEGMENTS)}, deltas={2: DELTAS}
    )


def derivation(
    id: int, *, reach: int | None = 0, eager: int = 0, relations: bool = False
) -> Derivation:
    """A change log over `s`, and over `r` if that is said."""
    plan: Any = SimpleNamespace(
        needs=["s"], relations=["r"] if relations else [], reach=lambda *_: {"s": reach}
    )
    own = stream(id, f"{id}$changes", derived=Derived("SELECT …", query_id=id))
    bound: Any = None
    reads = frozenset([2]) if relations else frozenset()
    return Derivation(own, bound, plan, frozenset([1]), reads, eager)


def runnable(
    of: Derivation, position: int, upto: int = 39, *, epoch: int = 9, complete_upto: int = -1
) -> Runnable:
    clock = StreamClock(heartbeat=position + 1, relations_epoch=epoch)
    return Runnable(of, clock, upto, max(position, complete_upto))


def jobs(version: Version, *due: Runnable) -> list[tuple[list[int], AdvanceJob]]:
    """The ids of each group's derivations, and its job."""
    stems: Any = None  # change logs are matched by nobody
    with ExitStack() as kept:
        made = AdvanceJobs(Path("store"), stems, DataflowAccounts()).of(version, list(due), kept)
    return [([item.derivation.id for item in group], job) for group, job in made]


def grouped(version: Version, *due: Runnable) -> list[list[int]]:
    return [ids for ids, _ in jobs(version, *due)]


def test_those_at_one_position_share_a_job(version: Version) -> None:
    ((ids, job),) = jobs(version, runnable(derivation(7), 10), runnable(derivation(8), 10))
    assert ids == [7, 8]
    assert [sink.stream_id for sink in job.sinks] == [7, 8]
    assert (job.position, job.upto, job.now) == (10, 39, version.epoch)


def test_who_has_no_changes_up_to_the_others_position_joins_them(version: Version) -> None:
    behind, ahead = derivation(7), derivation(8)
    quiet = runnable(behind, 10, complete_upto=20)
    assert grouped(version, quiet, runnable(ahead, 20)) == [[7, 8]]
    ((_, job),) = jobs(version, quiet, runnable(ahead, 20))
    assert job.position == 20
    unknown = runnable(behind, 10, complete_upto=19)
    assert grouped(version, unknown, runnable(ahead, 20)) == [[7], [8]]


@pytest.mark.parametrize(
    "other",
    [
        runnable(derivation(8, eager=5), 10),
        runnable(derivation(8), 10, upto=38),
        runnable(derivation(8, relations=True), 10),
    ],
    ids=["another interval", "another end", "another relation"],
)
def test_others_have_jobs_of_their_own(version: Version, other: Runnable) -> None:
    assert grouped(version, runnable(derivation(7), 10), other) == [[7], [8]]


def test_only_what_a_relation_was_told_meanwhile_parts_its_readers(version: Version) -> None:
    def two(one: int, other: int) -> list[list[int]]:
        return grouped(
            version,
            runnable(derivation(7, relations=True), 10, epoch=one),
            runnable(derivation(8, relations=True), 10, epoch=other),
        )

    assert two(3, 4) == [[7, 8]]
    assert two(4, 5) == [[7], [8]]
    assert two(5, 9) == [[7, 8]]


def test_a_large_group_is_cut(version: Version, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(advance_jobs, "_GROUP", 2)
    made = jobs(version, *(runnable(derivation(id), 10) for id in (7, 8, 9, 10, 11)))
    assert [ids for ids, _ in made] == [[7, 8], [9, 10], [11]]
    assert len({job.group for _, job in made}) == 3


def test_the_group_keeps_its_name_when_somebody_joins_it(version: Version) -> None:
    ((_, alone),) = jobs(version, runnable(derivation(7), 10))
    ((_, together),) = jobs(version, runnable(derivation(5), 20), runnable(derivation(7), 20))
    ((_, other),) = jobs(version, runnable(derivation(7, eager=5), 10))
    assert alone.group == together.group != other.group


def test_a_job_names_the_segments_it_may_need(version: Version) -> None:
    def paths(job: AdvanceJob) -> list[str]:
        return [file.path for file in job.streams["s"]]

    ((_, job),) = jobs(version, runnable(derivation(7, reach=19), 21, upto=29))
    assert paths(job) == ["segments/2", "segments/3"]
    assert job.since == {"s": 19}
    # Whatever a plan reaches back to, what comes after the position is read.
    ((_, job),) = jobs(version, runnable(derivation(7, reach=100), 21))
    assert paths(job) == ["segments/3", "segments/4"]
    both = runnable(derivation(7, reach=19), 21), runnable(derivation(8, reach=None), 21)
    ((_, job),) = jobs(version, *both)
    assert (job.since, len(paths(job))) == ({"s": None}, 4)
    both = runnable(derivation(7, reach=25), 21), runnable(derivation(8, reach=19), 21)
    ((_, job),) = jobs(version, *both)
    assert job.since == {"s": 19}


def test_a_job_has_every_delta_of_its_relations(version: Version) -> None:
    ((_, job),) = jobs(version, runnable(derivation(7, relations=True), 10, epoch=4))
    assert [(file.path, file.epoch) for file in job.relations["r"].files] == [
        ("deltas/3", 3),
        ("deltas/5", 5),
    ]
    assert job.epoch == 4


def test_a_step_ends_where_there_is_much_to_read(version: Version) -> None:
    def end(position: int, upto: int = 39) -> int:
        return step_end(version, derivation(7), StreamClock(heartbeat=position + 1), upto)

    assert end(-1) == 29
    assert end(10) == 39
    assert end(-1, upto=25) == 25
    assert end(39, upto=50) == 50


def test_rejects_are_read_as_what_they_are() -> None:
    rejected: SegmentRef = segment(1, 0, 9, id=9)
    version = version_of(
        stream(1, "s"), states={1: StreamState(data=SEGMENTS, rejects=(rejected,))}
    )
    plan: Any = SimpleNamespace(needs=["s$rejects", "gone"])
    bound: Any = None
    reading = Derivation(stream(7, "x"), bound, plan, frozenset([1]), frozenset())
    assert list(advance_jobs.sources(version, reading)) == [("s$rejects", (rejected,))]
