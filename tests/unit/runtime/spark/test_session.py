"""Which settings of Spark a user may give."""

from __future__ import annotations

import pytest

from millpond.errors import MillpondError
from millpond.runtime.spark.runtime import SparkRuntime
from millpond.runtime.spark.session import FIXED, check_conf


def test_settings_that_may_be_given() -> None:
    given = {"spark.jars.packages": "g:n:1", "spark.driver.memory": "3g"}
    assert check_conf(given) == given


@pytest.mark.parametrize("name", [*FIXED, "driver.memory", ""])
def test_settings_that_are_fixed(name: str) -> None:
    with pytest.raises(MillpondError, match="CQL-214") as raised:
        check_conf({"spark.driver.memory": "3g", name: "x"})
    assert f'"{name}"' in str(raised.value)


def test_a_session_that_is_given_has_its_settings() -> None:
    with pytest.raises(MillpondError, match="CQL-214: spark_conf cannot be given with a Spark"):
        SparkRuntime(None, object(), {"spark.a": "1"})  # type: ignore[arg-type]
