"""Which settings of Spark a user may give."""

from __future__ import annotations

from pathlib import Path
from zipfile import ZipFile

import pytest

from millpond.errors import MillpondError
from millpond.runtime.spark.jvm.given_settings import FIXED, check_conf


def test_settings_that_may_be_given() -> None:
    given = {"spark.jars.packages": "g:n:1", "spark.driver.memory": "3g"}
    assert check_conf(given) == given


@pytest.mark.parametrize("name", [*FIXED, "driver.memory", ""])
def test_settings_that_are_fixed(name: str) -> None:
    with pytest.raises(MillpondError, match="CQL-214") as raised:
        check_conf({"spark.driver.memory": "3g", name: "x"})
    assert f'"{name}"' in str(raised.value)


@pytest.mark.parametrize(
    ("name", "listed", "why"),
    [
        ("spark.jars.packages", "g:n:1,nonsense", '"nonsense" is no package'),
        ("spark.jars.packages", "g:n", '"g:n" is no package'),
        ("spark.jars.packages", "g:n:1:jar", '"g:n:1:jar" is no package'),
        ("spark.jars", "/no/such.jar", 'there is no archive "/no/such.jar"'),
        ("spark.jars", "file:/no/such.jar", 'there is no archive "file:/no/such.jar"'),
    ],
)
def test_packages_and_archives_that_spark_cannot_load(name: str, listed: str, why: str) -> None:
    with pytest.raises(MillpondError, match="CQL-214") as refused:
        check_conf({name: listed})
    assert why in str(refused.value)


def test_packages_and_archives_that_spark_may_load(tmp_path: Path) -> None:
    archive = tmp_path / "a.jar"
    with ZipFile(archive, "w") as made:
        made.writestr("META-INF/MANIFEST.MF", "")
    for listed in (str(archive), f"file://{archive}, {archive}", f"{tmp_path}/*.jar", "hdfs://h/x"):
        check_conf({"spark.jars": listed})
    check_conf({"spark.jars.packages": "g:n_2.13:1.0, g/n/2"})


@pytest.mark.parametrize("content", [b"", b"not an archive", None], ids=["empty", "text", "folder"])
def test_what_is_no_archive(tmp_path: Path, content: bytes | None) -> None:
    archive = tmp_path / "a.jar"
    if content is None:
        archive.mkdir()
    else:
        archive.write_bytes(content)
    for listed in (str(archive), f"file://{archive}", f"{tmp_path}/*.jar"):
        with pytest.raises(MillpondError, match="CQL-214") as refused:
            check_conf({"spark.jars": listed})
        assert f'"{archive}" is no Java archive' in str(refused.value)
