"""Which settings of Spark a user may give."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pytest

from millpond.errors import MillpondError
from millpond.runtime.spark import session
from millpond.runtime.spark.jvm import shared_session
from millpond.runtime.spark.jvm.launch import find_launch_error
from millpond.runtime.spark.runtime import SparkRuntime
from millpond.runtime.spark.session import (
    find_exposures,
    launch_ahead,
    make_settings,
    name_master,
    take_secrets,
    tell_given,
    write_defaults,
)


def test_a_session_that_is_given_has_its_settings() -> None:
    with pytest.raises(MillpondError, match="CQL-214: spark_conf cannot be given with a Spark"):
        SparkRuntime(None, object(), {"spark.a": "1"})  # type: ignore[arg-type]


def test_a_session_that_was_stopped_is_no_session() -> None:
    stopped: Any = SimpleNamespace(sparkContext=SimpleNamespace(_jsc=None))
    with pytest.raises(MillpondError, match="CQL-214: the Spark session that is given was stopped"):
        SparkRuntime(spark=stopped)


WHOLE = {
    "spark.authenticate": "TRUE",
    "spark.network.crypto.enabled": "true",
    "spark.io.encryption.enabled": "true",
}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, []),
        ({"spark.authenticate": "false"}, ["changes what they work on: spark.authenticate"]),
        ({"spark.authenticate": ""}, ["changes what they work on: spark.authenticate"]),
        ({"spark.network.crypto.enabled": "false"}, ["network of the executors reads"]),
        ({"spark.network.crypto.enabled": "", "spark.ssl.rpc.enabled": "true"}, []),
        (
            {"spark.network.crypto.enabled": "", "spark.io.encryption.enabled": ""},
            ["spark.network.crypto.enabled", "spark.io.encryption.enabled"],
        ),
    ],
)
def test_what_of_a_clusters_protection_was_switched_off_is_said(
    changed: dict[str, str], said: list[str]
) -> None:
    held = {**WHOLE, **changed}
    found = find_exposures(lambda name: held.get(name, ""))
    assert len(found) == len(said)
    assert all(part in text for part, text in zip(said, found, strict=True))


class Given:
    """A session that was not started by Millpond, as far as its workers are told of a store."""

    def __init__(self, daemon: str, **told: str) -> None:
        self.conf = {"spark.python.daemon.module": daemon}
        self.sparkContext = self
        self.environment = told


def test_workers_of_a_given_session_are_told_of_one_shared_store() -> None:
    ours: Any = Given("millpond.runtime.spark.daemon", OTHER="x")
    tell_given(ours, {"STORE": "a"})
    tell_given(ours, {})
    assert ours.environment == {"OTHER": "x", "STORE": "a"}
    for given, store in ((ours, "b"), (Given("pyspark.daemon"), "a")):
        with pytest.raises(MillpondError, match="STORE-604"):
            tell_given(given, {"STORE": store})
    tell_given(Given("pyspark.daemon"), {})


def test_what_ended_a_jvm_that_did_not_come_up(tmp_path: Path) -> None:
    log = tmp_path / "spark.log"
    assert find_launch_error(log) is None
    earlier = 'Exception in thread "main" of an earlier start\n'
    log.write_text(f"{earlier}WARNING: Using incubator modules\n")
    assert find_launch_error(log, len(earlier)) is None
    why = "java.lang.RuntimeException: [unresolved dependency: org.example#none;1.0: not found]"
    with log.open("a") as more:
        more.write(f'Exception in thread "main" {why}\n\tat org.apache.spark.util.MavenUtils$\n')
    assert find_launch_error(log, len(earlier)) == why
    log.write_text(
        'Exception in thread "main" java.lang.ExceptionInInitializerError\n'
        "\tat org.apache.spark.deploy.SparkSubmit.main(SparkSubmit.scala)\n"
        "Caused by: java.net.UnknownHostException: nowhere: nowhere: Temporary failure\n"
        "\tat java.base/java.net.InetAddress.getLocalHost(InetAddress.java:1671)\n"
        "Caused by: java.net.UnknownHostException: nowhere: Temporary failure\n"
    )
    last = "java.net.UnknownHostException: nowhere: Temporary failure"
    assert find_launch_error(log) == last
    log.write_text(
        "Invalid maximum heap size: -Xmxlots\n"
        "Error: Could not create the Java Virtual Machine.\n"
        "Error: A fatal exception has occurred. Program will exit.\n"
    )
    assert find_launch_error(log) == "Invalid maximum heap size: -Xmxlots"


def test_secrets_are_in_a_file_of_the_owners(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not on the JVM's command line; what SPARK_CONF_DIR has stays in force."""
    secrets = tmp_path / "secrets.json"
    secrets.write_text('{"spark": "a\\\\b"}')
    secrets.chmod(0o600)
    monkeypatch.setenv("MILLPOND_SECRETS", str(secrets))
    given = {
        "spark.authenticate.secret": "secret('spark')",
        "spark.hadoop.fs.s3a.secret.key": "hunter2",
        "spark.driver.memory": "3g",
    }
    hidden = take_secrets(given)
    assert given == {"spark.driver.memory": "3g"}
    before = tmp_path / "before"
    before.mkdir()
    (before / "spark-defaults.conf").write_text("spark.eventLog.enabled true")
    (before / "hive-site.xml").write_text("<x/>")
    monkeypatch.setenv("SPARK_CONF_DIR", str(before))
    folder = write_defaults(tmp_path / "conf", hidden)
    file = folder / "spark-defaults.conf"
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.read_text().splitlines() == [
        "spark.eventLog.enabled true",
        "spark.authenticate.secret=a\\\\b",
        "spark.hadoop.fs.s3a.secret.key=hunter2",
    ]
    assert (folder / "hive-site.xml").read_text() == "<x/>"
    with pytest.raises(MillpondError, match="CQL-214"):
        write_defaults(tmp_path / "conf2", {"spark.x": "a\nspark.y=b"})


def test_settings_that_are_given_replace_others_and_java_options_are_added() -> None:
    own = make_settings(None, {})
    assert "-XX:+ExitOnOutOfMemoryError" in own["spark.driver.extraJavaOptions"]
    given = {"spark.driver.memory": "3g", "spark.driver.extraJavaOptions": "-Da=b"}
    settings = make_settings(None, given)
    assert settings["spark.driver.memory"] == "3g"
    options = settings["spark.driver.extraJavaOptions"]
    assert options.endswith(" -Da=b")
    assert "-XX:+ExitOnOutOfMemoryError" in options
    assert ".jsa" not in options  # with other options the JVM may not take the archive


def test_what_cannot_be_launched_ahead(tmp_path: Path) -> None:
    assert launch_ahead(tmp_path, None, {}) is None  # no store yet
    assert launch_ahead(None, "spark://host:7077", {}) is None
    assert launch_ahead(None, None, {"spark.hadoop.fs.s3a.secret.key": "x"}) is None


def test_a_cluster_that_cannot_be_reached_is_named() -> None:
    """What Spark says where nobody listens: of a standalone master, and of an API server."""
    stopped = "Cannot call methods on a stopped SparkContext."
    assert name_master(stopped, "spark://h:1") == "The master spark://h:1 does not answer."
    said = name_master("An error has occurred. Connection refused", "k8s://http://h:1")
    assert said == "The master is k8s://http://h:1. An error has occurred. Connection refused"


def test_all_sessions_of_a_process_have_one_directory_of_sockets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The JVM goes on with that of its first job, and whoever closes a store removes it."""
    monkeypatch.setattr(session, "_sockets", [])
    monkeypatch.setattr(shared_session, "_left", [])
    with TemporaryDirectory(dir="/tmp") as folder:
        first, second, long = (Path(folder) / name for name in ("1", "2", "l" * 60))
        assert session._place_sockets(long) == {}
        expected = {"spark.python.unix.domain.socket.dir": str(first)}
        for directory in (first, second, long):
            assert session._place_sockets(directory) == expected
            assert shared_session.is_left(first)  # it goes with the session
            first.rmdir()
        assert not second.exists()
