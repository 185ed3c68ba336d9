"""The archive of Spark's classes: written once, used when it is whole, and never needed."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from millpond.runtime.spark.jvm.class_archive import ClassArchive, find_archive


@pytest.fixture
def homes(tmp_path: Path) -> tuple[Path, Path]:
    java, spark = tmp_path / "java", tmp_path / "spark"
    (java / "lib" / "server").mkdir(parents=True)
    (java / "lib" / "modules").write_bytes(b"m")
    (java / "lib" / "server" / "classes.jsa").write_bytes(b"c")
    (java / "bin").mkdir()
    (java / "bin" / "java").write_text("")
    (spark / "jars").mkdir(parents=True)
    return java, spark


def test_the_first_jvm_writes_it_and_the_next_uses_it(
    tmp_path: Path, homes: tuple[Path, Path]
) -> None:
    first = ClassArchive(tmp_path, *homes)
    assert first.options()[-1] == f"-XX:ArchiveClassesAtExit={first.file}"
    first.file.write_bytes(bytes(4096))  # a JVM was killed before it wrote the head
    assert not ClassArchive(tmp_path, *homes).is_there
    first.file.write_bytes(b"\xa8\xba\x0b\xf0" + bytes(4092))
    second = ClassArchive(tmp_path, *homes)
    assert second.options()[-1] == f"-XX:SharedArchiveFile={first.file}"


def test_another_spark_or_java_has_another_one(tmp_path: Path, homes: tuple[Path, Path]) -> None:
    java, spark = homes
    before = ClassArchive(tmp_path, java, spark).file
    os.utime(spark / "jars", (1, 1))
    after = ClassArchive(tmp_path, java, spark).file
    assert after != before
    os.utime(java / "lib" / "modules", (1, 1))
    assert ClassArchive(tmp_path, java, spark).file not in (before, after)


def test_what_nobody_has_used_for_a_month_is_removed(
    tmp_path: Path, homes: tuple[Path, Path]
) -> None:
    mine = ClassArchive(tmp_path, *homes).file
    mine.write_bytes(b"\xa8\xba\x0b\xf0")
    long_ago = time.time() - 40 * 86_400
    old, fresh = tmp_path / "spark-old.jsa", tmp_path / "spark-fresh.jsa"
    for file in (old, fresh):
        file.write_bytes(b"x")
    for file in (old, mine):
        os.utime(file, (long_ago, long_ago))
    ClassArchive(tmp_path, *homes).note_use()
    assert not old.exists()
    assert fresh.exists()
    assert mine.exists()


def test_it_lies_where_only_its_owner_writes(
    tmp_path: Path, homes: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    java, spark = homes
    monkeypatch.setenv("JAVA_HOME", str(java))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    found = find_archive(spark)
    assert found is not None
    assert found.file.parent == tmp_path / "cache" / "millpond"
    assert found.file.parent.stat().st_mode & 0o077 == 0
    found.file.parent.chmod(0o777)
    assert find_archive(spark) is None
    found.file.parent.chmod(0o700)
    (java / "lib" / "server" / "classes.jsa").unlink()
    assert find_archive(spark) is None
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")
    assert find_archive(spark) is None
