"""The alert rules: Prometheus takes them, each fires and is quiet, and their metrics are there."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import generate_latest
from tests.waiting import wait_until

from millpond.service.pond import Pond
from millpond.testing.local_runtime import open_local

RULES = Path(str(files("millpond.service.observe").joinpath("alerts.yml")))
ALERTS = re.findall(r"- alert: (\w+)", RULES.read_text())
METRICS_PAGE = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"

PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(
    PROMTOOL is None, reason="promtool is not installed (apt-get install prometheus)"
)

#: For each alert: the series, minute by minute, with which it fires after an hour and three
#: quarters, and those with which it does not.
CASES: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "MillpondDown": ({'up{job="millpond"}': "0x120"}, {'up{job="other"}': "0x120"}),
    "MillpondNotReady": ({"millpond_ready": "0x120"}, {"millpond_ready": "1x120"}),
    "MillpondSparkDown": ({"millpond_spark_down": "1x120"}, {"millpond_spark_down": "0x120"}),
    "MillpondStreamStopped": (
        {'millpond_stream_stopped{stream="s"}': "1x120"},
        {'millpond_stream_stopped{stream="s"}': "0x120"},
    ),
    "MillpondChangesStopped": (
        {"millpond_changes_stopped": "3x120"},
        {"millpond_changes_stopped": "0x120"},
    ),
    "MillpondQueriesSuspended": (
        {"millpond_queries_suspended": "1x120"},
        {"millpond_queries_suspended": "0x120"},
    ),
    "MillpondSinkDead": (
        {'millpond_sink_dead{sink="k"}': "1x120"},
        {'millpond_sink_dead{sink="k"}': "0x120"},
    ),
    "MillpondSinkFailing": (
        {'millpond_sink_failures_total{sink="k"}': "0+1x120"},
        {'millpond_sink_failures_total{sink="k"}': "9x120"},
    ),
    "MillpondLag": (
        {'millpond_stream_lag_seconds{stream="s"}': "61x120"},
        {'millpond_stream_lag_seconds{stream="s"}': "1x103 90x20"},  # not for long enough
    ),
    "MillpondFreshness": (
        {
            'millpond_freshness_seconds_bucket{le="2"}': "0+1x120",
            'millpond_freshness_seconds_bucket{le="5"}': "0+5x120",
            'millpond_freshness_seconds_bucket{le="+Inf"}': "0+6x120",
        },
        {
            'millpond_freshness_seconds_bucket{le="2"}': "0+600x120",
            'millpond_freshness_seconds_bucket{le="5"}': "0+601x120",
            'millpond_freshness_seconds_bucket{le="+Inf"}': "0+601x120",
        },
    ),
    "MillpondRejects": (
        {
            'millpond_rejects_total{stream="s"}': "0+10x120",
            'millpond_elements_total{stream="s"}': "0+100x120",
        },
        {
            'millpond_rejects_total{stream="s"}': "0+1x120",
            'millpond_elements_total{stream="s"}': "0+100x120",
        },
    ),
    "MillpondRefusing": (
        {'millpond_refused_total{stream="s"}': "0+1x120"},
        {'millpond_refused_total{stream="s"}': "7x120"},
    ),
    "MillpondShedding": (
        {'millpond_shedding{stream="s"}': "0.5x120"},
        {'millpond_shedding{stream="s"}': "0x120"},
    ),
    "MillpondDiskFull": (
        {"millpond_disk_free_bytes": "9x120", "millpond_disk_floor_bytes": "10x120"},
        {"millpond_disk_free_bytes": "11x120", "millpond_disk_floor_bytes": "10x120"},
    ),
    "MillpondDiskLow": (
        {"millpond_disk_free_bytes": "19x120", "millpond_disk_floor_bytes": "10x120"},
        {"millpond_disk_free_bytes": "21x120", "millpond_disk_floor_bytes": "10x120"},
    ),
    "MillpondDiskFillsSoon": (
        {"millpond_disk_free_bytes": "1000-1x120", "millpond_disk_floor_bytes": "10x120"},
        {"millpond_disk_free_bytes": "9000-1x120", "millpond_disk_floor_bytes": "10x120"},
    ),
    "MillpondMemory": (
        {"process_resident_memory_bytes": "6x120", "millpond_memory_limit_bytes": "10x120"},
        {"process_resident_memory_bytes": "4x120", "millpond_memory_limit_bytes": "10x120"},
    ),
    "MillpondJvmHeap": (
        {"millpond_jvm_heap_bytes": "95x120", "millpond_jvm_heap_limit_bytes": "100x120"},
        {"millpond_jvm_heap_bytes": "80x120", "millpond_jvm_heap_limit_bytes": "100x120"},
    ),
    "MillpondOpenFiles": (
        {"process_open_fds": "9x120", "process_max_fds": "10x120", "millpond_epoch": "1x120"},
        {"process_open_fds": "9x120", "process_max_fds": "10x120"},  # of another program
    ),
    "MillpondPostgresStopped": (
        {'millpond_postgres_stopped{slot="p"}': "1x120"},
        {'millpond_postgres_stopped{slot="p"}': "0x120"},
    ),
    "MillpondPostgresRetained": (
        {'millpond_postgres_retained_bytes{slot="p"}': "11e9x120"},
        {'millpond_postgres_retained_bytes{slot="p"}': "1e9x120"},
    ),
}


def test_every_alert_has_its_cases() -> None:
    assert list(CASES) == ALERTS
    assert len(set(ALERTS)) == len(ALERTS)


def test_the_metrics_of_the_rules_are_documented() -> None:
    documented = set(re.findall(r"^\| `(\w+)`", METRICS_PAGE.read_text(), re.M))
    used = set(re.findall(r"\b((?:millpond|process)_\w+)", RULES.read_text()))
    used = {name.removesuffix("_bucket") for name in used}
    assert used - documented == set()
    assert len(used) >= 20


@needs_promtool
def test_prometheus_takes_the_rules() -> None:
    checked = subprocess.run(
        ["promtool", "check", "rules", str(RULES)], capture_output=True, text=True, timeout=60
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"{len(ALERTS)} rules found" in checked.stdout


def run_promtool(tests: list[dict[str, Any]], folder: Path) -> None:
    """Have promtool test the rules; what they say to people is checked with the rules."""
    rules = re.sub(r" +annotations:\n +summary:.*\n", "", RULES.read_text())
    (folder / "rules.yml").write_text(rules)
    (folder / "tests.json").write_text(
        json.dumps({"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": tests})
    )
    done = subprocess.run(
        ["promtool", "test", "rules", "tests.json"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def fires(name: str, labels: dict[str, str]) -> dict[str, Any]:
    """What promtool expects of an alert that fires."""
    severity = re.search(rf"alert: {name}\n.*?severity: (\w+)", RULES.read_text(), re.S)
    assert severity is not None
    expected = [{"exp_labels": {**labels, "severity": severity[1]}}]
    return {"eval_time": "105m", "alertname": name, "exp_alerts": expected}


def labels_of(series: str) -> dict[str, str]:
    return {k: v for k, v in re.findall(r'(\w+)="([^"]*)"', series) if k != "le"}


@needs_promtool
def test_each_alert_fires_and_is_quiet(tmp_path: Path) -> None:
    tests = []
    for name, (loud, quiet) in CASES.items():
        for series, expected in (
            (loud, fires(name, labels_of(next(iter(loud))))),
            (quiet, {"eval_time": "105m", "alertname": name, "exp_alerts": []}),
        ):
            given = [{"series": key, "values": values} for key, values in series.items()]
            tests.append({"interval": "1m", "input_series": given, "alert_rule_test": [expected]})
    run_promtool(tests, tmp_path)


SCHEMA = """
CREATE STREAM s (ts TIMESTAMP, t STRING) TIMESTAMP BY ts;
CREATE STREAM parsed AS SELECT ts, CAST(t AS BIGINT) AS x FROM s;
CREATE STREAM fine AS SELECT ts, length(t) AS x FROM s;
CREATE QUERY picky AS SELECT t FROM s WHERE CAST(t AS BIGINT) > 0;
CREATE QUERY changing WITH (changes = 'from beginning') AS SELECT t FROM s WHERE t <> '';
CREATE SINK nowhere USING http (url 'http://127.0.0.1:9/', key_env 'A_KEY', attempts 1)
  FROM QUERY changing
"""


def scrape(pond: Pond) -> dict[str, str]:
    """Every series of /metrics, with its value."""
    lines = generate_latest(pond.metrics).decode().splitlines()
    return dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))


def check_documented(series: Iterable[str]) -> None:
    """Every series has its row in the page of metrics, with all of its labels."""
    rows = re.findall(r"^\| `(\w+)` \| \w+ \| (.*?) \|", METRICS_PAGE.read_text(), re.M)
    documented = {name: set(re.findall(r"`(\w+)`", labels)) for name, labels in rows}
    for one in series:
        name = re.sub(r"_(bucket|sum|count|created)$", "", one.partition("{")[0])
        name = name if name in documented else f"{name}_total"
        assert documented[name] == labels_of(one).keys(), one


def provoke(pond: Pond) -> None:
    """Have a stream stop, a query suspended and a sink die."""
    pond.execute(SCHEMA)
    pond.query("changing").fetch()
    for minute, text in enumerate(("1", "x", "2", "3")):
        pond.ingest("s", [{"ts": f"2026-03-01 00:0{minute}:00", "t": text}, {"ts": "never"}])
    pond.catch_up(timeout=60)
    wait_until(lambda: scrape(pond)['millpond_sink_dead{sink="nowhere"}'] == "1.0")


@needs_promtool
def test_what_a_pond_in_trouble_says_fires(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_KEY", "0123456789abcdef")
    with open_local(tmp_path / "store") as pond:
        before = scrape(pond)
        provoke(pond)
        after = scrape(pond)
    check_documented(after)
    troubles = {
        "MillpondStreamStopped": {"stream": "parsed"},
        "MillpondQueriesSuspended": {},
        "MillpondSinkDead": {"sink": "nowhere"},
    }
    tests = []
    for found, loud in ((before, False), (after, True)):
        given = [
            # A counter that rose once is no trouble by itself.
            {"series": series, "values": f"{value}x120"}
            for series, value in found.items()
            if "NaN" not in value
        ]
        expected = [
            fires(name, troubles[name])
            if loud and name in troubles
            else {"eval_time": "105m", "alertname": name, "exp_alerts": []}
            for name in ALERTS
            if not name.startswith(("MillpondDisk", "MillpondMemory"))  # as this machine is
        ]
        tests.append({"interval": "1m", "input_series": given, "alert_rule_test": expected})
    run_promtool(tests, tmp_path)
