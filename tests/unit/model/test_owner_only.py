"""Files and directories for their owner only, whatever the umask."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from millpond.model.owner_only import (
    create_owner_only,
    make_directory,
    tighten,
    write_owner_only,
)


@pytest.fixture(autouse=True, params=[0, 0o022, 0o077])
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_what_is_made_is_its_owners(tmp_path: Path) -> None:
    make_directory(tmp_path / "a" / "b")
    make_directory(tmp_path / "a" / "b")
    create_owner_only(tmp_path / "a" / "b" / "empty")
    write_owner_only(tmp_path / "a" / "file", b"x")
    assert mode(tmp_path / "a") == mode(tmp_path / "a" / "b") == 0o700
    assert mode(tmp_path / "a" / "b" / "empty") == mode(tmp_path / "a" / "file") == 0o600


def test_tighten(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("")
    outside.chmod(0o644)
    top = tmp_path / "top"
    (top / "in").mkdir(parents=True)
    (top / "in" / "file").write_text("")
    for path, bits in ((top, 0o755), (top / "in", 0o777), (top / "in" / "file", 0o444)):
        path.chmod(bits)
    (top / "in" / "link").symlink_to(outside)
    tighten(top)
    assert mode(top) == mode(top / "in") == 0o700
    assert mode(top / "in" / "file") == 0o400  # what the owner may do stays
    assert mode(outside) == 0o644
