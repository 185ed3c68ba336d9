"""Tasks over segments: a corrupt segment is left out and told of, any other failure is raised."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.service.versions import segment

from millpond.errors import MillpondError
from millpond.service.maintenance.segment_tasks import SegmentTasks
from millpond.state.arrow_file import write_arrow
from millpond.state.version import SegmentRef


class Parts:
    """A runtime in this process, and who is told of damage."""

    def __init__(self) -> None:
        self.damage: list[MillpondError] = []

    def run(
        self, task: Callable[[Any], Any], jobs: Sequence[Any], near: Sequence[str] = ()
    ) -> list[Any]:
        self.near = near
        return [task(job) for job in jobs]

    def prefer(self, key: str) -> str:
        return f"machine of {key}"

    def file_damaged(self, error: MillpondError) -> None:
        self.damage.append(error)


def fail(job: Any) -> Any:
    raise RuntimeError(f"failed over {job}")


@pytest.fixture
def parts() -> Any:
    return Parts()


@pytest.fixture
def whole(tmp_path: Path) -> SegmentRef:
    written = write_arrow(tmp_path / "whole", pa.table({"v": [1]}))
    return replace(segment(1, 0, 9, id=1), path="whole", checksum=written.checksum)


def test_a_task_is_run_for_every_job(tmp_path: Path, parts: Any, whole: SegmentRef) -> None:
    tasks = SegmentTasks(tmp_path, parts, parts)
    assert tasks.run(lambda job: 2 * job, [1, 2], [whole]) == [2, 4]


def test_a_job_of_one_segment_runs_near_it(tmp_path: Path, parts: Any, whole: SegmentRef) -> None:
    tasks = SegmentTasks(tmp_path, parts, parts)
    for segments, near in (([whole], ["machine of whole"]), ([whole, whole], []), ({whole}, [])):
        assert tasks.run(lambda job: job, [1], segments) == [1]
        assert parts.near == near
    assert tasks.is_readable(whole)


def test_a_failure_over_whole_segments_is_raised(
    tmp_path: Path, parts: Any, whole: SegmentRef
) -> None:
    tasks = SegmentTasks(tmp_path, parts, parts)
    with pytest.raises(RuntimeError, match="failed over 7"):
        tasks.run(fail, [7], [whole])
    assert tasks.is_readable(whole)
    assert parts.damage == []


@pytest.mark.parametrize("is_there", [True, False])
def test_a_corrupt_or_missing_segment_is_left_out_and_told_of(
    tmp_path: Path, parts: Any, whole: SegmentRef, is_there: bool
) -> None:
    tasks = SegmentTasks(tmp_path, parts, parts)
    torn = replace(whole, id=2, path="torn")
    if is_there:
        (tmp_path / "torn").write_bytes((tmp_path / "whole").read_bytes()[:-9])
    assert tasks.run(fail, [7], [whole, torn]) == []
    assert tasks.is_readable(whole)
    assert not tasks.is_readable(torn)
    (error,) = parts.damage
    assert str(tmp_path / "torn") in error.primary


def test_a_segment_that_was_whole_is_looked_at_again(
    tmp_path: Path, parts: Any, whole: SegmentRef
) -> None:
    tasks = SegmentTasks(tmp_path, parts, parts)
    with pytest.raises(RuntimeError):
        tasks.run(fail, [7], [whole])
    (tmp_path / "whole").write_bytes(b"damaged meanwhile")
    assert tasks.run(fail, [7], [whole]) == []
    assert not tasks.is_readable(whole)
