"""`millpond run` and the command line around it."""

from __future__ import annotations

import csv
import io
import json
import logging
import signal
import sys
import types
from contextlib import nullcontext

import pytest
from typer.testing import CliRunner

from millpond.api import listening, server
from millpond.cli import benches
from millpond.cli.main import app
from millpond.errors import MillpondError
from millpond.runtime.spark import session

SCRIPT = """\
-- registers and invokes
CREATE QUERY late AS SELECT ts, carrier, delay FROM flights WHERE delay > 60 ORDER BY ts;
INVOKE late;
SELECT count(*) AS n, avg(delay) AS mean FROM flights;
"""


@pytest.fixture
def opened(pond, monkeypatch) -> list[dict[str, object]]:
    """The pond that commands open; the arguments they opened it with."""
    calls: list[dict[str, object]] = []

    def open_pond(store, **options):
        calls.append({"store": store, **options})
        return pond

    composition = types.ModuleType("millpond.service.open_pond")
    composition.open_pond = open_pond
    monkeypatch.setitem(sys.modules, "millpond.service.open_pond", composition)

    def launch_ahead(store, master, conf, reads_sources):
        return f"of {store}, reads sources: {reads_sources}"

    monkeypatch.setattr(session, "launch_ahead", launch_ahead)
    return calls


def millpond(*arguments: str, input: str | bytes | None = None):
    return CliRunner().invoke(app, list(arguments), input=input)


def script(tmp_path, text: str) -> str:
    path = tmp_path / "script.cql"
    path.write_text(text)
    return str(path)


def test_run_as_json(tmp_path, opened, pond):
    result = millpond("run", script(tmp_path, SCRIPT), "--format", "json")
    assert result.exit_code == 0, result.output
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert lines == [
        {
            "statement": "invoke",
            "query": "late",
            "as_of": "2026-03-01T11:45:00.000000",
            "final": False,
            "exact": True,
            "loss": [],
            "bounds": None,
            "columns": ["ts", "carrier", "delay"],
            "rows": [
                ["2026-03-01T11:00:00.000000", "AA", 61.5],
                ["2026-03-01T11:45:00.000000", "AA", 120.0],
            ],
        },
        {
            "statement": "ask",
            "query": None,
            "as_of": "2026-03-01T11:45:00.000000",
            "final": False,
            "exact": True,
            "loss": [],
            "bounds": None,
            "columns": ["n", "mean"],
            "rows": [[3, 59.416666666666664]],
        },
    ]
    assert [*lines[0]][:6] == ["statement", "query", "as_of", "final", "exact", "loss"]
    assert [*lines[0]][6:] == ["bounds", "columns", "rows"]
    assert not pond.ready
    assert result.stderr == ""


def test_run_as_csv(tmp_path, opened):
    result = millpond("run", script(tmp_path, SCRIPT), "--format", "csv")
    first, second = result.stdout.split("\n\n")
    assert list(csv.reader(io.StringIO(first)))[1] == [
        "2026-03-01T11:00:00.000000",
        "AA",
        "61.5",
    ]
    assert second.startswith("n,mean\n3,")


def test_run_as_tables(tmp_path, opened):
    result = millpond("run", script(tmp_path, SCRIPT))
    assert "query late: registered" in result.stdout
    assert "│ 2026-03-01 11:45:00 │ AA      │ 120.0 │" in result.stdout
    assert "2 rows as of 2026-03-01 11:45:00, not final" in result.stdout
    assert "1 row as of 2026-03-01 11:45:00, not final" in result.stdout


def test_run_opens_what_it_is_told_to(tmp_path, opened):
    path = script(tmp_path, "SHOW QUERIES")
    millpond("run", path)
    spark = ("--spark-conf", "spark.a=1", "--spark-conf", "spark.b=2", "--packages", "g:n:1")
    millpond("run", path, "--store", str(tmp_path / "s"), "--master", "local[2]", *spark)
    conf = {"spark.a": "1", "spark.b": "2", "spark.jars.packages": "g:n:1"}
    assert [(c["store"], c["master"], c["bounded"], c["spark_conf"]) for c in opened] == [
        (None, None, True, None),
        (tmp_path / "s", "local[2]", True, conf),
    ]
    assert all(callable(c["progress"]) for c in opened)


def test_run_launches_spark_ahead(tmp_path, opened):
    """Without a store, a script shows whether Spark may have to read rows."""
    create = "CREATE STREAM z (a INTEGER)"
    files = f"{create} USING csv OPTIONS (path '{tmp_path}')"
    store = str(tmp_path / "s")
    for text, more in ((create, ()), (files, ()), ("SHOW QUERIES", ("--store", store))):
        millpond("run", script(tmp_path, text), *more)
    assert all(call["behind"] for call in opened)
    assert [call["launch"] for call in opened] == [
        "of None, reads sources: False",
        "of None, reads sources: True",
        f"of {store}, reads sources: True",
    ]


def test_run_computes_changes_as_it_is_told_to(tmp_path, opened):
    settings = ("--strategy", "direct", "--eager-expiration", "1 minute")
    millpond("run", script(tmp_path, "SHOW STREAMS;"), *settings, "--lazy-expiration", "1 hour")
    (call,) = opened
    wanted = {"strategy": "direct", "eager_expiration": "1 minute", "lazy_expiration": "1 hour"}
    assert wanted.items() <= call.items()


def test_run_from_stdin(opened):
    result = millpond("run", "-", "--format", "json", input="SELECT 'é' AS e FROM flights LIMIT 1")
    assert json.loads(result.stdout)["rows"] == [["é"]]


def test_run_prints_what_was_answered_before_an_error(tmp_path, opened, pond):
    path = script(tmp_path, "SELECT 1 AS a FROM flights;\n\n  SELECT *\n  FROM nope;\n")
    result = millpond("run", path, "--format", "json")
    assert result.exit_code == 1
    assert len(result.stdout.splitlines()) == 1
    lines = result.stderr.splitlines()
    assert lines[0] == f"{path}:4:8:"
    assert lines[1].startswith("CQL-201: ")
    assert lines[2:4] == ["    FROM nope;", "         ^^^^"]
    assert not pond.ready


def test_run_checks_the_grammar_before_anything_is_opened(tmp_path, opened):
    result = millpond("run", script(tmp_path, "SELECT 1 AS a FROM flights; SELEKT 1"))
    assert result.exit_code == 1
    assert "CQL-1" in result.stderr
    assert opened == []


@pytest.mark.parametrize(
    "make", [lambda p: None, lambda p: p.mkdir(), lambda p: p.write_bytes(b"\xff")]
)
def test_run_what_cannot_be_read(tmp_path, opened, make):
    path = tmp_path / "missing.cql"
    make(path)
    result = millpond("run", str(path))
    assert result.exit_code == 1
    assert result.stderr.startswith(f'DATA-502: cannot read script "{path}"')
    assert opened == []


def test_run_an_empty_script(tmp_path, opened):
    result = millpond("run", script(tmp_path, "-- nothing\n"), "--format", "json")
    assert (result.exit_code, result.stdout) == (0, "")


def test_what_a_batch_raises_is_said_once(tmp_path, opened, monkeypatch):
    """Py4J would log it with its stack, beside the error it becomes."""
    logger = logging.getLogger("py4j.clientserver")
    monkeypatch.setattr(logger.parent, "level", logging.NOTSET)
    assert millpond("run", script(tmp_path, "SHOW QUERIES")).exit_code == 0
    assert not logger.isEnabledFor(logging.ERROR)


def test_an_unforeseen_failure_has_no_trace(tmp_path, opened, pond, monkeypatch):
    def fail(text: str):
        raise RuntimeError("inner state")

    monkeypatch.setattr(pond, "run", fail)
    path = script(tmp_path, "SHOW QUERIES")
    result = millpond("run", path)
    assert result.exit_code == 1
    assert result.stderr.startswith("INTERNAL-901: RuntimeError: inner state")
    monkeypatch.setenv("MILLPOND_TRACE", "1")
    assert isinstance(millpond("run", path).exception, RuntimeError)


def test_an_interrupt(tmp_path, opened, pond, monkeypatch):
    def interrupted(text: str):
        raise KeyboardInterrupt

    monkeypatch.setattr(pond, "run", interrupted)
    result = millpond("run", script(tmp_path, "SHOW QUERIES"))
    assert result.exit_code == 130
    assert not pond.ready


def test_version():
    result = millpond("--version")
    assert result.exit_code == 0
    assert result.stdout.startswith("millpond 0.")


def test_help_names_every_command():
    out = millpond("--help").stdout
    assert all(name in out for name in ("run", "serve", "shell", "demo", "bench"))


def test_serve_refuses_a_port_in_use_before_anything_is_opened(opened):
    with listening.bind("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        result = millpond("serve", "--port", str(port))
    assert result.exit_code == 1
    assert result.stderr.startswith(f"SERVE-701: port {port} is in use")
    assert opened == []


def test_an_interrupt_of_the_server_closes_the_pond(opened, pond, monkeypatch, caplog):
    monkeypatch.setattr(server, "announce", lambda url: signal.raise_signal(signal.SIGINT))
    before = signal.getsignal(signal.SIGTERM)
    try:
        result = millpond("serve", "--port", "0", "--host", "0.0.0.0", "--insecure")
    finally:
        signal.signal(signal.SIGTERM, before)
    assert result.exit_code == 130, result.output
    assert not pond.ready
    assert "whoever reaches 0.0.0.0 can read and write" in caplog.text
    assert "without --store everything is gone" in caplog.text


def test_shell_without_a_server():
    result = millpond("shell", "--url", "http://127.0.0.1:1", input="")
    assert result.exit_code == 1
    assert result.stderr.startswith("SERVE-705: the server at http://127.0.0.1:1")


def test_shell_on_a_store(tmp_path, opened, pond):
    result = millpond("shell", "--store", str(tmp_path), input="SHOW QUERIES")
    assert result.exit_code == 0
    assert "0 rows" in result.stdout
    assert not pond.ready
    # Sources that are followed stay so: hints send those here who create sinks for a server.
    assert not opened[-1].get("bounded", False)


def test_demo(monkeypatch):
    calls = []
    demo = types.ModuleType("millpond.demo.run_demo")
    demo.run_demo = lambda serve, port, scale: calls.append((serve, port, scale))
    demo.on_spark = lambda conf, through_kafka, cluster: (conf, through_kafka, cluster)
    monkeypatch.setattr("millpond.demo.cluster.start_cluster", lambda: nullcontext("cluster"))
    monkeypatch.setitem(sys.modules, "millpond.demo.run_demo", demo)
    assert millpond("demo", "--serve", "--port", "7000").exit_code == 0
    assert millpond("demo", "--jars", "a.jar").exit_code == 0
    assert millpond("demo", "--kafka").exit_code == 0
    assert millpond("demo", "--cluster").exit_code == 0
    assert millpond("demo", "--cluster", "--serve").exit_code == 2
    alone, on_jars, with_kafka, on_cluster = calls
    assert on_cluster == (False, 6455, (None, False, "cluster"))
    assert alone == (True, 7000, (None, False, None))
    assert on_jars == (False, 6455, ({"spark.jars": "a.jar"}, False, None))
    assert with_kafka == (False, 6455, (None, True, None))


def test_bench(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "benchmarks").mkdir()
    bench = tmp_path / "benchmarks" / "invoke_latency.py"
    bench.write_text("import sys; print('ran', __name__, sys.argv[1:])")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", ["millpond"])
    result = millpond("bench", "invoke-latency", "--rows", "10")
    assert result.stdout == "ran __main__ ['--rows', '10']\n"
    result = millpond("bench", "nope")
    assert result.exit_code == 1
    assert "There are: invoke_latency." in result.stderr


def test_bench_outside_the_tree(tmp_path, monkeypatch):
    monkeypatch.setattr(benches, "benches", dict)
    with pytest.raises(MillpondError, match="part of the source tree"):
        benches.run_bench("x", [])


def test_a_store_is_backed_up_while_it_is_open_and_restored(pond, tmp_path):
    store, backups = str(pond._components.log._directory), str(tmp_path / "b")
    for _ in range(2):
        result = millpond("backup", store, backups)
        assert result.exit_code == 0, result.output
        assert "files" in result.stdout
    epoch = json.loads(millpond("backup", store, backups, "--format", "json").stdout)["epoch"]
    listed = millpond("restore", backups)
    assert listed.exit_code == 0, listed.output
    assert f"│ {epoch:5} │" in listed.stdout
    assert json.loads(millpond("restore", backups, "--format", "json").stdout)["backups"]
    done = millpond("restore", backups, str(tmp_path / "new"), "--epoch", str(epoch))
    assert done.exit_code == 0, done.output
    assert f"as of epoch {epoch}" in done.stdout
    for copy in ("--copy", "--at=2999-01-01"):
        done = millpond("restore", backups, str(tmp_path / copy), copy, "--format", "json")
        assert json.loads(done.stdout)["damage"] == []
    assert millpond("check", str(tmp_path / "new")).exit_code == 0
    assert "exclude" in millpond("restore", backups, "x", "--epoch=1", "--at=2024-01-01").output
    assert "not a timestamp" in millpond("restore", backups, "x", "--at", "soon").output
    assert "STORE-604" in millpond("restore", str(tmp_path), "x").output
