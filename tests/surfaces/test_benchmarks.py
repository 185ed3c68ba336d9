"""Every benchmark runs to its end, at the smallest size it has; its figures say nothing then."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "benchmarks"

#: What each is started with, once or several times.
SMALLEST = {
    "bringing_probes": ["--rows 2000 --repeats 1"],
    "feeds": ["--queries 20 --rate 500 --seconds 2 --local"],
    "following_parts": ["--queries 20 --elements 200 --alone 2"],
    "freshness": ["--rates 500 --seconds 1"],
    "http_latency": ["--repeats 5 --rounds 1"],
    "invocation": ["--rows 10000 --repeats 2"],
    "joins_and_selections": ["--stocks 300 --repeats 1"],
    "kept_answers": ["--queries 1,5 --batch 50 --seconds 0.2"],
    "match_kernel": [
        "--rows 2000 --repeats 1 --queries 100",
        "--rows 2000 --repeats 1 --queries 100 --led",
    ],
    "matching": ["--rows 5000 --queries 1,5 --repeats 1 --no-peers"],
    "operator_costs": [""],
    "promising_tuples": [
        "--elements 120 --windows 1",
        "--elements 120 --windows 1 --structures",
        "--elements 120 --windows 1 --cpu",
    ],
    "queries_and_sources": ["--rows 2000"],
    "registration": ["--rows 2000 --queries 1,5", "--many 500 --rows 2000"],
    "replanning": ["--seconds 2 --rate 50"],
    "routing": ["--batches 5 --rows 64"],
    "rows_windows": ["--queries 5 --batch 50 --pushes 2"],
    "sliding_aggregates": ["--elements 600 --batch 200 --queries 1 3 --no-peers"],
    "standing_peers": ["--rows 2000 --repeats 1 --ranges 5 --equalities 5 --only none"],
    "update_patterns": [
        "--windows 200 --measured 3 --steps 1",
        "--windows 200 --measured 3 --steps 1 --intervals",
        "--windows 200 --measured 3 --steps 1 --partitions",
    ],
    "window_aggregates": ["--rows 20000 --repeats 2 --straddling 2 --ingest 1"],
    "window_join": [
        "--rows 8000 --warm-rows 4000 --repeats 1 --most-kept 10000 --selections 2 --no-peers"
    ],
    "attacks/forty_at_once": ["--clients 2 --form DISTINCT"],
    "papers/composite_tuples": ["--kept 500 --structs 5"],
    "papers/join_invocation": ["--rows 2000 --repeats 2"],
    "papers/predicate_index": ["--rows 2000 --queries 1,5 --repeats 1"],
    "papers/stem_memory": ["--sources 3 --readings 60"],
    "papers/storage": ["--rows 2000 --queries 1,5"],
    "papers/traffic": ["--rows 3000 --queries 2 --repeats 1"],
    "papers/tuple_state": ["--rows 2000 --repeats 1"],
    "pressure/hot_key": ["--rows 500 --repeats 1"],
    "pressure/precision_by_memory": ["--many 600 --few 200 --keys 50"],
    "pressure/schedulers": ["--elements 5000 --memory 1000000"],
    "pressure/spilling": ["--steps 3"],
    "pressure/state_by_k": ["--orders 500 --spread 5"],
    "serving/catch_up": ["--rows 20000 --repeats 1"],
    "serving/cluster_scaling": ["--executors 0,1 --rows 4000 --queries 5"],
    "serving/fail_over": ["--queries 20 --rows 1000 --turns 1"],
    "serving/many_clients": ["--queries 20 --clients 2 --rate 200 --seconds 3"],
}
#: What needs more than Millpond has.
NOT_ALONE = {"kafka_topic": "a broker of Kafka, and Flink"}
#: What `millpond bench` finds by its name; the others are programs to be started as such.
FOUND_BY_NAME = ("", "papers/", "pressure/")


def _programs() -> set[str]:
    """The benchmarks that can be started, but for the peers' own programs."""
    found = set()
    for path in BENCHMARKS.rglob("[!_]*.py"):
        name = path.relative_to(BENCHMARKS).with_suffix("").as_posix()
        if not name.startswith("peers/") and '__name__ == "__main__"' in path.read_text():
            found.add(name)
    return found


def test_every_benchmark_is_run_here_or_says_what_it_needs() -> None:
    assert _programs() == SMALLEST.keys() | NOT_ALONE.keys()


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "arguments"), [(name, given) for name, all_ in SMALLEST.items() for given in all_]
)
def test_a_benchmark_runs_to_its_end(name: str, arguments: str, tmp_path: Path) -> None:
    # Results are written beside the benchmarks: a copy's are nobody's figures.
    shutil.copytree(BENCHMARKS, tmp_path / "benchmarks", ignore=shutil.ignore_patterns("results"))
    for needed in ("src", "tests"):
        (tmp_path / needed).symlink_to(ROOT / needed)
    folder, _, stem = name.rpartition("/")
    by_name = ["-m", "millpond.cli.main", "bench", stem]
    program = by_name if f"{folder}/".lstrip("/") in FOUND_BY_NAME else [f"benchmarks/{name}.py"]
    done = subprocess.run(
        [sys.executable, *program, *arguments.split()],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-4_000:]
