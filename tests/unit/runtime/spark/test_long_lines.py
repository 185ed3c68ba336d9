"""Files with lines that Spark should not read."""

from __future__ import annotations

import bz2
import gzip
import zlib
from pathlib import Path

import pyarrow as pa
import pytest

from millpond.errors import MillpondError
from millpond.runtime.spark import long_lines
from millpond.runtime.spark.long_lines import check_lines


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_lines, "MOST_LINE", 1_000)
    monkeypatch.setattr(long_lines, "MOST_WHOLE", 3_000)
    monkeypatch.setattr(long_lines, "_PIECE", 64)


def write(file: Path, data: bytes) -> str:
    packers = {".gz": gzip.compress, ".bz2": bz2.compress, ".deflate": zlib.compress}
    if file.suffix == ".zst":
        with pa.CompressedOutputStream(str(file), "zstd") as out:
            out.write(data)
    else:
        file.write_bytes(packers.get(file.suffix, bytes)(data))
    return f"file:{file}"


def is_refused(path: str, options: dict[str, str]) -> bool:
    try:
        check_lines(path, options)
    except MillpondError as error:
        return error.code == "DATA-502"
    return False


@pytest.mark.parametrize("suffix", ["", ".gz", ".bz2", ".deflate", ".zst"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_the_longest_line_counts(tmp_path: Path, suffix: str, end: str) -> None:
    stop = end.encode()
    for name, data, expected in (
        ("short", (b"x" * 990 + stop) * 30, False),
        ("last", (b"x" * 900 + stop) * 3 + b"x" * 1_001, True),
        ("middle", b"x" * 10 + stop + b"x" * 1_001 + stop + b"x", True),
        ("endless", b"x" * 100_000, True),
    ):
        path = write(tmp_path / f"{name}{suffix}", data)
        assert is_refused(path, {}) == expected, name


def test_lines_that_end_with_a_word(tmp_path: Path) -> None:
    options = {"linesep": "<end>"}
    assert not is_refused(write(tmp_path / "a", (b"x\n" * 495 + b"<end>") * 9), options)
    assert is_refused(write(tmp_path / "b", (b"x\n" * 505 + b"<end>") * 9), options)


@pytest.mark.parametrize("option", ["multiline", "wholetext"])
def test_a_file_that_is_one_text(tmp_path: Path, option: str) -> None:
    assert not is_refused(write(tmp_path / "a", b"x\n" * 1_500), {option: "true"})
    assert is_refused(write(tmp_path / "b.gz", b"x\n" * 5_000), {option: "TRUE"})


def test_what_cannot_be_read_is_left_to_spark(tmp_path: Path) -> None:
    (tmp_path / "torn.gz").write_bytes(b"\x1f\x8bno" * 100)
    for path in (f"file:{tmp_path}/torn.gz", f"file:{tmp_path}/away", "s3://bucket/a.gz"):
        check_lines(path, {})
