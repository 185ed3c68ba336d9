"""Settings of Spark, as commands take them."""

from __future__ import annotations

import pytest
import typer

from millpond.cli.benches import submit_arguments
from millpond.cli.main import app
from millpond.cli.spark_flags import read_spark_conf
from millpond.errors import MillpondError


def test_settings_jars_and_packages() -> None:
    given = ["spark.a=1", " spark.b = x=y ", "spark.a=2"]
    assert read_spark_conf(given, jars="a.jar,b.jar", packages="g:n:1") == {
        "spark.a": "2",
        "spark.b": "x=y",
        "spark.jars": "a.jar,b.jar",
        "spark.jars.packages": "g:n:1",
    }
    assert read_spark_conf(["spark.jars=a.jar"]) == {"spark.jars": "a.jar"}


@pytest.mark.parametrize(
    ("given", "jars", "why"),
    [
        (["spark.a"], None, "'spark.a'"),
        (["=1"], None, "'=1'"),
        (["spark.jars=a.jar"], "b.jar", "--jars and --spark-conf spark.jars exclude each other"),
    ],
    ids=["no value", "no name", "twice"],
)
def test_what_is_no_setting(given: list[str], jars: str | None, why: str) -> None:
    with pytest.raises(MillpondError, match="CQL-214") as raised:
        read_spark_conf(given, jars=jars)
    assert why in str(raised.value)


#: The commands that start Spark; all others do without.
ON_SPARK = {"run", "serve", "shell", "demo", "bench"}


def test_every_command_that_starts_spark_has_the_flags() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    flags = {"--spark-conf", "--jars", "--packages"}
    having = {
        name
        for name, command in commands.items()
        if flags <= {option for parameter in command.params for option in parameter.opts}
    }
    assert having == ON_SPARK
    assert len(commands) > len(having)


def test_settings_of_a_benchmarks_spark() -> None:
    given = {"spark.a": "b c", "spark.jars.packages": "g:n:1"}
    assert submit_arguments(given) == (
        "--conf 'spark.a=b c' --conf spark.jars.packages=g:n:1 pyspark-shell"
    )
    with pytest.raises(MillpondError, match="CQL-214"):
        submit_arguments({"spark.master": "local"})
