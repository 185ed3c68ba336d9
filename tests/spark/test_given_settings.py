"""Settings of Spark that cannot be: what is said names them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark


def run(
    tmp_path: Path, *flags: str, before: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """Give a script, which reads a file by Spark, to a `millpond run` behind another command."""
    rows = tmp_path / "rows.csv"
    rows.write_text("v\n1\n2\n")
    script = tmp_path / "script.cql"
    script.write_text(
        f"CREATE STREAM s (v INTEGER) USING csv OPTIONS (path '{rows}', header 'true');\n"
        "SELECT sum(v) AS total FROM s;\n"
    )
    command = [*before, sys.executable, "-m", "millpond.cli.main", "run", str(script), *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize(
    ("flag", "given", "name", "why"),
    [
        ("--spark-conf", "spark.driver.memory=lots", "spark.driver.memory", "heap size: -Xmxlots"),
        ("--spark-conf", "spark.plugins=no.Such", "spark.plugins", "no.Such"),
        ("--spark-conf", "spark.sql.shuffle.partitions=two", "spark.sql.shuffle.partitions", "two"),
        ("--spark-conf", "spark.locality.wait=abc", "spark.locality.wait", "abc"),
        ("--spark-conf", "spark.sql.extensions=no.Such", "spark.sql.extensions", "no.Such"),
        ("--packages", "org.example:no-such:1", "--packages", "org.example#no-such;1: not found"),
    ],
)
def test_a_value_that_cannot_be(tmp_path: Path, flag: str, given: str, name: str, why: str) -> None:
    done = run(tmp_path, flag, given)
    assert done.returncode == 1
    assert "POND-415: Spark could not be started" in done.stderr
    lines = done.stderr.splitlines()
    (detail,) = {line for line in lines if line.startswith("Detail: ")}
    assert why in detail
    (hint,) = {line for line in lines if line.startswith("Hint: ")}
    assert hint.startswith(f"Hint: Check what was given: {name}. ")


def test_a_name_that_spark_does_not_have(tmp_path: Path) -> None:
    """Spark passes over it, so a word that is written wrong would do nothing in silence."""
    names = (
        "spark.sql.shufle.partitions",
        "spark.nobody.knows.it",
        "spark.hadoop.own",
        "spark.ui.port",
    )
    done = run(tmp_path, *[word for name in names for word in ("--spark-conf", f"{name}=1")])
    assert done.returncode == 0, done.stderr
    said = [line.partition(" WARNING ")[2] for line in done.stderr.splitlines()]
    assert [line for line in said if "has no setting" in line] == [
        'millpond.spark: Spark has no setting "spark.sql.shufle.partitions": '
        'did you mean "spark.sql.shuffle.partitions"?',
        'millpond.spark: Spark has no setting "spark.nobody.knows.it": '
        "it does nothing, unless a package reads it",
    ]


def test_a_machine_that_cannot_look_up_its_own_name(tmp_path: Path) -> None:
    named = ("unshare", "--user", "--map-root-user", "--uts", "--net", "sh", "-c")
    rename = "ip link set lo up && hostname a-name-that-nobody-knows"
    if subprocess.run([*named, rename], capture_output=True).returncode:
        pytest.skip("this machine makes no names of its own for processes")
    done = run(tmp_path, before=(*named, f'{rename} && exec "$@"', "sh"))
    assert done.returncode == 0, done.stderr
    assert "3" in done.stdout
