"""What clients may have a pond read: by path, format and option, links and patterns included."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from millpond.catalog.objects import SourceDef, StreamDef
from millpond.errors import MillpondError
from millpond.model.schema import Field, Schema
from millpond.service.definitions.access_policy import CLOSED, FORMATS, AccessPolicy
from millpond.state.outside_files import check_ordinary, check_within


@pytest.fixture
def root(tmp_path: Path) -> Path:
    inside = tmp_path / "allowed"
    inside.mkdir()
    (inside / "a.csv").write_text("1\n")
    (tmp_path / "secret.csv").write_text("2\n")
    (inside / "link.csv").symlink_to(tmp_path / "secret.csv")
    (inside / "away").symlink_to(tmp_path)
    return inside


def csv(path: object, **options: str) -> SourceDef:
    return SourceDef("csv", {"path": str(path), **options})


@pytest.mark.parametrize("format", [*FORMATS, "kafka", "socket", "jdbc", "binaryfile", "dataframe"])
def test_nothing_is_allowed_by_default(format: str, tmp_path: Path) -> None:
    with pytest.raises(MillpondError, match="POND-414"):
        CLOSED.confine(SourceDef(format, {"path": str(tmp_path)}), "CREATE STREAM …")


def test_without_using_there_is_nothing_to_allow() -> None:
    assert CLOSED.confine(None, "") is None
    pushed = SourceDef("push", {"op_column": "op"})
    assert CLOSED.confine(pushed, "") == pushed


@pytest.mark.parametrize(
    "path",
    ["a.csv", "*.csv", "", "missing/later.csv", "[a].csv", "./a.csv", "b*/..c", "a..b"],
)
def test_below_a_root_everything_is_allowed(root: Path, path: str) -> None:
    policy = AccessPolicy.of([root])
    confined = policy.confine(csv(f"{root}/{path}"), "")
    assert confined is not None
    assert confined.within == str(root)


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "{root}/../secret.csv",
        "{root}/link.csv",
        "{root}/away/secret.csv",
        "{root}/away/*.csv",
        "{root}/*/../../secret.csv",
        "{root}/{{a.csv,../secret.csv}}",
        "{root}/{{../secret*,a.csv}}",
        "{root}/{{a.csv,../{{b,../{{c,../etc/pass*}}}}}}",
        "{root}/{{a.csv,..}}/*",
        "{root}/\\.\\./*",
        "{root}/\\../secret.csv",
        "{root}/aw*/secret.csv",
        "{root}/aw*/missing.csv",
        "{root}/{{away,b}}/secret*",
        "{root}/*/*",
        "{root}/a*y",
        "{root}x/a.csv",
        "file:/etc/passwd",
        "file:///etc/passwd",
        "http://127.0.0.1:1/a.csv",
        "s3a://bucket/a.csv",
        "hdfs://host/a.csv",
        "/proc/self/environ",
        "",
        "/",
        "relative.csv",
    ],
)
def test_what_leads_elsewhere_is_refused(root: Path, path: str) -> None:
    policy = AccessPolicy.of([root])
    with pytest.raises(MillpondError, match="POND-414") as refused:
        policy.confine(csv(path.format(root=root)), "CREATE STREAM …")
    assert "secret.csv" not in str(refused.value.detail)


def test_braces_choose_among_files_below_a_root(tmp_path: Path) -> None:
    (tmp_path / "2026").mkdir()
    for path in ("{a,b}.csv", "{2026,2027}/*.csv", "[^x]*/**/a.csv", "{a.csv,2026/b.csv}"):
        confined = AccessPolicy.of([tmp_path]).confine(csv(tmp_path / path), "")
        assert confined is not None
        assert confined.within == str(tmp_path)


@pytest.mark.parametrize(
    "option", ["cleansource", "sourcearchivedir", "basepath", "kafka.bootstrap.servers", "url"]
)
def test_options_that_name_other_things_are_refused(root: Path, option: str) -> None:
    with pytest.raises(MillpondError, match=f'POND-414.*"{option}"'):
        AccessPolicy.of([root]).confine(csv(root, **{option: "x"}), "")


def test_formats_are_those_of_files_or_those_named(root: Path) -> None:
    with pytest.raises(MillpondError, match="POND-414"):
        AccessPolicy.of([root]).confine(SourceDef("rate", {}), "")
    rate = AccessPolicy.of(formats=["RATE"]).confine(SourceDef("rate", {"rowspersecond": "1"}), "")
    assert rate is not None
    with pytest.raises(MillpondError, match="POND-414"):
        AccessPolicy.of([root], ["json"]).confine(csv(root), "")
    with pytest.raises(MillpondError, match=r"CQL-214.*jdbc"):
        AccessPolicy.of(formats=["jdbc"])
    with pytest.raises(MillpondError, match=r"CQL-214.*not a directory"):
        AccessPolicy.of([root / "a.csv"])


def test_files_are_held_against_the_directory_when_they_are_read(root: Path) -> None:
    confined = AccessPolicy.of([root]).confine(csv(root), "")
    stream = StreamDef(1, "s", Schema((Field("a", "INTEGER"),)), source=confined)
    check_within(stream, [str(root / "a.csv"), f"file://{root}/a.csv", f"file:{root}/a.csv"])
    for path in (root / "link.csv", root / "away" / "secret.csv"):
        with pytest.raises(MillpondError, match="POND-414") as refused:
            check_within(stream, [f"file:{path}"])
        assert "secret" not in str(refused.value)
        assert path.relative_to(root).parts[0] in str(refused.value)
    with pytest.raises(MillpondError, match="POND-414") as refused:
        check_within(stream, [f"file:{root}/../secret.csv"])
    assert "secret" not in str(refused.value)
    free = StreamDef(1, "s", stream.schema, source=csv(root))
    check_within(free, [str(root / "link.csv")])


def test_devices_and_the_kernels_files_are_no_files(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, Path("/proc/self/mem"), Path("/dev/zero"), Path("/sys/new"), Path("/proc")):
        with pytest.raises(MillpondError, match="DATA-502"):
            check_ordinary(path, "the source")
    check_ordinary(tmp_path / "not there yet", "the source")


def test_refusals_say_which_ports_are_allowed(root: Path) -> None:
    policy = AccessPolicy.of(
        [], ["postgres", "rate"], ["hooks.test", "10.0.0.0/8:9000"], ["db.test"]
    )
    with pytest.raises(MillpondError, match="POND-414") as refused:
        policy.confine_sink({"url": "http://hooks.test:8080/x"}, "CREATE SINK …")
    assert refused.value.detail == "Allowed are hooks.test:80, 10.0.0.0/8:9000."
    other = SourceDef("postgres", {"host": "db.test", "port": "5433"})
    with pytest.raises(MillpondError, match="POND-414") as refused:
        policy.confine(other, "CREATE RELATION …")
    assert refused.value.detail == "Allowed are databases at db.test:5432, and rate."
    with pytest.raises(MillpondError, match="POND-414") as refused:
        AccessPolicy.of([root]).confine(other, "CREATE RELATION …")
    assert refused.value.detail is not None
    assert "csv" in refused.value.detail
    assert "databases" not in refused.value.detail
