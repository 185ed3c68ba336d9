"""Settings of Spark, as commands take them."""

from __future__ import annotations

import pytest

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
