"""The processes Spark runs tasks in: of one kind for all tasks, and ready from the start."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from millpond.runtime.spark.cluster.placing import distribute, list_hosts

pytestmark = pytest.mark.spark


def of_this_worker(_: Any = None) -> tuple[int, bool, bool]:
    """Its parent, whether it has loaded what tasks need, and whether it is fed over TCP."""
    over_tcp = os.environ.get("PYTHON_UNIX_DOMAIN_ENABLED", "false").lower() != "true"
    return os.getppid(), "millpond.runtime.join_tasks" in sys.modules, over_tcp


def test_tasks_of_all_kinds_run_in_workers_of_one_daemon_that_loaded_what_they_need(spark: Any):
    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        list(batches)
        parent, loaded, over_tcp = of_this_worker()
        row = {"parent": [parent], "loaded": [loaded], "over_tcp": [over_tcp]}
        yield pa.RecordBatch.from_pydict(row)

    (task,) = spark.sparkContext.parallelize([0], 1).map(of_this_worker).collect()
    frame = spark.range(1).coalesce(1)
    (row,) = frame.mapInArrow(look, "parent bigint, loaded boolean, over_tcp boolean").collect()
    assert task == tuple(row)
    assert task[1:] == (True, False)


def faults_of_using_memory_again(_: Any = None) -> int:
    """Page faults of two arrays when as much was used and freed before."""
    before = 0
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for array in [np.empty(6 << 20, np.uint8) for _ in range(2)]:
            array[::4096] = 1
        del array
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def test_workers_keep_the_memory_they_work_in(spark: Any):
    (faults,) = spark.sparkContext.parallelize([0], 1).map(faults_of_using_memory_again).collect()
    assert faults < 100  # they are a thousand where it went back to the system


def test_settings_of_a_user_stand_beside_millponds(spark: Any) -> None:
    assert spark.conf.get("spark.millpond.given") == "by a user"
    options = spark.sparkContext.getConf().get("spark.driver.extraJavaOptions")
    assert options.endswith(" -Dgiven=1")
    assert "ExitOnOutOfMemoryError" in options


def test_the_driver_is_none_of_the_machines_that_run_tasks_elsewhere(spark: Any) -> None:
    assert list_hosts(spark.sparkContext) == ()


def test_jobs_that_prefer_a_machine_run_though_it_is_away(spark: Any) -> None:
    done = distribute(spark.sparkContext, lambda n: n + 1, [1, 2], ["away", ""]).collect()
    assert done == [2, 3]
